"""The history of a run: one line of JSON per update, and the same numbers for TensorBoard."""

import io
import json
import os
import socket
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rlcb.errors import CheckpointUnusable, UsageError
from rlcb.files import Appender, read_regular, write_whole

Metrics = dict[str, Any]
_LARGEST = 2 * 2**30  # bytes of a history that are read at once
INSTALL_TENSORBOARD = "pip install 'rl-cluster-benchmark[tensorboard]'"


def want_tensorboard(setting: bool | str) -> bool:
    """Whether to write TensorBoard events; asking for them without the package is an error that names the remedy."""
    installed = find_spec("tensorboard") is not None
    if setting is True and not installed:
        raise UsageError(f"logging.tensorboard: TensorBoard is not installed: {INSTALL_TENSORBOARD}")
    return installed and bool(setting)


def read_history(path: Path) -> list[Metrics]:
    """The lines of a metrics.jsonl; a last line cut off by a crash is left out."""
    history: list[Metrics] = []
    try:
        text = read_regular(path, _LARGEST).decode(errors="replace")
    except FileNotFoundError:
        return history
    except OSError as error:
        raise CheckpointUnusable(f"{path}: cannot be read: {error.strerror}; nothing was changed") from None
    for line in text.splitlines():
        try:
            history.append(json.loads(line))
        except json.JSONDecodeError:
            break
    return history


def as_columns(history: list[Metrics]) -> dict[str, list[Any]]:
    """One list per metric, all of the same length."""
    names = dict.fromkeys(name for line in history for name in line)
    return {name: [line.get(name) for line in history] for name in names}


class MetricsWriter:
    """Appends updates to metrics.jsonl and, if asked, to a TensorBoard event file."""

    def __init__(self, folder: Path, tensorboard: bool, resume_after: int, earlier: Path | None = None):
        """`resume_after`: keep the lines up to this update and drop what a crash left behind it.

        `earlier`: the folder of the same run's history before it went over to another mode.
        """
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / "metrics.jsonl"
        source = (earlier or folder) / "metrics.jsonl"
        self.history = [line for line in read_history(source) if line["update"] <= resume_after]
        write_whole(path, b"".join(_as_line(line) for line in self.history))
        self._file = Appender(path)
        purge_after = self.history[-1]["step"] if self.history else None
        self._events = EventWriter(folder, purge_after) if tensorboard else None

    def write(self, metrics: Metrics) -> None:
        """Append one update."""
        self.history.append(metrics)
        self._file.write(_as_line(metrics))
        if self._events:
            self._events.write(metrics)

    def close(self) -> None:
        """Close the files."""
        self._file.close()
        if self._events:
            self._events.close()


class EventWriter:
    """Writes scalars in TensorBoard's file format, synchronously: no thread that could lose the last ones."""

    def __init__(self, folder: Path, purge_after: int | None):
        from tensorboard.compat.proto.event_pb2 import SessionLog

        name = f"events.out.tfevents.{int(time.time())}.{socket.gethostname()}.{os.getpid()}"
        self._file = Appender(folder / name)
        self._write(file_version="brain.Event:2")
        if purge_after is not None:
            # Tells TensorBoard to forget what earlier files say beyond this step.
            self._write(step=purge_after + 1, session_log=SessionLog(status=SessionLog.START))

    def write(self, metrics: Metrics) -> None:
        """Write every number of one update under its own name."""
        from tensorboard.compat.proto.summary_pb2 import Summary

        numbers = {name: value for name, value in metrics.items() if isinstance(value, int | float) and "/" in name}
        values = [Summary.Value(tag=name, simple_value=value) for name, value in numbers.items()]
        self._write(step=metrics["step"], summary=Summary(value=values))

    def _write(self, **content: Any) -> None:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.summary.writer.record_writer import RecordWriter

        record = io.BytesIO()
        RecordWriter(record).write(Event(wall_time=time.time(), **content).SerializeToString())
        self._file.write(record.getvalue())

    def close(self) -> None:
        """Finish the file."""
        self._file.close()


def _as_line(metrics: Metrics) -> bytes:
    return json.dumps(metrics).encode() + b"\n"
