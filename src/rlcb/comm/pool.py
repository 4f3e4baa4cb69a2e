"""Where workers run: a pool starts them, here as processes of this machine; a handle is one worker from outside."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from multiprocessing.connection import Connection
from multiprocessing.reduction import ForkingPickler
from queue import SimpleQueue
from typing import Any

from rlcb.comm.control import Control
from rlcb.errors import RlcbError
from rlcb.hardware import Memory

_ENTRY = "rlcb.execution.entry"  # the program that every worker process runs


class NoRoom(Exception):
    """Nothing that is left of the cluster has room for another worker."""


class PoolLost(Exception):
    """What the workers run on is gone altogether."""


class WorkerDied(Exception):
    """A worker is gone."""

    def __init__(self, worker: "WorkerHandle", how: str):
        super().__init__(worker.name, how)
        self.worker, self.how = worker, how


class WorkerHandle(ABC):
    """A worker, as its supervisor sees it: knows how long it has been silent; how to talk to it depends on the pool."""

    channel: Any  # a Connection: what to wait on for messages

    def __init__(self, role: str, index: int):
        self.role, self.index = role, index
        self.name = f"{role.rpartition('_')[2]} {index}"  # what messages call it: 'actor 3'
        self._last_beat, self._last_seen = -1, time.monotonic()

    @abstractmethod
    def receive(self) -> Any:
        """The next message; a dead worker raises WorkerDied, one that cannot continue the error that it sent."""

    @abstractmethod
    def send(self, message: Any) -> None:
        """Tell the worker something; that it is gone is noticed when it is listened to."""

    @abstractmethod
    def kill(self) -> None:
        """Stop it at once; what it has sent before can still be received, where messages come over a socket."""

    @abstractmethod
    def end(self) -> None:
        """Make sure that it is gone, and release what belongs to it."""

    def note_beat(self, beat: int) -> None:
        """Its heartbeat counter was seen to show this."""
        if beat != self._last_beat:
            self._last_beat, self._last_seen = beat, time.monotonic()

    def silent_for(self) -> float:
        """Seconds since its heartbeat was last seen to move, or since `reset_silence`."""
        return time.monotonic() - self._last_seen

    def reset_silence(self) -> None:
        """From now on it has something to do, so its silence counts."""
        self._last_seen = time.monotonic()


class LocalWorker(WorkerHandle):
    """A child process that works in one role."""

    def __init__(
        self, role: str, index: int, setup: Any, control: Control, descriptors: Sequence[int], program: str = _ENTRY
    ):
        """`descriptors` of shared memory stay open in the child, under the same numbers; it runs this module."""
        super().__init__(role, index)
        self._control = control
        ours, theirs = socket.socketpair()
        with ours, theirs:
            words = (theirs.fileno(), control.descriptor, control.size, setup.num_threads, os.getpid())
            self.process = subprocess.Popen(
                [sys.executable, "-m", program, role, *map(str, words)],
                pass_fds=(theirs.fileno(), control.descriptor, *descriptors),
                process_group=0,  # Ctrl-C is for the supervisor, which tells its workers when to stop
            )
            self.channel = Connection(ours.detach())
        self._outbox: SimpleQueue[Any] = SimpleQueue()
        self._sender = threading.Thread(target=self._write, daemon=True)
        self._sender.start()
        self.send(setup)

    def receive(self) -> Any:
        """The next message, from a socket that closes with the process."""
        try:
            message = self.channel.recv()
        except (EOFError, OSError):  # the second where it was cut off in the middle of a message
            code = self.process.wait()
            how = f"killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
            raise WorkerDied(self, how) from None
        if isinstance(message, RlcbError):
            raise message
        return message

    def send(self, message: Any) -> None:
        """Have it written to the socket."""
        self._outbox.put(ForkingPickler.dumps(message))

    def _write(self) -> None:
        """Write to the socket, in a thread: a worker that does not read must not stop its supervisor."""
        with contextlib.suppress(ConnectionError):
            while (message := self._outbox.get()) is not None:
                self.channel.send_bytes(message)

    def silent_for(self) -> float:
        """Seconds since its heartbeat in shared memory last moved."""
        self.note_beat(int(self._control.heartbeats[self.index]))
        return super().silent_for()

    def kill(self) -> None:
        """SIGKILL; the socket stays open."""
        self.process.kill()
        self.process.wait()

    def end(self) -> None:
        """SIGKILL, and close the socket."""
        self.kill()
        self._outbox.put(None)
        self._sender.join()  # there is no reader at the other end any more, so it does not wait
        self.channel.close()


class WorkerPool:
    """Starts workers: here as processes of this machine, any number of them; a pool on a cluster overrides that."""

    distributed = False  # over several machines, which do not fail together
    elastic = False  # as many workers as there is room for, not a number that was asked for

    def control(self, name: str, size: int) -> Control:
        """The control page of this many workers: nameless memory, of which nothing is left, whoever is killed."""
        return Control(os.memfd_create(name), size)

    def plan(self, places: Sequence[int]) -> None:
        """Decide where the workers in these places are to run, which are started next."""

    def start(self, role: str, index: int, setup: Any, control: Control, descriptors: Sequence[int]) -> WorkerHandle:
        """Start a worker, which inherits the descriptors; NoRoom where none can be started."""
        return LocalWorker(role, index, setup, control, descriptors)

    def room(self) -> int | None:
        """How many more workers could be started now; None: any number."""
        return None

    def check(self) -> None:
        """See whether what the workers run on is still there; PoolLost if it is not."""

    def usage(self) -> tuple[Memory, float]:
        """Memory and processor seconds of the workers that are not in this process's tree."""
        return Memory(), 0.0

    def cores(self) -> int | None:
        """Cores that the workers may use in total; None: this process's own."""
        return None

    def nodes(self) -> list[dict[str, Any]]:
        """The nodes of a cluster: cores, the most workers and threads each has had, the most memory they took there."""
        return []
