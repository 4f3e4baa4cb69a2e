"""A slow account of every ticket that a book of slots gives out, kept beside the book."""

from collections import deque
from dataclasses import dataclass, replace

from rlcb.comm.rollout_slots import SlotBook, lag_bound
from rlcb.comm.tickets import Ticket


@dataclass
class Entry:
    """All that has happened to one ticket."""

    slot: int
    state: str  # under way, returned, full, learning, learned
    learned_before: int  # rollouts learned from when it was handed out last
    version: int  # of the newest policy then


class Account:
    """A book and what is known about every ticket it ever gave; complains as soon as the two do not fit."""

    def __init__(self, num_slots: int, per_update: int, num_actors: int, frequency: int):
        self.book = SlotBook(num_slots, per_update)
        self.num_slots, self.per_update, self.frequency = num_slots, per_update, frequency
        self.entries: list[Entry] = []  # by number
        self.held: dict[int, Ticket] = {}  # by actor
        self.idle = list(range(num_actors))
        self.counts = [0] * num_actors  # rollouts that each actor has filled
        self.learned_of: list[list[int]] = [[] for _ in range(num_actors)]
        self.full: list[Ticket] = []
        self.orders: deque[tuple[Ticket, ...]] = deque()
        self.updates = self.published = 0
        self.greatest_lag = 0

    def numbers(self, *states: str) -> list[int]:
        """The tickets in one of these states."""
        return [number for number, entry in enumerate(self.entries) if entry.state in states]

    def taken_slots(self) -> list[int]:
        """Slots that must not be given to anybody."""
        return [self.entries[number].slot for number in self.numbers("under way", "returned", "full", "learning")]

    def ask(self, actor: int) -> bool:
        """An idle actor wants a slot; whether it got one."""
        returned, taken = self.numbers("returned"), self.taken_slots()
        ticket = self.book.hand_out(actor)
        if ticket is None:
            assert not returned, "a lost actor's ticket was not handed out again"
            assert self.held or len(taken) == self.num_slots, "nobody is at work, a slot is free, and nobody gets it"
            return False
        if returned:
            assert ticket.number == min(returned)
            assert ticket.slot == self.entries[ticket.number].slot
        else:
            assert ticket.number == len(self.entries)
            assert ticket.slot in set(range(self.num_slots)) - set(taken)
            self.entries.append(Entry(ticket.slot, "", 0, 0))
        assert ticket.actor == actor
        learned = len(self.numbers("learned"))
        self.entries[ticket.number] = Entry(ticket.slot, "under way", learned, self.published)
        self.held[actor] = ticket
        self.idle.remove(actor)
        return True

    def deliver(self, actor: int) -> None:
        """An actor has filled its slot, with the policy that was the newest when it got it: it cannot be older."""
        ticket = self.held.pop(actor)
        ticket = replace(ticket, rollout=self.counts[actor], version=self.entries[ticket.number].version)
        self.counts[actor] += 1
        self.book.filled(ticket)
        self.entries[ticket.number].state = "full"
        self.full.append(ticket)
        self.idle.append(actor)

    def lose(self, actor: int) -> None:
        """An actor is gone and another takes its place."""
        self.book.lost(actor)
        if actor in self.held:
            self.entries[self.held.pop(actor).number].state = "returned"
            self.idle.append(actor)

    def take(self) -> bool:
        """The next update is ordered, if there is enough for it; it must get what was filled first."""
        taken, expected = self.book.take(), self.full[: self.per_update]
        if len(expected) < self.per_update:
            assert taken is None
            return False
        assert taken is not None
        assert list(taken) == expected
        del self.full[: self.per_update]
        for ticket in taken:
            assert self.entries[ticket.number].state == "full"
            self.entries[ticket.number].state = "learning"
        self.orders.append(taken)
        return True

    def learn(self) -> None:
        """The oldest update that was ordered is done."""
        tickets, before = self.orders.popleft(), len(self.numbers("learned"))
        for ticket in tickets:
            entry = self.entries[ticket.number]
            self.greatest_lag = max(self.greatest_lag, self.updates - ticket.version)
            assert before - entry.learned_before <= 2 * (self.num_slots - 1)
            assert self.updates - ticket.version <= lag_bound(self.num_slots, self.per_update, self.frequency)
            assert entry.state == "learning"
            entry.state = "learned"
            self.learned_of[ticket.actor].append(ticket.rollout)
        self.book.learned(tickets)
        self.updates += 1
        if self.updates % self.frequency == 0:
            self.published = self.updates

    def check(self) -> None:
        """What holds at any time."""
        taken = self.taken_slots()
        assert len(set(taken)) == len(taken)
        assert self.book.depth == len(self.numbers("full", "learning"))

    def everybody_delivers(self) -> None:
        """All actors fill what they have and take what they get: there must be another update soon, whatever was."""
        for _ in range(self.per_update + 1):
            for actor in list(self.held):
                self.deliver(actor)
            progress = self.take()
            while self.orders:
                self.learn()
            if progress:
                return
            assert [actor for actor in list(self.idle) if self.ask(actor)], "every actor waits, and so does learning"
        raise AssertionError("no update although every actor delivers")

    def come_to_rest(self) -> None:
        """What is under way is finished and learned from, as far as it makes whole updates; nothing may be missing."""
        while self.held or self.orders or self.numbers("returned") or len(self.full) >= self.per_update:
            for actor in list(self.held):
                self.deliver(actor)
            while self.take():
                self.learn()
            while self.orders:
                self.learn()
            if self.numbers("returned"):
                assert self.ask(self.idle[0])
        assert sorted(self.numbers("full", "learned")) == list(range(len(self.entries)))
        for actor, count in enumerate(self.counts):
            kept = [ticket.rollout for ticket in self.full if ticket.actor == actor]
            assert self.learned_of[actor] + kept == list(range(count))
