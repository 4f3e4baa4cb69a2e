"""A pool of workers on a Ray cluster: spreads them over its nodes, and notices nodes and heads that are lost."""

import contextlib
import os
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from rlcb.cluster.address import Address, answers
from rlcb.cluster.connect import connected
from rlcb.cluster.parameter_server import ParameterServer
from rlcb.cluster.placement import Place, spread
from rlcb.cluster.rendezvous import forget
from rlcb.cluster.transport import RayActorWorker, SupervisorTransport
from rlcb.cluster.worker_handle import RayWorker, RemoteControl
from rlcb.comm.control import Control
from rlcb.comm.pool import NoRoom, WorkerHandle
from rlcb.config.registry import ALGORITHMS
from rlcb.config.schema import Config
from rlcb.errors import WorkersLost
from rlcb.execution.messages import ActorSetup, AsyncSetup, WorkerSetup

_LOOKS_EVERY = 1.0  # seconds between looks at the nodes
_DECLARED_DEAD = 60.0  # seconds that Ray may take to declare a node dead
_SILENT = 10.0  # seconds without an answer before the head counts as lost, or this machine's part


@dataclass
class _Node:
    """A machine of the cluster, as far as this run knows it."""

    name: str
    door: Address  # where its part of Ray listens
    cores: float
    alive: bool = True
    gone_at: float = float("-inf")  # when it was found to be silent, though nobody has declared it dead
    workers: int = 0  # the most it had at a time
    peak_bytes: int = 0


class RayPool:
    """Workers are Ray actors, spread over the nodes by their cores."""

    distributed = True

    def __init__(self, config: Config, address: Address, own: bool):
        """`own`: the cluster was started for this run, so its processes belong to this one's tree."""
        self._config, self._address, self._own = config, address, own
        self.elastic = config.parallel.num_workers == "auto"
        self._here = ray.get_runtime_context().get_node_id()
        self._nodes: dict[str, _Node] = {}
        self._workers: list[RayWorker] = []
        self._plan: list[Place] = []
        self._spent_before = 0.0  # processor seconds of workers that are gone
        self._looked, self._groups = 0.0, 0
        self._prefix = f"rlcb-{os.getpid()}-{time.time_ns()}"
        self._transport: SupervisorTransport | None = None  # where there are actors
        self._server: Any = None  # A3C's parameter server
        self._watch = _Watch(address, self._here)
        self._look()

    # What there is

    def _look(self) -> None:
        """See which nodes there are."""
        for entry in self._watch.nodes:
            cores = entry["Resources"].get("CPU", 0.0)
            node = self._nodes.setdefault(entry["NodeID"], _Node(_name(entry), _door(entry), cores))
            node.cores = cores or node.cores
            node.alive = entry["Alive"] and time.monotonic() - node.gone_at > _DECLARED_DEAD

    def _free(self) -> dict[str, float]:
        """Cores of the living nodes that no worker has."""
        free = {name: node.cores for name, node in self._nodes.items() if node.alive}
        for worker in self._workers:
            if worker.place.node in free and not worker.ended:
                free[worker.place.node] -= worker.place.threads
        return free

    def cores(self) -> int | None:
        """Cores of all living nodes."""
        return int(sum(node.cores for node in self._nodes.values() if node.alive))

    def others(self) -> int:
        """Cores of the other nodes."""
        return int(sum(node.cores for name, node in self._nodes.items() if node.alive and name != self._here))

    def room(self) -> int | None:
        """How many more workers could be started now, with one core each."""
        self._look()
        return sum(max(int(cores), 0) for cores in self._free().values())

    def check(self) -> None:
        """Look at nodes and workers; without a head there is no cluster."""
        if self._watch.lost:
            for worker in self._workers:
                worker.cluster_is_gone = True
            raise WorkersLost(self._watch.lost)
        if time.monotonic() - self._looked >= _LOOKS_EVERY:
            self._looked = time.monotonic()
            self._look()
            self._weigh()

    def _weigh(self) -> None:
        """Remember the most memory that the workers of each node took together."""
        for name, node in self._nodes.items():
            there = [worker for worker in self._workers if worker.place.node == name and not worker.ended]
            node.workers = max(node.workers, len(there))
            node.peak_bytes = max(node.peak_bytes, sum(worker.memory for worker in there))
            for worker in there:
                worker.silent_for()  # asks for its memory, too

    def usage(self) -> tuple[int, float]:
        """Memory and processor time of the workers, as they last told, unless they are in this process's tree."""
        if self._own:
            return 0, 0.0
        memory = sum(worker.memory for worker in self._workers)
        return memory, self._spent_before + sum(worker.cpu_seconds for worker in self._workers)

    def nodes(self) -> list[dict[str, Any]]:
        """Every node that had something to do."""
        self._weigh()
        return [
            {
                "node": node.name,
                "cores": node.cores,
                "workers": node.workers,
                "peak_memory_gb": round(node.peak_bytes / 2**30, 3) if node.peak_bytes else None,
                "alive": node.alive,
            }
            for node in self._nodes.values()
            if node.workers
        ]

    # Starting

    def control(self, name: str, size: int) -> Control:
        """A control page for so many workers, who are to be spread over the nodes as they are now."""
        self._look()
        has_learners = ALGORITHMS[self._config.algorithm].executions["parallel"] == "actor_learner"
        last = {self._here} if has_learners else set()  # learners have its cores, if others can do without
        threads = 1 if has_learners else self._config.hardware.num_threads
        self._plan = spread(size, self._free(), threads, last)
        self._groups += 1
        return RemoteControl(name, size, self._prefix)

    def start(self, role: str, index: int, setup: Any, control: Control, descriptors: Sequence[int]) -> WorkerHandle:
        """A Ray actor on the node that was planned, or if that is gone or full, on another one."""
        del descriptors  # memory is not shared between machines
        assert isinstance(control, RemoteControl)
        self._forget_ended()
        place = self._place(index)
        while not answers(self._nodes[place.node].door, 2.0):
            self._declare_dead(place.node)
            place = self._place(index)
        setup = replace(setup, num_threads=place.threads)
        if isinstance(setup, ActorSetup):
            self._transport = self._transport or SupervisorTransport(setup)
            worker: RayWorker = RayActorWorker(index, setup, control, place, self._transport)
        else:
            worker = RayWorker(role, index, self._with_services(setup, control), control, place)
        self._workers.append(worker)
        return worker

    def _with_services(self, setup: Any, control: Control) -> Any:
        """The set-up with what takes the place of shared memory on a cluster."""
        if isinstance(setup, AsyncSetup):
            if self._server is None:
                where = NodeAffinitySchedulingStrategy(self._here, soft=False)
                options = ParameterServer.options(scheduling_strategy=where)  # type: ignore[attr-defined]
                self._server = options.remote(setup, control.descriptor, control.size, os.getpid())
            return replace(setup, server=self._server)
        assert isinstance(setup, WorkerSetup)
        return replace(setup, rendezvous=f"{self._prefix}-{self._groups}")

    def _place(self, index: int) -> Place:
        free = self._free()
        planned = self._plan[index] if index < len(self._plan) else None
        if planned and free.get(planned.node, 0) >= planned.threads:
            return planned
        best = max(free, key=lambda node: free[node], default=None)
        if best is None or free[best] < 1:
            raise NoRoom("no node of the cluster has a core to spare")
        return Place(best, max(min(int(free[best]), planned.threads if planned else 1), 1))

    def _forget_ended(self) -> None:
        for worker in [worker for worker in self._workers if worker.ended]:
            self._workers.remove(worker)
            self._spent_before += worker.cpu_seconds
            if worker.node_is_gone:
                self._declare_dead(worker.place.node)

    def _declare_dead(self, node: str) -> None:
        self._nodes[node].alive, self._nodes[node].gone_at = False, time.monotonic()

    def close(self) -> None:
        """Leave nothing of this run on the cluster."""
        self._watch.close()
        if not self._watch.lost:
            for worker in self._workers:
                worker.end()
            if self._server is not None:
                ray.kill(self._server)
            forget(self._prefix)


