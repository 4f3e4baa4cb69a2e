"""Rollouts from actors to learners: slots in shared memory, and the record of which process may use which slot.

A slot is room for one rollout. It is handed to one actor at a time, as a numbered ticket; the actor fills it and says
so; an update learns from the oldest full ones; then their slots are free again. Only tickets travel between processes.

Memory model: a slot has one owner at a time, and ownership passes with a message over a socket, which orders the memory
of sender and receiver. Two stamps, written before and after the content, are a check and not the synchronisation: a
reader refuses a slot whose stamps are not its ticket's.
"""

from collections import deque
from dataclasses import replace
from itertools import accumulate
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rlcb.comm.shared_memory import mapped
from rlcb.comm.tickets import Filled, Ticket
from rlcb.comm.versioned_weights import VersionedWeights
from rlcb.envs.base import EnvSpec
from rlcb.rollout import Rollout, make_rollout

_ALIGNED = 64  # bytes of a cache line: every tensor begins on one


class SlotBook:
    """Who has which slot. No ticket is handed out that is `num_slots` ahead of the oldest one that is not filled yet.

    So while one rollout is in progress, no more than 2 · (num_slots − 1) others can be learned from.
    """

    def __init__(self, num_slots: int, per_update: int):
        self.num_slots, self.per_update = num_slots, per_update
        self._next = 0  # number of the next new ticket
        self._returned: list[Ticket] = []  # of actors that were lost, to be handed out first
        self._under_way: dict[int, Ticket] = {}  # by actor
        self._full: deque[Ticket] = deque()  # in the order in which they were filled
        self._learning: dict[int, Ticket] = {}  # by number

    @property
    def depth(self) -> int:
        """Rollouts that are full and not learned from yet."""
        return len(self._full) + len(self._learning)

    def hand_out(self, actor: int) -> Ticket | None:
        """A slot for this actor to fill, or None while all are taken."""
        assert actor not in self._under_way, "an actor fills one slot at a time"
        if self._returned:
            ticket = self._returned.pop(0)
        else:
            waiting = [*self._under_way.values(), *self._full, *self._learning.values()]
            oldest = min((ticket.number for ticket in self._under_way.values()), default=self._next)
            free = set(range(self.num_slots)) - {ticket.slot for ticket in waiting}
            if self._next >= oldest + self.num_slots or not free:
                return None
            ticket = Ticket(self._next, min(free))
            self._next += 1
        self._under_way[actor] = replace(ticket, actor=actor)
        return self._under_way[actor]

    def filled(self, ticket: Ticket) -> None:
        """An actor has filled its slot."""
        handed = self._under_way.pop(ticket.actor)
        assert handed.number == ticket.number
        self._full.append(ticket)

    def lost(self, actor: int) -> None:
        """An actor is gone: what it was filling is worth nothing, what it had filled before stays."""
        ticket = self._under_way.pop(actor, None)
        if ticket:
            self._returned.append(Ticket(ticket.number, ticket.slot))
            self._returned.sort(key=lambda returned: returned.number)

    def take(self) -> tuple[Ticket, ...] | None:
        """The rollouts of the next update, in the order in which they were filled; None while there are too few."""
        if len(self._full) < self.per_update:
            return None
        taken = tuple(self._full.popleft() for _ in range(self.per_update))
        self._learning |= {ticket.number: ticket for ticket in taken}
        return taken

    def learned(self, tickets: tuple[Ticket, ...]) -> None:
        """An update is done: its slots are free."""
        for ticket in tickets:
            del self._learning[ticket.number]


def lag_bound(num_slots: int, per_update: int, policy_update_frequency: int) -> int:
    """The most updates that can lie between the policy that acted and the one that learns from it."""
    return 2 * (num_slots - 1) // per_update + policy_update_frequency - 1


class SlotMemory:
    """The slots themselves, in memory without a name that every process of a run has mapped."""

    def __init__(self, descriptor: int, num_slots: int, n_steps: int, num_envs: int, spec: EnvSpec):
        shapes = list(vars(make_rollout(n_steps, num_envs, spec, device="meta")).values())
        lengths = [-(-tensor.nbytes // _ALIGNED) * _ALIGNED for tensor in shapes]
        *offsets, size = accumulate(lengths, initial=_ALIGNED)  # the first line is for stamps
        memory = mapped(descriptor, num_slots * size)
        self.content = np.frombuffer(memory, np.uint8, count=num_slots * size)
        self._rollouts, self._stamps = [], []
        for start in range(0, num_slots * size, size):
            tensors = [
                torch.frombuffer(memory, dtype=shape.dtype, count=shape.numel(), offset=start + offset).view_as(shape)
                for shape, offset in zip(shapes, offsets, strict=True)
            ]
            self._rollouts.append(Rollout(*tensors))
            self._stamps.append(np.frombuffer(memory, np.int64, count=2, offset=start))

    def begin(self, ticket: Ticket) -> Rollout:
        """The slot to write to; whatever it says is not whole until `finish`."""
        self._stamps[ticket.slot][:] = (ticket.stamp, 0)
        return self._rollouts[ticket.slot]

    def finish(self, ticket: Ticket) -> None:
        """The slot is whole."""
        self._stamps[ticket.slot][1] = ticket.stamp

    def read(self, ticket: Ticket) -> Rollout:
        """The rollout that this ticket stands for; anything else in its slot is refused."""
        begun, finished = map(int, self._stamps[ticket.slot])
        if not begun == finished == ticket.stamp:
            raise RuntimeError(f"slot {ticket.slot} holds {begun}/{finished}, not the whole rollout {ticket.stamp}")
        return self._rollouts[ticket.slot]


class RolloutTransport:
    """An actor's way to the learners: it writes its rollout where they read it; on a cluster that is overridden."""

    def __init__(self, channel: Any, slots: SlotMemory, published: VersionedWeights):
        """`channel`: to the supervisor."""
        self._channel, self._slots, self._published = channel, slots, published

    def take(self, weights: Tensor) -> Ticket:
        """Wait for a ticket, then fill `weights` with the newest policy; the ticket says which version that is."""
        handed: Ticket = self._channel.recv()
        return replace(handed, version=self._published.read(weights))

    def begin(self, ticket: Ticket) -> Rollout:
        """The memory to collect this ticket's rollout into."""
        return self._slots.begin(ticket)

    def deliver(self, filled: Filled) -> None:
        """Hand over the rollout, which is whole now; only its ticket is sent."""
        self._slots.finish(filled.ticket)
        self._channel.send(filled)
