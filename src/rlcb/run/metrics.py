"""Writes the metrics of every update: a line of JSON, and the same numbers for TensorBoard."""

import io
import os
import socket
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rlcb.console import warn
from rlcb.errors import UsageError
from rlcb.files import Appender
from rlcb.run.directory import HISTORY
from rlcb.run.history import Metrics, as_line, cut_history
from rlcb.words import counted

INSTALL_TENSORBOARD = "pip install 'rl-cluster-benchmark[tensorboard]'"


def want_tensorboard(setting: bool | str) -> bool:
    """Whether to write TensorBoard events; asking for them without the package is an error that names the remedy."""
    installed = find_spec("tensorboard") is not None
    if setting is True and not installed:
        raise UsageError(f"logging.tensorboard: TensorBoard is not installed: {INSTALL_TENSORBOARD}")
    return installed and bool(setting)


class MetricsWriter:
    """Appends updates to metrics.jsonl and, if asked, to a TensorBoard event file."""

    def __init__(self, folder: Path, tensorboard: bool, resume_after: int):
        """`resume_after`: keep the lines up to this update and drop what a crash left behind it."""
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / HISTORY
        self.totals = cut_history(self.path, resume_after)
        missing = resume_after - self.totals.updates
        if missing > 0:
            gap = f"{missing} of {counted(resume_after, 'update')} {'is' if missing == 1 else 'are'} missing"
            warn(f"{self.path}: {gap}; continuing without their metrics")
        self._file = Appender(self.path)
        purge_after = self.totals.last[-1]["step"] if self.totals.last else None
        self._events = EventWriter(folder, purge_after) if tensorboard else None

    def write(self, metrics: Metrics) -> None:
        """Append one update."""
        self._file.write(as_line(metrics))
        self.totals.add(metrics)
        if self._events:
            self._events.write(metrics)

    def sync(self) -> None:
        """Make the updates survive a power cut; a checkpoint must not be ahead of them."""
        self._file.sync()

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
