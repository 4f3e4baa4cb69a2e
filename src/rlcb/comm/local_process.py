"""A child process as its supervisor sees it: started, talked to, watched, ended."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any, NoReturn

from rlcb import errors
from rlcb.comm.process_group import Control
from rlcb.execution.messages import Failed

if TYPE_CHECKING:
    from rlcb.comm.pool import Child

STARTUP_SECONDS = 300  # importing torch on a crowded machine takes long; hanging there is not told from slowness


class Lost(Exception):
    """A child is gone."""

    def __init__(self, process: "Child", how: str):
        super().__init__(process.name, how)
        self.process, self.how = process, how


class Process:
    """A child that runs one of this package's modules; `name` is what messages call it."""

    def __init__(self, name: str, module: str, index: int, setup: Any, control: Control, descriptors: Sequence[int]):
        """`descriptors` of shared memory stay open in the child, under the same numbers."""
        self.name, self.index = name, index
        self._control, self._last_beat, self._last_seen = control, -1, time.monotonic()
        ours, theirs = socket.socketpair()
        with ours, theirs:
            words = (theirs.fileno(), control.descriptor, control.size, os.getpid())
            self.process = subprocess.Popen(
                [sys.executable, "-m", module, *map(str, words)],
                pass_fds=(theirs.fileno(), control.descriptor, *descriptors),
                process_group=0,  # Ctrl-C is for the supervisor, which tells its children in its own time
            )
            self.channel: Connection[Any, Any] = Connection(ours.detach())
        with contextlib.suppress(Lost):  # a child that is gone already is noticed by whoever listens to it
            self.send(setup)

    def receive(self) -> Any:
        """The next message; a child that is gone raises Lost, one that cannot go on its own error."""
        try:
            message = self.channel.recv()
        except (EOFError, OSError):  # the second where it was cut off in the middle of a message
            raise Lost(self, self._how_it_ended()) from None
        if isinstance(message, Failed):
            raise getattr(errors, message.kind)(message.message)
        return message

    def send(self, message: Any) -> None:
        """Tell the child something; one that is gone raises Lost."""
        try:
            self.channel.send(message)
        except (BrokenPipeError, ConnectionError):
            raise Lost(self, self._how_it_ended()) from None

    def silent_for(self) -> float:
        """Seconds since this child last gave a sign of life, or was told to go."""
        beat = int(self._control.heartbeats[self.index])
        if beat != self._last_beat:
            self._last_beat, self._last_seen = beat, time.monotonic()
        return time.monotonic() - self._last_seen

    def told_to_go(self) -> None:
        """From now on it has something to do, so its silence counts."""
        self._last_seen = time.monotonic()

    def give_up(self, patience: float) -> NoReturn:
        """End a child that has been silent for too long."""
        self.process.kill()
        self.process.wait()  # the channel stays open: what it had said before still counts
        raise Lost(self, f"silent for {patience:g} s and killed")

    def end(self) -> None:
        """Make sure that the process is gone."""
        self.process.kill()
        self.process.wait()
        self.channel.close()

    def _how_it_ended(self) -> str:
        code = self.process.wait()
        return f"killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
