"""An actor process: owns environments and a copy of the policy, fills slots. `python -m rlcb.execution.actor`."""

import time
from dataclasses import replace
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any, Protocol

from rlcb.execution.entry import serve
from rlcb.execution.messages import ActorSetup, Filled, Started, Ticket

if TYPE_CHECKING:
    from torch import Tensor

    from rlcb.comm.process_group import Control
    from rlcb.comm.rollout_slots import SlotMemory
    from rlcb.comm.versioned_weights import Bulletin
    from rlcb.rollout import Rollout


def work(channel: "Connection[Any, Any]", setup: ActorSetup, control: "Control") -> None:
    """Fill the slots that the supervisor hands out, each with the newest policy and with that one alone."""
    import torch

    from rlcb.collector import Collector
    from rlcb.comm.rollout_slots import SlotMemory
    from rlcb.comm.versioned_weights import Bulletin
    from rlcb.envs.episodes import EpisodeCounter
    from rlcb.envs.families import make_env
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
    if setup.memory:
        slots = SlotMemory(setup.memory.slots, setup.num_slots, config.training.n_steps, num_envs, env.spec)
        desk: Desk = SharedDesk(channel, slots, Bulletin(setup.memory.weights, weights.numel()))
    else:
        from rlcb.cluster.transport import RemoteDesk

        desk = RemoteDesk(channel, config.training.n_steps, num_envs, env.spec)
    channel.send(Started(num_envs))
    count, idle_since = 0, time.perf_counter()
    while True:
        handed = desk.take(weights)
        waited = time.perf_counter() - idle_since
        ticket = replace(handed, life=setup.life, rollout=count)
        collector.collect(desk.begin(ticket))
        seconds = {"env": collector.env_seconds, "acting": collector.acting_seconds, "waiting": waited}
        count, idle_since = count + 1, time.perf_counter()
        desk.deliver(Filled(ticket, seconds))


class Desk(Protocol):
    """Where an actor gets its tickets and its policy, and leaves its rollouts."""

    def take(self, weights: "Tensor") -> Ticket:
        """Wait for a ticket, then fill `weights` with the newest policy; the ticket says which version that is."""

    def begin(self, ticket: Ticket) -> "Rollout":
        """Where to collect what this ticket is for."""

    def deliver(self, filled: Filled) -> None:
        """It is collected."""


class SharedDesk:
    """In memory that actors and learners have mapped: the rollout is where it is learned from."""

    def __init__(self, channel: "Connection[Any, Any]", slots: "SlotMemory", published: "Bulletin"):
        self._channel, self._slots, self._published = channel, slots, published

    def take(self, weights: "Tensor") -> Ticket:
        """A ticket from the supervisor, a policy from the bulletin."""
        handed: Ticket = self._channel.recv()
        return replace(handed, version=self._published.read(weights))

    def begin(self, ticket: Ticket) -> "Rollout":
        """The slot itself."""
        return self._slots.begin(ticket)

    def deliver(self, filled: Filled) -> None:
        """Only its number travels."""
        self._slots.finish(filled.ticket)
        self._channel.send(filled)


if __name__ == "__main__":
    serve(work)