def _name(entry: dict[str, Any]) -> str:
    return f"{entry['NodeManagerHostname']} ({entry['NodeID'][:6]})"


def _door(entry: dict[str, Any]) -> Address:
    return Address(entry["NodeManagerAddress"], entry["NodeManagerPort"])


class _Watch:
    """Looks at the cluster from a thread of its own: whoever asks a head that is gone waits for an answer for ever."""

    def __init__(self, address: Address, here: str):
        """`here`: the node that this process belongs to."""
        self.lost = ""  # what is, once it is
        self.nodes: list[dict[str, Any]] = ray.nodes()
        mine = next(_door(entry) for entry in self.nodes if entry["NodeID"] == here)
        self._doors = {
            f"the cluster's head at {address} does not answer any more": address,
            f"this machine's part of the cluster at {mine} does not answer any more": mine,
        }
        self._closed = threading.Event()
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        heard = dict.fromkeys(self._doors, time.monotonic())
        while not self._closed.wait(_LOOKS_EVERY):
            for story, door in self._doors.items():
                if answers(door, 2.0):
                    heard[story] = time.monotonic()
                elif time.monotonic() - heard[story] > _SILENT:
                    self.lost = story
                    return
            if min(heard.values()) > time.monotonic() - _LOOKS_EVERY:
                with contextlib.suppress(Exception):  # it may be lost at this very moment
                    self.nodes = ray.nodes()

    def close(self) -> None:
        """Look no more."""
        self._closed.set()


@contextlib.contextmanager
def joined(config: Config, address: Address) -> Iterator[RayPool]:
    """Be connected to a cluster for as long as the run takes."""
    with connected(config, address) as head:
        pool = RayPool(config, head, own=address.host is None)
        try:
            yield pool
        finally:
            pool.close()
