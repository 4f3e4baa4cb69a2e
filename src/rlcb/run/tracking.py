"""Hands a run's metrics to its sinks, none of which can stop or delay it: what fails costs one warning.

TensorBoard's files are written here. A tracker has a process of its own, which follows metrics.jsonl, so that training
never waits for it and it may hang or be killed. Its standard input says what to do and, at its end, how the run ended;
its standard output says how it is getting on.
"""

import json
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from rlcb.config.schema import Config
from rlcb.console import note, warn
from rlcb.errors import ResourceError
from rlcb.files import open_regular, owner_of_lock, read_events, read_json
from rlcb.run.directory import HISTORY, LOCK, RunDirectory, folders_of, read_run
from rlcb.run.history import Metrics, parsed
from rlcb.run.sinks import TRACKERS, Place, Sink, TensorBoard, Tracker, in_a_line, want_tensorboard

GROUP_VARIABLE = "RLCB_GROUP"  # the name of the suite that a run belongs to
PATIENCE = 30.0  # seconds that a command waits for its tracker at its end
_AFTER_A_SIGNAL = 5.0  # the same where somebody waits for the command
_SILENT = 2.0  # seconds of waiting that need no explanation
_LOOK_EVERY = 1.0  # seconds between a tracker's looks at the metrics
_NICENESS = 10  # of a tracker: training comes first
_ORPHANED = 60.0  # seconds after which a tracker gives up that nobody waits for any more
_EVENT = "tracked"
_WITHOUT = "; continuing without it"
_LARGEST_SUMMARY = 4 * 2**20  # bytes


class Sinks:
    """Where the metrics of one run go, besides metrics.jsonl."""

    def __init__(self, run: RunDirectory, config: Config, step: int):
        """`step`: environment steps of the last update in metrics.jsonl, 0 if it is empty."""
        self._run = run
        self._here: dict[str, Sink] = {}
        self._apart: _Apart | None = None
        env, variant = config.env, [config.logging.variant] if config.logging.variant else []
        title = " ".join([run.algorithm, run.mode, *variant, env.name, f"seed {env.seed}"])
        place = Place(str(run.path), str(run.logs), title, step, group=os.environ.get(GROUP_VARIABLE, ""))
        about = {"algorithm": run.algorithm, "mode": run.mode, **config.as_used()}
        if want_tensorboard(config.logging.tensorboard):
            with _guarded("TensorBoard", self._here):
                board = TensorBoard(place)
                board.begin(about)
                self._here["TensorBoard"] = board
        if (name := config.logging.track) is not None:
            place = replace(place, id=_known_id(run.path, name))
            history = run.logs / HISTORY
            begin = history.stat().st_size if place.id else 0  # a tracker that does not know the run gets all of it
            job = {"config": about, "history": str(history), "offset": begin}
            self._apart = _Apart(name, place, job, run)

    @property
    def process(self) -> int | None:
        """The tracker's process: it is none of the run's work."""
        return self._apart.pid if self._apart else None

    def write(self, metrics: Metrics) -> None:
        """An update is done, and is in metrics.jsonl."""
        for name, sink in list(self._here.items()):
            with _guarded(name, self._here):
                sink.write(metrics)
        if self._apart:
            self._apart.look()

    def close(self, status: str) -> None:
        """The run has ended and its summary is written; waits for a tracker, but not for ever."""
        for name, sink in list(self._here.items()):
            with _guarded(name, self._here):
                sink.end(_summary(self._run.path, status))
        if self._apart:
            self._apart.end(status, _AFTER_A_SIGNAL if status == "interrupted" else PATIENCE)


@contextmanager
def _guarded(name: str, sinks: dict[str, Sink]) -> Iterator[None]:
    """Go on without a sink that fails."""
    try:
        yield
    except Exception as error:  # it is somebody else's code
        sinks.pop(name, None)
        warn(f"{name}: {in_a_line(error)}{_WITHOUT}")


def add_video(checkpoint: Path, file: Path, step: int) -> None:
    """Hand a video of a checkpoint's policy to where the metrics of its run went."""
    path = checkpoint.resolve().parent.parent
    if not (path / "run.json").is_file():
        return
    config, mode = read_run(path)
    place = Place(str(path), str(folders_of(path, config, mode)[1]))
    written = any(Path(place.logs).glob("events.out.tfevents.*"))
    if written and file.suffix.lower() == ".gif" and want_tensorboard("auto"):  # it plays no other kind
        with _guarded("TensorBoard", {}):
            board = TensorBoard(place)
            board.video(file, step)
            board.end({})
    name = config.logging.track
    if name is None or not (known := _known_id(path, name)):
        return
    if owner_of_lock(path / LOCK) is not None:
        note(f"the run is in progress, so {TRACKERS[name].title} gets the video of a later evaluation only")
        return
    steps = _summary(path, "").get("total_timesteps", 0)
    place = replace(place, id=known, step=max(step, steps))
    _Apart(name, place, {"video": str(file.resolve()), "video_step": step}).end("", PATIENCE)


def _known_id(path: Path, tracker: str) -> str:
    """What a tracker calls the run in a directory; empty if it has never opened it."""
    ids = [event.get("id") for event in read_events(path / "events.jsonl", _EVENT) if event.get("tracker") == tracker]
    return next((known for known in reversed(ids) if isinstance(known, str)), "")


