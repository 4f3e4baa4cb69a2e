"""Files: written whole or not at all, read only where they are regular files of a sensible size."""

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import socket
import stat
import struct
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from io import BufferedReader
from pathlib import Path
from typing import Any

from rlcb.errors import ResourceError

_CHUNK = 256 * 1024
_RETRIES = 3
_LARGEST_EVENTS = 16 * 2**20  # bytes of events.jsonl
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
TEMPORARY = ".tmp-"  # part of the name of every unfinished file
_LOCK = struct.Struct("hhqqi0q")  # the kernel's struct flock: kind, whence, start, length (0: all), process
_WHOLE = _LOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
_UNITS = ((2**30, "GB"), (2**20, "MB"), (2**10, "KB"))
_KINDS = {
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def open_descriptor(path: Path | str, flags: int) -> int:
    """The descriptor of a regular file, opened at once; OSError for anything else, with the reason as its `strerror`.

    A named pipe would make the open wait for another process, and some devices do something when they are opened. So
    the kind is looked at before opening, and again afterwards, as the file may have been replaced in between.
    """
    with contextlib.suppress(FileNotFoundError):
        _refuse_special(path, os.stat(path).st_mode)
    try:
        descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY, 0o644)
    except FileNotFoundError as error:
        reason = "a link to a file that does not exist" if os.path.islink(path) else error.strerror
        raise FileNotFoundError(error.errno, reason, str(path)) from None
    try:
        _refuse_special(path, os.fstat(descriptor).st_mode)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def open_regular(path: Path | str, limit: int | None = None) -> BufferedReader:
    """Open a regular file, of at most `limit` bytes, for reading; OSError for anything else, as `open_descriptor`."""
    descriptor = open_descriptor(path, os.O_RDONLY)
    if limit is not None and os.fstat(descriptor).st_size > limit:
        os.close(descriptor)
        raise _too_large(path, limit)
    return open(descriptor, "rb")


def read_regular(path: Path | str, limit: int) -> bytes:
    """The content of a regular file of at most `limit` bytes; OSError for anything else, as from `open_descriptor`."""
    with open_regular(path, limit) as file:
        # Files that the kernel makes up (/proc) have no size, and a file may grow while it is read.
        data = file.read(limit + 1)
    if len(data) > limit:
        raise _too_large(path, limit)
    return data


def read_json(path: Path | str, limit: int) -> Any:
    """The value in a JSON file; OSError as from `read_regular`, ValueError for one that is not valid."""
    try:
        return json.loads(read_regular(path, limit))
    except RecursionError:
        raise ValueError("nested too deeply") from None


def sha256_of(path: Path | str, limit: int) -> str:
    """The SHA-256 of a regular file of at most `limit` bytes, which is read a piece at a time; OSError as above."""
    with open_regular(path, limit) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _too_large(path: Path | str, limit: int) -> OSError:
    unit, name = next(((unit, name) for unit, name in _UNITS if limit >= unit), (1, "bytes"))
    return OSError(errno.EFBIG, f"larger than {limit / unit:g} {name}", str(path))


