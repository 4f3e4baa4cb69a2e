"""The book of slots against a slow account of every ticket; the memory of the slots against what must not be read."""

import itertools
import os
import random
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from helpers.slot_account import Account
from rlcb.comm.rollout_slots import SlotBook, SlotMemory, lag_bound
from rlcb.comm.tickets import Ticket
from rlcb.envs.base import EnvSpec

MOST_ACTORS = 5


class Bookkeeping(RuleBasedStateMachine):
    """Actors ask, deliver and die, learners learn, in any order."""

    @initialize(
        per_update=st.integers(1, 4),
        spare=st.integers(0, 5),
        actors=st.integers(1, MOST_ACTORS),
        frequency=st.integers(1, 3),
    )
    def begin(self, per_update: int, spare: int, actors: int, frequency: int) -> None:
        self.account = Account(per_update + spare, per_update, actors, frequency)

    @precondition(lambda self: self.account.idle)
    @rule(which=st.integers(0, MOST_ACTORS - 1))
    def ask(self, which: int) -> None:
        self.account.ask(self.account.idle[which % len(self.account.idle)])

    @precondition(lambda self: self.account.held)
    @rule(which=st.integers(0, MOST_ACTORS - 1))
    def deliver(self, which: int) -> None:
        self.account.deliver(list(self.account.held)[which % len(self.account.held)])

    @rule(which=st.integers(0, MOST_ACTORS - 1))
    def lose(self, which: int) -> None:
        self.account.lose(which % len(self.account.counts))

    @precondition(lambda self: len(self.account.full) >= self.account.per_update)
    @rule()
    def take(self) -> None:
        assert self.account.take()

    @precondition(lambda self: self.account.orders)
    @rule()
    def learn(self) -> None:
        self.account.learn()

    @invariant()
    def no_slot_is_held_by_two(self) -> None:
        account = getattr(self, "account", None)
        if account:
            account.check()

    def teardown(self) -> None:
        account = getattr(self, "account", None)
        if account:
            account.everybody_delivers()
            account.come_to_rest()


Bookkeeping.TestCase.settings = settings(
    max_examples=150, stateful_step_count=60, deadline=None, report_multiple_bugs=False
)
TestBookkeeping = Bookkeeping.TestCase


@settings(max_examples=120, deadline=None)
@given(
    per_update=st.integers(1, 4),
    spare=st.integers(0, 5),
    speeds=st.lists(st.sampled_from([0.02, 0.2, 1.0]), min_size=1, max_size=MOST_ACTORS),
    learning=st.sampled_from([0.05, 0.3, 1.0]),
    p_lost=st.sampled_from([0.0, 0.01, 0.1]),
    frequency=st.integers(1, 3),
    seed=st.integers(0, 10**6),
)
def test_actors_of_any_speed(
    per_update: int, spare: int, speeds: list[float], learning: float, p_lost: float, frequency: int, seed: int
) -> None:
    account, draw = Account(per_update + spare, per_update, len(speeds), frequency), random.Random(seed)
    for _ in range(150):
        for actor in list(account.idle):
            account.ask(actor)
        for actor in list(account.held):
            if draw.random() < p_lost:
                account.lose(actor)
            elif draw.random() < speeds[actor]:
                account.deliver(actor)
        while len(account.orders) < 2 and account.take():
            pass
        if account.orders and draw.random() < learning:
            account.learn()
        account.check()
    account.everybody_delivers()
    account.come_to_rest()


@pytest.mark.parametrize(("num_slots", "per_update"), [(3, 1), (4, 2), (5, 3), (6, 3), (8, 4), (9, 4)])
def test_the_slowest_actor_makes_the_lag_that_the_bound_allows(num_slots: int, per_update: int) -> None:
    account = Account(num_slots, per_update, num_actors=num_slots, frequency=1)
    for actor in range(num_slots):
        assert account.ask(actor)
    slowest, moved = num_slots - 1, True
    while moved:
        moved = False
        for actor in [actor for actor in account.held if actor != slowest]:
            account.deliver(actor)
        while account.take():
            account.learn()
        for actor in list(account.idle):
            moved |= account.ask(actor)
    account.everybody_delivers()
    account.come_to_rest()
    assert account.greatest_lag == lag_bound(num_slots, per_update, 1)


def test_an_actor_fills_one_slot_at_a_time() -> None:
    book = SlotBook(4, 1)
    book.hand_out(0)
    with pytest.raises(AssertionError):
        book.hand_out(0)


SPECS = [
    EnvSpec((4,), np.dtype(np.float32), 2),
    EnvSpec((5, 7, 3), np.dtype(np.uint8), 15),
    EnvSpec((), np.dtype(np.float32), 3),
]


