"""Ctrl-C and SIGTERM: the first asks the run to end after its update, the second ends the process at once."""

import os
import signal
import sys
from types import FrameType


class StopRequest:
    """Remembers the first signal; a second one ends the process."""

    def __init__(self) -> None:
        self.signal: int | None = None

    def install(self) -> None:
        """Take over SIGINT and SIGTERM."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._received)

    def _received(self, number: int, frame: FrameType | None) -> None:
        # os.write: print may be interrupted in the middle of itself.
        if self.signal is not None:
            os.write(sys.stderr.fileno(), b"\nstopped at once; the last checkpoint is intact\n")
            os._exit(128 + number)
        self.signal = number
        os.write(sys.stderr.fileno(), b"\nfinishing the current update, then saving; once more to stop at once\n")

    @property
    def exit_code(self) -> int:
        """128 + the signal's number, as shells count; 0 when none came."""
        return 0 if self.signal is None else 128 + self.signal
