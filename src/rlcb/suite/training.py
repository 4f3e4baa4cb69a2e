"""The training runs of a suite: as many at a time as there is room for, until all are done or a signal comes."""

import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from rlcb.analysis.run_status import RunStatus, run_status
from rlcb.analysis.suites import SuiteRun
from rlcb.analysis.untrusted import read_object, whole_number
from rlcb.console import clock
from rlcb.errors import RlcbError, UsageError
from rlcb.suite.directory import Result, event, in_use, result_of, resumable, saved_steps
from rlcb.suite.machines import UnderWay
from rlcb.suite.process import POLL_SECONDS
from rlcb.suite.work import Work
from rlcb.words import counted, reward_text

_GONE_SECONDS = 60.0  # how long to wait for the end of a training whose suite was killed
_LOG_LINES = 5  # of a run that failed
_LOOK_EVERY = 2.0  # seconds between looks at the files of the runs in progress
_LOSSES_IN_A_ROW, _LOSSES = 3, 10  # of a run's nodes: without a new checkpoint in between, and in total


@dataclass(frozen=True)
class _Job:
    """A run in progress."""

    process: UnderWay
    steps: int  # that it had made before


@dataclass
class _Losses:
    """The nodes that a run was lost with."""

    saved: int = -1  # steps of the newest checkpoint when the last one was lost
    in_a_row: int = 0
    total: int = 0


