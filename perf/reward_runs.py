"""The runs of perf/time_to_reward.py: how a way of this program, or a peer, is trained, watched and read."""

import contextlib
import json
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

REPO = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPO / "src"))

from peer_sides import (  # noqa: E402
    SideError,
    last_words,
    our_environment,
    peer_environment,
    said,
    started,
)
from peer_work import DISTRIBUTION, GAME, NUM_LEVELS  # noqa: E402
from rlcb.analysis.external.convert import convert, run_of  # noqa: E402
from rlcb.analysis.external.find import source_at  # noqa: E402
from rlcb.analysis.external.labels import Labels  # noqa: E402
from rlcb.analysis.load import load_run  # noqa: E402
from rlcb.analysis.reaching import RewardLevel, reach  # noqa: E402
from rlcb.analysis.run import Run  # noqa: E402
from rlcb.disturbance.verdict import Disturbance  # noqa: E402
from rlcb.disturbance.watch import Watch  # noqa: E402
from rlcb.errors import UsageError  # noqa: E402
from rlcb.files import write_json  # noqa: E402

_START_SECONDS = 600  # within which a run must have logged something
_SAVE_SECONDS = 60  # that a run of this program gets to save what it has
_LOOK_SECONDS = 1.0  # between looks at a run's log, at least
_LOOK_SHARE = 0.02  # of one core that looking takes at most


@dataclass(frozen=True)
class Way:
    """A way to train: an algorithm and mode of this program, or an algorithm of a peer."""

    name: str  # of its folder
    title: str  # in the table
    algorithm: str
    command: tuple[str, ...]  # without seed and folder
    peer: str = ""  # empty: this program

    def folder(self, root: Path, seed: int) -> Path:
        """Where the run of a seed is."""
        return root / GAME / self.name / f"seed_{seed}"

    def started_with(self, root: Path, seed: int) -> list[str]:
        """The whole command of a seed."""
        where = "--log" if self.peer else "--output-dir"
        return [*self.command, "--seed", str(seed), where, str(self.folder(root, seed))]

    def read(self, root: Path, seed: int) -> Run:
        """The run of a seed as far as it is logged; UsageError where nothing is."""
        folder = self.folder(root, seed)
        if not self.peer:
            return load_run(folder)
        source = source_at(folder)
        if source is None:
            raise UsageError(f"{folder}: contains no log")
        labels = Labels(self.title, self.algorithm, GAME, seed, DISTRIBUTION, NUM_LEVELS, 0)
        return run_of(folder, *convert(source, labels))


@dataclass(frozen=True)
class Limits:
    """When a run ends; its steps are part of its command."""

    levels: tuple[RewardLevel, ...]  # once the last of them is reached
    seconds: float  # of training


@dataclass(frozen=True)
class Outcome:
    """A run that has ended, and why."""

    run: Run
    why: str
    kept: bool = False  # it was there already


def train(way: Way, seed: int, root: Path, limits: Limits) -> Outcome:
    """Train one seed, unless an earlier command with the same settings did; SideError says what went wrong."""
    note, command = way.folder(root, seed).with_suffix(".json"), way.started_with(root, seed)
    settings = {"command": command, "rewards": [level.reward for level in limits.levels], "seconds": limits.seconds}
    if note.is_file():
        known = json.loads(note.read_text(encoding="utf-8"))
        if known["settings"] != settings:
            raise SideError(f"{note.parent / note.stem} was trained with other settings; give another --output")
        return Outcome(_judged(way, way.read(root, seed), Disturbance(**known["disturbance"])), known["why"], kept=True)
    if way.peer:
        # What a command that broke off has left would be read as the beginning of this log.
        shutil.rmtree(way.folder(root, seed), ignore_errors=True)
        way.folder(root, seed).mkdir(parents=True)
    with tempfile.TemporaryDirectory(prefix="rlcb-time-", ignore_cleanup_errors=True) as scratch:
        why, disturbance = _run(way, seed, root, limits, Path(scratch))
    try:
        run = way.read(root, seed)
    except UsageError as error:
        raise SideError(f"nothing was logged: {error}") from error
    write_json(note, {"settings": settings, "why": why, "disturbance": asdict(disturbance)})
    return Outcome(_judged(way, run, disturbance), why)


def _judged(way: Way, run: Run, disturbance: Disturbance) -> Run:
    """The run; one of ours has recorded by itself whether it was disturbed."""
    return replace(run, disturbance=disturbance) if way.peer else run


def _run(way: Way, seed: int, root: Path, limits: Limits, scratch: Path) -> tuple[str, Disturbance]:
    """Run the command until it ends or a limit is reached; why it ended, and whether others disturbed it."""
    environment = peer_environment(scratch) if way.peer else our_environment()
    watch = Watch()
    with started(way.started_with(root, seed), scratch, environment) as process:
        why = _wait(process, way, seed, root, limits, watch)
        if why and not way.peer:
            process.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_SAVE_SECONDS)  # what is left after that is killed
    if not why and process.returncode:
        words = last_words(said(scratch, "err") or said(scratch, "out"))
        raise SideError(f"exit status {process.returncode}: {words}")
    return why or "all steps made", watch.verdict()


def _wait(process: subprocess.Popen[bytes], way: Way, seed: int, root: Path, limits: Limits, watch: Watch) -> str:
    """Wait for the end of a run; why it is to be stopped, empty where it ended by itself."""
    begun, pause = time.monotonic(), _LOOK_SECONDS
    watch.look()
    while process.poll() is None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(pause)
            return ""
        used = time.process_time()
        watch.look()
        try:
            run = way.read(root, seed)
        except UsageError:  # nothing is logged yet
            if time.monotonic() - begun > _START_SECONDS:
                raise SideError(f"logged nothing in {_START_SECONDS} s") from None
            continue
        if why := why_enough(run, limits):
            return why
        pause = max(_LOOK_SECONDS, (time.process_time() - used) / _LOOK_SHARE)
    return ""


def why_enough(run: Run, limits: Limits) -> str:
    """Why a run need not go on; empty where it has to."""
    if reach([run], limits.levels[-1:])[0].count:
        return f"stopped: reward {limits.levels[-1].reward:g} reached"
    times: Sequence[float] = run.history.time[-1:].tolist()
    if times and times[0] >= limits.seconds:
        return f"stopped: {limits.seconds / 60:g} minutes are over"
    return ""
