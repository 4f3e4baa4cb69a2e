"""What runs on a node: a Ray actor that runs one child's module in a thread and carries its messages."""

import contextlib
import os
import queue
import tempfile
import threading
import time
import traceback
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import psutil
import ray

from rlcb.comm.process_group import Control
from rlcb.errors import RlcbError
from rlcb.execution.messages import Failed, Go
from rlcb.hardware import package_version, prepare_process

_GROUPS = {"talk": 1, "listen": 1, "watch": 1}  # each keeps its own order, none waits for another


def versions() -> dict[str, str | None]:
    """What must be the same on all machines of a run."""
    from rlcb import __version__

    return {"rlcb": __version__, **{name: package_version(name) for name in ("torch", "procgen-mirror", "gymnasium")}}


class Mailbox:
    """The channel of a child that is a thread: what it sends can be fetched, what it is told it receives."""

    def __init__(self) -> None:
        self.incoming: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.outgoing: queue.SimpleQueue[tuple[Any, Any]] = queue.SimpleQueue()

    def recv(self) -> Any:
        """Wait for the next message."""
        return self.incoming.get()

    def send(self, message: Any, payload: Any = None) -> None:
        """Leave a message; a `payload` stays in this node's memory until somebody wants it."""
        self.outgoing.put((message, payload))


@ray.remote(concurrency_groups=_GROUPS)
class Host:
    """One child on a node."""

    def __init__(self) -> None:
        self._mail = Mailbox()
        self._control: Control | None = None
        self._index = 0
        self._steered = (0, False)

    @ray.method(concurrency_group="talk")
    def begin(self, module: str, index: int, size: int, setup: Any, expected: dict[str, str | None]) -> None:
        """Start the child."""
        mine = versions()
        other = [name for name, version in expected.items() if mine[name] != version]
        if other:
            name, node = other[0], ray.util.get_node_ip_address()
            words = f"node {node} has {name} {mine[name]}, this machine {expected[name]}; install the same on all nodes"
            self._mail.send(Failed("WorkersLost", words, 4))
            return
        prepare_process(setup.num_threads)
        os.environ["GLOO_SOCKET_IFNAME"] = interface_of(ray.util.get_node_ip_address())
        self._index, self._control = index, Control(os.memfd_create("rlcb-control"), size)
        self._take_over(*self._steered)
        if hasattr(setup, "folder"):  # the run's is not on this machine
            setup = replace(setup, folder=Path(tempfile.gettempdir()))
        threading.Thread(target=self._work, args=(module, setup), daemon=True).start()

    def _work(self, module: str, setup: Any) -> None:
        try:
            import torch

            torch.set_num_threads(setup.num_threads)
            import_module(module).work(self._mail, setup, self._control)
        except RlcbError as error:
            self._mail.send(Failed(type(error).__name__, str(error), error.exit_code))
        except BaseException:
            traceback.print_exc()  # into Ray's log of this worker
            os._exit(1)  # as a process would end that fails

    @ray.method(concurrency_group="talk")
    def tell(self, message: Any, clock: float, payload: Any = None) -> None:
        """Give the child a message; `clock` is what the sender's clock showed."""
        if isinstance(message, Go):  # times are readings of this machine's clock
            message = replace(message, zero=message.zero - clock + time.perf_counter())
        self._mail.incoming.put(message if payload is None else (message, payload))

    @ray.method(concurrency_group="listen")
    def next(self) -> tuple[Any, Any]:
        """The child's next message, and what it left with it."""
        return self._mail.outgoing.get()

    @ray.method(concurrency_group="watch")
    def pulse(self) -> tuple[int, int, float, int]:
        """The child's sign of life, and this process's memory in bytes, its processor seconds, its number."""
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
