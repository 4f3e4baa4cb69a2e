"""Real slots, filled by real processes that are killed at any moment: what is learned from is whole, and all of it."""

import os
import random
import time
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import astuple, fields, replace
from multiprocessing.connection import wait
from typing import Any

import numpy as np
import pytest

from helpers.processes import ROOT
from helpers.slot_actor import LightMemory, LightSetup, Place, pattern
from rlcb.comm.control import Control
from rlcb.comm.pool import LocalWorker, WorkerDied
from rlcb.comm.rollout_slots import SlotBook, SlotMemory, lag_bound
from rlcb.comm.tickets import Filled, Ticket
from rlcb.config.load import build_config
from rlcb.envs.base import EnvSpec
from rlcb.execution.messages import ActorSetup, SharedMemory, Started

ROLLOUTS, KILLS, ACTORS, SLOTS, PER_UPDATE, FREQUENCY = 2000, 24, 4, 8, 4, 2
SETTLED = 300  # rollouts learned from before the first kill: every actor has had its turn several times
PATIENCE = 3.0  # seconds
SPEC = EnvSpec((3, 5), np.dtype(np.uint8), 4)
T, B = 4, 3


def light_setup(memory: SlotMemory, setup: ActorSetup) -> LightSetup:
    """Where this memory has everything, for a process that does not know SlotMemory."""
    base = memory._stamps[0].ctypes.data
    places = tuple(
        tuple(
            Place(tensor.data_ptr() - base, tuple(tensor.shape), tensor.numpy().dtype.str)
            for tensor in vars(rollout).values()
        )
        for rollout in memory._rollouts
    )
    stamps = tuple(each.ctypes.data - base for each in memory._stamps)
    return LightSetup(setup, 1, os.fstat(setup.memory.slots).st_size, stamps, places)


@pytest.fixture
def shared() -> Iterator[SharedMemory]:
    memory = SharedMemory(*(os.memfd_create(field.name) for field in fields(SharedMemory)))
    yield memory
    for descriptor in astuple(memory):
        os.close(descriptor)


def actor_setup(shared: SharedMemory, actor: int = 0, life: int = 0, seed: int = 0) -> ActorSetup:
    config = build_config(None, {"n_steps": ("n_steps", T)}, algorithm="impala")
    return ActorSetup(config, actor, life, 1, B, SLOTS, shared, (seed,))


