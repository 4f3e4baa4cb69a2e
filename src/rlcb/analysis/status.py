"""What every run and suite below a folder is doing, from their files alone."""

import os
import re
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Set
from dataclasses import dataclass, field, replace
from pathlib import Path

from rlcb.analysis.load import ASIDE, walk
from rlcb.analysis.run_status import RunStatus, run_status
from rlcb.analysis.suites import Suite, SuiteRun, is_suite, read_suite
from rlcb.analysis.untrusted import plain
from rlcb.errors import UsageError
from rlcb.words import typed


@dataclass(frozen=True)
class SuiteStatus:
    """A suite and how many of its runs are in which state."""

    suite: str  # its directory, relative to the folder that was named
    state: str
    runs: int
    done: int
    running: int
    waiting: int
    interrupted: int
    dead: int
    unknown: int
    failed: int
    eta_seconds: float | None
    detail: str


@dataclass(frozen=True)
class Snapshot:
    """Everything below a folder."""

    folder: str
    runs: list[RunStatus] = field(default_factory=list)
    moved_aside: list[RunStatus] = field(default_factory=list)  # runs that made room for one of those
    suites: list[SuiteStatus] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)  # what could not be read, and why


def look(folder: Path, now: float) -> Snapshot:
    """The runs and suites below a folder; `now` is the time, in seconds since the epoch."""
    if not os.path.isdir(folder):
        what = "not a directory" if os.path.exists(folder) else "no such directory"
        raise UsageError(f"{plain(str(folder))}: {what}; give a directory with runs (default ./benchmarks)")
    snapshot, plans = Snapshot(plain(str(folder))), []
    runs: dict[Path, RunStatus] = {}
    for path, run, aside in walk(folder, lambda text: snapshot.left_out.append(plain(text))):
        name = _name(folder, path)
        for copy, successor in aside.items():
            found = replace(run_status(copy, now), run=_name(folder, copy), replaced_by=_name(folder, successor))
            snapshot.moved_aside.append(found)
        if run:
            runs[path] = replace(run_status(path, now), run=name)
        elif is_suite(path):
            try:
                plans.append((name, read_suite(path)))
            except UsageError as error:
                snapshot.left_out.append(plain(f"left out: {error}"))
    for name, read in plans:
        suite = _with_state_of_runs(read, runs)
        runs |= {run.path: _planned(folder, runs, suite, run) for run in suite.runs}
        snapshot.suites.append(_suite_status(name, suite, [runs[run.path] for run in suite.runs]))
        for path, successor in _replaced(runs, {run.path for run in suite.runs}).items():
            snapshot.moved_aside.append(replace(runs.pop(path), replaced_by=_name(folder, successor)))
    snapshot.runs.extend(sorted(runs.values(), key=lambda run: _natural(run.run)))
    snapshot.moved_aside.sort(key=lambda run: _natural(run.run))
    return snapshot


def _replaced(runs: Iterable[Path], planned: Set[Path]) -> dict[Path, Path]:
    """The runs that were moved aside for one that a suite has planned and not begun, with that one."""
    found = {path: path.with_name(ASIDE.sub("", path.name)) for path in runs if path not in planned}
    return {path: successor for path, successor in found.items() if successor in planned}


def _name(folder: Path, path: Path) -> str:
    """What a directory is called, relative to the folder that was named."""
    return plain(str(path.relative_to(folder)) if path != folder else os.path.basename(os.path.abspath(path)))


def _natural(name: str) -> list[tuple[int, str]]:
    """A key that sorts seed_2 before seed_10."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d{1,18})", name)]


def _with_state_of_runs(suite: Suite, runs: dict[Path, RunStatus]) -> Suite:
    """The suite; one of another machine is taken for running if any of its runs is."""
    found = [runs[run.path] for run in suite.runs if run.path in runs]
    running = suite.state == "unknown" and any(run.state == "running" for run in found)
    return replace(suite, state="running") if running else suite


def _planned(folder: Path, runs: dict[Path, RunStatus], suite: Suite, run: SuiteRun) -> RunStatus:
    """A run of a suite's plan: as its directory says, or where it has none yet as the suite does."""
    alive, known = suite.state == "running", runs.get(run.path)
    if known is None:
        name = plain(str(run.path.relative_to(folder)))
        kind = run.kind
        known = RunStatus(
            name, kind.algorithm, kind.mode, kind.variant, run.game, run.seed, state="waiting", fraction=0.0
        )
        if reason := suite.failure(run):
            return replace(known, state="failed", detail=reason)
        if alive and suite.started(run):
            return replace(known, state="running", detail="starting", where=suite.node(run))
        return known if alive else replace(known, detail=f"its suite is {suite.state}")
    if alive and known.state in ("interrupted", "dead") and not suite.started(run):
        return replace(known, state="waiting", detail=f"to be resumed: {known.state} {known.detail}")
    if known.state == "dead" and (reason := suite.failure(run)):  # its node was lost too often, for instance
        return replace(known, state="failed", detail=reason)
    return replace(known, where=suite.node(run)) if known.state == "running" else known


def _suite_status(name: str, suite: Suite, runs: list[RunStatus]) -> SuiteStatus:
    """The totals of a suite."""
    count = Counter(run.state for run in runs)
    done, running, alive = count["finished"], count["running"], suite.state == "running"
    to_do = len(runs) - done - running - count["failed"]  # also what was interrupted or is dead, which is resumed
    left = [run.eta_seconds for run in runs if run.state == "running" and run.eta_seconds is not None]
    known = list(_lengths(runs))
    eta = suite.seconds_left(left, to_do + running - len(left), known) if alive and to_do + running else None
    detail = "evaluating runs and writing the report" if alive and not to_do and not running else ""
    if not alive and done < len(runs):
        output = shlex.quote(plain(str(suite.path)))
        detail = f"resume with: {typed(f'rlcb benchmark --output-dir {output}{suite.import_flags}')}"
    others = {state: count[state] for state in ("running", "waiting", "interrupted", "dead", "unknown", "failed")}
    return SuiteStatus(name, suite.state, len(runs), done, **others, eta_seconds=eta, detail=detail)


def _lengths(runs: list[RunStatus]) -> Iterator[float]:
    """The seconds that each run takes as a whole, of those where it is known."""
    for run in runs:
        if run.seconds is not None and (run.state == "finished" or run.eta_seconds is not None):
            yield run.seconds + (run.eta_seconds or 0.0)