class Training:
    """The runs that wait, those in progress, and what was done so far."""

    def __init__(self, work: Work):
        self._work, self._stop, self._display = work, work.stop, work.display
        self._waiting = work.unfinished
        self._jobs: dict[SuiteRun, _Job] = {}
        self._machines, self._losses = work.machines, defaultdict[SuiteRun, _Losses](_Losses)
        self._begun = time.monotonic()
        self._next_start = 0.0  # when the pause after the last run is over
        self._runs_done = self._steps_done = 0
        self._said_shortage = False
        self._looked = 0.0  # when the files of the runs in progress were read
        self._known: dict[SuiteRun, RunStatus] = {}  # what they said
        self._evaluated = [run for run in work.results if run.evaluation.is_file()]  # by an earlier start of the suite

    def train(self) -> None:
        """Do every run that is not finished; one that fails is recorded and does not stop the others."""
        for run, result in self._work.results.items():
            self._display.line(f"{self._label(run)}: already finished, {_metrics_of(result)}")
        while self._jobs or (self._waiting and self._stop.signal is None):
            self._machines.check()
            self._start_what_fits()
            for run, job in list(self._jobs.items()):
                if job.process.ended(POLL_SECONDS / len(self._jobs), self._stop):
                    self._take_result(run, job)
            if not self._jobs and self._waiting and self._stop.signal is None:
                time.sleep(max(min(self._next_start - time.monotonic(), POLL_SECONDS), 0.01))
            self._show()
        if self._runs_done:
            seconds = time.monotonic() - self._begun
            runs = counted(self._runs_done, "run")
            took = clock(seconds).removeprefix("0:").removeprefix("0")
            speed = f"{self._steps_done / seconds:,.0f} steps/s in total"
            self._display.line(f"{runs}, {self._steps_done:,} steps in {took}: {speed}")

    def _start_what_fits(self) -> None:
        """Start every run, in order, that there is room for; a later one may fit where an earlier one does not."""
        unfinished = [*self._jobs, *self._waiting]
        for run in list(self._waiting):
            now = time.monotonic()
            if self._stop.signal is not None or now < self._next_start:
                return
            if now < self._begun + _GONE_SECONDS and in_use(run):
                continue  # the training of a suite that was killed is about to end
            self._start(run, unfinished)
        if self._machines.shortage and not self._said_shortage:
            self._said_shortage = True
            self._display.line(self._machines.shortage)

    def _start(self, run: SuiteRun, unfinished: list[SuiteRun]) -> None:
        """Start or resume a run, if there is room for it."""
        try:
            process = self._machines.start(run, unfinished)
        except RlcbError as error:
            self._waiting.remove(run)
            self._fail(run, str(error), [])
            return
        if process is None:
            return
        self._waiting.remove(run)
        self._jobs[run] = _Job(process, _steps_of(run) if process.resumed else 0)
        how, node = "resumed" if process.resumed else "started", {"node": process.where} if process.where else {}
        event(self._work.output, f"run_{how}", run=run.name, **node)
        where = f"{_on(self._jobs[run])}, output in {run.log}"
        self._display.line(f"{self._label(run)}: {how}{where} {self._counts()}")

    def _take_result(self, run: SuiteRun, job: _Job) -> None:
        """Record how a run ended."""
        del self._jobs[run]
        self._machines.leave(run)
        self._next_start = time.monotonic() + self._work.suite.settings.cool_down
        self._steps_done += max(_steps_of(run) - job.steps, 0)
        reason, result, lost = job.process.reason(), result_of(run), job.process.lost
        # A signal can reach a run that is about to end anyway: it is finished all the same.
        if result is not None and (reason is None or lost or self._stop.signal is not None):
            self._work.results[run] = result
            self._runs_done += 1
            event(self._work.output, "run_finished", run=run.name)
            self._display.line(
                f"{self._label(run)}: finished, {_metrics_of(result)} {self._counts()} ({self._times()})"
            )
        elif self._stop.signal is not None:
            self._wait_again(run)
            event(self._work.output, "run_interrupted", run=run.name)
            saved = f"saved at step {saved_steps(run):,}" if resumable(run) else "nothing to save yet"
            self._display.line(f"{self._label(run)}: interrupted, {saved} {self._counts()}")
        elif lost and (job.process.refused or self._may_go_on(run)):
            self._wait_again(run)
            event(self._work.output, "node_lost", run=run.name, node=job.process.where, reason=lost)
            saved = f"from step {saved_steps(run):,}" if resumable(run) else "from the beginning"
            self._display.line(f"{self._label(run)}: {lost}; it will be resumed elsewhere {saved} {self._counts()}")
        else:
            reason = reason or "ended without a final checkpoint and summary"
            self._fail(run, reason, job.process.last_lines(_LOG_LINES))

    def _wait_again(self, run: SuiteRun) -> None:
        """Put a run that is not finished back in its place."""
        self._waiting = [other for other in self._work.runs if other in {*self._waiting, run}]

    def _may_go_on(self, run: SuiteRun) -> bool:
        """Count one more loss of a run's node; whether it is continued on another one."""
        losses, saved = self._losses[run], saved_steps(run)
        losses.in_a_row = losses.in_a_row + 1 if saved <= losses.saved else 1
        losses.saved, losses.total = saved, losses.total + 1
        return losses.in_a_row <= _LOSSES_IN_A_ROW and losses.total <= _LOSSES

    def _fail(self, run: SuiteRun, reason: str, last_lines: list[str]) -> None:
        self._work.failures[run.name] = reason
        event(self._work.output, "run_failed", run=run.name, reason=reason)
        self._display.line(f"{self._label(run)}: FAILED, {reason} {self._counts()} ({self._times()})")
        for line in last_lines:
            self._display.line(f"    {line}")

    def _show(self) -> None:
        """Redraw the bar, or where there is none say every now and then how far the runs are."""
        if not self._display.drawn and not self._display.line_due:
            return
        states = self._states()
        parts = sum(state.fraction or 0.0 for state in states.values())
        share = (len(self._work.runs) - len(self._jobs) - len(self._waiting) + parts) / len(self._work.runs)
        pause = self._next_start - time.monotonic()
        times = self._times(states)
        if pause > 0 and not self._jobs and self._waiting:
            times = f"cooling down: {pause:.0f} s"
        if self._display.drawn:
            current = [f"{self._label(run)}{_on(job)}: {job.process.last_line()}" for run, job in self._jobs.items()]
            self._display.show("Training", share, times, current)
        else:
            current = [f"{self._label(run)}{_on(job)}: {_how_far(states[run])}" for run, job in self._jobs.items()]
            self._display.say("Training", share, f"{times} {self._counts()}", current)

    def _states(self) -> dict[SuiteRun, RunStatus]:
        """What the files of the runs in progress say; from that also how long each will have taken."""
        if self._known.keys() != self._jobs.keys() or time.monotonic() - self._looked >= _LOOK_EVERY:
            self._looked, self._known = time.monotonic(), {run: run_status(run.path, time.time()) for run in self._jobs}
            times = {run: (state.seconds, _seconds_left(state)) for run, state in self._known.items()}
            self._work.foreseen = {r: done + left for r, (done, left) in times.items() if done and left is not None}
        return self._known

    def _label(self, run: SuiteRun) -> str:
        return f"[{self._work.runs.index(run) + 1}/{len(self._work.runs)}] {run.name}"

    def _counts(self) -> str:
        return f"[{len(self._work.results)} of {len(self._work.runs)} done, {len(self._jobs)} running]"

    def _times(self, states: Mapping[SuiteRun, RunStatus] | None = None) -> str:
        """Elapsed and remaining time of the whole suite; `states`: of the runs in progress."""
        begun = {}
        for run, state in (states or self._states()).items():
            expected, gone = self._work.expected_seconds(run), self._jobs[run].process.seconds
            if (seconds := _seconds_left(state)) is not None:
                begun[run] = seconds
            elif expected is not None:
                begun[run] = max(expected - gone, 0.0)
        left = self._work.seconds_left([*self._jobs, *self._waiting], begun)
        failed = self._work.failures
        open_ones = [run for run in self._work.runs if run not in self._evaluated and run.name not in failed]
        evaluations = self._work.evaluation_seconds(open_ones)
        return self._work.times(None if left is None else left + (evaluations or 0.0), evaluations is not None)


def _seconds_left(state: RunStatus) -> float | None:
    """How long a run will still train; None where that is not known yet."""
    return 0.0 if state.state == "finished" else state.eta_seconds


def _how_far(state: RunStatus) -> str:
    """How far a run is: '45 %, ETA 0:10:00'."""
    if state.step is None:
        return "starting"
    left = "" if state.eta_seconds is None else f", ETA {clock(state.eta_seconds)}"
    return f"{int(100 * (state.fraction or 0.0))} %{left}"


def _on(job: _Job) -> str:
    return f" on {job.process.where}" if job.process.where else ""


def _steps_of(run: SuiteRun) -> int:
    """Steps that a run has made so far, as its summary says."""
    try:
        return whole_number(read_object(run.path / "training_summary.json").get("total_timesteps")) or 0
    except (OSError, UsageError):
        return 0


def _metrics_of(result: Result) -> str:
    fps = "FPS n/a" if result.fps is None else f"{result.fps:,.0f} FPS"
    mark = " (disturbed)" if result.disturbed else ""
    return f"{fps}{mark}, reward {reward_text(result.reward)}"
