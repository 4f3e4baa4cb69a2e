"""The work of a suite: which runs there are and which are done, an evaluation of each, the report."""

import time
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

from rlcb.analysis.evaluations import evaluations_in
from rlcb.analysis.suites import SuiteRun
from rlcb.analysis.untrusted import read_object
from rlcb.config.schema import Config
from rlcb.envs.families import canonical_env_name, family_of
from rlcb.errors import UsageError
from rlcb.files import sha256_of
from rlcb.run.directory import LARGEST_CHECKPOINT
from rlcb.signals import StopRequest
from rlcb.suite.directory import event, result_of, runs_of
from rlcb.suite.display import Display, clock
from rlcb.suite.jobs import core_shares, plan_jobs
from rlcb.suite.machines import Machines, ThisMachine
from rlcb.suite.process import Child
from rlcb.suite.settings import Suite

_START_UP = 10.0  # seconds from starting a run to its first update, roughly


class Work:
    """The runs of a suite, the results of those that are finished, and the methods that do the rest."""

    def __init__(
        self,
        output: Path,
        suite: Suite,
        stop: StopRequest,
        display: Display,
        jobs: int | str | None,
        cluster: Machines | None = None,
    ):
        """`jobs`: how many runs train at a time: a number, auto, or None for what is usual for such a suite.

        `cluster`: where the runs train, if that is not this machine; evaluations and the report are made here.
        """
        self.output = output
        self.suite = suite
        self.runs = runs_of(suite.settings, output)
        self.results = {run: result for run in self.runs if (result := result_of(run))}
        self.failures: dict[str, str] = {}  # what failed this time, and why
        self.jobs = plan_jobs(None if cluster else jobs, suite, self.unfinished, core_shares())
        self.machines = cluster or ThisMachine(self.jobs, suite, output)
        self.stop = stop
        self.display = display
        self._started = time.monotonic()

    @property
    def unfinished(self) -> list[SuiteRun]:
        """The runs that are not finished, in their order."""
        return [run for run in self.runs if run not in self.results]

    def expected_seconds(self, run: SuiteRun) -> float | None:
        """How long a run will take: its duration, or the mean of finished runs like it; None where there are none."""
        if self.suite.settings.duration_hours:
            return 3600 * self.suite.settings.duration_hours + _START_UP
        alike = [result.seconds for other, result in self.results.items() if other.kind == run.kind]
        known = alike or [result.seconds for result in self.results.values()]
        return fmean(known) + _START_UP if known else None

    def seconds_left(self, runs: Sequence[SuiteRun]) -> float | None:
        """How long these runs will take together, with the pauses between them."""
        each = [self.expected_seconds(run) for run in runs]
        known = [seconds for seconds in each if seconds is not None]
        if len(known) < len(each):
            return None
        divided = sum(seconds / self.machines.at_once(run) for run, seconds in zip(runs, known, strict=True))
        rests = self.suite.settings.cool_down * max(len(runs) - 1, 0) / self.machines.count
        return max(divided + rests, *known, 0.0)

    def evaluate(self) -> None:
        """Evaluate the final checkpoint of every finished run that is not evaluated yet."""
        episodes = self.suite.settings.eval_episodes
        runs = [run for run in self.runs if run in self.results]
        configs = self.suite.configs
        todo = [run for run in runs if episodes and not is_evaluated(run, configs[run.kind], episodes)]
        if runs and episodes and len(todo) < len(runs):
            self.display.line(f"Evaluated already: {len(runs) - len(todo)} of {len(runs)} runs")
        begun = time.monotonic()
        for number, run in enumerate(todo, 1):
            if self.stop.signal is not None:
                return
            label = f"[{number}/{len(todo)}] evaluation of {run.name}"
            levels = "both" if len(_levels(configs[run.kind], run.game)) > 1 else "train"
            command = ("evaluate", "--checkpoint", run.final_checkpoint, "--levels", levels)
            child = Child((*command, "--num-episodes", str(episodes)), run.log)
            reason = self._wait_for(child, "Evaluation", (number - 1) / len(todo), label)
            left = (time.monotonic() - begun) / number * (len(todo) - number)
            if reason is None:
                self.display.line(f"{label}: finished ({self.times(left)})")
            elif self.stop.signal is None:
                self.failures[f"evaluation of {run.name}"] = reason
                event(self.output, "evaluation_failed", run=run.name, reason=reason)
                self.display.line(f"{label}: FAILED, {reason} ({self.times(left)})")

    def report(self) -> Path | None:
        """Compare the finished runs and write the report; returns its most readable file."""
        folder = self.output / "report"
        child = Child(["compare", self.output, "--output", folder], self.output / "report.log")
        reason = self._wait_for(child, "Report", 0.0, "comparing all runs")
        if self.stop.signal is not None:
            return None
        if reason:
            self.failures["report"] = reason
            return None
        said = [line for line in child.output().splitlines() if not line.startswith("Report: ")]  # that comes last
        self.display.line("\n".join(said))
        readable = [folder / "report.html", folder / "comparison_report.txt"]
        return next((file for file in readable if file.exists()), folder)

    def _wait_for(self, child: Child, phase: str, fraction: float, label: str) -> str | None:
        """Wait for a command's end; returns why it failed, or None."""
        for _ in child.until_end(self.stop):
            if self.display.drawn:
                self.display.show(phase, fraction, self._elapsed(), [f"{label}: {child.last_line()}"])
        return child.reason()

    def _elapsed(self) -> str:
        return f"elapsed {clock(time.monotonic() - self._started)}"

    def times(self, left: float | None) -> str:
        """Elapsed and remaining time, for people."""
        return f"{self._elapsed()}, " + ("time left not known yet" if left is None else f"about {clock(left)} left")


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