class Torture:
    """The supervisor's and the learner's part, with somebody who kills."""

    def __init__(self, shared: SharedMemory, seed: int):
        self.shared, self.seed, self.draw = shared, seed, random.Random(seed)
        self.book, self.memory = SlotBook(SLOTS, PER_UPDATE), SlotMemory(shared.slots, SLOTS, T, B, SPEC)
        self.control = Control(os.memfd_create("control"), ACTORS)
        os.ftruncate(shared.weights, 8)
        self.lives, self.filled = [0] * ACTORS, Counter[tuple[int, int]]()  # rollouts by (actor, life)
        self.processes: list[LocalWorker] = []
        self.ready: set[LocalWorker] = set()
        self.idle: deque[int] = deque()
        self.held: dict[int, Ticket] = {}
        self.orders: deque[tuple[Ticket, ...]] = deque()
        self.learned: set[int] = set()  # numbers of tickets
        self.learned_of = Counter[tuple[int, int]]()  # rollouts by (actor, life)
        self.updates = self.killed = self.greatest_lag = 0
        self.ends = Counter[str]()
        self.left_half = self.left_whole = 0  # slots that a lost actor left behind
        self.kill_at = deque(sorted(self.draw.sample(range(SETTLED, ROLLOUTS - 100), KILLS)))

    def start(self, actor: int) -> LocalWorker:
        setup = actor_setup(self.shared, actor, self.lives[actor], self.seed)
        light = light_setup(self.memory, setup)
        return LocalWorker("actor", actor, light, self.control, astuple(self.shared), "helpers.slot_actor")

    def run(self) -> None:
        """Until the first 2,000 tickets are learned from."""
        self.processes = [self.start(actor) for actor in range(ACTORS)]
        while len(self.ready) < ACTORS:
            self.attended(self.listen)
        while not self.learned.issuperset(range(ROLLOUTS)):
            self.learn()
            self.attended(self.hand_out)
            assert self.held or self.orders or len(self.ready) < ACTORS, "everybody waits for everybody"
            self.kill()
            self.attended(self.listen)

    def attended(self, step: Any) -> None:
        try:
            step()
        except WorkerDied as lost:
            self.replace(lost)

    def listen(self) -> None:
        """Hear all that have something to say, as long as learning is not what is waited for."""
        by_channel = {process.channel: process for process in self.processes}
        for channel in wait(list(by_channel), timeout=0 if self.orders else 0.05):
            process = by_channel[channel]  # type: ignore[index]
            message = process.receive()
            if isinstance(message, Started):
                self.ready.add(process)
            else:
                assert isinstance(message, Filled)
                handed = self.held.pop(process.index)
                assert (message.ticket.number, message.ticket.slot) == (handed.number, handed.slot)
                self.filled[message.ticket.actor, message.ticket.incarnation] += 1
                self.book.filled(message.ticket)
            self.idle.append(process.index)
        for actor in list(self.held):
            if self.processes[actor].silent_for() > PATIENCE:
                self.processes[actor].kill()
                raise WorkerDied(self.processes[actor], f"no heartbeat for {PATIENCE:g} s, killed")

    def hand_out(self) -> None:
        while self.idle and (ticket := self.book.hand_out(self.idle[0])):
            actor = self.idle.popleft()
            assert ticket.slot not in {other.slot for other in (*self.held.values(), *sum(self.orders, ()))}
            self.held[actor] = ticket
            self.processes[actor].reset_silence()
            self.processes[actor].send(ticket)

    def learn(self) -> None:
        """Learning takes a while, in which nobody may touch its slots; then the next policy is published."""
        while len(self.orders) < 2 and (tickets := self.book.take()):
            self.orders.append(tickets)
            self.check(tickets)
        if not self.orders or self.draw.random() < 0.5:
            return
        tickets = self.orders.popleft()
        self.check(tickets)
        for ticket in tickets:
            lag = self.updates - ticket.version
            self.greatest_lag = max(lag, self.greatest_lag)
            assert 0 <= lag <= lag_bound(SLOTS, PER_UPDATE, FREQUENCY)
            assert ticket.number not in self.learned
            assert ticket.rollout == self.learned_of[ticket.actor, ticket.incarnation]
            self.learned.add(ticket.number)
            self.learned_of[ticket.actor, ticket.incarnation] += 1
        self.updates += 1
        if self.updates % FREQUENCY == 0:
            os.pwrite(self.shared.weights, self.updates.to_bytes(8, "little"), 0)
        self.book.learned(tickets)

    def check(self, tickets: tuple[Ticket, ...]) -> None:
        for ticket in tickets:
            self.assert_whole(ticket)

    def assert_whole(self, ticket: Ticket) -> None:
        for index, tensor in enumerate(vars(self.memory.read(ticket)).values()):
            array = tensor.numpy()
            assert np.array_equal(array, pattern(ticket.stamp, index, array.shape, array.dtype.str)), ticket

    def kill(self) -> None:
        """Somebody is killed, whatever it is doing, as often as is due by now."""
        while self.kill_at and self.kill_at[0] <= len(self.learned):
            self.kill_at.popleft()
            time.sleep(self.draw.random() * 0.002)  # a moment that the rounds of this loop do not choose
            self.processes[self.draw.randrange(ACTORS)].process.kill()
            self.killed += 1

    def replace(self, lost: WorkerDied) -> None:
        """A new process in the place of the lost one, whose last slot may be in any state but must not be believed."""
        actor = lost.worker.index
        lost.worker.end()
        self.ends[lost.how] += 1
        self.ready.discard(lost.worker)
        self.idle = deque(other for other in self.idle if other != actor)
        if actor in self.held:
            life = self.lives[actor]
            due = replace(self.held.pop(actor), incarnation=life, rollout=self.filled[actor, life])
            begun, finished = map(int, self.memory._stamps[due.slot])
            if begun == finished == due.stamp:  # it had no time to say so
                self.left_whole += 1
                self.assert_whole(due)
            else:
                self.left_half += begun == due.stamp
                with pytest.raises(RuntimeError, match="not the whole rollout"):
                    self.memory.read(due)
        self.book.lost(actor)
        self.lives[actor] += 1
        self.processes[actor] = self.start(actor)

    def end(self) -> None:
        for process in self.processes:
            process.end()
        os.close(self.control.descriptor)


def test_killed_actors_leave_nothing_that_is_learned_from(
    shared: SharedMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "tests"), prepend=os.pathsep)
    torture = Torture(shared, seed=17)
    try:
        torture.run()
    finally:
        torture.end()
    assert torture.killed == KILLS
    assert torture.ends["no heartbeat for 3 s, killed"] >= 1, "the actor that stopped was not found out"
    assert torture.ends["killed by SIGKILL"] >= 20
    assert torture.left_half >= 5, torture.ends
    assert all(torture.learned_of[life] <= count for life, count in torture.filled.items())


def test_the_light_actor_writes_what_slot_memory_would(shared: SharedMemory) -> None:
    memory = SlotMemory(shared.slots, SLOTS, T, B, SPEC)
    ticket = Ticket(number=9, slot=5, actor=2, incarnation=1, rollout=3)
    light = LightMemory(light_setup(memory, actor_setup(shared))).fill(ticket)

    def content() -> bytes:
        return os.pread(shared.slots, os.fstat(shared.slots).st_size, 0)

    next(light)
    begun_by_light = content()
    for _ in light:
        pass
    whole_by_light = content()
    os.pwrite(shared.slots, bytes(len(whole_by_light)), 0)
    rollout = memory.begin(ticket)
    assert content() == begun_by_light
    for index, tensor in enumerate(vars(rollout).values()):
        array = tensor.numpy()
        array[:] = pattern(ticket.stamp, index, array.shape, array.dtype.str)
    memory.finish(ticket)
    assert content() == whole_by_light
