"""An actor process: owns environments and a copy of the policy, fills slots. `python -m rlcb.execution.actor`."""

import time
from dataclasses import replace
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

from rlcb.execution.child import serve
from rlcb.execution.messages import ActorSetup, Filled, Started, Ticket

if TYPE_CHECKING:
    from rlcb.group import Control


def _work(channel: "Connection[Any, Any]", setup: ActorSetup, control: "Control") -> None:
    """Fill the slots that the supervisor hands out, each with the newest policy and with that one alone."""
    import torch

    from rlcb.collector import Collector
    from rlcb.envs import make_env
    from rlcb.envs.episodes import EpisodeCounter
    from rlcb.execution.bulletin import Bulletin
    from rlcb.execution.slots import SlotMemory
    from rlcb.execution.state import make_policy, seeds
    from rlcb.learner import flattened

    config, num_envs = setup.config, setup.config.parallel.num_envs_per_worker
    assert num_envs is not None
    acting, _, envs = seeds(config.env.seed, *setup.seed_key)
    env = make_env(config.env, num_envs, envs, num_threads=0)
    policy = make_policy(config, env.spec)
    weights = flattened(policy)

    def alive() -> None:
        control.heartbeats[setup.actor] += 1

    collector = Collector(
        env, policy, config.training.n_steps, "cpu", torch.Generator().manual_seed(acting),
        EpisodeCounter(num_envs), alive,
    )  # fmt: skip
    slots = SlotMemory(setup.memory.slots, setup.num_slots, config.training.n_steps, num_envs, env.spec)
    published = Bulletin(setup.memory.weights, weights.numel())
    channel.send(Started(num_envs))
    count, idle_since = 0, time.perf_counter()
    while True:
        handed: Ticket = channel.recv()
        waited = time.perf_counter() - idle_since
        ticket = replace(handed, life=setup.life, rollout=count, version=published.read(weights))
        collector.collect(slots.begin(ticket))
        slots.finish(ticket)
        seconds = {"env": collector.env_seconds, "acting": collector.acting_seconds, "waiting": waited}
        count, idle_since = count + 1, time.perf_counter()
        channel.send(Filled(ticket, seconds))


if __name__ == "__main__":
    serve(_work)
