"""Where the runs of a suite train: an interface, and this machine; `cluster` is the other implementation."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from rlcb.analysis.suites import SuiteRun
from rlcb.config.own_modules import import_words
from rlcb.errors import ResourceError
from rlcb.hardware import BESIDE_VARIABLE, CORES_VARIABLE
from rlcb.run.tracking import GROUP_VARIABLE
from rlcb.signals import StopRequest
from rlcb.suite.directory import config_path, resumable
from rlcb.suite.jobs import JobPlan, Room, waves
from rlcb.suite.process import Child
from rlcb.suite.settings import Suite
from rlcb.words import counted


class UnderWay(Protocol):
    """A run that was started, wherever it is: `Child` on this machine, `RemoteRun` on a node."""

    @property
    def where(self) -> str:
        """The node; empty for this machine."""

    @property
    def resumed(self) -> bool:
        """Whether it continues from a checkpoint."""

    @property
    def lost(self) -> str:
        """Why it ended without having failed, so that it is to be continued elsewhere; empty if it did not."""

    @property
    def refused(self) -> str:
        """Why its node cannot be used for any run; `lost` says the same then."""

    @property
    def seconds(self) -> float:
        """How long ago it was started."""

    def ended(self, patience: float, stop: StopRequest) -> bool:
        """Whether it has ended, after waiting some seconds for that; a signal is passed on to it, once."""

    def reason(self) -> str | None:
        """Why it failed, once it has ended; None: it did not fail."""

    def last_lines(self, most: int) -> list[str]:
        """The last lines with words in them that were printed so far."""

    def last_line(self) -> str:
        """The last of them."""


class Machines(ABC):
    """What runs are started on: knows what there is room for."""

    shortage = ""  # why runs have to wait although none is in progress, or for memory

    @property
    @abstractmethod
    def count(self) -> int:
        """How many runs can train at the same time."""

    @abstractmethod
    def at_once(self, run: SuiteRun) -> int:
        """How many runs like this one can train at the same time."""

    @abstractmethod
    def start(self, run: SuiteRun, unfinished: Sequence[SuiteRun]) -> UnderWay | None:
        """Start a run, or resume it where an earlier start left a checkpoint; None if there is no room for it now.

        `unfinished`: all runs in progress and waiting, this one among them.
        """

    @abstractmethod
    def leave(self, run: SuiteRun) -> None:
        """A run has ended."""

    @abstractmethod
    def check(self) -> None:
        """Look at what there is, before runs are started; raise WorkersLost if nothing can be any more."""

    @abstractmethod
    def description(self) -> list[str]:
        """Lines for people: what there is, how many runs at a time."""

    @abstractmethod
    def outlook(self, runs: Sequence[SuiteRun]) -> list[list[tuple[SuiteRun, str]]]:
        """What would train beside what, and where, if all of these runs took equally long; empty: one by one here."""


class ThisMachine(Machines):
    """Runs are child processes of this one, which share its cores and memory."""

    def __init__(self, plan: JobPlan, suite: Suite, output: Path):
        self._plan, self._suite, self._output = plan, suite, output
        self._room = Room(plan, suite)

    @property
    def count(self) -> int:
        """How many runs can train at the same time."""
        return self._plan.count

    def at_once(self, run: SuiteRun) -> int:
        """How many runs like this one can train at the same time."""
        return self._plan.at_once(run)

    def start(self, run: SuiteRun, unfinished: Sequence[SuiteRun]) -> UnderWay | None:
        """Start or resume a run as a child process on cores of its own."""
        cores = self._room.take(run)
        self.shortage = self._room.shortage
        if not cores:
            return None
        plan, resumed = self._plan, resumable(run)
        beside = plan.beside(run, [other for other in unfinished if other != run])
        variables = {BESIDE_VARIABLE: str(beside), CORES_VARIABLE: str(len(plan.shares)), **group_of(self._output)}
        words = train_words(run, self._suite, config_path(self._output, run.kind), run.path, resumed)
        if run.kind in plan.threads:
            words += ["--num-threads", str(plan.threads[run.kind])]
        try:
            child = Child(words, run.log, cores if len(cores) < sum(map(len, plan.shares)) else (), variables)
        except ResourceError:
            self._room.leave(run)
            raise
        child.resumed = resumed
        return child

    def leave(self, run: SuiteRun) -> None:
        """A run has ended."""
        self._room.leave(run)

    def check(self) -> None:
        """This machine is there."""

    def description(self) -> list[str]:
        """What each run takes, if several train at the same time."""
        plan = self._plan
        if plan.count == 1:
            return []
        cores = f"{counted(len(plan.shares), 'core')}; cores per run: {plan.claims_text}"
        return [f"Concurrency: up to {plan.count} runs on {cores}"]

    def outlook(self, runs: Sequence[SuiteRun]) -> list[list[tuple[SuiteRun, str]]]:
        """What would train beside what."""
        if self._plan.count == 1:
            return []
        return [
            [(run, counted(claim, "core")) for run in wave if (claim := self._plan.claims[run.kind])]
            for wave in waves(runs, self._plan, self._suite)
        ]


def group_of(output: Path) -> dict[str, str]:
    """The variable that tells a run which suite it belongs to: the one in this directory."""
    return {GROUP_VARIABLE: output.resolve().name}


def train_words(run: SuiteRun, suite: Suite, config: Path, folder: Path, resumed: bool) -> list[str]:
    """The command that starts a run with a config file in a folder, or resumes the one that is there."""
    own = import_words(suite.configs[run.kind])
    if not resumed:
        words = ["train", run.kind.algorithm, "--mode", run.kind.mode, "--config", str(config), *own]
        return [*words, "--env", run.game, "--seed", str(run.seed), "--output-dir", str(folder)]
    words = ["train", "--resume", str(folder), *own]
    if run.kind.is_parallel and "cluster" in suite.settings.overrides:  # it may be another one than before
        words += ["--cluster", suite.configs[run.kind].parallel.cluster or "null"]
    return words
