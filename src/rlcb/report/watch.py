"""`rlcb compare --watch`: the page is written again whenever runs have progressed, until none is running."""

import os
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rlcb.analysis.load import find_runs
from rlcb.analysis.run_status import RunStatus
from rlcb.analysis.status import SuiteStatus, look
from rlcb.console import lost_output, warn
from rlcb.errors import UsageError
from rlcb.report.compare import Question, finish_comparison, make_folder, write_page
from rlcb.report.progress import Progress
from rlcb.signals import StopRequest
from rlcb.words import counted, short_time

_NICENESS = 10  # training comes first
_SHARE = 0.1  # of one core that watching takes at most
_TICK = 0.1  # seconds between looks for a signal
_SHOWN = ("running", "waiting")


@dataclass(frozen=True)
class Look:
    """What all runs are doing at one time."""

    runs: tuple[RunStatus, ...]
    suites: tuple[SuiteStatus, ...]
    traces: frozenset[tuple[object, ...]]  # differs from an earlier look's if any run has progressed since

    @property
    def under_way(self) -> bool:
        """Whether anything trains or evaluates, or waits for its turn in a suite that does."""
        return any(run.state == "running" for run in self.runs) or any(one.state == "running" for one in self.suites)

    @property
    def text(self) -> str:
        """How many runs are in which state, and how long they will take."""
        count = Counter(run.state for run in self.runs)
        parts = [f"{count['finished']} of {counted(len(self.runs), 'run')} finished"]
        parts += [f"{number} {state}" for state, number in count.items() if state != "finished"]
        known = [*(run.eta_seconds for run in self.runs), *(suite.eta_seconds for suite in self.suites)]
        left = max((seconds for seconds in known if seconds is not None), default=None)
        return ", ".join(parts) + (f", about {short_time(left)} left" if left is not None and self.under_way else "")


def watch_comparison(question: Question, output: Path, seconds: float) -> int:
    """Keep the page current, looking every `seconds`; once no run is in progress write everything and end."""
    for path in question.paths:
        if not os.path.isdir(path):
            raise UsageError(f"{path}: {'not a directory' if os.path.exists(path) else 'no such directory'}")
    make_folder(output)
    os.nice(_NICENESS)
    stop = StopRequest("writing the final report")
    stop.begin()
    before: Look | None = None
    said = ""
    while stop.signal is None and lost_output() is None:
        began = time.process_time()
        now = look_at(question.paths)
        # Between two runs of a script nothing is in progress for an instant, so the state is read twice.
        if now.runs and not now.under_way and (before is None or not before.under_way):
            return finish_comparison(question, output)
        if before is None or now.traces != before.traces:
            said = _update(question, output, seconds, now, said)
        before = now
        _wait(stop, max(seconds, (time.process_time() - began) / _SHARE))
    try:
        finish_comparison(question, output)
    except UsageError as error:
        warn(str(error))
    return stop.exit_code


def _update(question: Question, output: Path, seconds: float, now: Look, said: str) -> str:
    """Write the page as it is now; returns the line that was printed, which is not repeated."""
    progress = Progress(now.text, [run for run in now.runs if run.state in _SHOWN], seconds)
    try:
        line = f"{now.text}: {write_page(question, output, progress)}"
    except UsageError:
        line = f"{now.text}: no results yet"
    except OSError as error:  # a run was moved while it was read; the next look finds where it is
        line = f"{now.text}: not shown ({error.strerror}: {error.filename})"
    if line != said:
        print(f"[{time.strftime('%H:%M:%S')}] {line}", flush=True)
    return line


def _wait(stop: StopRequest, seconds: float) -> None:
    """Wait, but not longer than until a signal comes."""
    end = time.monotonic() + seconds
    while stop.signal is None and (left := end - time.monotonic()) > 0:
        time.sleep(min(left, _TICK))


def look_at(paths: Sequence[Path]) -> Look:
    """What the runs below some folders are doing."""
    runs: list[RunStatus] = []
    suites: list[SuiteStatus] = []
    traces: set[tuple[object, ...]] = set()
    for path in paths:
        try:
            found = look(path, time.time())
        except UsageError:  # the folder is gone
            continue
        runs += found.runs
        suites += found.suites
        traces |= {(run.run, run.state, run.step, run.detail) for run in found.runs}
        traces |= {(suite.suite, suite.state) for suite in found.suites}
        for run in find_runs(path, lambda _: None):
            traces |= set(_files(run))
    return Look(tuple(runs), tuple(suites), frozenset(traces))


def _files(run: Path) -> Iterator[tuple[object, ...]]:
    """Name, size and time of the last change of each file of a run."""
    for folder, _, names in os.walk(run):
        for name in names:
            try:
                found = os.stat(os.path.join(folder, name))
            except OSError:  # a temporary file that is gone already
                continue
            yield os.path.join(folder, name), found.st_size, found.st_mtime_ns
