"""The work of a suite: which runs there are and which are done, how long the rest will take, the report."""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean

from rlcb.analysis.suites import SuiteRun
from rlcb.console import clock
from rlcb.envs.families import family_of
from rlcb.signals import StopRequest
from rlcb.suite.directory import result_of, runs_of
from rlcb.suite.display import Display
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
        self.foreseen: dict[SuiteRun, float] = {}  # seconds that runs in progress will have taken
        self._started = time.monotonic()

    @property
    def unfinished(self) -> list[SuiteRun]:
        """The runs that are not finished, in their order."""
        return [run for run in self.runs if run not in self.results]

    def expected_seconds(self, run: SuiteRun) -> float | None:
        """How long a run will take: its duration, or the mean of finished runs like it; None where there are none.

        Where none is finished, those in progress tell (`foreseen`).
        """
        if self.suite.settings.duration_hours:
            return 3600 * self.suite.settings.duration_hours + _START_UP
        finished = {other: result.seconds for other, result in self.results.items()}
        alike = [
            [seconds for other, seconds in times.items() if other.kind == run.kind] or list(times.values())
            for times in (finished, self.foreseen)
        ]
        known = alike[0] or alike[1]
        return fmean(known) + _START_UP if known else None

    def seconds_left(self, runs: Sequence[SuiteRun], begun: Mapping[SuiteRun, float] | None = None) -> float | None:
        """How long these runs will take together, with the pauses between them; `begun`: what some have left."""
        each = [(begun or {}).get(run, self.expected_seconds(run)) for run in runs]
        known = [seconds for seconds in each if seconds is not None]
        if len(known) < len(each):
            return None
        divided = sum(seconds / self.machines.at_once(run) for run, seconds in zip(runs, known, strict=True))
        rests = self.suite.settings.cool_down * max(len(runs) - 1, 0) / self.machines.count
        return max(divided + rests, *known, 0.0)

    def evaluation_seconds(self, runs: Sequence[SuiteRun]) -> float | None:
        """How long evaluations of these runs will take, from speed and episodes of finished ones; None: not known yet.

        Acting is quicker than training, but an evaluation has fewer cores.
        """
        episodes = self.suite.settings.eval_episodes
        if not episodes or not runs:
            return 0.0
        known = {run: r.episode_length / r.fps for run, r in self.results.items() if r.fps and r.episode_length}
        if not known:
            return None
        total = 0.0
        for run in runs:
            alike = [seconds for other, seconds in known.items() if (other.kind, other.game) == (run.kind, run.game)]
            config = self.suite.configs[run.kind]
            levels = 2 if family_of(run.game).has_levels and config.env.num_levels else 1
            at_once = max(len(core_shares()) // (config.hardware.num_threads or 1), 1)
            total += (_START_UP + levels * episodes * fmean(alike or known.values())) / min(at_once, len(runs))
        return total

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

    def times(self, left: float | None, complete: bool = True) -> str:
        """Elapsed and remaining time, for people; not `complete`: how long the evaluations take is not known yet."""
        if left is None:
            return f"{self._elapsed()}, remaining time not yet known"
        return f"{self._elapsed()}, about {clock(left)} left{'' if complete else ' and the evaluations'}"
