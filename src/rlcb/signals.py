"""Ctrl-C, SIGTERM and a terminal that hangs up: they end a program, or ask it for an orderly end; death by descent."""

import contextlib
import ctypes
import os
import select
import signal
import sys
from collections.abc import Callable
from types import FrameType

CAUGHT = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_SECONDS_TO_END = 10.0  # after which a program that was told to end is ended, tidied up or not
_PR_SET_PDEATHSIG = 1


def take_over(handler: Callable[[int, FrameType | None], None]) -> None:
    """Have SIGINT, SIGTERM and SIGHUP call `handler`; a hang-up that this program was told to ignore stays ignored."""
    for number in CAUGHT:
        if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:  # as nohup leaves it
            signal.signal(number, handler)


class StopRequest:
    """What signals mean for a program: until there is something to save they end it, then they ask it to stop.

    Once it was asked, a second signal ends the process at once, unless it is a hang-up.
    """

    def __init__(self, answer: str = "finishing the current update, then saving") -> None:
        """`answer`: what is done when it is asked to stop, for the person who asks."""
        self.signal: int | None = None
        self._answer = f"\n{answer}; once more to stop at once\n".encode()
        self._asked = False  # by a signal that somebody sends on purpose

    def install(self) -> None:
        """From now on a signal ends the program where it stands, with 128 + its number."""
        self._end_if_told()
        take_over(self._end)

    def begin(self) -> None:
        """From now on there is something to save: the first signal is remembered in `signal`."""
        self._end_if_told()
        take_over(self._received)

    def _end(self, number: int, frame: FrameType | None) -> None:
        self.signal = number
        # A library may catch the exception, and in a finaliser it is only reported: then the process ends a bit later.
        sys.unraisablehook = lambda _: None
        signal.signal(signal.SIGALRM, lambda *_: os._exit(128 + number))
        signal.setitimer(signal.ITIMER_REAL, _SECONDS_TO_END)
        self._end_if_told()

    def _end_if_told(self) -> None:
        if self.signal is not None:
            raise SystemExit(self.exit_code)

    def _received(self, number: int, frame: FrameType | None) -> None:
        if self._asked and number != signal.SIGHUP:
            _say(b"\nstopped at once; what was saved before is intact\n")
            os._exit(128 + number)
        # When a terminal is closed, shell and kernel may send SIGHUP each, and a shutdown SIGTERM after it.
        self._asked = self._asked or number != signal.SIGHUP
        if self.signal is None:
            self.signal = number
            _say(self._answer)

    @property
    def exit_code(self) -> int:
        """128 + the signal's number, as shells count; 0 when none came."""
        return 0 if self.signal is None else 128 + self.signal


def _say(text: bytes) -> None:
    """Write to standard error what it takes at once: print may be interrupted in the middle of itself."""
    with contextlib.suppress(OSError):
        if select.select([], [2], [], 0)[1]:
            os.write(2, text)


def die_with(parent: int) -> None:
    """Have the kernel kill this process when its parent dies, and notice if it died before this was said."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
