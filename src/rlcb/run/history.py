"""The history of a run on disk: metrics.jsonl, a line per update, is the record; metrics.json is made from it.

Neither is ever in memory as a whole, so that a run needs as much memory after a million updates as after ten.
"""

import json
import os
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from tempfile import SpooledTemporaryFile
from typing import IO, Any

from rlcb.console import warn
from rlcb.disturbance.meter import PREFIX
from rlcb.disturbance.verdict import Sums
from rlcb.errors import CheckpointUnusable, ResourceError
from rlcb.files import Appender, open_descriptor, open_regular, write_pieces
from rlcb.run.directory import HISTORY
from rlcb.words import counted

Metrics = dict[str, Any]
FINAL_UPDATES = 10  # updates that the final FPS is measured over
_ACTIVITIES = ("env", "acting", "learning", "allreduce", "waiting", "rollouts", "other")
_NEEDED = ("update", "step", "time", "time/fps")  # what every line has as a number
_LONGEST_LINE = 2**20  # bytes
_ROWS = 1000  # lines that are in memory at a time
_IN_MEMORY = 2**16  # bytes of a column that are kept in memory while metrics.json is made
_PIECE = 2**20  # bytes that are copied at a time
_SEPARATOR = b",\n    "  # of two values in metrics.json


class HistoryTotals:
    """What the summaries need to know of all updates."""

    def __init__(self) -> None:
        self.updates = 0
        self.first: Metrics | None = None
        self.last: deque[Metrics] = deque(maxlen=FINAL_UPDATES + 1)
        self._spent = dict.fromkeys(_ACTIVITIES, 0.0)  # seconds
        self.use_of_cores = Sums()

    def add(self, metrics: Metrics) -> None:
        """Take in the next update."""
        self.updates += 1
        self.first = self.first or metrics
        self.last.append(metrics)
        for name in _ACTIVITIES:
            self._spent[name] += metrics.get(f"time/{name}_seconds", 0.0)
        self.use_of_cores.add(metrics, PREFIX)

    def final_fps(self) -> float | None:
        """Environment steps per second over the last updates."""
        if len(self.last) < 2:
            return self.last[-1]["time/fps"] if self.last else None
        seconds = self.last[-1]["time"] - self.last[0]["time"]
        return float((self.last[-1]["step"] - self.last[0]["step"]) / seconds) if seconds else None

    def steady_fps(self) -> float | None:
        """Environment steps per second of all updates but the first; of that one where there is no other."""
        if self.first is None or self.updates == 1:
            return self.final_fps()
        seconds = self.last[-1]["time"] - self.first["time"]
        return float((self.last[-1]["step"] - self.first["step"]) / seconds) if seconds else None

    def time_shares(self) -> dict[str, float]:
        """The shares of the whole run's time that each activity took, of those that the last update names."""
        there = [name for name in _ACTIVITIES if self.last and f"time/{name}_seconds" in self.last[-1]]
        total = sum(self._spent[name] for name in there)
        return {name: round(self._spent[name] / total, 4) for name in there} if total else {}


def as_line(metrics: Metrics) -> bytes:
    """An update as a line of metrics.jsonl."""
    return json.dumps(metrics).encode() + b"\n"


def read_history(path: Path) -> Iterator[tuple[int, Metrics]]:
    """The updates of a metrics.jsonl, each with the offset of its end; a line that is none, or cut off, is left out."""
    end, last = 0, 0
    if not os.path.lexists(path):
        return
    with open_regular(path) as file:
        while line := file.readline(_LONGEST_LINE):
            end += len(line)
            metrics = parsed(line)
            if metrics is not None and metrics["update"] > last:
                last = metrics["update"]
                yield end, metrics


def parsed(line: bytes) -> Metrics | None:
    """The update in a line, None if it is none."""
    try:
        metrics = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(metrics, dict):
        return None
    values = [metrics.get(name) for name in _NEEDED]
    values += [metrics.get(f"time/{name}_seconds", 0.0) for name in _ACTIVITIES]
    return metrics if all(isinstance(value, int | float) for value in values) else None


def cut_history(path: Path, update: int) -> HistoryTotals:
    """Cut off what a crash left behind this update, so that none is there twice; returns the totals of what stays."""
    totals, end = HistoryTotals(), 0
    try:
        for offset, metrics in read_history(path):
            if metrics["update"] > update:
                break
            totals.add(metrics)
            end = offset
    except OSError as error:
        raise CheckpointUnusable(f"{path}: cannot be read: {error.strerror}; nothing was changed") from None
    try:
        with open(open_descriptor(path, os.O_RDWR | os.O_CREAT), "r+b") as file:
            file.truncate(end)
            file.seek(max(end - 1, 0))
            if file.read(1) not in (b"\n", b""):  # a whole line whose end was cut off
                file.write(b"\n")
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise ResourceError(f"{path} cannot be written: {error.strerror}") from None
    return totals


def write_columns(log: Path, path: Path) -> None:
    """Make metrics.json of a metrics.jsonl: one list per metric, all of the same length, null where it has no value."""
    write_pieces(path, lambda: _as_columns(log, path.parent))


def _as_columns(log: Path, folder: Path) -> Iterator[bytes]:
    """The text of metrics.json; until it is complete its columns lie in nameless files in this folder."""
    with ExitStack() as opened:
        columns: dict[str, IO[bytes]] = {}  # every value preceded by a separator
        lines, rows = (metrics for _, metrics in read_history(log)), 0
        while batch := list(islice(lines, _ROWS)):
            for name in dict.fromkeys(name for metrics in batch for name in metrics if name not in columns):
                columns[name] = opened.enter_context(SpooledTemporaryFile(_IN_MEMORY, dir=str(folder)))
                for _ in range(rows):
                    columns[name].write(_SEPARATOR + b"null")
            for name, column in columns.items():
                values = json.dumps([metrics.get(name) for metrics in batch], separators=(_SEPARATOR.decode(), ": "))
                column.write(_SEPARATOR + values[1:-1].encode())
            rows += len(batch)
        yield b"{"
        for number, (name, column) in enumerate(columns.items()):
            yield (b",\n  " if number else b"\n  ") + json.dumps(name, ensure_ascii=False).encode() + b": ["
            column.seek(1)  # without the comma before the first value
            while piece := column.read(_PIECE):
                yield piece
            yield b"\n  ]"
        yield b"\n}\n" if columns else b"}\n"


class MetricsWriter:
    """Appends updates to metrics.jsonl."""

    def __init__(self, folder: Path, resume_after: int):
        """`resume_after`: keep the lines up to this update and drop what a crash left behind it."""
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / HISTORY
        self.totals = cut_history(self.path, resume_after)
        missing = resume_after - self.totals.updates
        if missing > 0:
            gap = f"{missing} of {counted(resume_after, 'update')} {'is' if missing == 1 else 'are'} missing"
            warn(f"{self.path}: {gap}; continuing without their metrics")
        self._file = Appender(self.path)

    @property
    def last_step(self) -> int:
        """Environment steps up to the last update, 0 if there is none."""
        return int(self.totals.last[-1]["step"]) if self.totals.last else 0

    def write(self, metrics: Metrics) -> None:
        """Append one update."""
        self._file.write(as_line(metrics))
        self.totals.add(metrics)

    def sync(self) -> None:
        """Make the updates survive a power cut; a checkpoint must not be ahead of them."""
        self._file.sync()

    def close(self) -> None:
        """Close the file."""
        self._file.close()
