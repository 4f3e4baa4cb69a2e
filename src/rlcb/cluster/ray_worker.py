"""What runs on a node: a Ray actor that runs one worker's role in a thread and carries its messages.

Nothing here imports torch before `prepare` has set threads and allocator: torch reads its settings when it loads.
"""

import contextlib
import os
import queue
import tempfile
import threading
import time
import traceback
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import ray

from rlcb.comm.control import Control
from rlcb.hardware import package_version, prepare_process

if TYPE_CHECKING:
    from rlcb.cluster.parameter_server import RemoteParameters
    from rlcb.cluster.transport import RemoteTransport
    from rlcb.envs.base import EnvSpec
    from rlcb.execution.messages import ActorSetup, AsyncSetup

_GROUPS = {"talk": 1, "listen": 1, "watch": 1}  # each keeps its own order, none waits for another


def versions() -> dict[str, str | None]:
    """What must be the same on all machines of a run."""
    from rlcb import __version__

    return {"rlcb": __version__, **{name: package_version(name) for name in ("torch", "procgen-mirror", "gymnasium")}}


class Mailbox:
    """The channel of a worker that runs in a thread: two queues."""

    def __init__(self) -> None:
        self.incoming: queue.Queue[Any] = queue.Queue()
        self.outgoing: queue.SimpleQueue[tuple[Any, Any]] = queue.SimpleQueue()

    def recv(self) -> Any:
        """Wait for the next message."""
        return self.incoming.get()

    def poll(self, timeout: float = 0.0) -> bool:
        """Whether there is a message, after at most so many seconds."""
        deadline = time.monotonic() + timeout
        while self.incoming.empty():
            if time.monotonic() >= deadline:
                return False
            time.sleep(0.01)
        return True

    def send(self, message: Any, payload: Any = None) -> None:
        """Leave a message; a `payload` stays in this node's memory until somebody wants it."""
        self.outgoing.put((message, payload))


class RayContext:
    """What a worker finds on a node: messages through its Ray actor, all else over the network."""

    def __init__(self, channel: Mailbox, control: Control):
        self.channel, self.control = channel, control

    def rendezvous(self, name: str, rank: int, size: int) -> Any:
        """Ray's key-value store."""
        from rlcb.cluster.rendezvous import ClusterStore

        return ClusterStore(name, rank, size)

    def transport(self, setup: "ActorSetup", spec: "EnvSpec", num_weights: int) -> "RemoteTransport":
        """Rollouts and weights through Ray's object store."""
        from rlcb.cluster.transport import RemoteTransport

        del num_weights
        return RemoteTransport(self.channel, setup.config.training.n_steps, setup.num_envs, spec)

    def parameters(self, setup: "AsyncSetup") -> "RemoteParameters":
        """A parameter server on the supervisor's machine."""
        from rlcb.cluster.parameter_server import RemoteParameters

        return RemoteParameters(setup.server, setup.index)


@ray.remote(concurrency_groups=_GROUPS)
class WorkerActor:
    """One worker on a node."""

    def __init__(self) -> None:
        self._mail = Mailbox()
        self._control: Control | None = None
        self._index = 0
        self._steered = (0, False)

    @ray.method(concurrency_group="talk")
    def prepare(self, num_threads: int) -> None:
        """Set threads and allocator, before any message is unpacked that needs torch."""
        prepare_process(num_threads)
        os.environ["GLOO_SOCKET_IFNAME"] = interface_of(ray.util.get_node_ip_address())

    @ray.method(concurrency_group="talk")
    def begin(self, role: str, index: int, size: int, setup: Any, expected: dict[str, str | None]) -> None:
        """Start the worker."""
        from rlcb.comm.pool import Failed

        mine = versions()
        other = [name for name, version in expected.items() if mine[name] != version]
        if other:
            name, node = other[0], ray.util.get_node_ip_address()
            words = f"node {node} has {name} {mine[name]}, this machine {expected[name]}; install the same on all nodes"
            self._mail.send(Failed("WorkersLost", words))
            return
        self._index, self._control = index, Control(os.memfd_create("rlcb-control"), size)
        self._take_over(*self._steered)
        if hasattr(setup, "dumps"):  # the run's directory is not on this machine
            setup = replace(setup, dumps=Path(tempfile.gettempdir()))
        context = RayContext(self._mail, self._control)
        threading.Thread(target=self._work, args=(role, context, setup), daemon=True).start()

    def _work(self, role: str, context: RayContext, setup: Any) -> None:
        from rlcb.execution.entry import run_role

        try:
            run_role(role, context, setup)
        except BaseException:
            traceback.print_exc()  # into Ray's log of this worker
            os._exit(1)  # as a process would end that fails

    @ray.method(concurrency_group="talk")
    def tell(self, message: Any, clock: float, payload: Any = None) -> None:
        """Give the worker a message; `clock` is what the sender's clock showed."""
        from rlcb.execution.messages import Go

        if isinstance(message, Go):  # times are readings of this machine's clock
            message = replace(message, zero=message.zero - clock + time.perf_counter())
        self._mail.incoming.put(message if payload is None else (message, payload))

    @ray.method(concurrency_group="listen")
    def next(self) -> tuple[Any, Any]:
        """The worker's next message, and what it left with it."""
        return self._mail.outgoing.get()

    @ray.method(concurrency_group="watch")
    def pulse(self) -> tuple[int, int, float, int]:
        """The worker's heartbeat, and this process's memory in bytes, its processor seconds, its number."""
        process = psutil.Process()
        times = process.cpu_times()
        beat = int(self._control.heartbeats[self._index]) if self._control else -1
        return beat, process.memory_info().rss, times.user + times.system, os.getpid()

    @ray.method(concurrency_group="watch")
    def steer(self, generation: int, stop: bool) -> None:
        """Take over what the supervisor's control page says."""
        self._steered = (generation, stop)
        self._take_over(generation, stop)

    def _take_over(self, generation: int, stop: bool) -> None:
        if self._control is not None:
            while self._control.generation < generation:
                self._control.next_generation()
            if stop:
                self._control.request_stop()


@ray.remote(num_cpus=0)
def kill_process(number: int) -> None:
    """End a process of this node that does not answer any more."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(number, 9)


def interface_of(address: str) -> str:
    """The network interface that has this address: gloo listens there and nowhere else."""
    for name, entries in psutil.net_if_addrs().items():
        if any(entry.address == address for entry in entries):
            return name
    return "lo"
