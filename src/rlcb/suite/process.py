"""A command of this program as a child process: its output goes to a file, and it is killed if this process dies."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from rlcb.errors import ResourceError
from rlcb.signals import CAUGHT, StopRequest, die_with
from rlcb.suite.log import CommandLog

POLL_SECONDS = 0.5
MODULE = "rlcb.suite.process"  # this one, which becomes the command in the child
_CORES = "--cores="


class Child:
    """A running `rlcb …`; what it prints is appended to a log file."""

    where, lost, refused = "", "", ""  # on this machine, which is never lost
    resumed = False  # whether it continues with a run, if it trains one

    def __init__(
        self,
        arguments: Sequence[str | Path],
        log: Path,
        cores: Sequence[int] = (),
        variables: Mapping[str, str] | None = None,
    ):
        """`cores`: those that it may use, all if none is named; `variables`: of its environment, beside the usual."""
        words = [str(word) for word in arguments]
        bound = [f"{_CORES}{','.join(map(str, cores))}"] if cores else []
        self._log, self._begun, self._told = CommandLog(log, f"$ rlcb {' '.join(words)}"), time.monotonic(), False
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-m", MODULE, str(os.getpid()), *bound, *words],
                stdin=subprocess.DEVNULL,
                stdout=self._log.descriptor,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C reaches the suite alone, which passes it on once
                env={**os.environ, **(variables or {})},
            )
        except OSError as error:
            raise ResourceError(f"{error.filename or log}: cannot be started: {error.strerror}") from None
        finally:
            self._log.close()

    @property
    def seconds(self) -> float:
        """How long ago it was started."""
        return time.monotonic() - self._begun

    def ended(self, patience: float, stop: StopRequest) -> bool:
        """Whether it has ended, after waiting some seconds for that; a signal is passed on to it, once."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(patience)
            return True
        if stop.signal is not None and not self._told:  # a second signal would stop it in the middle of saving
            self._process.send_signal(stop.signal)
            self._told = True
        return False

    def until_end(self, stop: StopRequest) -> Iterator[float]:
        """The seconds that it has run, repeatedly until its end; a signal is passed on to it."""
        while not self.ended(POLL_SECONDS, stop):
            yield self.seconds

    def reason(self) -> str | None:
        """Why it failed, once it has ended: the signal that killed it, or its last line; None: it did not fail."""
        return self._log.reason(self._process.returncode)

    def last_line(self) -> str:
        """The last line with words in it that was printed so far."""
        return next(iter(self.last_lines(1)), "")

    def last_lines(self, most: int) -> list[str]:
        """The last lines with words in them that were printed so far."""
        return self._log.last_lines(most)

    def output(self) -> str:
        """What it has printed so far."""
        return self._log.output()


if __name__ == "__main__":
    # In the child: PARENT_PID [--cores=…] ARGUMENTS… Replace this program by the command; bond and cores remain.
    parent, *words = sys.argv[1:]
    die_with(int(parent))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, CAUGHT)  # Ray's processes have Ctrl-C blocked
    if words[0].startswith(_CORES):
        with contextlib.suppress(OSError):  # a core that was taken away meanwhile: results do not depend on it
            os.sched_setaffinity(0, map(int, words.pop(0).removeprefix(_CORES).split(",")))
    os.execv(sys.executable, [sys.executable, "-m", "rlcb", *words])
