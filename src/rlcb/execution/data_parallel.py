"""Data-parallel execution: worker processes that each act and learn on their share, and a supervisor that watches.

Only gradients and a few sums cross between workers. The supervisor does no training: it starts the workers, collects
their reports, keeps the last state of each, and replaces one that dies or hangs from what the group knows. Where there
is no room for a replacement, the same environments are divided among fewer workers, and among more when there is again.
"""

import os
import time
from collections import Counter
from multiprocessing.connection import wait
from typing import Any

from rlcb.comm.local_process import STARTUP_SECONDS, Lost
from rlcb.comm.pool import Child, Crew, NoRoom
from rlcb.config.schema import Config
from rlcb.errors import Diverged, WorkersLost
from rlcb.execution.loop import Report
from rlcb.execution.messages import Broken, Give, Go, Setup, Started
from rlcb.execution.state import Start, checkpoint_content, starts_from
from rlcb.files import TEMPORARY, sweep
from rlcb.run.directory import RunDirectory
from rlcb.run.recorder import Recorder
from rlcb.run.summary import Outcome
from rlcb.signals import StopRequest

RESTARTS_PER_WORKER, RESTARTS_PER_RUN = 3, 10
_GROWS_EVERY = 2.0  # seconds between looks for room


class _Worker:
    """A worker, and where it can go back to."""

    def __init__(self, process: Child):
        self.process, self.rank = process, process.index
        self.waiting = False
        self.can_go_back_to: tuple[int, ...] = ()

    def go(self, message: Go) -> None:
        """Let the worker run."""
        self.process.send(message)
        self.waiting = False
        self.process.told_to_go()