@pytest.fixture
def descriptor() -> Iterator[int]:
    number = os.memfd_create("slots")
    yield number
    os.close(number)


def a_ticket(**values: int) -> Ticket:
    return replace(Ticket(number=7, slot=1, actor=3, incarnation=2, rollout=5, version=4), **values)


def test_a_whole_rollout_is_read_through_another_mapping(descriptor: int) -> None:
    writer, reader = (SlotMemory(descriptor, 3, 4, 2, SPECS[0]) for _ in range(2))
    rollout = writer.begin(a_ticket())
    for index, tensor in enumerate(vars(rollout).values()):
        tensor.copy_(torch.arange(tensor.numel()).view(tensor.shape) % (index + 2))
    writer.finish(a_ticket())
    for index, tensor in enumerate(vars(reader.read(a_ticket())).values()):
        expected = torch.arange(tensor.numel()).view(tensor.shape) % (index + 2)
        assert torch.equal(tensor, expected.to(tensor.dtype))


def test_what_is_not_the_whole_rollout_is_refused(descriptor: int) -> None:
    writer, reader = (SlotMemory(descriptor, 3, 4, 2, SPECS[0]) for _ in range(2))
    mine, others = a_ticket(), [a_ticket(incarnation=3), a_ticket(rollout=6), a_ticket(actor=2), a_ticket(slot=2)]

    def assert_refused(*tickets: Ticket) -> None:
        for ticket in tickets:
            with pytest.raises(RuntimeError, match=f"slot {ticket.slot} holds"):
                reader.read(ticket)

    assert_refused(mine, *others)  # nobody has written anything
    writer.begin(mine)
    assert_refused(mine, *others)
    writer.finish(mine)
    reader.read(mine)
    assert_refused(*others)
    writer.begin(mine)
    assert_refused(mine)  # whole once, but being written again
    writer.finish(mine)
    writer.begin(others[0])
    assert_refused(mine, *others)
    writer.finish(others[0])
    reader.read(others[0])
    assert_refused(mine)
    writer.begin(mine)
    writer.finish(others[0])  # by an actor that should be gone
    assert_refused(mine, *others)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 6), st.integers(1, 9), st.integers(1, 9), st.sampled_from(SPECS))
def test_tensors_of_all_slots_have_places_of_their_own(num_slots: int, T: int, B: int, spec: EnvSpec) -> None:
    descriptor = os.memfd_create("slots")
    memory = SlotMemory(descriptor, num_slots, T, B, spec)
    tickets = [Ticket(number=slot, slot=slot, actor=slot) for slot in range(num_slots)]
    tensors = [tensor for ticket in tickets for tensor in vars(memory.begin(ticket)).values()]
    raw = [tensor.numpy().reshape(-1).view(np.uint8) for tensor in tensors]
    for index, array in enumerate(raw):
        array[:] = index % 255 + 1
    for ticket in tickets:
        memory.finish(ticket)
    for index, array in enumerate(raw):
        assert (array == index % 255 + 1).all()
    for ticket in tickets:
        assert memory.read(ticket).observations.shape == (T + 1, B, *spec.observation_shape)
    places = sorted((tensor.data_ptr(), tensor.nbytes) for tensor in tensors)
    assert all(first + size <= second for (first, size), (second, _) in itertools.pairwise(places))
    assert all(place % 64 == 0 for place, _ in places)
    os.close(descriptor)


LAST_ROLLOUT, LAST_LIFE = 2**32 - 2, 2**16 - 1
LIVES = st.tuples(st.integers(0, 1023), st.integers(0, LAST_LIFE), st.integers(0, LAST_ROLLOUT))


@settings(max_examples=200, deadline=None)
@given(LIVES, LIVES)
def test_stamps_never_collide(one: tuple[int, int, int], other: tuple[int, int, int]) -> None:
    first, second = (Ticket(0, 0, *each) for each in (one, other))
    assert (first.stamp < second.stamp, first.stamp == second.stamp) == (one < other, one == other)
    assert 0 < first.stamp < 2**63, "0 is what memory says before anybody wrote to it"
    assert replace(first, number=9, slot=3, version=8).stamp == first.stamp
    actor, life, _ = one
    newborn = replace(first, incarnation=life + 1, rollout=0) if life < LAST_LIFE else Ticket(0, 0, actor + 1)
    assert replace(first, rollout=LAST_ROLLOUT).stamp < newborn.stamp
    assert Ticket(0, 0, actor, LAST_LIFE, LAST_ROLLOUT).stamp < Ticket(0, 0, actor + 1).stamp
