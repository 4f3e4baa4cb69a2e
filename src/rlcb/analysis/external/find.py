"""Which files in a folder are a run of another program."""

import os
from dataclasses import dataclass
from pathlib import Path

from rlcb.analysis.external.monitor import is_monitor, monitor_files
from rlcb.analysis.external.progress import NAMES
from rlcb.analysis.external.record import MARK
from rlcb.analysis.external.tensorboard import event_files
from rlcb.analysis.external.tfevents import is_events
from rlcb.analysis.untrusted import plain
from rlcb.errors import UsageError

MONITOR, TENSORBOARD, PROGRESS = "monitor", "tensorboard", "progress"
FORMATS = (MONITOR, PROGRESS, TENSORBOARD)  # in the order in which they are preferred
EXPECTED = "monitor.csv (also N.monitor.csv), TensorBoard events, progress.csv or result.json"


@dataclass(frozen=True)
class Source:
    """The files of one run."""

    path: Path  # its folder, or the file that was named
    format: str
    files: tuple[Path, ...]
    unread: tuple[str, ...] = ()  # names of files that hold the same run in another format


def is_imported(path: Path) -> bool:
    """Whether a folder is a run that `rlcb import` made."""
    return os.path.isfile(path / MARK)


def source_at(path: Path, wanted: str | None = None) -> Source | None:
    """The run of another program in a folder (not below it) or a file; None where there is none."""
    if os.path.isfile(path) or not os.path.isdir(path):
        found = _format_of(path.name) if os.path.lexists(path) else None
        found = wanted or found or _format_of(path.suffix)
        return Source(path, found, (path,)) if found and os.path.isfile(path) else None
    try:
        names = set(os.listdir(path))
        candidates = {
            MONITOR: monitor_files(path),
            PROGRESS: [path / name for name in NAMES if name in names][:1],
            TENSORBOARD: event_files(path),
        }
    except OSError as error:
        raise UsageError(f"{plain(str(path))}: cannot be read: {error.strerror}") from None
    there = [name for name in FORMATS if candidates[name] and wanted in (None, name)]
    if not there:
        return None
    others = tuple(candidates[name][0].name for name in there[1:])
    return Source(path, there[0], tuple(candidates[there[0]]), others)


def _format_of(name: str) -> str | None:
    if is_monitor(name):
        return MONITOR
    if is_events(name):
        return TENSORBOARD
    return PROGRESS if name in NAMES or name in (".csv", ".json", ".jsonl") else None