class Supervisor:
    """Runs a group of workers to the end of the run."""

    def __init__(
        self, recorder: Recorder, config: Config, threads_per_worker: int, stop: StopRequest, crew: Crew, size: int
    ):
        """`size`: how many workers to begin with."""
        assert isinstance(config.parallel.num_workers, int)
        self.recorder, self.config, self.stop, self.crew = recorder, config, stop, crew
        self._wanted, self._threads = config.parallel.num_workers, threads_per_worker
        self._memory = os.memfd_create("rlcb-gradients")  # nameless: nothing to leak, whoever is killed
        self._workers: list[_Worker] = []
        self._restarts = Counter[int]()
        self._looked = time.monotonic()
        self._prepare(size)

    def _prepare(self, size: int) -> None:
        """Get ready for a group of this size."""
        self.size = size
        self._control = self.crew.control("rlcb-control", size)
        self._parts: list[dict[int, dict[str, Any]]] = [{} for _ in range(size)]
        self._pending: dict[int, dict[int, Report]] = {}

    def run(self, starts: list[Start] | None) -> Outcome:
        """Start the workers, record what they report, replace those that are lost; everything is on disk then."""
        try:
            self._assemble(starts)
            self._zero = time.perf_counter() - self.recorder.seconds
            self._go(update=None)
            while self.recorder.ending is None:
                try:
                    self._look_after_crew()
                    self._listen()
                    self._grow()
                except Lost as lost:
                    self._replace(lost)
            return self.recorder.finish()
        except Diverged:
            self.recorder.finish("diverged")
            raise
        except Lost as lost:
            raise WorkersLost(f"{lost.process.name} could not be started: {lost.how}") from None
        except NoRoom as full:
            raise WorkersLost(f"{full}; go on with --resume {self.recorder.run.path}") from None
        finally:
            self._disband()
            sweep(self.recorder.run.path)
            os.close(self._memory)

    def _look_after_crew(self) -> None:
        try:
            self.crew.attend()
        except WorkersLost as lost:
            raise WorkersLost(f"{lost}; go on with --resume {self.recorder.run.path}") from None

    def _assemble(self, starts: list[Start] | None) -> None:
        """Start all workers and wait until they are ready."""
        for rank in range(self.size):
            self._workers.append(self._start(rank, starts[rank] if starts else None))
        self._await_started(self._workers)

    def _disband(self) -> None:
        """End all workers."""
        for worker in self._workers:
            worker.process.end()
        self._workers = []
        os.close(self._control.descriptor)

    def _start(self, rank: int, start: Start | None) -> _Worker:
        folder = self.recorder.run.path.resolve()
        meeting = folder / f".rendezvous{TEMPORARY}{os.getpid()}"
        setup = Setup(self.config, rank, self._threads, self._memory, folder, meeting, start)
        name, descriptors = f"worker {rank}", (self._memory,)
        return _Worker(self.crew.start(name, "rlcb.execution.worker", rank, setup, self._control, descriptors))

    def _await_started(self, workers: list[_Worker]) -> None:
        """Wait until all of these are ready."""
        for worker in workers:
            started = self._expect(worker, Started, STARTUP_SECONDS)
            worker.waiting = True
            self.recorder.console.line(f"Worker {worker.rank} started with {started.num_envs} environments")

    def _expect(self, worker: _Worker, kind: type, patience: float) -> Any:
        """The worker's next message of this kind; reports that come before it are taken in."""
        asked = time.monotonic()
        while True:
            if worker.process.channel.poll(0.1):
                message = worker.process.receive()
                if isinstance(message, kind):
                    return message
                self._take(worker, message)
            elif min(worker.process.silent_for(), time.monotonic() - asked) > patience:
                worker.process.give_up(patience)

    def _go(self, update: int | None) -> None:
        """Let all workers run, in a new generation of the group."""
        generation = self._control.generation
        for worker in self._workers:
            worker.go(Go(generation, self._zero, update))

    def _listen(self) -> None:
        """Take in what the workers have to say, and look after those who say nothing."""
        if self.stop.signal is not None:
            self._control.request_stop()
        by_channel = {worker.process.channel: worker for worker in self._workers}
        for channel in wait(list(by_channel), timeout=0.1):
            worker = by_channel[channel]
            self._take(worker, worker.process.receive())
        # Those who wait for a silent one may be silent too: the one that fell silent first is the culprit.
        patience = self.config.parallel.worker_timeout
        quietest = max((worker.process for worker in self._workers), key=lambda process: process.silent_for())
        if quietest.silent_for() > patience:
            quietest.give_up(patience)

    def _take(self, worker: _Worker, message: Any) -> None:
        if isinstance(message, Broken):
            worker.waiting, worker.can_go_back_to = True, message.updates
            return
        assert isinstance(message, Report)
        update = message.progress["updates"]
        if message.part is not None:
            parts = self._parts[worker.rank]
            parts[update] = message.part
            for old in sorted(parts)[:-2]:
                del parts[old]
        reports = self._pending.setdefault(update, {})
        reports[worker.rank] = message
        if len(reports) == self.size and message.part is not None:
            self._record_up_to(update)

    def _record_up_to(self, update: int) -> None:
        """Put on record what cannot be undone any more: updates up to one that everybody could go back to."""
        for number in sorted(number for number in self._pending if number <= update):
            reports = self._pending.pop(number)
            self.recorder.record([reports[rank] for rank in range(self.size)])

    def _replace(self, lost: Lost) -> None:
        """Put the group together again: all go back to the last update that everybody knows and go on from there."""
        gone: dict[int, str] = {}
        news: Lost | None = lost
        while news is not None:
            gone[news.process.index] = news.how
            self._note_loss(news)
            try:
                update, common = self._common_ground(gone)
                self._refuse_hopeless(gone, update, common)
                for rank in gone:
                    self._workers[rank].process.end()
                for rank in gone:
                    self._workers[rank] = self._start(rank, {**common, "part": self._parts[rank][update]})
                self._await_started([self._workers[rank] for rank in gone])
                self._pending.clear()
                self._go(update)
                news = None
            except NoRoom:
                self._shrink(len(self._workers) - len(gone), update, common)
                news = None
            except Lost as another:  # while we were at it
                news = another

    def _shrink(self, survivors: int, update: int, common: dict[str, Any]) -> None:
        """Go on with as many workers as there is still room for."""
        self._regroup(survivors + (self.crew.room() or 0), update, common)

    def _grow(self) -> None:
        """Become more again when there is room, up to the number that was asked for."""
        if not self.crew.spread or time.monotonic() - self._looked < _GROWS_EVERY or self._workers[-1].waiting:
            return
        self._looked = time.monotonic()
        room = self.crew.room() or 0
        if self._fitting(self.size + room) <= self.size or not all(self._parts):
            return
        last = self._workers[-1]
        last.process.end()  # its leaving is what brings the others to a halt
        self._regroup(self.size + room, *self._common_ground({last.rank: "ended to make room for a larger group"}))

    def _fitting(self, most: int) -> int:
        """The size of the group for which there is room for so many."""
        return largest_group(self.config, most if self.crew.elastic else min(most, self._wanted))

    def _regroup(self, most: int, update: int, common: dict[str, Any]) -> None:
        """Divide what the workers had at the end of an update among new ones, at most so many."""
        parts = [parts[update] for parts in self._parts]
        algorithm, least = self.recorder.run.algorithm, self.config.parallel.min_workers
        content = checkpoint_content(self.config, algorithm, common, parts, {})
        trouble = ""
        for _ in range(RESTARTS_PER_WORKER):
            size = self._fitting(most)
            if size < least:
                trouble = (
                    f"there is room for {most} workers, which leaves a group of {size}, and min_workers is {least}"
                )
                break
            self.recorder.note_size(self.size, size)
            self._disband()
            self._prepare(size)
            try:
                self._assemble(starts_from("the run so far", content, self.config, algorithm, size))
                self._go(update=None)
                return
            except Lost as lost:
                trouble = f"{lost.process.name} could not be started: {lost.how}"
            except NoRoom as full:
                trouble = str(full)
            for worker in self._workers:
                worker.process.end()
            most = self.crew.room() or 0
        self.recorder.abandon(common, parts)
        raise WorkersLost(f"{trouble}; saved; go on with --resume {self.recorder.run.path}")

    def _note_loss(self, lost: Lost) -> None:
        self._restarts[lost.process.index] += 1
        self.recorder.note_loss(lost.process.name, lost.how, self._restarts[lost.process.index])

    def _common_ground(self, gone: dict[int, str]) -> tuple[int, dict[str, Any]]:
        """Stop the survivors; the newest update that every worker's state is known of, and what they share there."""
        survivors = [worker for worker in self._workers if worker.rank not in gone]
        story = ", ".join(f"worker {rank} {how}" for rank, how in sorted(gone.items()))
        if not survivors:
            raise WorkersLost(f"all workers are lost: {story}; go on with --resume {self.recorder.run.path}")
        self._control.next_generation()
        patience = self.config.parallel.worker_timeout
        for worker in survivors:
            while not worker.waiting:
                self._take(worker, self._expect(worker, Broken, patience))
        known = [set(worker.can_go_back_to) for worker in survivors]
        updates = set.intersection(*known, *(set(parts) for parts in self._parts))
        if not updates:
            raise WorkersLost(f"lost before the first update: {story}")
        update = max(updates)
        survivors[0].process.send(Give(update))
        return update, self._expect(survivors[0], dict, patience)

    def _refuse_hopeless(self, gone: dict[int, str], update: int, common: dict[str, Any]) -> None:
        """Stop, with a checkpoint, when workers are lost more often than bad luck explains."""
        worst = max(gone, key=lambda rank: self._restarts[rank])
        if self._restarts[worst] <= RESTARTS_PER_WORKER and self._restarts.total() <= RESTARTS_PER_RUN:
            return
        self.recorder.abandon(common, [parts[update] for parts in self._parts])
        raise WorkersLost(
            f"worker {worst} was lost {self._restarts[worst]} times ({self._restarts.total()} losses in all), "
            f"the last time {gone[worst]}; saved; go on with --resume {self.recorder.run.path}"
        )


