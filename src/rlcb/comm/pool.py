"""Where workers run: a pool starts them, here as processes of this machine; a handle is one worker from outside."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, Protocol

from rlcb import errors
from rlcb.comm.control import Control

_ENTRY = "rlcb.execution.entry"  # the program that every worker process runs


class NoRoom(Exception):
    """Nothing that is left of the cluster has room for another worker."""


class WorkerDied(Exception):
    """A worker is gone."""

    def __init__(self, worker: "WorkerHandle", how: str):
        super().__init__(worker.name, how)
        self.worker, self.how = worker, how


@dataclass(frozen=True)
class Failed:
    """A worker's last message: it cannot go on, for a reason that the user must hear."""

    kind: str  # a class of rlcb.errors
    message: str

    def error(self) -> errors.RlcbError:
        """The failure as an exception."""
        kind: type[errors.RlcbError] = getattr(errors, self.kind)
        return kind(self.message)


class WorkerHandle(Protocol):
    """A worker, as its supervisor sees it."""

    name: str
    role: str
    index: int

    @property
    def channel(self) -> Any:
        """What to wait on for messages: `multiprocessing.connection.wait` takes it, and it has `poll`."""

    def receive(self) -> Any:
        """The next message; a worker that is gone raises WorkerDied, one that cannot go on its own error."""

    def send(self, message: Any) -> None:
        """Tell the worker something; that it is gone is noticed when it is listened to."""

    def silent_for(self) -> float:
        """Seconds since its heartbeat last moved, or since `reset_silence`."""

    def reset_silence(self) -> None:
        """From now on it has something to do, so its silence counts."""

    def kill(self) -> None:
        """Stop it at once; what it has sent before can still be received, where messages come over a socket."""

    def end(self) -> None:
        """Make sure that it is gone, and release what belongs to it."""


class WorkerPool(Protocol):
    """Starts workers and knows how many there is room for."""

    distributed: bool  # over several machines, which do not fail together
    elastic: bool  # as many workers as there is room for, not a number that was asked for

    def control(self, name: str, size: int) -> Control:
        """The control page of so many workers."""

    def start(self, role: str, index: int, setup: Any, control: Control, descriptors: Sequence[int]) -> WorkerHandle:
        """Start a worker; NoRoom where none can be started."""

    def room(self) -> int | None:
        """How many more workers could be started now; None: any number."""

    def check(self) -> None:
        """See whether what the workers run on is still there; if it is lost altogether, WorkersLost."""

    def usage(self) -> tuple[int, float]:
        """Bytes and processor seconds of the workers that are not in this process's tree."""

    def cores(self) -> int | None:
        """Cores that the workers may use in all; None: this process's own."""

    def nodes(self) -> list[dict[str, Any]]:
        """The machines, with how many workers each has had and the most memory they took there."""


def worker_name(role: str, index: int) -> str:
    """What messages call a worker: 'actor 3'."""
    return f"{role.rpartition('_')[2]} {index}"


class LocalWorker:
    """A child process that works in one role."""

    def __init__(
        self, role: str, index: int, setup: Any, control: Control, descriptors: Sequence[int], program: str = _ENTRY
    ):
        """`descriptors` of shared memory stay open in the child, under the same numbers; it runs this module."""
        self.name, self.role, self.index = worker_name(role, index), role, index
        self._control, self._last_beat, self._last_seen = control, -1, time.monotonic()
        ours, theirs = socket.socketpair()
        with ours, theirs:
            words = (theirs.fileno(), control.descriptor, control.size, setup.num_threads, os.getpid())
            self.process = subprocess.Popen(
                [sys.executable, "-m", program, role, *map(str, words)],
                pass_fds=(theirs.fileno(), control.descriptor, *descriptors),
                process_group=0,  # Ctrl-C is for the supervisor, which tells its workers when to stop
            )
            self.channel: Connection[Any, Any] = Connection(ours.detach())
        self.send(setup)

    def receive(self) -> Any:
        """The next message; a worker that is gone raises WorkerDied, one that cannot go on its own error."""
        try:
            message = self.channel.recv()
        except (EOFError, OSError):  # the second where it was cut off in the middle of a message
            raise WorkerDied(self, self._how_it_ended()) from None
        if isinstance(message, Failed):
            raise message.error()
        return message

    def send(self, message: Any) -> None:
        """Tell the worker something; that it is gone is noticed when it is listened to."""
        with contextlib.suppress(BrokenPipeError, ConnectionError):
            self.channel.send(message)

    def silent_for(self) -> float:
        """Seconds since its heartbeat last moved, or since `reset_silence`."""
        beat = int(self._control.heartbeats[self.index])
        if beat != self._last_beat:
            self._last_beat, self._last_seen = beat, time.monotonic()
        return time.monotonic() - self._last_seen

    def reset_silence(self) -> None:
        """From now on it has something to do, so its silence counts."""
        self._last_seen = time.monotonic()

    def kill(self) -> None:
        """Stop the process at once; what it has sent before can still be received."""
        self.process.kill()
        self.process.wait()

    def end(self) -> None:
        """Make sure that the process is gone."""
        self.kill()
        self.channel.close()

    def _how_it_ended(self) -> str:
        code = self.process.wait()
        return f"killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"


class LocalPool:
    """Workers are processes of this machine; any number of them."""

    distributed = elastic = False

    def control(self, name: str, size: int) -> Control:
        """A page of nameless shared memory: nothing is left of it, whoever is killed."""
        return Control(os.memfd_create(name), size)

    def start(self, role: str, index: int, setup: Any, control: Control, descriptors: Sequence[int]) -> WorkerHandle:
        """A new process, which inherits the descriptors."""
        return LocalWorker(role, index, setup, control, descriptors)

    def room(self) -> int | None:
        """Any number."""
        return None

    def check(self) -> None:
        """This machine is here."""

    def usage(self) -> tuple[int, float]:
        """All workers are in this process's tree."""
        return 0, 0.0

    def cores(self) -> int | None:
        """Those of this process."""
        return None

    def nodes(self) -> list[dict[str, Any]]:
        """This machine is described elsewhere."""
        return []
