"""A command of this program as a child process: its output goes to a file, and it is killed if this process dies."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from rlcb.errors import ResourceError
from rlcb.files import open_descriptor, open_regular
from rlcb.signals import StopRequest, die_with

POLL_SECONDS = 0.5
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

    def until_end(self, stop: StopRequest) -> Iterator[float]:
        """The seconds that it has run, again and again until its end; a signal is passed on to it."""
        begun, told = time.monotonic(), False
        while True:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(POLL_SECONDS)
                return
            if stop.signal is not None and not told:  # a second signal would stop it in the middle of saving
                self._process.send_signal(stop.signal)
                told = True
            yield time.monotonic() - begun

    def reason(self) -> str | None:
        """Why it failed, once it has ended: the signal that killed it, or its last line; None: it did not fail."""
        code = self._process.returncode
        if code == 0:
            return None
        if code < 0:
            return f"killed by {signal.Signals(-code).name}"
        words = self.last_line().split(": error: ", 1)[-1]
        return f"exit code {code}: {words}" if words else f"exit code {code}"

    def last_line(self) -> str:
        """The last line with words in it that was printed so far."""
        tail = self.output(self._log.stat().st_size - _TAIL_BYTES)
        lines = [line for line in tail.splitlines() if any(map(str.isalnum, line))]
        return lines[-1].strip() if lines else ""

    def output(self, since: int = 0) -> str:
        """What it has printed so far, `since` a position in the log."""
        with open_regular(self._log) as file:
            file.seek(max(self._start, since))
            return file.read().decode(errors="replace")


if __name__ == "__main__":
    # In the child: PARENT_PID ARGUMENTS… Replace this program by the command; the bond to the parent remains.
    die_with(int(sys.argv[1]))
    os.execv(sys.executable, [sys.executable, "-m", "rlcb", *sys.argv[2:]])