def _refuse_special(path: Path | str, mode: int) -> None:
    if not stat.S_ISREG(mode):
        kind = _KINDS.get(stat.S_IFMT(mode), "something else")
        raise OSError(errno.EINVAL, f"{kind}, not a regular file", str(path))


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
        descriptor = open_descriptor(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
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


def refuse_to_replace(path: Path) -> None:
    """OSError if there is something at `path` that a file must not take the place of, /dev/null for instance."""
    with contextlib.suppress(FileNotFoundError):
        mode = os.lstat(path).st_mode
        if not stat.S_ISLNK(mode):
            _refuse_special(path, mode)


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
            self._descriptor = open_descriptor(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
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


def read_events(path: Path, name: str) -> Iterator[dict[str, Any]]:
    """The events of a name in such a file, in their order; what is damaged says nothing."""
    try:
        lines = read_regular(path, _LARGEST_EVENTS).splitlines()
    except OSError:
        return
    for line in lines:
        with contextlib.suppress(ValueError, RecursionError):
            entry = json.loads(line)
            if isinstance(entry, dict) and entry.get("event") == name:
                yield entry


def write_json(path: Path, value: Any) -> None:
    """Write a value as indented JSON, whole or not at all."""
    write_whole(path, (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode())


def sweep(folder: Path) -> list[str]:
    """Remove what a killed process left half-written here; returns the names."""
    leftovers = [entry for entry in folder.glob(f".*{TEMPORARY}*") if entry.is_file()]
    for entry in leftovers:
        entry.unlink(missing_ok=True)
    return [entry.name for entry in leftovers]


def try_lock(descriptor: int, look: bool = False) -> bool:
    """Lock an open file for this process, which the kernel undoes when it dies; whether that was possible.

    `look`: only say whether it is, and take nothing. Locks of flock cannot be looked at: they are for other systems,
    and for sandboxes that know no others.
    """
    try:
        if sys.platform == "linux":
            answer = fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK if look else fcntl.F_OFD_SETLK, _WHOLE)
            return not look or _LOCK.unpack(answer)[0] == fcntl.F_UNLCK
    except OSError as error:
        if error.errno != errno.EINVAL:
            return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def take_lock(path: Path) -> tuple[int | None, str]:
    """Lock a file until this process ends: its descriptor, or None if another process has it; and whose it was.

    Whoever releases a lock removes the file, then closes it. A file that was opened before that and is locked after it
    locks nobody out: it is not the one at this path any more, and the next one is tried.
    """
    while True:
        try:
            descriptor = open_descriptor(path, os.O_RDWR | os.O_CREAT)
        except FileNotFoundError:  # its directory is just being moved
            return None, "just starting"
        except OSError as error:
            raise ResourceError(f"{path}: cannot be written to: {error.strerror}") from None
        owner = os.read(descriptor, 200).decode(errors="replace").strip()
        if not try_lock(descriptor):
            os.close(descriptor)
            return None, owner or "just starting"
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(descriptor), os.stat(path)):
                break
        os.close(descriptor)
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"pid {os.getpid()} on {socket.gethostname()}\n".encode(), 0)
    return descriptor, owner


def owner_of_lock(path: Path) -> str | None:
    """Whose process has a lock file locked; None if no process has. Nothing is written and no lock is taken."""
    try:
        descriptor = open_descriptor(path, os.O_RDONLY)
    except OSError:
        return None
    try:
        owner = os.read(descriptor, 200).decode(errors="replace").strip()
        return None if try_lock(descriptor, look=True) else owner or "just starting"
    finally:
        os.close(descriptor)


def cache_folder() -> Path:
    """Where this program keeps what can be made again; ResourceError where there is no home directory."""
    given = os.environ.get("XDG_CACHE_HOME", "")
    try:
        # A relative path is to be ignored, as the XDG specification has it.
        base = Path(given) if os.path.isabs(given) else Path.home() / ".cache"
    except RuntimeError:
        raise ResourceError("nothing can be cached: there is no home directory; XDG_CACHE_HOME can name one") from None
    return base / "rlcb"


def nearest_existing(path: Path) -> Path:
    """A path, or where it does not exist the nearest folder above it that does."""
    path = Path(os.path.abspath(path))
    return next(one for one in (path, *path.parents) if os.path.lexists(one))


def refuse_unwritable(folder: Path) -> None:
    """Raise ResourceError if a folder could not be made or written in, as far as that shows without trying."""
    there = nearest_existing(folder)
    if not os.path.isdir(there):
        reason = errno.ENOTDIR
    elif os.access(there, os.W_OK | os.X_OK):
        return
    else:
        reason = errno.EACCES
    raise ResourceError(f"{folder}: cannot be written to: {os.strerror(reason)}")
