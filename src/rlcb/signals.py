"""Ctrl-C, SIGTERM and hang-up: they end a program or ask it for an orderly end; children end with their parent."""

import contextlib
import ctypes
import os
import select
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

CAUGHT = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_SECONDS_TO_END = 10.0  # after which a program that was told to end is ended, tidied up or not
_PR_SET_PDEATHSIG = 1


def take_over(handler: Callable[[int, FrameType | None], None]) -> None:
    """Have SIGINT, SIGTERM and SIGHUP call `handler`; a hang-up that this program was told to ignore stays ignored.

    Python allows that in the main thread alone; elsewhere signals stay with whoever has them.
    """
    if threading.current_thread() is not threading.main_thread():
        return
    for number in CAUGHT:
        if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:  # as nohup leaves it
            signal.signal(number, handler)


@contextlib.contextmanager
def handlers_restored() -> Iterator[None]:
    """Afterwards signals are handled as they were before."""
    before: dict[int, Any] = {number: signal.getsignal(number) for number in CAUGHT}
    try:
        yield
    finally:
        put_back(before)


def put_back(handlers: dict[int, Any]) -> None:
    """Have signals handled by these; None stands for a handler that Python does not know, which cannot be put back."""
    for number, handler in handlers.items():
        if handler is not None and signal.getsignal(number) is not handler:
            signal.signal(number, handler)


class StopRequest:
    """What signals mean for a program: until there is something to save they end it, then they ask it to stop.

    Once it was asked, a second signal ends the process at once, unless it is a hang-up.
    """

    def __init__(self, answer: str = "finishing the current update and saving") -> None:
        """`answer`: what is done when it is asked to stop, for the person who asks."""
        self.signal: int | None = None  # 0: the program itself asked
        self._answer = f"\n{answer}; press Ctrl-C again to stop at once\n".encode()
        self._asked = False  # by a signal that somebody sends on purpose

    def install(self) -> None:
        """From now on a signal ends the program where it stands, with 128 + its number."""
        self._end_if_told()
        take_over(self._end)

    def begin(self) -> None:
        """From now on there is something to save: the first signal is remembered in `signal`."""
        self._end_if_told()
        take_over(self._received)

    def ask(self) -> None:
        """Stop as after a signal, because the program that called says so."""
        if self.signal is None:
            self.signal = 0

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
            _say(b"\nstopped at once; earlier checkpoints are intact\n")
            os._exit(128 + number)
        # When a terminal is closed, shell and kernel may send SIGHUP each, and a shutdown SIGTERM after it.
        self._asked = self._asked or number != signal.SIGHUP
        if self.signal is None:
            self.signal = number
            _say(self._answer)

    @property
    def exit_code(self) -> int:
        """128 + the signal's number, as shells count; 0 when none came."""
        return 128 + self.signal if self.signal else 0


class CallerStop(StopRequest):
    """The same for a function that somebody else's program calls: it never ends the process.

    Until there is something to save, and from the second one on, signals do what they did before the call.
    """

    def __init__(self, answer: str = "finishing the current update and saving") -> None:
        super().__init__(answer)
        self.handlers: dict[int, Any] = {number: signal.getsignal(number) for number in CAUGHT}

    def install(self) -> None:
        """Signals stay with the caller."""

    def begin(self) -> None:
        """From now on there is something to save: the first signal that the caller does not ignore is remembered."""
        take_over(self._received)
        put_back({number: found for number, found in self.handlers.items() if found is signal.SIG_IGN})

    def _received(self, number: int, frame: FrameType | None) -> None:
        if self._asked and number != signal.SIGHUP:
            put_back(self.handlers)
            signal.raise_signal(number)
        else:
            super()._received(number, frame)

    def passed_on(self) -> bool:
        """Hand a signal that came to the caller's own handler; returns False if that is Python's for Ctrl-C."""
        put_back(self.handlers)
        if self.signal == signal.SIGINT and self.handlers[signal.SIGINT] is signal.default_int_handler:
            return False
        if self.signal:
            signal.raise_signal(self.signal)
        return True


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
