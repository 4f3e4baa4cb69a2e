"""A command of this program as a child process: its output goes to a file, and it is killed if this process dies."""

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from rlcb.errors import ResourceError
from rlcb.files import open_descriptor, open_regular
from rlcb.signals import die_with

_TAIL_BYTES = 8192


class Child:
    """A running `rlcb …`; what it prints is appended to a log file."""

    def __init__(self, arguments: Sequence[str | Path], log: Path):
        words = [str(word) for word in arguments]
        try:
            log.parent.mkdir(parents=True, exist_ok=True)
            with open(open_descriptor(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND), "ab") as file:
                file.write(f"$ rlcb {' '.join(words)}\n".encode())
                file.flush()
                self._start = file.tell()
                self._process = subprocess.Popen(
                    [sys.executable, "-m", "rlcb.suite.process", str(os.getpid()), *words],
                    stdin=subprocess.DEVNULL,
                    stdout=file,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,  # Ctrl-C reaches the suite alone, which passes it on once
                )
        except OSError as error:
            raise ResourceError(f"{error.filename or log}: cannot be written to: {error.strerror}") from None
        self._log = log
        self._told = False

    def ended(self, wait: float) -> bool:
        """Wait at most so many seconds; whether the command has ended."""
        try:
            self._process.wait(wait)
        except subprocess.TimeoutExpired:
            return False
        return True

    def pass_on(self, number: int) -> None:
        """Send a signal, the first time this is called: a second one would stop it in the middle of saving."""
        if not self._told and self._process.poll() is None:
            self._process.send_signal(number)
        self._told = True

    def reason(self) -> str | None:
        """Why it failed, once it has ended: the signal that killed it, or its last line; None: it did not fail."""
        code = self._process.returncode
        if code == 0:
            return None
        if code < 0:
            return f"killed by {signal.Signals(-code).name}"
        words = self.last_line()
        return f"exit code {code}" + (f": {words.split(': error: ', 1)[-1]}" if words else "")

    def last_line(self) -> str:
        """The last line with words in it that was printed so far."""
        lines = [line for line in self._read(_TAIL_BYTES).splitlines() if any(map(str.isalnum, line))]
        return lines[-1].strip() if lines else ""

    def output(self) -> str:
        """Everything it has printed so far."""
        return self._read(None)

    def _read(self, at_most: int | None) -> str:
        with open_regular(self._log) as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(self._start if at_most is None else max(self._start, size - at_most))
            return file.read().decode(errors="replace")


def main() -> None:
    """In the child: PARENT_PID ARGUMENTS… Replace this program by the command; the bond to the parent remains."""
    die_with(int(sys.argv[1]))
    os.execv(sys.executable, [sys.executable, "-m", "rlcb", *sys.argv[2:]])


if __name__ == "__main__":
    main()
