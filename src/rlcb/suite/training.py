"""The training runs of a suite: as many at a time as there is room for, until all are done or a signal comes."""

import time
from dataclasses import dataclass

from rlcb.analysis.suites import SuiteRun
from rlcb.analysis.untrusted import read_object, whole_number
from rlcb.console import clock
from rlcb.errors import ResourceError, UsageError
from rlcb.hardware import BESIDE_VARIABLE, CORES_VARIABLE
from rlcb.suite.directory import Result, config_path, event, in_use, result_of, resumable
from rlcb.suite.jobs import Room
from rlcb.suite.process import POLL_SECONDS, Child
from rlcb.suite.work import Work

_GONE_SECONDS = 60.0  # how long to wait for the end of a training whose suite was killed
_LOG_LINES = 5  # of a run that failed


@dataclass(frozen=True)
class _Job:
    """A run under way."""

    child: Child
    expected: float | None  # seconds that it will take
    steps: int  # that it had made before


class Training:
    """The runs that wait, those under way, and what was done so far."""

    def __init__(self, work: Work):
        self._work, self._stop, self._display = work, work.stop, work.display
        self._waiting = work.unfinished
        self._jobs: dict[SuiteRun, _Job] = {}
        self._room = Room(work.jobs, work.suite)
        self._begun = time.monotonic()
        self._next_start = 0.0  # when the pause after the last run is over
        self._runs_done = self._steps_done = 0
        self._said_shortage = False

    def train(self) -> None:
        """Do every run that is not finished; one that fails is recorded and does not stop the others."""
        for run, result in self._work.results.items():
            self._display.line(f"{self._label(run)}: already finished, {_metrics_of(result)}")
        while self._jobs or (self._waiting and self._stop.signal is None):
            self._start_what_fits()
            for run, job in list(self._jobs.items()):
                if job.child.ended(POLL_SECONDS / len(self._jobs), self._stop):
                    self._take_result(run, job)
            if not self._jobs and self._waiting and self._stop.signal is None:
                time.sleep(max(min(self._next_start - time.monotonic(), POLL_SECONDS), 0.01))
            self._show()
        if self._runs_done:
            seconds = time.monotonic() - self._begun
            runs = f"{self._runs_done} run{'' if self._runs_done == 1 else 's'}"
            took = clock(seconds).removeprefix("0:").removeprefix("0")
            speed = f"{self._steps_done / seconds:,.0f} steps/s all together"
            self._display.line(f"{runs}, {self._steps_done:,} steps in {took}: {speed}")

    def _start_what_fits(self) -> None:
        """Start every run, in order, that there is room for; a later one may fit where an earlier one does not."""
        for run in list(self._waiting):
            now = time.monotonic()
            if self._stop.signal is not None or now < self._next_start:
                return
            if in_use(run) and now < self._begun + _GONE_SECONDS:
                continue  # the training of a suite that was killed is about to end
            cores = self._room.take(run)
            if cores:
                self._waiting.remove(run)
                self._start(run, cores)
        if self._room.shortage and not self._said_shortage:
            self._said_shortage = True
            self._display.line(self._room.shortage)

    def _start(self, run: SuiteRun, cores: tuple[int, ...]) -> None:
        resumed, steps, expected = resumable(run), _steps_of(run), self._work.expected_seconds(run)
        try:
            self._jobs[run] = _Job(self._child(run, resumed, cores), expected, steps if resumed else 0)
        except ResourceError as error:
            self._room.leave(run)
            self._fail(run, str(error), [])
            return
        where = f"output in {run.log}"
        self._display.line(f"{self._label(run)}: {'resumed' if resumed else 'started'}, {where} {self._counts()}")

    def _child(self, run: SuiteRun, resumed: bool, cores: tuple[int, ...]) -> Child:
        """Start a run, or resume it where an earlier start left a checkpoint."""
        plan, output = self._work.jobs, self._work.output
        beside = plan.beside(run, [*self._jobs, *self._waiting])
        all_cores = sum(map(len, plan.shares))
        variables = {BESIDE_VARIABLE: str(beside), CORES_VARIABLE: str(len(plan.shares))}
        event(output, "run_resumed" if resumed else "run_started", run=run.name)
        command = ["train", "--resume", str(run.path)]
        if not resumed:
            kind, config = run.kind, config_path(output, run.kind)
            command = ["train", kind.algorithm, "--mode", kind.mode, "--config", str(config)]
            command += ["--env", run.game, "--seed", str(run.seed), "--output-dir", str(run.path)]
        if run.kind in plan.threads:
            command += ["--num-threads", str(plan.threads[run.kind])]
        return Child(command, run.log, cores if len(cores) < all_cores else (), variables)

    def _take_result(self, run: SuiteRun, job: _Job) -> None:
        """Record how a run ended."""
        del self._jobs[run]
        self._room.leave(run)
        self._next_start = time.monotonic() + self._work.suite.settings.cool_down
        self._steps_done += max(_steps_of(run) - job.steps, 0)
        reason, result = job.child.reason(), result_of(run)
        if reason is None and result is not None:
            self._work.results[run] = result
            self._runs_done += 1
            event(self._work.output, "run_finished", run=run.name)
            self._display.line(
                f"{self._label(run)}: finished, {_metrics_of(result)} {self._counts()} ({self._times()})"
            )
        elif self._stop.signal is not None:
            event(self._work.output, "run_interrupted", run=run.name)
        else:
            reason = reason or "ended without a final checkpoint and summary"
            self._fail(run, reason, job.child.last_lines(_LOG_LINES))

    def _fail(self, run: SuiteRun, reason: str, last_lines: list[str]) -> None:
        self._work.failures[run.name] = reason
        event(self._work.output, "run_failed", run=run.name, reason=reason)
        self._display.line(f"{self._label(run)}: FAILED, {reason} {self._counts()} ({self._times()})")
        for line in last_lines:
            self._display.line(f"    {line}")

    def _show(self) -> None:
        if not self._display.drawn:
            return
        parts = [min(job.child.seconds / job.expected, 1.0) for job in self._jobs.values() if job.expected]
        share = (len(self._work.runs) - len(self._jobs) - len(self._waiting) + sum(parts)) / len(self._work.runs)
        current = [f"{self._label(run)}: {job.child.last_line()}" for run, job in self._jobs.items()]
        pause = self._next_start - time.monotonic()
        times = f"cooling down: {pause:.0f} s" if pause > 0 and not self._jobs and self._waiting else self._times()
        self._display.show("Training", share, times, current)

    def _label(self, run: SuiteRun) -> str:
        return f"[{self._work.runs.index(run) + 1}/{len(self._work.runs)}] {run.name}"

    def _counts(self) -> str:
        return f"[{len(self._work.results)} of {len(self._work.runs)} done, {len(self._jobs)} running]"

    def _times(self) -> str:
        left = self._work.seconds_left([*self._jobs, *self._waiting])
        for run, job in self._jobs.items():
            if left is not None and job.expected is not None:
                left -= min(job.child.seconds, job.expected) / self._work.jobs.at_once(run)
        return self._work.times(None if left is None else max(left, 0.0))


def _steps_of(run: SuiteRun) -> int:
    """Steps that a run has made so far, as its summary says."""
    try:
        return whole_number(read_object(run.path / "training_summary.json").get("total_timesteps")) or 0
    except (OSError, UsageError):
        return 0


def _metrics_of(result: Result) -> str:
    fps = "FPS n/a" if result.fps is None else f"{result.fps:,.0f} FPS"
    mark = " (disturbed)" if result.disturbed else ""
    return f"{fps}{mark}, reward " + ("n/a" if result.reward is None else f"{result.reward:.2f}")
