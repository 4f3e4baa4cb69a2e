"""Supervision: the workers of one role are started, watched, replaced and ended here, whatever the execution.

A supervisor does no training. `poll` gathers what the workers of one or more supervisors have sent, and turns deaths
and silence into `WorkerDied` among the messages; the execution decides what a death means for it.
"""

import contextlib
import math
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import wait
from typing import Any, NoReturn

from rlcb.comm.pool import NoRoom, PoolLost, WorkerDied, WorkerHandle, WorkerPool
from rlcb.config.plan import Plan
from rlcb.config.schema import Config
from rlcb.envs.own_code import permitted_flags
from rlcb.errors import WorkersLost
from rlcb.execution.messages import Started
from rlcb.run.ending import resume_flag
from rlcb.run.recorder import Recorder
from rlcb.run.state import RunState
from rlcb.signals import StopRequest
from rlcb.words import counted

STARTUP_SECONDS = 300.0  # importing torch on a crowded machine takes long; hanging there is not told from slowness
PER_WORKER, IN_ALL = 3, 10  # deaths that are forgiven: of one worker, of all together
TOGETHER = 10.0  # seconds: workers that die within them have one cause


@dataclass(frozen=True)
class Job:
    """A run to do: how, where it is recorded, what asks it to stop, and where its workers run."""

    config: Config
    plan: Plan
    recorder: Recorder
    stop: StopRequest
    pool: WorkerPool


class RestartBudget:
    """Counts deaths by place; a worker that delivers after being replaced is forgiven its predecessors'."""

    def __init__(self) -> None:
        self._deaths = Counter[int]()  # since the place last delivered
        self._last: dict[int, float] = {}  # when each place last lost its worker

    def add(self, place: int) -> int:
        """One more death in this place; returns how many there were since it last delivered."""
        self._deaths[place] += 1
        self._last[place] = time.monotonic()
        return self._deaths[place]

    def delivered(self, place: int) -> None:
        """The worker in this place did what it is for."""
        self._deaths[place] = 0
        self._last.pop(place, None)

    def exhausted(self, place: int, died: WorkerDied) -> str | None:
        """Why to give up rather than to replace this worker once more; None if it may be replaced."""
        deaths, total = self._deaths[place], self._deaths.total()
        if deaths <= PER_WORKER and total <= IN_ALL:
            return None
        return f"{died.worker.name} was lost {deaths} times, the last time {died.how} ({total} losses in total)"

    def all_together(self, places: range) -> bool:
        """Whether each of several places lost its worker within the last moments."""
        times = [self._last.get(place, float("-inf")) for place in places]
        return len(times) > 1 and time.monotonic() - min(times) < TOGETHER


