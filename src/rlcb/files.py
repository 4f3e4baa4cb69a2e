"""Files that are either whole or not there."""

import contextlib
import errno
import fcntl
import json
import os
import socket
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from rlcb.errors import ResourceError

_CHUNK = 256 * 1024
_RETRIES = 3
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
TEMPORARY = ".tmp-"  # part of the name of every unfinished file


def write_whole(path: Path, data: bytes) -> None:
    """Replace `path` by `data`: a reader, or a crash at any moment, meets the old content or the new, nothing else."""
    _retried(lambda: _write_and_rename(path, (data,)), f"{path} ({len(data) / 2**20:.1f} MB)")


def write_pieces(path: Path, pieces: Callable[[], Iterable[bytes]]) -> None:
    """The same with content that is not in memory as a whole: `pieces` gives it in parts, anew at every attempt."""
    _retried(lambda: _write_and_rename(path, pieces()), str(path))


def _retried(write: Callable[[], None], what: str) -> None:
    """Write, on a full disk a few times; `write` undoes what it could not finish."""
    for attempt in range(_RETRIES):
        try:
            write()
            return
        except OSError as error:
            if error.errno in _FULL and attempt + 1 < _RETRIES:
                time.sleep(0.5 * 2**attempt)  # somebody may be tidying up
                continue
            raise ResourceError(f"{what} cannot be written: {error.strerror}") from None


def _write_and_rename(path: Path, pieces: Iterable[bytes]) -> None:
    temporary = path.with_name(f".{path.name}{TEMPORARY}{os.getpid()}")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        try:
            for piece in pieces:
                _write_all(descriptor, piece)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.rename(temporary, path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


def _write_all(descriptor: int, data: bytes) -> None:
    """Write until nothing is left: the system may take less than it is offered."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view[:_CHUNK]) :]


def _sync_folder(folder: Path) -> None:
    """Make the rename itself survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class Appender:
    """A file that only grows. Nothing is buffered: what was written is there, and closing cannot fail."""

    def __init__(self, path: Path):
        self._path = path
        try:
            self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        except OSError as error:
            raise ResourceError(f"{path} cannot be written: {error.strerror}") from None

    def write(self, data: bytes) -> None:
        """Append all of `data`, or nothing: what a full disk took of it is cut off again."""
        _retried(lambda: self._append(data), str(self._path))

    def _append(self, data: bytes) -> None:
        before = os.fstat(self._descriptor).st_size
        try:
            _write_all(self._descriptor, data)
        except OSError:
            os.ftruncate(self._descriptor, before)
            raise

    def sync(self) -> None:
        """Make what was written survive a power cut."""
        _retried(lambda: os.fsync(self._descriptor), str(self._path))

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)


def append_event(path: Path, name: str, details: dict[str, Any]) -> None:
    """Append an event with the time to a file of JSON lines."""
    line = json.dumps({"time": time.strftime("%Y-%m-%dT%H:%M:%S%z"), "event": name, **details})
    with contextlib.closing(Appender(path)) as file:
        file.write(line.encode() + b"\n")


def write_json(path: Path, value: Any) -> None:
    """Write a value as indented JSON, whole or not at all."""
    write_whole(path, (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode())


def sweep(folder: Path) -> list[str]:
    """Remove what a killed process left half-written here; returns the names."""
    leftovers = [entry for entry in folder.glob(f".*{TEMPORARY}*") if entry.is_file()]
    for entry in leftovers:
        entry.unlink(missing_ok=True)
    return [entry.name for entry in leftovers]


def try_lock(descriptor: int) -> bool:
    """Lock an open file for this process, which the kernel undoes when it dies; whether that was possible."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def take_lock(path: Path) -> tuple[int | None, str]:
    """Lock a file until this process ends: its descriptor, or None if another process has it; and whose it was."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise ResourceError(f"{path.parent}: cannot be written to: {error.strerror}") from None
    owner = os.read(descriptor, 200).decode(errors="replace").strip()
    if not try_lock(descriptor):
        os.close(descriptor)
        return None, owner or "just starting"
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"pid {os.getpid()} on {socket.gethostname()}\n".encode(), 0)
    return descriptor, owner
