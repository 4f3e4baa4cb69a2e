"""The role `actor`: owns environments and a copy of the policy, and fills rollout slots for the learners."""

import time
from dataclasses import replace

import torch
from torch import Tensor

from rlcb.collector import Collector
from rlcb.comm.control import Heartbeat
from rlcb.comm.tickets import Filled
from rlcb.envs.episodes import EpisodeCounter
from rlcb.envs.families import make_env
from rlcb.envs.groups import EnvGroups
from rlcb.execution.entry import WorkerContext
from rlcb.execution.messages import ActorSetup, Started
from rlcb.execution.worker import make_policy, seeds
from rlcb.gpu.collector import GpuCollector
from rlcb.gpu.device import gpu_computation, prepare_gpu
from rlcb.gpu.memory import make_rollout_memory
from rlcb.learner import flattened
from rlcb.networks.computation import Computation
from rlcb.run.gpu_failures import gpu_failures, less_memory


def work(context: WorkerContext, setup: ActorSetup) -> None:
    """Fill the slots that the supervisor hands out, each with the newest policy and with that one alone."""
    with gpu_failures(less_memory(setup.config.algorithm)):
        _act_on(context, setup)


def _act_on(context: WorkerContext, setup: ActorSetup) -> None:
    heartbeat = Heartbeat(context.control, setup.index)
    make = make_collector if setup.device == "cpu" else make_gpu_collector
    collector, weights = make(setup, heartbeat)
    transport = context.transport(setup, collector.env.spec, weights.numel())
    context.channel.send(Started(setup.num_envs))
    count, idle_since = 0, time.perf_counter()
    while True:
        handed = transport.take(weights)
        waited = time.perf_counter() - idle_since
        ticket = replace(handed, incarnation=setup.incarnation, rollout=count)
        collector.collect(transport.begin(ticket))
        seconds = {"env": collector.env_seconds, "acting": collector.acting_seconds, "waiting": waited}
        count, idle_since = count + 1, time.perf_counter()
        transport.deliver(Filled(ticket, seconds))


def make_collector(setup: ActorSetup, heartbeat: Heartbeat) -> tuple[Collector, Tensor]:
    """What acts on this process's core, and the weights that it acts with."""
    config = setup.config
    acting, _, envs = seeds(config.env.seed, *setup.seed_key)
    env = make_env(config.env, setup.num_envs, envs, num_threads=0)
    policy = make_policy(config, env.spec)
    weights = flattened(policy)
    computation, generator = Computation(policy, config.hardware.precision), torch.Generator().manual_seed(acting)
    counter = EpisodeCounter(setup.num_envs)
    return Collector(env, computation, config.training.n_steps, generator, counter, heartbeat), weights


def make_gpu_collector(setup: ActorSetup, heartbeat: Heartbeat) -> tuple[GpuCollector, Tensor]:
    """What acts on a GPU, compiled and recorded where that is done, and the weights that it acts with, there."""
    config, hardware, device = setup.config, setup.config.hardware, setup.device
    assert isinstance(hardware.env_groups, int)
    prepare_gpu(hardware.deterministic)
    acting, _, envs = seeds(config.env.seed, *setup.seed_key)
    env = EnvGroups(config.env, setup.num_envs, envs, setup.env_threads, hardware.env_groups)
    policy = make_policy(config, env.spec).to(device)
    weights = flattened(policy)
    computation = gpu_computation(policy, hardware)
    memory = make_rollout_memory(config.training.n_steps, setup.num_envs, env.spec, device)
    generator, counter = torch.Generator(device).manual_seed(acting), EpisodeCounter(setup.num_envs)
    recorded = hardware.compile is not False
    collector = GpuCollector(env, computation, memory, generator, counter, heartbeat, recorded)
    collector.prepare()
    return collector, weights
