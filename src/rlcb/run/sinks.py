"""Where a run's metrics go besides its own files: a small interface, and a class for each place that has it.

A new tracker is a class with this interface and a line in `TRACKERS`: `tracking` runs it in a process of its own.
"""

import errno
import io
import json
import os
import shlex
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from rlcb.errors import ResourceError, UsageError
from rlcb.files import Appender, read_regular
from rlcb.run.history import Metrics

INSTALL_TENSORBOARD = "pip install 'rl-cluster-benchmark[tensorboard]'"
INSTALL_WANDB = "pip install 'rl-cluster-benchmark[wandb]'"
VIDEO = "evaluation/video"
_LONGEST = 300  # characters of a message from elsewhere
_LARGEST_VIDEO = 2**28  # bytes


@dataclass(frozen=True)
class Place:
    """What a sink is told about its run; paths are text, as it travels as JSON."""

    path: str  # the run's directory
    logs: str  # the folder of its metrics
    name: str = ""  # a person's, for this run
    step: int = 0  # environment steps that its metrics reach so far
    id: str = ""  # what the tracker calls this run, if it knows it already
    group: str = ""  # the suite that the run belongs to


class Sink(Protocol):
    """Takes what a run has to tell. Any method may raise anything: the run goes on without this sink."""

    def begin(self, config: Metrics) -> None:
        """The run begins, or continues, with this configuration."""

    def write(self, metrics: Metrics) -> None:
        """An update is done."""

    def video(self, file: Path, step: int) -> None:
        """There is a video of the policy as it was after so many environment steps."""

    def end(self, summary: Metrics) -> None:
        """That was all; the final summary, empty if the run has none."""


class Tracker(Sink, Protocol):
    """A sink that may take long to answer, or never do so."""

    id: str  # what it calls this run
    where: str  # where the run can be seen, for a note
    problem: str  # what did not go as asked, for a warning; empty: nothing


def numbers(metrics: Metrics) -> dict[str, float]:
    """What is shown as a curve: every number that has a slash in its name."""
    return {name: value for name, value in metrics.items() if isinstance(value, int | float) and "/" in name}


class TensorBoard:
    """Writes TensorBoard's file format, synchronously: no thread that could lose the last values."""

    def __init__(self, place: Place):
        from tensorboard.compat.proto.event_pb2 import SessionLog

        name = f"events.out.tfevents.{int(time.time())}.{socket.gethostname()}.{os.getpid()}"
        self._file, self._step = Appender(Path(place.logs, name)), place.step
        self._write(file_version="brain.Event:2")
        if place.step:
            # Tells TensorBoard to forget what earlier files say beyond this step.
            self._write(step=place.step + 1, session_log=SessionLog(status=SessionLog.START))

    def begin(self, config: Metrics) -> None:
        """Show the configuration under Text."""
        self._text("config", config)

    def write(self, metrics: Metrics) -> None:
        """Write every number of one update under its own name."""
        self._step = metrics["step"]
        self._values(self._step, [{"tag": name, "simple_value": value} for name, value in numbers(metrics).items()])

    def video(self, file: Path, step: int) -> None:
        """Show a GIF, the only kind of video that TensorBoard plays, under Images."""
        if file.suffix.lower() == ".gif":
            self._values(step, [{"tag": VIDEO, "image": {"encoded_image_string": read_regular(file, _LARGEST_VIDEO)}}])

    def end(self, summary: Metrics) -> None:
        """Show the summary under Text, and finish the file."""
        if summary:
            self._text("summary", summary)
        self._file.close()

    def _text(self, tag: str, content: Metrics) -> None:
        """Show names and values as JSON; four spaces make it Markdown's verbatim text."""
        lines = json.dumps(content, indent=2, ensure_ascii=False).splitlines()
        text = "\n".join(f"    {line}" for line in lines).encode()
        tensor = {"dtype": "DT_STRING", "string_val": [text], "tensor_shape": {"dim": [{"size": 1}]}}
        self._values(self._step, [{"tag": tag, "metadata": {"plugin_data": {"plugin_name": "text"}}, "tensor": tensor}])

    def _values(self, step: int, values: list[Metrics]) -> None:
        from tensorboard.compat.proto.summary_pb2 import Summary

        self._write(step=step, summary=Summary(value=[Summary.Value(**value) for value in values]))

    def _write(self, **content: Any) -> None:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.summary.writer.record_writer import RecordWriter

        record = io.BytesIO()
        RecordWriter(record).write(Event(wall_time=time.time(), **content).SerializeToString())
        self._file.write(record.getvalue())


