"""The role `actor`: owns environments and a copy of the policy, and fills rollout slots for the learners."""

import time
from dataclasses import replace

import torch

from rlcb.collector import Collector
from rlcb.comm.control import Heartbeat
from rlcb.comm.tickets import Filled
from rlcb.envs.episodes import EpisodeCounter
from rlcb.envs.families import make_env
from rlcb.execution.entry import WorkerContext
from rlcb.execution.messages import ActorSetup, Started
from rlcb.execution.worker import make_policy, seeds
from rlcb.learner import flattened
from rlcb.networks.computation import Computation


def work(context: WorkerContext, setup: ActorSetup) -> None:
    """Fill the slots that the supervisor hands out, each with the newest policy and with that one alone."""
    config = setup.config
    acting, _, envs = seeds(config.env.seed, *setup.seed_key)
    env = make_env(config.env, setup.num_envs, envs, num_threads=0)
    policy = make_policy(config, env.spec)
    weights = flattened(policy)
    collector = Collector(
        env,
        Computation(policy, config.hardware.precision),
        config.training.n_steps,
        torch.Generator().manual_seed(acting),
        EpisodeCounter(setup.num_envs),
        Heartbeat(context.control, setup.index),
    )
    transport = context.transport(setup, env.spec, weights.numel())
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
