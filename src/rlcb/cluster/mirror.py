"""The local copy of the directory of a run that trains on a node.

Whenever it is looked at, and whenever a process is killed, the local copy is a run that can be resumed: files are
whole or absent, and the history is copied before the checkpoints that count its lines. For that the node's files are
listed first and read afterwards: the lines that a listed checkpoint counts were written before it.
"""

import contextlib
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from rlcb.cluster.run_files import PIECE_BYTES, BadName, FileState, Piece, end_digest, inside, piece_of
from rlcb.errors import ResourceError
from rlcb.files import Appender, open_regular, sha256_of, sweep, write_pieces
from rlcb.run.directory import HISTORY, LARGEST_CHECKPOINT

_MOST_FILES = 1000
_LARGEST_FILE = 4 * 2**30  # bytes of a file that is no checkpoint
_FIRST = ("run.json", "config.yaml")
_TO_RESUME = (*_FIRST, "events.jsonl")  # with the history and the checkpoints: what a run needs on another node


class Source(Protocol):
    """Where the files of a run are: `RunFiles`, or a node that has one."""

    def listing(self) -> list[FileState]:
        """Every file."""

    def read(self, name: str, offset: int) -> Piece | None:
        """The next piece of a file."""

    def read_on(self, name: str, offset: int, digest: str) -> Piece | None:
        """What a file has from an offset on, if its end before that has this digest."""

    def digest(self, name: str) -> str | None:
        """SHA-256 of a whole file."""

    def write(self, name: str, offset: int, piece: Piece) -> FileState:
        """Put a piece of a file in its place."""


class Mirror:
    """Copies what has changed on a node to a directory at home, and a run that is to be resumed to a node."""

    def __init__(self, home: Path, source: Source):
        self._home, self._source = home, source
        self._known: dict[str, FileState] = {}  # what is at home as it was on the node
        self._sweep()

    def send(self) -> None:
        """Copy what the run needs to be resumed to the node."""
        for path in self._needed():
            name, offset = path.relative_to(self._home).as_posix(), 0
            with open_regular(path) as file:
                size = os.fstat(file.fileno()).st_size
                while offset == 0 or offset < size:
                    data = file.read(PIECE_BYTES)
                    self._known[name] = self._source.write(name, offset, piece_of(data, size))
                    if not data:
                        break
                    offset += len(data)

    def _needed(self) -> Iterator[Path]:
        yield from (path for name in _TO_RESUME if (path := self._home / name).exists())
        yield from sorted(self._home.glob(f"logs/*/{HISTORY}"))
        yield from sorted(self._home.glob("checkpoints/*.pt"))

    def update(self, ended: bool = False) -> None:
        """Copy what has changed on the node since the last time; files that are replaced meanwhile come later.

        A run that has no checkpoint yet would have to begin anew, so nothing comes home before, unless it has `ended`.
        """
        listed = {state.name: state for state in self._checked(self._source.listing())}
        if not ended and not any(map(_is_checkpoint, listed)):
            return
        for name in sorted(listed, key=_order):
            if listed[name] != self._known.get(name) and self._fetch(name):
                self._known[name] = listed[name]
        self._remove_checkpoints(set(listed))

    def compare(self) -> None:
        """After the run has ended: what grew piece by piece must be the same as a whole."""
        for name in [name for name in self._known if _grows(name)]:
            if self._source.digest(name) != sha256_of(inside(self._home, name), _LARGEST_FILE):
                self._replace(name)

    def _checked(self, listing: list[FileState]) -> list[FileState]:
        """The files that a node says there are, unless they cannot be a run's."""
        if len(listing) > _MOST_FILES:
            raise ResourceError(f"the node has {len(listing):,} files in the run directory, far more than a run has")
        for state in listing:
            try:
                inside(self._home, state.name)
            except BadName as error:
                raise ResourceError(f"the node reports a file name that is not allowed: {error}") from None
            if not 0 <= state.size <= (LARGEST_CHECKPOINT if _is_checkpoint(state.name) else _LARGEST_FILE):
                raise ResourceError(f"the node's file {state.name} has {state.size / 2**30:,.1f} GB: not allowed")
        return listing

    def _fetch(self, name: str) -> bool:
        """Bring a file home; whether it was still there."""
        path = inside(self._home, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        if not _grows(name) or not path.exists():
            return self._replace(name)
        while True:
            size = path.stat().st_size
            with open_regular(path) as file:
                known = end_digest(file, size)
            piece = self._source.read_on(name, size, known)
            if piece is None:  # a resumed run has cut off what its checkpoint did not count
                return self._replace(name)
            with contextlib.closing(Appender(path)) as home:
                home.write(_verified(name, piece))
                home.sync()
            if not piece.data or size + len(piece.data) >= piece.size:
                return True

    def _replace(self, name: str) -> bool:
        """Bring a whole file home, in the place of the one that is there; whether it was still on the node."""
        path = inside(self._home, name)
        try:
            write_pieces(path, lambda: self._pieces(name))
        except _Gone:
            return False
        finally:
            sweep(path.parent)
        return True

    def _pieces(self, name: str) -> Iterator[bytes]:
        offset = 0
        while True:
            piece = self._source.read(name, offset)
            if piece is None or (not piece.data and offset < piece.size):
                raise _Gone
            yield _verified(name, piece)
            offset += len(piece.data)
            if offset > (LARGEST_CHECKPOINT if _is_checkpoint(name) else _LARGEST_FILE):
                raise ResourceError(f"the node's file {name} keeps growing while it is copied")
            if offset >= piece.size:
                return

    def _remove_checkpoints(self, listed: set[str]) -> None:
        """Remove the checkpoints at home that the run has removed, once one that it has kept is at home."""
        if not any(_is_checkpoint(name) and name in self._known for name in listed):
            return
        for path in self._home.glob("checkpoints/*.pt"):
            name = path.relative_to(self._home).as_posix()
            if name not in listed:
                path.unlink(missing_ok=True)
                self._known.pop(name, None)

    def _sweep(self) -> None:
        """Remove what was on its way here when an earlier copying was killed."""
        for folder in (self._home, self._home / "checkpoints", *self._home.glob("logs/*")):
            sweep(folder)


class _Gone(Exception):
    """A file that was listed is not there any more: a checkpoint that was removed, for instance."""


def _verified(name: str, piece: Piece) -> bytes:
    if hashlib.sha256(piece.data).hexdigest() != piece.digest:
        raise ResourceError(f"{name} was damaged in transfer from the node")
    return piece.data


def _is_checkpoint(name: str) -> bool:
    return name.startswith("checkpoints/") and name.endswith(".pt")


def _grows(name: str) -> bool:
    """Whether a file is only ever appended to, while one process writes it."""
    return name.endswith((".jsonl", ".wandb")) or "/events.out.tfevents." in name


def _order(name: str) -> tuple[int, str]:
    """Which files come first: what makes a directory a run, then what grows, then checkpoints, then summaries."""
    stage = 0 if name in _FIRST else 1 if _grows(name) else 2 if _is_checkpoint(name) else 3
    return stage, name
