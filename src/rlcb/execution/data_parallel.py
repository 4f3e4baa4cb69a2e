"""Data-parallel execution: worker processes that each act and learn on their share of the environments.

Every so often all of them report their state, and the supervisor keeps the newest one that it has of all. When a worker
dies or hangs, all go back to that state, a new process in its place. Where there is no room for one, or it takes long
to start, the same environments are divided among fewer workers, and among more when there are more again.
"""

import os
import time
from dataclasses import replace
from typing import NoReturn

from rlcb.comm.pool import PoolLost, WorkerDied, WorkerHandle
from rlcb.config.division import largest_division
from rlcb.errors import OwnCodeFailed
from rlcb.execution.messages import Assignment, Go, Started, Waiting, WorkerSetup
from rlcb.execution.supervisor import Job, Supervisor, poll
from rlcb.files import TEMPORARY, sweep
from rlcb.run.state import RunState, Start, UpdateReport
from rlcb.words import counted

_WAIT_FOR_NEW = 0.25  # of worker_timeout: how long those who are there wait for new ones, on a cluster


class DataParallel:
    """Runs groups of workers to the end of the run."""

    def __init__(self, job: Job, state: RunState | None):
        self.config, self.recorder, self.pool, self.stop = job.config, job.recorder, job.pool, job.stop
        wanted = job.config.parallel.num_workers
        assert isinstance(wanted, int)
        self._most = job.config.env.num_envs if job.pool.elastic else wanted  # may be more than there is room for
        self._supervisor = Supervisor("worker", self._most, job)
        self._setup = WorkerSetup(
            config=job.config,
            index=0,
            num_threads=job.plan.threads,
            memory=os.memfd_create("rlcb-gradients"),  # nameless: nothing is left of it, whoever is killed
            dumps=job.recorder.run.path.resolve(),
            rendezvous=str(job.recorder.run.path.resolve() / f".rendezvous{TEMPORARY}{os.getpid()}"),
        )
        self._state = state  # the newest that is known of all workers: what they go back to if one is lost
        self._reports: dict[int, dict[int, UpdateReport]] = {}  # by update and rank: not on record yet
        self._group: list[WorkerHandle] = []  # by rank; empty while none is formed
        self._waiting: set[WorkerHandle] = set()  # workers for an assignment
        self._running = False  # whether the group has been told to go
        self._size = job.plan.num_workers  # of the group, or of the last one
        self._broken_at = time.monotonic()
        self._zero: float | None = None  # the clock's reading when training began

    def run(self) -> None:
        """Start the workers, record what they report, replace those that are lost, until the run is over."""
        try:
            while self.recorder.ending is None:
                self.pool.check()
                if self.stop.signal is not None:
                    self._supervisor.control.request_stop()
                self._start_missing()
                for worker, message in poll(self._supervisor):
                    self._take(worker, message)
                self._advance()
        except PoolLost as lost:
            self._give_up(str(lost))
        except OwnCodeFailed:
            if self._state is not None and self._zero is not None:
                self.recorder.keep(self._state)
            raise
        finally:
            self._supervisor.end()
            sweep(self.recorder.run.path)
            os.close(self._setup.memory)

    def _fitting(self, workers: int) -> int:
        """The size of the group that this many workers can form."""
        return largest_division(self.config, min(workers, self._most))

    def _start_missing(self) -> None:
        """Start workers in vacant places, as far as there is room and a larger group would come of it."""
        present, room = len(self._supervisor.workers), self.pool.room()
        missing = self._fitting(present + (self._most if room is None else room)) - present
        setup = self._setup
        self._supervisor.start_missing(missing, lambda place: replace(setup, index=place), (setup.memory,))

    # Working

    def _take(self, worker: WorkerHandle, message: object) -> None:
        if isinstance(message, UpdateReport):
            if self._running:  # what a broken group still reports is done again
                self._take_report(message)
        elif isinstance(message, WorkerDied):
            self._lose(message)
        elif isinstance(message, Waiting):
            if worker in self._group:  # it lost the others, although no process has died
                self.recorder.run.event("group_broken", worker=worker.name, reason=message.reason)
                self._break_up()
            self._wait(worker)
        else:
            assert isinstance(message, Started)
            self._supervisor.has_started(worker, message)
            if worker not in self._group:  # it was broken up in the meantime
                self._wait(worker)

    def _wait(self, worker: WorkerHandle) -> None:
        self._waiting.add(worker)
        self._supervisor.idle.add(worker)

    def _take_report(self, report: UpdateReport) -> None:
        """Keep a report until all ranks' are there, and record what cannot be undone any more."""
        update = report.progress.updates
        by_rank = self._reports.setdefault(update, {})
        by_rank[report.rank] = report
        states = [each.own for _, each in sorted(by_rank.items()) if each.own is not None]
        if len(states) < len(self._group):
            return
        if len({each.weights_checksum for each in by_rank.values()}) > 1:
            self._give_up(f"the weights of the workers differ after update {update}")
        shared = by_rank[0].shared
        if shared is not None:
            self._state = RunState(shared, states)
        for number in sorted(number for number in self._reports if number <= update):
            reports = self._reports.pop(number)
            self.recorder.record([reports[rank] for rank in range(len(self._group))])
        if report.metrics is not None:
            for worker in self._group:
                self._supervisor.budget.delivered(worker.index)

    # Forming groups

    def _advance(self) -> None:
        """Form a group, let it go, or break it up for a larger one, once that is possible."""
        if self._running:
            if self._fitting(len(self._group) + len(self._waiting)) > len(self._group):
                self._break_up()
        elif self._group:
            if all(worker in self._supervisor.ready for worker in self._group):
                self._go()
        elif len(self._waiting) == len(self._supervisor.workers) or self._waited_enough():
            self._form()

    def _waited_enough(self) -> bool:
        """Whether those who are there should continue without those who are still starting."""
        if self._zero is None or not self.pool.distributed:
            return False
        waited = time.monotonic() - self._broken_at
        enough = self._fitting(len(self._waiting)) >= self.config.parallel.min_workers
        return enough and waited > _WAIT_FOR_NEW * self.config.parallel.worker_timeout

    def _form(self) -> None:
        """Give ranks to those who wait; they get ready to continue from the last common state."""
        workers, least = sorted(self._waiting, key=lambda worker: worker.index), self.config.parallel.min_workers
        size = self._fitting(len(workers))
        if size < least:
            story = f"there is room for {counted(len(workers), 'worker')}, which allows a group of {size}"
            self._give_up(f"{story}, and min_workers is {least}")
        if size != self._size:
            self.recorder.note_size(self._size, size)
        self._size, self._group = size, workers[:size]
        self._reports.clear()  # of updates that are done again
        divided = self._state.redivided(size) if self._state else None
        for rank, worker in enumerate(self._group):
            self._waiting.discard(worker)
            self._supervisor.ready.discard(worker)
            start = Start(divided.shared, divided.workers[rank]) if divided else None
            self._supervisor.send(worker, Assignment(rank, size, start))

    def _go(self) -> None:
        """Everybody is ready: let the group run."""
        if self._zero is None:
            self._zero = time.perf_counter() - self.recorder.seconds
        self._running = True
        for worker in self._group:
            self._supervisor.send(worker, Go(self._supervisor.control.generation, self._zero))

    def _break_up(self) -> None:
        """Make the group abandon the update in progress; each of its workers waits for an assignment then."""
        self._supervisor.control.next_generation()
        for worker in self._group:
            if not self._running and worker in self._supervisor.ready:  # it has not been told to go
                self._wait(worker)
        self._group, self._running, self._broken_at = [], False, time.monotonic()

    def _lose(self, died: WorkerDied) -> None:
        """A worker is gone: its group is broken up, and its place is vacant."""
        worker = died.worker
        story = self._supervisor.lose(died)
        self._waiting.discard(worker)
        if worker in self._group:
            self._break_up()
        if story:
            self._give_up(story if self._zero is not None else f"{worker.name} could not be started: {died.how}")

    def _give_up(self, story: str) -> NoReturn:
        self._supervisor.give_up(story, self._state if self._zero is not None else None)


def train(job: Job, state: RunState | None) -> None:
    """Train with workers that learn in step until steps or time are reached or a signal asks to stop."""
    DataParallel(job, state).run()
