"""What runs on a node: a Ray actor that runs one worker's role in a thread and carries its messages.

Nothing here imports torch before threads and allocator are set: torch reads its settings when it loads.
"""

import contextlib
import os
import sys
import tempfile
import threading
import time
import traceback
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import ray

from rlcb.comm.control import Control
from rlcb.envs.families import make_ready, release_versions
from rlcb.envs.own_code import load_all
from rlcb.errors import RlcbError, UsageError, WorkersLost
from rlcb.hardware import Memory, package_version, prepare_process
from rlcb.run.resources import MemoryProbe

if TYPE_CHECKING:
    from rlcb.execution.entry import WorkerContext

_GROUPS = {"talk": 1, "listen": 1, "watch": 1}  # each keeps its own order, none waits for another


def versions() -> dict[str, str | None]:
    """What must be the same on all machines of a run, whatever its environment is."""
    from rlcb import __version__

    packages = {name: package_version(name) for name in ("torch", "gymnasium")}
    return {"Python": f"{sys.version_info.major}.{sys.version_info.minor}", "rlcb": __version__, **packages}


class Mailbox:
    """The channel of a worker that runs in a thread.

    Calls of Ray may be lost, repeated or delayed. So messages have numbers in both directions: one that arrives twice
    is taken once, one that was sent is kept until the next is asked for, and `counts` tells the other end what is
    missing.
    """

    def __init__(self) -> None:
        self._incoming: deque[Any] = deque()
        self._early: dict[int, Any] = {}  # by number: arrived before the one that comes first
        self._expected = 0  # number of the next message to take
        self._outgoing: deque[tuple[Any, Any]] = deque()  # the first of them has the number `_first`
        self._first = 0
        self._changed = threading.Condition()

    def recv(self) -> Any:
        """Wait for the next message."""
        with self._changed:
            self._changed.wait_for(lambda: self._incoming)
            return self._incoming.popleft()

    def poll(self, timeout: float = 0.0) -> bool:
        """Whether there is a message, after at most this many seconds."""
        with self._changed:
            return bool(self._changed.wait_for(lambda: self._incoming, timeout))

    def send(self, message: Any, payload: Any = None) -> None:
        """Leave a message; a `payload` stays in this node's memory until somebody wants it."""
        with self._changed:
            self._outgoing.append((message, payload))
            self._changed.notify_all()

    def take_in(self, number: int, message: Any) -> None:
        """A message for the worker has arrived, perhaps not for the first time, perhaps before an earlier one."""
        with self._changed:
            if number >= self._expected:
                self._early[number] = message
            while self._expected in self._early:
                self._incoming.append(self._early.pop(self._expected))
                self._expected += 1
            self._changed.notify_all()

    def counts(self) -> tuple[int, int]:
        """How many messages were taken in, and how many were left for the other end, since the beginning."""
        with self._changed:
            return self._expected, self._first + len(self._outgoing)

    def give_out(self, number: int) -> tuple[Any, Any]:
        """Wait for the worker's message of this number; those before it have been received."""
        with self._changed:
            while self._first < number and self._outgoing:
                self._outgoing.popleft()
                self._first += 1
            self._changed.wait_for(lambda: len(self._outgoing) > number - self._first)
            received = number < self._first  # a repeated call, whose answer is not awaited
            return (None, None) if received else self._outgoing[number - self._first]


def node_context(channel: Mailbox, control: Control) -> "WorkerContext":
    """What a worker finds on a node: messages through its Ray actor, all else over the network."""
    from rlcb.cluster.parameter_server import RemoteParameters
    from rlcb.cluster.rendezvous import ClusterStore
    from rlcb.cluster.transport import RemoteTransport
    from rlcb.execution.entry import WorkerContext

    return WorkerContext(
        channel,
        control,
        rendezvous=ClusterStore,
        transport=lambda setup, spec, _: RemoteTransport(channel, setup, spec),
        parameters=lambda setup: RemoteParameters(setup.server, setup.index, setup.incarnation),
    )


@dataclass(frozen=True)
class Pulse:
    """How a worker is."""

    beat: int  # its heartbeat counter
    memory: Memory
    cpu_seconds: float
    process: int  # number
    taken: int  # messages that have reached it
    left: int  # messages that it has left to be fetched