class Supervisor:
    """The workers of one role, each in a numbered place."""

    def __init__(self, role: str, size: int, job: Job, pool: WorkerPool | None = None):
        """`pool`: where they run, by default the job's."""
        self.role, self.size, self.recorder, self.pool = role, size, job.recorder, pool or job.pool
        self.noun = role.rpartition("_")[2]
        self.control = self.pool.control(f"rlcb-{role}s", size)
        self.workers: dict[int, WorkerHandle] = {}  # by place; a place without a worker is missing
        self.ready: set[WorkerHandle] = set()  # those that have said so
        self.idle: set[WorkerHandle] = set()  # ready and without anything to do: their silence means nothing
        self.budget = RestartBudget()
        self._timeout, self._least = job.config.parallel.worker_timeout, job.config.parallel.min_workers
        self.incarnations = Counter[int]()  # how many processes have been in each place

    # Starting

    def start_missing(self, count: int, make_setup: Callable[[int], Any], descriptors: Sequence[int]) -> None:
        """Start workers in this many vacant places, as far as there is room."""
        vacant = [place for place in range(self.size) if place not in self.workers][: max(count, 0)]
        if not vacant:
            return
        self.pool.plan(vacant)
        with contextlib.suppress(NoRoom):
            for place in vacant:
                setup = make_setup(place)
                self.control.incarnations[place] = self.incarnations[place]
                self.workers[place] = self.pool.start(self.role, place, setup, self.control, descriptors)
                self.incarnations[place] += 1

    def fill(self, make_setup: Callable[[int], Any], descriptors: Sequence[int]) -> str | None:
        """Start a worker in every vacant place, as far as there is room; returns why to give up, if too few work."""
        try:
            self.pool.check()
            self.start_missing(self.size, make_setup, descriptors)
        except PoolLost as lost:
            return str(lost)
        if len(self.workers) >= self._least:
            return None
        return f"there is room for {len(self.workers)} {self.noun}s, and min_workers is {self._least}"

    def seed_key(self, place: int, first_update: int) -> tuple[int, ...]:
        """Which random streams the next worker in this place gets: every process other ones."""
        incarnation = self.incarnations[place]
        return (place, first_update, incarnation) if first_update or incarnation else (place,)

    def has_started(self, worker: WorkerHandle, message: Started) -> None:
        """A worker is ready, and idle until it is told something."""
        self.ready.add(worker)
        self.idle.add(worker)
        if message.num_envs:
            self.recorder.console.line(
                f"{worker.name.capitalize()} started with {counted(message.num_envs, 'environment')}"
            )

    @property
    def all_ready(self) -> bool:
        """Whether every worker that was started has said that it is ready."""
        return all(worker in self.ready for worker in self.workers.values())

    # Working

    def send(self, worker: WorkerHandle, message: Any) -> None:
        """Give a worker something to do; from now on its silence counts."""
        worker.reset_silence()
        self.idle.discard(worker)
        worker.send(message)

    def patience(self, worker: WorkerHandle) -> float:
        """For how many seconds a worker may be silent: without anything to do, for ever."""
        if worker in self.idle:
            return math.inf
        return self._timeout if worker in self.ready else STARTUP_SECONDS

    # Losing

    def lose(self, died: WorkerDied) -> str | None:
        """Put a death on record and make the place vacant; returns why to give up rather than to fill it, if so."""
        worker = died.worker
        self.recorder.note_loss(worker.name, died.how, self.budget.add(worker.index))
        self.remove(worker)
        if not self.pool.distributed and self.budget.all_together(range(self.size)):
            return f"all {self.size} {self.noun}s are lost, the last one {died.how}"
        return self.budget.exhausted(worker.index, died)

    def remove(self, worker: WorkerHandle) -> None:
        """End a worker; its place is vacant then."""
        worker.end()
        self.ready.discard(worker)
        self.idle.discard(worker)
        if self.workers.get(worker.index) is worker:
            del self.workers[worker.index]

    def give_up(self, story: str, state: RunState | None) -> NoReturn:
        """End a run that cannot continue, with a checkpoint where there is something to keep."""
        if state is not None:
            self.recorder.abandon(state)
            story = f"{story}; saved"
        raise WorkersLost(f"{story}; resume with {resume_flag(self.recorder.run.path)}{permitted_flags()}")

    def end(self) -> None:
        """End all workers and release the control page."""
        for worker in list(self.workers.values()):
            self.remove(worker)
        os.close(self.control.descriptor)


def poll(*supervisors: Supervisor, timeout: float = 0.1) -> list[tuple[WorkerHandle, Any]]:
    """Wait for messages; returns each with its worker, also the deaths of workers that ended or had to be killed."""
    by_channel = {worker.channel: worker for one in supervisors for worker in one.workers.values()}
    messages: list[tuple[WorkerHandle, Any]] = []
    for channel in wait(list(by_channel), timeout):
        worker = by_channel[channel]
        try:
            messages.append((worker, worker.receive()))
        except WorkerDied as died:
            messages.append((worker, died))
    messages.sort(key=lambda entry: isinstance(entry[1], WorkerDied))  # what others had sent by then comes first
    dead = [worker for worker, message in messages if isinstance(message, WorkerDied)]
    for one in supervisors:
        for worker in list(one.workers.values()):
            patience = one.patience(worker)
            if worker not in dead and worker.silent_for() > patience:
                worker.kill()
                messages += [(worker, message) for message in drain(worker)]
                messages.append((worker, WorkerDied(worker, f"no heartbeat for {patience:g} s, killed")))
    return messages


def drain(worker: WorkerHandle) -> Iterator[Any]:
    """What a worker had sent before it was killed: that still counts."""
    with contextlib.suppress(WorkerDied):
        while not worker.channel.closed and worker.channel.poll():
            yield worker.receive()
