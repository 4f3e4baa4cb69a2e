"""The file with what a command of a suite prints: appended to at every start, read from its end."""

import os
import signal
from pathlib import Path

from rlcb.errors import ResourceError
from rlcb.files import open_descriptor, open_regular

_TAIL_BYTES = 8192


class CommandLog:
    """What one start of a command has printed, at the end of a file with what earlier ones did.

    `descriptor`: the open file, for a process that writes into it.
    """

    def __init__(self, path: Path, title: str):
        """`title`: the line that begins this start's part."""
        self._path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self.descriptor = open_descriptor(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        except OSError as error:
            raise ResourceError(f"{error.filename or path}: cannot be written to: {error.strerror}") from None
        try:
            self.write(f"{title}\n".encode())
            self._start = os.fstat(self.descriptor).st_size
        except ResourceError:
            self.close()
            raise

    def write(self, data: bytes) -> None:
        """Append what was printed."""
        try:
            while data:
                data = data[os.write(self.descriptor, data) :]
        except OSError as error:
            raise ResourceError(f"{self._path} cannot be written: {error.strerror}") from None

    def close(self) -> None:
        """Nothing more is written here."""
        os.close(self.descriptor)

    def last_lines(self, most: int) -> list[str]:
        """The last lines with words in them that were printed so far."""
        tail = self.output(self._path.stat().st_size - _TAIL_BYTES)
        return [line.strip() for line in tail.splitlines() if any(map(str.isalnum, line))][-most:]

    def output(self, since: int = 0) -> str:
        """What was printed so far, `since` a position in the file."""
        with open_regular(self._path) as file:
            file.seek(max(self._start, since))
            return file.read().decode(errors="replace")

    def reason(self, code: int) -> str | None:
        """Why a command failed: the signal that killed it, or its last line; None: it did not fail."""
        if code == 0:
            return None
        if code < 0:
            return f"killed by {signal.Signals(-code).name}"
        words = next(iter(self.last_lines(1)), "").split(": error: ", 1)[-1]
        return f"exit code {code}: {words}" if words else f"exit code {code}"
