"""Data-parallel execution: worker processes that each act and learn on their share, and a supervisor that watches.

Only gradients and a few sums cross between workers. The supervisor does no training: it starts the workers, collects
their reports, keeps the last state of each, and replaces one that dies or hangs from what the group knows.
"""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from typing import Any, NoReturn

from rlcb import errors
from rlcb.config import Config
from rlcb.console import warn
from rlcb.errors import Diverged, RlcbError, WorkersLost
from rlcb.execution.loop import Report
from rlcb.execution.messages import Broken, Failed, Give, Go, Setup, Started
from rlcb.execution.recorder import Recorder
from rlcb.execution.state import Start
from rlcb.files import TEMPORARY, sweep
from rlcb.group import Control
from rlcb.run import RunDirectory
from rlcb.signals import StopRequest
from rlcb.summary import Outcome

RESTARTS_PER_WORKER, RESTARTS_PER_RUN = 3, 10
_STARTUP_SECONDS = 300  # importing torch on a crowded machine takes long; hanging there is not told from slowness


class _Lost(Exception):
    """A worker is gone."""

    def __init__(self, rank: int, how: str):
        super().__init__(rank, how)
        self.rank, self.how = rank, how


class _Process:
    """A worker process as the supervisor sees it."""

    def __init__(self, rank: int, setup: Setup, control: Control):
        ours, theirs = socket.socketpair()
        with ours, theirs:
            command = [sys.executable, "-m", "rlcb.execution.worker"]
            words = (theirs.fileno(), control.descriptor, control.size, os.getpid())
            self.process = subprocess.Popen(
                [*command, *map(str, words)],
                pass_fds=(theirs.fileno(), control.descriptor, setup.memory),
                process_group=0,  # Ctrl-C is for the supervisor, which tells the workers in its own time
            )
            self.channel: Connection[Any, Any] = Connection(ours.detach())
        self.rank, self.waiting = rank, False
        self.can_go_back_to: tuple[int, ...] = ()
        self._control, self._last_beat, self._last_seen = control, -1, time.monotonic()
        self.channel.send(setup)

    def receive(self) -> Any:
        """The next message; a worker that is gone raises _Lost."""
        try:
            return self.channel.recv()
        except (EOFError, ConnectionError):
            raise _Lost(self.rank, self._how_it_ended()) from None

    def send(self, message: Any) -> None:
        """Tell the worker something; one that is gone raises _Lost."""
        try:
            self.channel.send(message)
        except (BrokenPipeError, ConnectionError):
            raise _Lost(self.rank, self._how_it_ended()) from None

    def silent_for(self) -> float:
        """Seconds since this worker last gave a sign of life, or was told to go."""
        beat = int(self._control.heartbeats[self.rank])
        if beat != self._last_beat:
            self._last_beat, self._last_seen = beat, time.monotonic()
        return time.monotonic() - self._last_seen

    def go(self, message: Go) -> None:
        """Let the worker run."""
        self.send(message)
        self.waiting, self._last_seen = False, time.monotonic()

    def end(self) -> None:
        """Make sure that the process is gone."""
        self.process.kill()
        self.process.wait()
        self.channel.close()

    def _how_it_ended(self) -> str:
        code = self.process.wait()
        if code < 0:
            return f"killed by {signal.Signals(-code).name}"
        return f"ended with exit code {code}"