def largest_group(config: Config, most: int) -> int:
    """The largest number of workers, at most so many, that divides environments and minibatches; 0 if none does."""
    fitting = (n for n in range(1, most + 1) if config.env.num_envs % n == 0 and config.minibatch_size % n == 0)
    return max(fitting, default=0)


def first_size(config: Config, crew: Crew) -> int:
    """How many workers to begin with: as many as were asked for, or as there is room for; refused if too few."""
    wanted, room, least = config.parallel.num_workers, crew.room(), config.parallel.min_workers
    assert isinstance(wanted, int)
    if room is None or room >= wanted:
        return wanted
    size = largest_group(config, room)
    if size < least:
        raise WorkersLost(f"the cluster has room for {room} workers, which leaves a group of {size}; {least} must be")
    return size


def train(
    run: RunDirectory, config: Config, device: str, num_threads: int, resume: bool, stop: StopRequest, crew: Crew
) -> Outcome:
    """Train with workers that move in step until steps or time are reached or a signal asks to stop."""
    assert isinstance(config.parallel.num_workers, int)
    size = first_size(config, crew)
    recorder = Recorder(run, config, device, num_threads, size, crew)
    starts = recorder.restore() if resume else None
    with recorder:
        return Supervisor(recorder, config, num_threads, stop, crew, size).run(starts)
