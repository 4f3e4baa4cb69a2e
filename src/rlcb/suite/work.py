"""The work of a suite: its runs one after the other, then an evaluation of each and the report; what is shown of it."""

import sys
import time
from datetime import timedelta
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

from rlcb.analysis.evaluations import evaluations_in
from rlcb.analysis.untrusted import read_object
from rlcb.config.schema import Config
from rlcb.console import Screen
from rlcb.envs.families import canonical_env_name, family_of
from rlcb.errors import ResourceError, UsageError
from rlcb.files import sha256_of
from rlcb.run.directory import LARGEST_CHECKPOINT
from rlcb.signals import StopRequest
from rlcb.suite.directory import Result, SuiteRun, config_path, event, in_use, result_of, resumable, runs_of
from rlcb.suite.process import POLL_SECONDS, Child
from rlcb.suite.settings import Suite

if TYPE_CHECKING:
    from rich.console import Console

_START_UP = 10.0  # seconds from starting a run to its first update, roughly
_GONE_SECONDS = 60.0  # how long to wait for the end of a training whose suite was killed


class Display(Screen):
    """Prints lines; on a terminal keeps two more below them, which are removed at the end."""

    def __init__(self, console: "Console | None" = None):
        self._area = None
        if console or sys.stdout.isatty():
            from rich.live import Live

            self._area = Live(console=console, auto_refresh=False, transient=True)
        super().__init__(self._area)

    def show(self, phase: str, fraction: float, times: str, current: str) -> None:
        """Redraw the bar: phase, share done, elapsed and remaining time, the current command's last line."""
        if not self._area or not self._live:
            return
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        row = Table.grid(padding=(0, 1))
        share = min(max(fraction, 0.0), 1.0)
        row.add_row(phase, ProgressBar(total=1.0, completed=share, width=24), f"{100 * share:.0f} %", times)
        self._area.update(Group(row, Text(current, no_wrap=True, overflow="ellipsis")), refresh=True)


def clock(seconds: float) -> str:
    """Hours, minutes and seconds: 1:02:03."""
    return str(timedelta(seconds=round(seconds)))