def _summary(path: Path, status: str) -> Metrics:
    """The summary of the run in a directory as a tracker gets it; how it ended is known better than the file does."""
    try:
        summary = read_json(path / "benchmark_metrics.json", _LARGEST_SUMMARY)
    except (OSError, ValueError):
        summary = {}
    return {name: value for name, value in summary.items() if name != "config"} | {"status": status}


class _Apart:
    """A tracker in a process of its own, as the run sees it."""

    def __init__(self, name: str, place: Place, job: dict[str, Any], run: RunDirectory | None = None):
        """`run`: whose events keep what the tracker calls the run."""
        self._name, self._title, self._run = name, TRACKERS[name].title, run
        self._heard, self._over, self.pid = b"", False, 0
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "rlcb.run.tracking"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C is for the run, which then ends its tracker
            )
        except OSError as error:
            self._fail(f"cannot be started: {error.strerror}")
            return
        self.pid = self._process.pid
        assert self._process.stdout is not None
        self._words = self._process.stdout.fileno()
        os.set_blocking(self._words, False)
        self._tell({"tracker": name, "place": asdict(place), **job})

    def _tell(self, words: Metrics) -> None:
        assert self._process.stdin is not None
        with suppress(OSError):  # it has ended, which the next look shows
            self._process.stdin.write(json.dumps(words).encode() + b"\n")
            self._process.stdin.flush()

    def look(self) -> None:
        """Take in what it says, without waiting."""
        while not self._over:
            try:
                heard = os.read(self._words, 65536)
            except BlockingIOError:
                return
            if not heard:
                self._fail("its process has ended")
                return
            *lines, self._heard = (self._heard + heard).split(b"\n")
            for line in lines:
                self._take_in(json.loads(line))

    def _take_in(self, said: dict[str, str]) -> None:
        if said["is"] == "open":
            if self._run:
                with suppress(ResourceError):  # of a full disk others speak
                    self._run.event(_EVENT, tracker=self._name, id=said["id"])
            if said["problem"]:
                warn(f"{self._title}: {said['problem']}")
            else:
                note(f"{self._title}: {said['where']}")
        elif said["is"] == "done":
            self._over = True
        else:
            self._fail(said["why"])

    def _fail(self, why: str) -> None:
        if not self._over:
            self._over = True
            warn(f"{self._title}: {why}{_WITHOUT}")

    def end(self, status: str, patience: float) -> None:
        """Have it finish, for at most `patience` seconds; then it is killed."""
        if not self.pid:
            return
        self._tell({"status": status})
        begun, explained = time.monotonic(), False
        while not self._over and (left := begun + patience - time.monotonic()) > 0:
            if not explained and patience - left > _SILENT:
                explained = True
                note(f"waiting for {self._title}, for at most {left:.0f} s")
            select.select([self._words], [], [], min(left, _SILENT / 2))
            self.look()
        if not self._over:
            self._fail(f"has not finished within {patience:.0f} s and was stopped")
        self._process.kill()  # its work is done; W&B's own process notices and ends, too
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_SILENT)


# In the tracker's process


class _Ear:
    """Hears from the run, in a thread: first the job, then how the run has ended."""

    def __init__(self) -> None:
        self.job = json.loads(sys.stdin.readline())
        self.status = "killed"
        self.ended = threading.Event()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        with suppress(ValueError):  # nothing at all, if the run was killed
            self.status = json.loads(sys.stdin.readline())["status"]
        self.ended.set()
        time.sleep(_ORPHANED)
        os._exit(1)


def _follow(tracker: Tracker, ear: _Ear) -> None:
    """Hand over every update until the run has ended, then its summary."""
    tracker.begin(ear.job["config"])
    with open_regular(ear.job["history"]) as file:
        end = file.seek(ear.job["offset"])
        last = False
        while not last:
            last = ear.ended.wait(_LOOK_EVERY)
            while (line := file.readline()).endswith(b"\n"):
                end = file.tell()
                if metrics := parsed(line):
                    tracker.write(metrics)
            file.seek(end)  # before a line that is not complete yet
    tracker.end(_summary(Path(ear.job["place"]["path"]), ear.status))


def _main() -> None:
    said = os.fdopen(os.dup(1), "w", buffering=1)  # W&B's own processes do not inherit this one
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    os.nice(_NICENESS)
    try:
        ear = _Ear()
        tracker = TRACKERS[ear.job["tracker"]].make(Place(**ear.job["place"]))
        opened = {"is": "open", "id": tracker.id, "where": tracker.where, "problem": tracker.problem}
        print(json.dumps(opened), file=said)
        if "video" in ear.job:
            tracker.video(Path(ear.job["video"]), ear.job["video_step"])
            tracker.end({})
        else:
            _follow(tracker, ear)
        print(json.dumps({"is": "done"}), file=said)
    except BaseException as error:  # whatever it is, the run must hear of it
        print(json.dumps({"is": "failed", "why": in_a_line(error)}), file=said)
    os._exit(0)  # without what W&B registers for the end of a process, which may wait or fail


if __name__ == "__main__":
    _main()
