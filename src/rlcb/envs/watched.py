"""A module of this program in a process of its own that is watched: of one that hangs or dies, the place is found out.

Somebody else's code runs there, which may also crash the process, print, or hang where no exception reaches it.
"""

import contextlib
import faulthandler
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import Any

from rlcb.envs.own_code import is_library
from rlcb.signals import die_with

_OURS = Path(__file__).resolve().parents[1]
_WHERE = signal.SIGUSR1  # asks a process where it is; it answers even inside code that never returns to Python
_STACK = "(most recent call first):"  # how that answer begins
_FRAME = re.compile(r'^  File "(.*)", line (\d+) in (.+)$', re.MULTILINE)
_ANSWER_SECONDS = 2.0  # that a process is given to say where it is


class Lost(Exception):
    """No message came: how that is, and where the process was, in words."""

    def __init__(self, how: str, hangs: bool):
        super().__init__(how)
        self.hangs = hangs


class Watched:
    """A process that runs `python -m MODULE`; what it starts itself ends with it."""

    def __init__(self, module: str, setup: Any):
        """`setup`: its first message."""
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 - open as long as the process
        ours, theirs = socket.socketpair()
        with ours, theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", module, str(theirs.fileno()), str(os.getpid())],
                pass_fds=(theirs.fileno(),), stdin=subprocess.DEVNULL, stdout=self._said, stderr=subprocess.STDOUT,
                process_group=0,
            )  # fmt: skip
            self._channel: Connection[Any, Any] = Connection(ours.detach())
        self.send(setup)

    def __enter__(self) -> "Watched":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        """End it and what it has started."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._channel.close()
        self._said.close()

    def send(self, message: Any) -> None:
        """Tell it something; that it is gone is noticed when it is listened to."""
        with contextlib.suppress(ConnectionError):
            self._channel.send(message)

    def receive(self, seconds: float) -> Any:
        """Its next message; Lost if none comes within this time, or none any more."""
        try:
            if self._channel.poll(max(seconds, 0.0)):
                return self._channel.recv()
        except (EOFError, ConnectionError):
            raise Lost(self._ending(), hangs=False) from None
        raise Lost(self._place(), hangs=True)

    def _ending(self) -> str:
        code = self._process.wait()
        said = self._output().strip()
        how = f"killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        last = said.splitlines()[-1:] if said and _STACK not in said else []
        return f"{how}{_innermost(said)}{''.join(f': {line[:200]}' for line in last)}"

    def _place(self) -> str:
        """Where it is now, with a space before; empty if that cannot be found out."""
        before = self._output().count(_STACK)
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(_WHERE)
        deadline = time.monotonic() + _ANSWER_SECONDS
        while self._output().count(_STACK) == before and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(0.05)  # the lines after the first are being written
        return _innermost(self._output())

    def _output(self) -> str:
        """All that it has printed, as far as the end of it matters."""
        size = os.fstat(self._said.fileno()).st_size
        return os.pread(self._said.fileno(), 100_000, max(size - 100_000, 0)).decode(errors="replace")


def _innermost(said: str) -> str:
    """The innermost line of the user's code in the last stack that was printed, or else one that is not ours."""
    frames = _FRAME.findall(said.rpartition(_STACK)[2]) if _STACK in said else []
    theirs = [frame for frame in frames if not frame[0].startswith("<") and _OURS not in Path(frame[0]).parents]
    users = [frame for frame in theirs if not is_library(Path(frame[0]))]
    for file, line, function in (users or theirs)[:1]:
        return f" in {function} ({file}, line {line})"
    return ""


def connected() -> "Connection[Any, Any]":
    """In the process itself, at its beginning: its way to the one that watches it."""
    descriptor, parent = map(int, sys.argv[1:3])
    die_with(parent)
    faulthandler.enable()  # of a crash, the place too
    faulthandler.register(_WHERE, all_threads=False)
    return Connection(descriptor)