# The user's own settings come first. W&B is kept from collecting by itself what is measured here, or nobody's business.
_WANDB_SETTINGS = {
    "WANDB_DISABLE_GIT": "true",
    "WANDB_DISABLE_CODE": "true",
    "WANDB_ERROR_REPORTING": "false",
    "WANDB_X_DISABLE_META": "true",
    "WANDB_X_DISABLE_STATS": "true",
    "WANDB_X_SAVE_REQUIREMENTS": "false",
    "WANDB_CONSOLE": "off",
    "WANDB_INIT_TIMEOUT": "20",  # seconds: less than a command waits for its tracker at its end
    "WANDB_X_SERVICE_WAIT": "120",  # seconds: the cores may be busy
}


class WandB:
    """Weights & Biases; where it cannot be reached, its files in the run's directory, unless WANDB_MODE says how."""

    def __init__(self, place: Place):
        for name, value in _WANDB_SETTINGS.items():
            os.environ.setdefault(name, value)
        import wandb

        given: dict[str, Any] = {
            "project": os.environ.get("WANDB_PROJECT", "rlcb"),
            "name": os.environ.get("WANDB_NAME", place.name) or None,
            "group": os.environ.get("WANDB_RUN_GROUP", place.group) or None,
            "dir": os.environ.get("WANDB_DIR", place.path),
            "id": place.id or os.environ.get("WANDB_RUN_ID") or os.urandom(4).hex(),
            "resume": "allow",
        }
        self.id, self.problem, self._last = given["id"], "", place.step
        try:
            self._run = wandb.init(**given)
        except Exception as error:  # no network, no account: of whatever kind
            if "WANDB_MODE" in os.environ:
                raise
            wandb.teardown()  # its service takes the run to be in progress
            self._run = wandb.init(**given, mode="offline")
            self.problem = f"{in_a_line(error)}; recording offline, to be uploaded with: {self._sync()}"
        offline = f"recording offline, to be uploaded with: {self._sync()}"
        self.where = "disabled by WANDB_MODE" if self._run.disabled else self._run.url or offline

    def _sync(self) -> str:
        return f"wandb sync {shlex.quote(os.path.dirname(self._run.dir))}"

    def begin(self, config: Metrics) -> None:
        """Set the configuration; that of a resumed run may have changed."""
        self._run.config.update(config, allow_val_change=True)

    def write(self, metrics: Metrics) -> None:
        """Log the numbers of one update at its step; W&B ignores those that it has from before a crash."""
        self._refuse_full_disk()
        self._run.log(numbers(metrics), step=metrics["step"])

    def _refuse_full_disk(self) -> None:
        """W&B itself would lose what does not fit, without a word."""
        if not self._run.disabled and not os.statvfs(self._run.dir).f_bavail:
            raise OSError(f"{self._run.dir}: {os.strerror(errno.ENOSPC)}")

    def video(self, file: Path, step: int) -> None:
        """Log the video after everything else: W&B takes no earlier step."""
        import wandb

        shown = wandb.Video(str(file), caption=f"after {step:,} steps")
        self._run.log({VIDEO: shown, "evaluation/video_step": step}, step=max(self._run.step, self._last + 1))

    def end(self, summary: Metrics) -> None:
        """Set the summary, and wait until everything has arrived."""
        self._refuse_full_disk()
        self._run.summary.update(summary)
        self._run.finish(exit_code=0 if summary.get("status", "finished") == "finished" else 1)


def in_a_line(error: BaseException) -> str:
    """What an exception says."""
    return " ".join(str(error).split())[:_LONGEST] or type(error).__name__


@dataclass(frozen=True)
class Kind:
    """A tracker as messages name it, how to install its package, and what makes one."""

    title: str
    install: str
    make: Callable[[Place], Tracker]


TRACKERS = {"wandb": Kind("W&B", INSTALL_WANDB, WandB)}  # by the name of its package, as logging.track has it


def is_installed(package: str) -> bool:
    """Whether a package can be imported; a mere folder of its name, as W&B leaves behind, is none."""
    found = find_spec(package)
    return found is not None and found.origin is not None


def want_tensorboard(setting: bool | str) -> bool:
    """Whether to write TensorBoard events; asking for them without the package is an error that names the remedy."""
    installed = is_installed("tensorboard")
    if setting is True and not installed:
        raise UsageError(f"logging.tensorboard: TensorBoard is not installed: {INSTALL_TENSORBOARD}")
    return installed and bool(setting)


def check_tracker(name: str | None) -> None:
    """Raise ResourceError if the package of the tracker that is asked for is missing."""
    if name is not None and not is_installed(name):
        raise ResourceError(f"logging.track: {TRACKERS[name].title} is not installed: {TRACKERS[name].install}")