@ray.remote(concurrency_groups=_GROUPS, max_restarts=0, max_task_retries=-1, allow_out_of_order_execution=True)
class WorkerActor:
    """One worker on a node. Ray may repeat calls and change their order: none must wait for one that failed."""

    def __init__(
        self, role: str, index: int, size: int, num_threads: int, expected: dict[str, str | None], folder: str
    ):
        """Start the worker, which waits for its set-up, unless other versions are installed here.

        `folder`: where the user's own modules are looked for.
        """
        prepare_process(num_threads)  # before anything is unpacked that needs torch
        node = ray.util.get_node_ip_address()
        os.environ["GLOO_SOCKET_IFNAME"] = interface_of(node)
        self._role, self._index, self._node, self._folder = role, index, node, folder
        self._memory = MemoryProbe(lambda: [psutil.Process()])
        self._mail, self._control = Mailbox(), Control(os.memfd_create("rlcb-control"), size)
        self._expected = expected
        if not self._differs(versions()):
            threading.Thread(target=self._work, daemon=True).start()

    def _differs(self, mine: Mapping[str, str | None]) -> bool:
        """Whether something has another version here than it should; if so, the supervisor is told."""
        for name, version in mine.items():
            if version != (there := self._expected.get(name)):
                words = f"node {self._node} has {name} {version}, this machine {there}; install the same on all nodes"
                self._mail.send(WorkersLost(words))
                return True
        return False

    @ray.method(concurrency_group="talk")
    def tell(self, number: int, message: Any, clock: float, payload: Any = None) -> None:
        """Give the worker a message; the first one is its set-up. `clock` is what the sender's clock showed."""
        from rlcb.execution.messages import Go

        if isinstance(message, Go):  # times are readings of this machine's clock
            message = replace(message, zero=message.zero - clock + time.perf_counter())
        self._mail.take_in(number, message if payload is None else (message, payload))

    def _work(self) -> None:
        from rlcb.execution.entry import run_role

        try:
            setup = self._mail.recv()
            if hasattr(setup, "dumps"):  # the run's directory is not on this machine
                setup = replace(setup, dumps=Path(tempfile.gettempdir()))
            self._import_modules(setup.config.modules)
            self._make_ready(setup.config.env.name)
            run_role(self._role, node_context(self._mail, self._control), setup)
        except BaseException:
            traceback.print_exc()  # into Ray's log of this worker
            os._exit(1)  # as a process would end that fails

    def _import_modules(self, modules: list[str]) -> None:
        """Import the user's own modules; where one is missing, the supervisor is told and this process waits."""
        try:
            load_all(modules, self._folder)
        except UsageError as error:
            self._mail.send(UsageError(f"node {self._node}: {error}; it must be installed on every node"))
            threading.Event().wait()

    def _make_ready(self, name: str) -> None:
        """Have what the environment needs on this node; otherwise the supervisor is told and this process waits."""
        try:
            make_ready(name)
            if not self._differs(release_versions(name)):
                return
        except RlcbError as error:
            self._mail.send(WorkersLost(f"node {self._node}: {error}"))
        threading.Event().wait()

    @ray.method(concurrency_group="listen")
    def next(self, number: int) -> tuple[Any, Any]:
        """The worker's message of this number, and what it left with it."""
        return self._mail.give_out(number)

    @ray.method(concurrency_group="watch")
    def pulse(self, generation: int, stop: bool) -> "Pulse":
        """Take over what the supervisor's control page says, and tell how the worker is."""
        while self._control.generation < generation:
            self._control.next_generation()
        if stop:
            self._control.request_stop()
        times = psutil.Process().cpu_times()
        beat, (taken, left) = int(self._control.heartbeats[self._index]), self._mail.counts()
        return Pulse(beat, self._memory(), times.user + times.system, os.getpid(), taken, left)


@ray.remote(num_cpus=0)
def kill_process(number: int) -> None:
    """End a process of this node that no longer answers."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(number, 9)


def interface_of(address: str) -> str:
    """The network interface that has this address: gloo listens there and nowhere else."""
    for name, entries in psutil.net_if_addrs().items():
        if any(entry.address == address for entry in entries):
            return name
    return "lo"
