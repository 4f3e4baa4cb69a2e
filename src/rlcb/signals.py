"""Ctrl-C and SIGTERM: the first asks for an orderly end, the second ends the process at once; and death by descent."""

import ctypes
import os
import signal
import sys
from types import FrameType

_PR_SET_PDEATHSIG = 1


class StopRequest:
    """Remembers the first signal; a second one ends the process."""

    def __init__(self, answer: str = "finishing the current update, then saving") -> None:
        """`answer`: what is done about the first signal, for the person who sent it."""
        self.signal: int | None = None
        self._answer = f"\n{answer}; once more to stop at once\n".encode()

    def install(self) -> None:
        """Take over SIGINT and SIGTERM."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._received)

    def _received(self, number: int, frame: FrameType | None) -> None:
        # os.write: print may be interrupted in the middle of itself.
        if self.signal is not None:
            os.write(sys.stderr.fileno(), b"\nstopped at once; what was saved before is intact\n")
            os._exit(128 + number)
        self.signal = number
        os.write(sys.stderr.fileno(), self._answer)

    @property
    def exit_code(self) -> int:
        """128 + the signal's number, as shells count; 0 when none came."""
        return 0 if self.signal is None else 128 + self.signal


def die_with(parent: int) -> None:
    """Have the kernel kill this process when its parent dies, and notice if it died before this was said."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
