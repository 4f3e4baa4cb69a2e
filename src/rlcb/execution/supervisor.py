"""Supervision: the workers of one role are started, watched, replaced and ended here, whatever the execution.

A supervisor does no training. `poll` gathers what the workers of one or more supervisors have sent, and turns deaths
and silence into `WorkerDied` among the messages; the execution decides what a death means for it.
"""

import contextlib
import math
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import wait
from typing import Any, NoReturn

from rlcb.comm.pool import NoRoom, PoolLost, WorkerDied, WorkerHandle, WorkerPool
from rlcb.comm.restarts import RestartBudget
from rlcb.errors import WorkersLost
from rlcb.execution.job import Job
from rlcb.execution.messages import Started
from rlcb.run.state import RunState

STARTUP_SECONDS = 300.0  # importing torch on a crowded machine takes long; hanging there is not told from slowness


class Supervisor:
    """The workers of one role, each in a numbered place."""

    def __init__(
        self, role: str, size: int, job: Job, pool: WorkerPool | None = None, budget: RestartBudget | None = None
    ):
        """`pool`: where they run, by default the job's; `budget`: one that an earlier group has begun to use up."""
        self.role, self.size, self.recorder, self.pool = role, size, job.recorder, pool or job.pool
        self.noun = role.rpartition("_")[2]
        self.control = self.pool.control(f"rlcb-{role}s", size)
        self.workers: dict[int, WorkerHandle] = {}  # by place; a place that nobody could be found for is missing
        self.ready: set[WorkerHandle] = set()  # those that have said so
        self.idle: set[WorkerHandle] = set()  # ready and without anything to do: their silence means nothing
        self.budget = budget or RestartBudget()
        self._timeout, self._least = job.config.parallel.worker_timeout, job.config.parallel.min_workers
        self._incarnations = Counter[int]()

    # Starting

    def start_missing(self, count: int, make_setup: Callable[[int], Any], descriptors: Sequence[int]) -> None:
        """Start workers in so many vacant places, as far as there is room."""
        vacant = [place for place in range(self.size) if place not in self.workers][: max(count, 0)]
        if not vacant:
            return
        self.pool.plan(vacant)
        with contextlib.suppress(NoRoom):
            for place in vacant:
                setup = make_setup(place)
                self.control.incarnations[place] = self._incarnations[place]
                self.workers[place] = self.pool.start(self.role, place, setup, self.control, descriptors)
                self._incarnations[place] += 1

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

    def incarnation(self, place: int) -> int:
        """How many processes have been in this place before the next one."""
        return self._incarnations[place]

    def seed_key(self, place: int, first_update: int) -> tuple[int, ...]:
        """Which random streams the next worker in this place gets: every process other ones."""
        incarnation = self.incarnation(place)
        return (place, first_update, incarnation) if first_update or incarnation else (place,)

    def has_started(self, worker: WorkerHandle, message: Started) -> None:
        """A worker is ready, and idle until it is told something."""
        self.ready.add(worker)
        self.idle.add(worker)
        if message.num_envs:
            self.recorder.console.line(f"{worker.name.capitalize()} started with {message.num_envs} environments")

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

    def lose(self, died: WorkerDied) -> None:
        """Put a death on record and release what belonged to the worker; its place is vacant then."""
        worker = died.worker
        self.recorder.note_loss(worker.name, died.how, self.budget.add(worker.index))
        self.remove(worker)

    def remove(self, worker: WorkerHandle) -> None:
        """End a worker; its place is vacant then."""
        worker.end()
        self.ready.discard(worker)
        self.idle.discard(worker)
        if self.workers.get(worker.index) is worker:
            del self.workers[worker.index]

    def hopeless(self, died: WorkerDied) -> str | None:
        """Why to give up rather than to replace this worker; None if it may be replaced."""
        worker = died.worker
        if not self.pool.distributed and self.budget.all_together(range(self.size)):
            return f"all {self.size} {self.noun}s are lost, the last one {died.how}"
        if self.budget.exhausted(worker.index):
            return self.budget.story(worker.index, worker.name, died.how)
        return None

    def give_up(self, story: str, state: RunState | None) -> NoReturn:
        """End a run that cannot go on, with a checkpoint where there is something to keep."""
        if state is not None:
            self.recorder.abandon(state)
            story = f"{story}; saved"
        raise WorkersLost(f"{story}; go on with --resume {self.recorder.run.path}")

    def end(self) -> None:
        """End all workers and release the control page."""
        for worker in list(self.workers.values()):
            self.remove(worker)
        os.close(self.control.descriptor)


def poll(*supervisors: Supervisor, timeout: float = 0.1) -> list[tuple[WorkerHandle, Any]]:
    """Wait for messages; returns each with its worker, also the deaths of workers that ended or had to be killed."""
    by_channel = {worker.channel: worker for one in supervisors for worker in one.workers.values()}
    messages = []
    for channel in wait(list(by_channel), timeout):
        worker = by_channel[channel]
        messages.append((worker, receive(worker)))
    messages.sort(key=lambda entry: isinstance(entry[1], WorkerDied))  # what others had sent by then comes first
    dead = [worker for worker, message in messages if isinstance(message, WorkerDied)]
    for one in supervisors:
        for worker in list(one.workers.values()):
            patience = one.patience(worker)
            if worker not in dead and worker.silent_for() > patience:
                worker.kill()
                messages += [(worker, message) for message in drain(worker)]
                messages.append((worker, WorkerDied(worker, f"silent for {patience:g} s and killed")))
    return messages


def receive(worker: WorkerHandle) -> Any:
    """The worker's next message, or its death."""
    try:
        return worker.receive()
    except WorkerDied as died:
        return died


def drain(worker: WorkerHandle) -> Iterator[Any]:
    """What a worker had sent before it was killed: that still counts."""
    with contextlib.suppress(WorkerDied, NoRoom):
        while worker.channel.poll():
            yield worker.receive()