class Supervisor:
    """Runs a group of workers to the end of the run."""

    def __init__(self, recorder: Recorder, config: Config, threads_per_worker: int, stop: StopRequest):
        assert isinstance(config.parallel.num_workers, int)
        self.recorder, self.config, self.stop = recorder, config, stop
        self.size, self._threads = config.parallel.num_workers, threads_per_worker
        self._control = Control(os.memfd_create("rlcb-control"), self.size)
        self._memory = os.memfd_create("rlcb-gradients")  # nameless: nothing to leak, whoever is killed
        self._workers: list[_Process] = []
        self._parts: list[dict[int, dict[str, Any]]] = [{} for _ in range(self.size)]
        self._pending: dict[int, dict[int, Report]] = {}
        self._restarts = [0] * self.size

    def run(self, starts: list[Start] | None) -> Outcome:
        """Start the workers, record what they report, replace those that are lost; everything is on disk then."""
        try:
            self._workers = [self._start(rank, starts[rank] if starts else None) for rank in range(self.size)]
            self._await_started(self._workers)
            self._zero = time.perf_counter() - self.recorder.seconds
            self._go(update=None)
            while self.recorder.ending is None:
                try:
                    self._listen()
                except _Lost as lost:
                    self._replace(lost)
            return self.recorder.finish()
        except Diverged:
            self.recorder.finish("diverged")
            raise
        except _Lost as lost:
            raise WorkersLost(f"worker {lost.rank} could not be started: {lost.how}") from None
        finally:
            for worker in self._workers:
                worker.end()
            sweep(self.recorder.run.path)
            os.close(self._memory)
            os.close(self._control.descriptor)

    def _start(self, rank: int, start: Start | None) -> _Process:
        folder = self.recorder.run.path.resolve()
        meeting = folder / f".rendezvous{TEMPORARY}{os.getpid()}"
        setup = Setup(self.config, rank, self._threads, self._memory, folder, meeting, start)
        return _Process(rank, setup, self._control)

    def _await_started(self, workers: list[_Process]) -> None:
        """Wait until all of these are ready."""
        for worker in workers:
            started = self._expect(worker, Started, _STARTUP_SECONDS)
            worker.waiting = True
            self.recorder.console.line(f"Worker {worker.rank} started with {started.num_envs} environments")

    def _expect(self, worker: _Process, kind: type, patience: float) -> Any:
        """The worker's next message of this kind; reports that come before it are taken in."""
        asked = time.monotonic()
        while True:
            if worker.channel.poll(0.1):
                message = worker.receive()
                if isinstance(message, kind):
                    return message
                self._take(worker, message)
            elif min(worker.silent_for(), time.monotonic() - asked) > patience:
                self._give_up(worker, patience)

    def _give_up(self, worker: _Process, patience: float) -> NoReturn:
        worker.end()
        raise _Lost(worker.rank, f"silent for {patience:g} s and killed")

    def _go(self, update: int | None) -> None:
        """Let all workers run, in a new generation of the group."""
        generation = self._control.generation
        for worker in self._workers:
            worker.go(Go(generation, self._zero, update))

    def _listen(self) -> None:
        """Take in what the workers have to say, and look after those who say nothing."""
        if self.stop.signal is not None:
            self._control.request_stop()
        by_channel = {worker.channel: worker for worker in self._workers}
        for channel in wait(list(by_channel), timeout=0.1):
            worker = by_channel[channel]  # type: ignore[index]
            self._take(worker, worker.receive())
        # Those who wait for a silent one may be silent too: the one that fell silent first is the culprit.
        patience = self.config.parallel.worker_timeout
        quietest = max(self._workers, key=_Process.silent_for)
        if quietest.silent_for() > patience:
            self._give_up(quietest, patience)

    def _take(self, worker: _Process, message: Any) -> None:
        if isinstance(message, Failed):
            kind: Callable[[str], RlcbError] = getattr(errors, message.kind)
            raise kind(message.message)
        if isinstance(message, Broken):
            worker.waiting, worker.can_go_back_to = True, message.updates
            return
        assert isinstance(message, Report)
        update = message.progress["updates"]
        parts = self._parts[worker.rank]
        parts[update] = message.part or {}
        for old in sorted(parts)[:-2]:
            del parts[old]
        reports = self._pending.setdefault(update, {})
        reports[worker.rank] = message
        if len(reports) == self.size:
            del self._pending[update]
            self.recorder.record([reports[rank] for rank in range(self.size)])

    def _replace(self, lost: _Lost) -> None:
        """Put the group together again: all go back to the last update that everybody knows and go on from there."""
        gone: dict[int, str] = {}
        news: _Lost | None = lost
        while news is not None:
            gone[news.rank] = news.how
            self._note_loss(news)
            try:
                update, common = self._common_ground(gone)
                self._refuse_hopeless(gone, update, common)
                for rank in gone:
                    self._workers[rank].end()
                    self._workers[rank] = self._start(rank, {**common, "part": self._parts[rank][update]})
                self._await_started([self._workers[rank] for rank in gone])
                self._pending.clear()
                self._go(update)
                news = None
            except _Lost as another:  # while we were at it
                news = another

    def _note_loss(self, lost: _Lost) -> None:
        self._restarts[lost.rank] += 1
        self.recorder.worker_restarts += 1
        self.recorder.run.event("worker_lost", worker=lost.rank, how=lost.how, restarts=self._restarts[lost.rank])
        warn(f"worker {lost.rank} is lost ({lost.how}); replacing it")

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
        survivors[0].send(Give(update))
        return update, self._expect(survivors[0], dict, patience)

    def _refuse_hopeless(self, gone: dict[int, str], update: int, common: dict[str, Any]) -> None:
        """Stop, with a checkpoint, when workers are lost more often than bad luck explains."""
        worst = max(gone, key=lambda rank: self._restarts[rank])
        if self._restarts[worst] <= RESTARTS_PER_WORKER and sum(self._restarts) <= RESTARTS_PER_RUN:
            return
        self.recorder.save(None, common, [parts[update] for parts in self._parts])
        raise WorkersLost(
            f"worker {worst} was lost {self._restarts[worst]} times ({sum(self._restarts)} losses in all), "
            f"the last time {gone[worst]}; saved; go on with --resume {self.recorder.run.path}"
        )


def train(run: RunDirectory, config: Config, device: str, num_threads: int, resume: bool, stop: StopRequest) -> Outcome:
    """Train with worker processes until steps or time are reached or a signal asks to stop."""
    assert isinstance(config.parallel.num_workers, int)
    recorder = Recorder(run, config, device, num_threads, config.parallel.num_workers)
    starts = recorder.restore() if resume else None
    with recorder:
        return Supervisor(recorder, config, num_threads, stop).run(starts)
