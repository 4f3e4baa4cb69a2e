"""Data-parallel execution: worker processes that each act and learn on their share of the environments.

Only gradients and a few sums cross between workers. The supervisor keeps the last state that each worker reported. When
one dies or hangs, the others abandon the update under way, all go back to the newest update whose state everybody has,
and a new process takes the place of the lost one. Where there is no room for one, the same environments are divided
among fewer workers, and among more when there is room again.
"""

import os
import time

from rlcb.comm.pool import NoRoom, PoolLost, WorkerDied, WorkerHandle
from rlcb.comm.restarts import PER_WORKER, RestartBudget
from rlcb.config.plan import largest_division
from rlcb.errors import WorkersLost
from rlcb.execution.job import Job
from rlcb.execution.messages import GetShared, Go, GroupLost, Started, WorkerSetup
from rlcb.execution.supervisor import Supervisor, poll
from rlcb.files import TEMPORARY, sweep
from rlcb.run.state import RunState, SharedState, Start, UpdateReport, WorkerState

_GROWS_EVERY = 2.0  # seconds between looks for more room


class DataParallel:
    """Runs a group of workers to the end of the run."""

    def __init__(self, job: Job):
        self.job, self.config, self.recorder, self.pool = job, job.config, job.recorder, job.pool
        wanted = job.config.parallel.num_workers
        assert isinstance(wanted, int)
        self._wanted = wanted  # may be more than the plan's, which is what there is room for
        self._memory = os.memfd_create("rlcb-gradients")  # nameless: nothing is left of it, whoever is killed
        self._budget = RestartBudget()
        self._zero: float | None = None  # the clock's reading when training began
        self._regroupings = 0  # since the last update on record
        self._looked = time.monotonic()
        self._set_up_group(job.plan.num_workers)

    def _set_up_group(self, size: int) -> None:
        """Make room for what is known of a group of this size; nobody is started."""
        self._group = Supervisor("worker", size, self.job, budget=self._budget)
        self._states: list[dict[int, WorkerState]] = [{} for _ in range(size)]  # the last two of each worker
        self._reports: dict[int, dict[int, UpdateReport]] = {}  # by update and rank: not on record yet
        self._kept: dict[int, tuple[int, ...]] = {}  # by rank: updates that a waiting worker can go back to
        self._gone: dict[int, str] = {}  # by rank: how the workers that are missing were lost
        self._shared: SharedState | None = None  # what a waiting worker has sent for the group to go on from
        self._origin: RunState | None = None  # what a regrouped group was started from
        self._back_to: int | None = None
        self._running = self._growing = False

    def run(self, state: RunState | None) -> None:
        """Start the workers, record what they report, replace those that are lost, until the run is over."""
        try:
            self._start_all(state)
            while self.recorder.ending is None:
                self.pool.check()
                if self.job.stop.signal is not None:
                    self._group.control.request_stop()
                for worker, message in poll(self._group):
                    self._take(worker, message)
                self._advance()
                self._look_for_room()
        except (NoRoom, PoolLost) as lost:
            self._group.give_up(str(lost), None)
        finally:
            self._group.end()
            sweep(self.recorder.run.path)
            os.close(self._memory)

    # Starting

    def _start_all(self, state: RunState | None) -> None:
        divided = state.redivided(self._group.size) if state else None
        for rank in range(self._group.size):
            self._start(rank, Start(divided.shared, divided.workers[rank]) if divided else None)

    def _start(self, rank: int, start: Start | None) -> None:
        folder = self.recorder.run.path.resolve()
        rendezvous = str(folder / f".rendezvous{TEMPORARY}{os.getpid()}")
        setup = WorkerSetup(self.config, rank, self.job.plan.threads, self._memory, folder, rendezvous, start)
        self._group.start(rank, setup, (self._memory,))

    def _go(self) -> None:
        """Everybody waits: let all run, in the present generation of the group."""
        if self._zero is None:
            self._zero = time.perf_counter() - self.recorder.seconds
        go = Go(self._group.control.generation, self._zero, self._back_to)
        self._reports.clear()  # of updates that are done again
        self._kept, self._shared, self._back_to, self._running = {}, None, None, True
        for worker in self._group.workers.values():
            self._group.send(worker, go)

    # Working

    def _take(self, worker: WorkerHandle, message: object) -> None:
        if isinstance(message, UpdateReport):
            self._take_report(worker.index, message)
        elif isinstance(message, Started):
            self._group.has_started(worker, message)
        elif isinstance(message, GroupLost):
            self._kept[worker.index] = message.updates
            self._group.idle.add(worker)
        elif isinstance(message, WorkerDied):
            self._lose(message)
        else:
            assert isinstance(message, SharedState)
            self._shared = message
            self._group.idle.add(worker)

    def _take_report(self, rank: int, report: UpdateReport) -> None:
        """Keep a report until all ranks' are there, and record what cannot be undone any more."""
        update = report.progress.updates
        reports = self._reports.setdefault(update, {})
        reports[rank] = report
        if report.own is None:
            return
        self._states[rank][update] = report.own
        for old in sorted(self._states[rank])[:-2]:
            del self._states[rank][old]
        if len(reports) == self._group.size:
            for number in sorted(number for number in self._reports if number <= update):
                by_rank = self._reports.pop(number)
                self.recorder.record([by_rank[one] for one in range(self._group.size)])
            self._regroupings = 0

    def _advance(self) -> None:
        """Once everybody who is left waits: let a complete group run, or complete it first."""
        workers, idle = self._group.workers.values(), self._group.idle
        if any(worker not in idle for worker in workers):
            return
        if self._gone or self._growing:
            self._recover()
        else:
            self._go()

    # Losing and regrouping

    def _lose(self, died: WorkerDied) -> None:
        """A worker is gone: the others abandon what they do together and wait."""
        rank = died.worker.index
        self._group.lose(died)
        self._gone[rank] = died.how
        self._kept.pop(rank, None)
        if self._zero is None:
            raise WorkersLost(f"{died.worker.name} could not be started: {died.how}")
        if not self._group.workers:
            self._group.give_up(f"all workers are lost: {self._story()}", None)
        self._break_up()

    def _break_up(self) -> None:
        """Make the workers abandon the update under way; each says then what it can go back to."""
        self._running = False
        self._group.control.next_generation()
        for worker in self._group.workers.values():
            worker.reset_silence()

    def _story(self) -> str:
        return ", ".join(f"worker {rank} {how}" for rank, how in sorted(self._gone.items()))

    def _recover(self) -> None:
        """Everybody who is left waits: go on from the newest update whose state is known of all."""
        state = self._common_state()
        if state is None:
            return
        hopeless = [rank for rank in self._gone if self._group.budget.exhausted(rank)]
        if hopeless:
            rank = hopeless[0]
            self._group.give_up(self._group.budget.story(rank, f"worker {rank}", self._gone[rank]), state)
        if self._growing or state is self._origin:
            self._regroup(state)
            return
        try:
            for rank in sorted(self._gone):
                self._start(rank, Start(state.shared, state.workers[rank]))
                self._kept[rank] = (state.shared.progress.updates,)
                del self._gone[rank]
        except NoRoom:
            self._regroup(state)
            return
        self._back_to = state.shared.progress.updates

    def _common_state(self) -> RunState | None:
        """The run at the newest update that every worker can go on from; None: a worker was asked for its part."""
        updates = set.intersection(*(set(states) for states in self._states), *map(set, self._kept.values()))
        if not updates:
            if self._origin is None:
                raise WorkersLost(f"lost before the first update: {self._story()}")
            return self._origin
        update = max(updates)
        if self._shared is None or self._shared.progress.updates != update:
            rank = next(rank for rank, kept in self._kept.items() if update in kept)
            self._group.send(self._group.workers[rank], GetShared(update))
            return None
        return RunState(self._shared, [states[update] for states in self._states])

    def _regroup(self, state: RunState) -> None:
        """Divide the run among as many new workers as there is room for."""
        room = len(self._group.workers) + (self.pool.room() or 0)
        least, before, full = self.config.parallel.min_workers, self._group.size, ""
        while self._regroupings < PER_WORKER:
            self._regroupings += 1
            size = self._fitting(room)
            if size < least:
                full = f"there is room for {room} workers, which leaves a group of {size}, and min_workers is {least}"
                break
            self.recorder.note_size(before, size)
            self._group.end()
            self._set_up_group(size)
            self._origin, before = state, size
            try:
                self._start_all(state)
                return
            except NoRoom as error:
                full, room = str(error), len(self._group.workers) + (self.pool.room() or 0)
        self._group.give_up(full or f"workers could not be started: {self._story()}", state)

    def _fitting(self, room: int) -> int:
        """The size of the group for which there is room for so many."""
        return largest_division(self.config, room if self.pool.elastic else min(room, self._wanted))

    def _look_for_room(self) -> None:
        """Become more again when there is room, up to the number that was asked for."""
        if not (self.pool.distributed and self._running and all(self._states)):
            return
        if time.monotonic() - self._looked < _GROWS_EVERY:
            return
        self._looked = time.monotonic()
        if self._fitting(self._group.size + (self.pool.room() or 0)) > self._group.size:
            self._growing = True
            self._break_up()


def train(job: Job, state: RunState | None) -> None:
    """Train with workers that learn in step until steps or time are reached or a signal asks to stop."""
    DataParallel(job).run(state)
