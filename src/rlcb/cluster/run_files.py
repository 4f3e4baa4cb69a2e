"""The files of a run on a node, as the local copy requests them: listed, read a piece at a time, written.

Nothing here needs Ray. Every name is relative to the run's directory, with "/" between its parts.
"""

import hashlib
import os
import re
import stat
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path

from rlcb.files import open_descriptor, open_regular

PIECE_BYTES = 4 * 2**20  # that travel at a time
_COMPARED_BYTES = 4096  # of a file that grows: the end of what is known of it
_PART = re.compile(r"[\w+=@-][\w.+=@-]{0,199}", re.ASCII)  # of a name: nothing hidden, no way up
_MOST_PARTS = 5


class BadName(Exception):
    """The name of a file that no run has."""


@dataclass(frozen=True)
class FileState:
    """A file and what shows that it has changed: files are replaced by new ones, or grow."""

    name: str
    size: int
    inode: int
    changed: int  # nanoseconds


@dataclass(frozen=True)
class Piece:
    """A part of a file."""

    data: bytes
    digest: str  # SHA-256 of the data
    size: int  # of the whole file


def piece_of(data: bytes, size: int) -> Piece:
    """A part of a file of this many bytes, with its digest."""
    return Piece(data, hashlib.sha256(data).hexdigest(), size)


def inside(folder: Path, name: str) -> Path:
    """The path of a file of a run; BadName unless the name leads to a place in its folder, through no link."""
    parts = name.split("/")
    if len(parts) > _MOST_PARTS or not all(_PART.fullmatch(part) for part in parts):
        raise BadName(f"{name[:200]!r} is not the name of a run's file")
    path = folder
    for part in parts:
        path = path / part
        if path.is_symlink():
            raise BadName(f"{path} is a symbolic link")
    return path


def end_digest(file: BufferedReader, offset: int) -> str:
    """SHA-256 of the last bytes of a file before an offset."""
    begin = max(offset - _COMPARED_BYTES, 0)
    file.seek(begin)
    return hashlib.sha256(file.read(offset - begin)).hexdigest()


class RunFiles:
    """The files in a run's directory while a process writes there."""

    def __init__(self, folder: Path):
        self._folder = folder
        self._reading: tuple[str, BufferedReader, int] | None = None  # name, file, size: it may be removed meanwhile

    def listing(self) -> list[FileState]:
        """Every regular file that is not hidden; locks and unfinished files are."""
        found = []
        for folder, folders, names in os.walk(self._folder):
            folders[:] = [name for name in folders if not name.startswith(".")]
            for name in names:
                path = Path(folder, name)
                try:
                    status = path.lstat()
                except FileNotFoundError:
                    continue  # removed since
                if stat.S_ISREG(status.st_mode) and not name.startswith("."):
                    found.append(_state(path.relative_to(self._folder).as_posix(), status))
        return found

    def read(self, name: str, offset: int) -> Piece | None:
        """The next piece of a file, all from the one that was there when its beginning was read; None: it is gone."""
        if offset == 0:
            self._close()
            try:
                file = open_regular(inside(self._folder, name))
            except FileNotFoundError:
                return None
            self._reading = name, file, os.fstat(file.fileno()).st_size
        if self._reading is None or self._reading[0] != name:
            return None
        _, file, size = self._reading
        file.seek(offset)
        data = file.read(max(min(PIECE_BYTES, size - offset), 0))
        if offset + len(data) >= size:
            self._close()
        return piece_of(data, size)

    def _close(self) -> None:
        if self._reading is not None:
            self._reading[1].close()
            self._reading = None

    def read_on(self, name: str, offset: int, digest: str) -> Piece | None:
        """What a file has from an offset on, if its end before that has this digest; None if it does not."""
        try:
            with open_regular(inside(self._folder, name)) as file:
                size = os.fstat(file.fileno()).st_size
                if size < offset or end_digest(file, offset) != digest:
                    return None
                file.seek(offset)
                return piece_of(file.read(PIECE_BYTES), size)
        except FileNotFoundError:
            return None

    def digest(self, name: str) -> str | None:
        """SHA-256 of a whole file; None if there is none."""
        try:
            with open_regular(inside(self._folder, name)) as file:
                return hashlib.file_digest(file, "sha256").hexdigest()
        except FileNotFoundError:
            return None

    def write(self, name: str, offset: int, piece: Piece) -> FileState:
        """Put a piece of a file in its place; the first one makes the file."""
        if hashlib.sha256(piece.data).hexdigest() != piece.digest:
            raise OSError(f"{name} was damaged in transfer")
        path = inside(self._folder, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_NOFOLLOW | (os.O_CREAT | os.O_TRUNC if offset == 0 else 0)
        with open(open_descriptor(path, flags), "r+b" if offset else "wb") as file:
            file.seek(offset)
            file.write(piece.data)
        return _state(name, path.lstat())


def _state(name: str, status: os.stat_result) -> FileState:
    return FileState(name, status.st_size, status.st_ino, status.st_mtime_ns)