class Work:
    """The runs of a suite, the results of those that are finished, and the methods that do the rest."""

    def __init__(self, output: Path, suite: Suite, stop: StopRequest, display: Display):
        self.output = output
        self.suite = suite
        self.runs = runs_of(suite.settings, output)
        self.results = {run: result for run in self.runs if (result := result_of(run))}
        self.failures: dict[str, str] = {}  # what failed this time, and why
        self._stop = stop
        self._display = display
        self._started = time.monotonic()

    @property
    def unfinished(self) -> list[SuiteRun]:
        """The runs that are not finished, in their order."""
        return [run for run in self.runs if run not in self.results]

    def expected_seconds(self, run: SuiteRun) -> float | None:
        """How long a run will take: its duration, or the mean of finished runs like it; None where there are none."""
        if self.suite.settings.duration_hours:
            return 3600 * self.suite.settings.duration_hours + _START_UP
        alike = [result.seconds for other, result in self.results.items() if other.pair == run.pair]
        known = alike or [result.seconds for result in self.results.values()]
        return fmean(known) + _START_UP if known else None

    def seconds_left(self, runs: list[SuiteRun]) -> float | None:
        """How long these runs will take together, with the pauses between them."""
        each = [self.expected_seconds(run) for run in runs]
        known = [seconds for seconds in each if seconds is not None]
        rests = self.suite.settings.cool_down * max(len(runs) - 1, 0)
        return sum(known) + rests if len(known) == len(each) else None

    def train(self) -> None:
        """Do every run that is not finished, in order; one that fails is recorded and does not stop the others."""
        rest = False
        for number, run in enumerate(self.runs, 1):
            label = f"[{number}/{len(self.runs)}] {run.name}"
            if run in self.results:
                self._display.line(f"{label}: already finished, {_metrics_of(self.results[run])}")
                continue
            if rest:
                self._rest()
            if self._stop.signal is not None:
                return
            self._train_one(label, run, [later for later in self.runs[number:] if later not in self.results])
            rest = True

    def _train_one(self, label: str, run: SuiteRun, later: list[SuiteRun]) -> None:
        self._display.line(f"{label}: {'resumed' if resumable(run) else 'started'}, output in {run.log}")
        done = len(self.runs) - len(later) - 1
        before, after = self.expected_seconds(run), self.seconds_left([run, *later])
        try:
            child = start_training(run, self.output)
            for spent in child.until_end(self._stop):
                part = min(spent / before, 1.0) if before else 0.0
                left = None if after is None or before is None else after - min(spent, before)
                share = (done + part) / len(self.runs)
                self._display.show("Training", share, self._times(left), f"{label}: {child.last_line()}")
            reason = child.reason()
        except ResourceError as error:
            reason = str(error)
        result = result_of(run)
        if reason is None and result is not None:
            self.results[run] = result
            event(self.output, "run_finished", run=run.name)
            self._display.line(f"{label}: finished, {_metrics_of(result)} ({self._times(self.seconds_left(later))})")
        elif self._stop.signal is not None:
            event(self.output, "run_interrupted", run=run.name)
        else:
            reason = self.failures[run.name] = reason or "ended without a final checkpoint and summary"
            event(self.output, "run_failed", run=run.name, reason=reason)
            self._display.line(f"{label}: FAILED, {reason} ({self._times(self.seconds_left(later))})")

    def _rest(self) -> None:
        """Pause so that the machine cools down; a signal ends the pause."""
        end = time.monotonic() + self.suite.settings.cool_down
        while self._stop.signal is None and (left := end - time.monotonic()) > 0:
            self._display.show("Training", 1 - len(self.unfinished) / len(self.runs), f"cooling down: {left:.0f} s", "")
            time.sleep(min(left, POLL_SECONDS))

    def evaluate(self) -> None:
        """Evaluate the final checkpoint of every finished run that is not evaluated yet."""
        episodes = self.suite.settings.eval_episodes
        runs = [run for run in self.runs if run in self.results]
        configs = self.suite.configs
        todo = [run for run in runs if episodes and not is_evaluated(run, configs[run.pair], episodes)]
        if runs and episodes and len(todo) < len(runs):
            self._display.line(f"Evaluated already: {len(runs) - len(todo)} of {len(runs)} runs")
        begun = time.monotonic()
        for number, run in enumerate(todo, 1):
            if self._stop.signal is not None:
                return
            label = f"[{number}/{len(todo)}] evaluation of {run.name}"
            levels = "both" if len(_levels(configs[run.pair], run.game)) > 1 else "train"
            command = ("evaluate", "--checkpoint", run.final_checkpoint, "--levels", levels)
            child = Child((*command, "--num-episodes", str(episodes)), run.log)
            reason = self._wait_for(child, "Evaluation", (number - 1) / len(todo), label)
            left = (time.monotonic() - begun) / number * (len(todo) - number)
            if reason is None:
                self._display.line(f"{label}: finished ({self._times(left)})")
            elif self._stop.signal is None:
                self.failures[f"evaluation of {run.name}"] = reason
                event(self.output, "evaluation_failed", run=run.name, reason=reason)
                self._display.line(f"{label}: FAILED, {reason} ({self._times(left)})")

    def report(self) -> Path | None:
        """Compare the finished runs and write the report; returns its most readable file."""
        folder = self.output / "report"
        child = Child(["compare", self.output, "--output", folder], self.output / "report.log")
        reason = self._wait_for(child, "Report", 0.0, "comparing all runs")
        if self._stop.signal is not None:
            return None
        if reason:
            self.failures["report"] = reason
            return None
        said = [line for line in child.output().splitlines() if not line.startswith("Report: ")]  # that comes last
        self._display.line("\n".join(said))
        readable = [folder / "report.html", folder / "comparison_report.txt"]
        return next((file for file in readable if file.exists()), folder)

    def _wait_for(self, child: Child, phase: str, fraction: float, label: str) -> str | None:
        """Wait for a command's end; returns why it failed, or None."""
        for _ in child.until_end(self._stop):
            self._display.show(phase, fraction, self._elapsed(), f"{label}: {child.last_line()}")
        return child.reason()

    def _elapsed(self) -> str:
        return f"elapsed {clock(time.monotonic() - self._started)}"

    def _times(self, left: float | None) -> str:
        return f"{self._elapsed()}, " + ("time left not known yet" if left is None else f"about {clock(left)} left")


def start_training(run: SuiteRun, output: Path) -> Child:
    """Start a run, or resume it where an earlier start left a checkpoint."""
    deadline = time.monotonic() + _GONE_SECONDS
    while in_use(run) and time.monotonic() < deadline:
        time.sleep(0.1)  # the training of a suite that was killed is about to end
    if resumable(run):
        event(output, "run_resumed", run=run.name)
        return Child(["train", "--resume", run.path], run.log)
    event(output, "run_started", run=run.name)
    kind = ("train", run.algorithm, "--mode", run.mode, "--config", config_path(output, run.pair))
    return Child((*kind, "--env", run.game, "--seed", str(run.seed), "--output-dir", run.path), run.log)


def _levels(config: Config, game: str) -> tuple[str, ...]:
    """What to evaluate on: also unseen levels, where there are any."""
    return ("train", "unseen") if family_of(game).has_levels and config.env.num_levels else ("train",)


def is_evaluated(run: SuiteRun, config: Config, episodes: int) -> bool:
    """Whether the final checkpoint, identified by its hash, was evaluated on all the levels that it should be."""
    file = run.final_checkpoint.with_name(f"{run.final_checkpoint.stem}_evaluation.json")
    try:
        known = read_object(file)
        digest = sha256_of(run.final_checkpoint, LARGEST_CHECKPOINT)
    except (OSError, UsageError):
        return False
    name = canonical_env_name(run.game)
    done = {
        entry.levels
        for entry in evaluations_in(known)
        if entry and (entry.env, entry.policy) == (name, "sampled") and entry.complete and entry.episodes >= episodes
    }
    return known.get("checkpoint_sha256") == digest and done.issuperset(_levels(config, run.game))


def _metrics_of(result: Result) -> str:
    fps = "FPS n/a" if result.fps is None else f"{result.fps:,.0f} FPS"
    return f"{fps}, reward " + ("n/a" if result.reward is None else f"{result.reward:.2f}")
