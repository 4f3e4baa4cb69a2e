"""A pool of workers on a Ray cluster: spreads them over its nodes, and notices nodes and heads that are lost."""

import contextlib
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from rlcb.cluster.address import Address
from rlcb.cluster.connect import connected
from rlcb.cluster.parameter_server import ParameterServer
from rlcb.cluster.placement import Place, spread, with_gpus
from rlcb.cluster.rendezvous import forget
from rlcb.cluster.transport import SupervisorTransport
from rlcb.cluster.watch import SILENT_SECONDS, ClusterWatch, door_of
from rlcb.cluster.worker_handle import RayWorker, RemoteControl
from rlcb.comm.control import Control
from rlcb.comm.pool import NoRoom, PoolLost, WorkerHandle, WorkerPool
from rlcb.config.gpu_plan import acting_device
from rlcb.config.plan import takes_one_thread
from rlcb.config.schema import Config
from rlcb.envs.own_code import FOLDER
from rlcb.execution.messages import ActorSetup, AsyncSetup
from rlcb.hardware import Memory

_LOOKS_EVERY = 1.0  # seconds between looks at the nodes
_AVOIDED_FOR = 30.0  # seconds: Ray takes a while to see that a node has died
_GPU_SHARE = 0.25  # of a GPU, for an actor that acts on one


@dataclass
class _Node:
    """A machine of the cluster, as far as this run knows it."""

    name: str
    door: Address  # where its part of Ray listens
    cores: float
    gpus: float
    host: str
    alive: bool = True
    workers: int = 0  # the most it had at a time
    threads: int = 0  # the most that its workers had together
    peak: Memory = field(default_factory=Memory)


class RayPool(WorkerPool):
    """Workers are Ray actors, spread over the nodes by their cores."""

    distributed = True

    def __init__(self, config: Config, address: Address, own: bool):
        """`own`: the cluster was started for this run, so its processes belong to this one's tree."""
        self._config, self._own = config, own
        self._has_learners = config.parallel_execution.has_learners
        self._gpu_share = _GPU_SHARE if self._has_learners and acting_device(config) == "cuda" else 0.0  # of each actor
        one = self._has_learners or (config.hardware.num_threads is None and takes_one_thread(config))
        self._threads = 1 if one else config.hardware.num_threads  # the most of each worker
        self.elastic = config.parallel.num_workers == "auto"
        self._here = ray.get_runtime_context().get_node_id()
        self._nodes: dict[str, _Node] = {}
        self._workers: list[RayWorker] = []
        self._plan: dict[int, Place] = {}  # by the place of a worker
        self._spent_before = 0.0  # processor seconds of workers that are gone
        self._looked = 0.0
        self._avoided: dict[str, float] = {}  # nodes that workers were lost with, and when
        self._prefix = f"rlcb-{os.getpid()}-{time.time_ns()}"
        self._transport: SupervisorTransport | None = None  # where there are actors
        self._server: Any = None  # A3C's parameter server
        # Half of what a silent worker is given: a node that is lost takes several with it.
        self._watch = ClusterWatch(address, self._here, min(SILENT_SECONDS, config.parallel.worker_timeout / 2))
        self._look()

    # What there is

    def _look(self) -> None:
        """See which nodes there are."""
        for entry in self._watch.nodes:
            cores, gpus = (entry["Resources"].get(name, 0.0) for name in ("CPU", "GPU"))
            host = entry["NodeManagerHostname"]
            name = f"{host} ({entry['NodeID'][:6]})"
            node = self._nodes.setdefault(entry["NodeID"], _Node(name, door_of(entry), cores, gpus, host))
            node.cores, node.gpus = cores or node.cores, gpus or node.gpus
            node.alive = entry["Alive"] and node.door not in self._watch.unreachable

    def _free(self) -> dict[str, float]:
        """Cores of the living nodes that no worker has; one that a worker was just lost with may not live any more."""
        since = time.monotonic() - _AVOIDED_FOR
        nodes = {name: node for name, node in self._nodes.items() if self._avoided.get(name, since) <= since}
        free = {name: node.cores for name, node in nodes.items() if node.alive}
        gpus = {name: nodes[name].gpus for name in free}
        for worker in self._workers:
            if worker.place.node in free and not worker.ended:
                free[worker.place.node] -= worker.place.threads
                gpus[worker.place.node] -= worker.place.gpus
        return with_gpus(free, gpus, self._gpu_share) if self._gpu_share else free

    def cores(self) -> int | None:
        """Cores of all living nodes."""
        return int(sum(node.cores for node in self._nodes.values() if node.alive))

    def others(self) -> int:
        """Cores of the other nodes."""
        return int(sum(node.cores for name, node in self._nodes.items() if node.alive and name != self._here))

    def room(self) -> int | None:
        """How many more workers could be started now, with one core each."""
        self._forget_ended()
        self._look()
        return sum(max(int(cores), 0) for cores in self._free().values())

    def check(self) -> None:
        """Look at nodes and workers; without a head there is no cluster."""
        if self._watch.lost:
            for worker in self._workers:
                worker.cluster_is_gone = True
            raise PoolLost(self._watch.lost)
        if time.monotonic() - self._looked >= _LOOKS_EVERY:
            self._looked = time.monotonic()
            self._look()
            self._weigh()
            self._forget_ended()
            for worker in self._workers:
                node = self._nodes[worker.place.node]
                if node.door in self._watch.unreachable:
                    worker.lose_node(f"its node {node.name} has not answered for {self._watch.patience:g} s")

    def _weigh(self) -> None:
        """Remember the most threads and memory that the workers of each node had together."""
        for name, node in self._nodes.items():
            there = [worker for worker in self._workers if worker.place.node == name and not worker.ended]
            node.workers = max(node.workers, len(there))
            node.threads = max(node.threads, sum(worker.place.threads for worker in there))
            memory = sum((worker.memory for worker in there), Memory())
            node.peak = max(node.peak, memory, key=lambda one: one.rss if one.pss is None else one.pss)
            for worker in there:
                worker.silent_for()  # asks for its memory, too

    def usage(self) -> tuple[Memory, float]:
        """Memory and processor time of the workers, as they last told, unless they are in this process's tree."""
        if self._own:
            return Memory(), 0.0
        memory = sum((worker.memory for worker in self._workers), Memory())
        return memory, self._spent_before + sum(worker.cpu_seconds for worker in self._workers)

    def nodes(self) -> list[dict[str, Any]]:
        """Every node that lives or had something to do; memory is PSS where its workers can tell it, else RSS."""
        self._weigh()
        return [
            {
                "node": node.name,
                "host": node.host,
                "cores": node.cores,
                "driver": name == self._here,
                "workers": node.workers,
                "threads": node.threads,
                "peak_memory_gb": round((node.peak.pss or node.peak.rss) / 2**30, 3) if node.peak.rss else None,
                "alive": node.alive,
            }
            for name, node in self._nodes.items()
            if node.workers or (node.alive and node.cores)
        ]

    # Starting

    def control(self, name: str, size: int) -> Control:
        """A control page for this many workers."""
        return RemoteControl(name, size, self._prefix)

    def plan(self, places: Sequence[int]) -> None:
        """Spread the workers that are started next over the cores that are free."""
        self._forget_ended()
        self._look()
        last = {self._here} if self._has_learners else set()  # learners have its cores, if others can do without
        free = self._free()
        found = [replace(place, gpus=self._gpu_share) for place in spread(len(places), free, self._threads, last)]
        self._plan = dict(zip(places, found, strict=False))

    def start(self, role: str, index: int, setup: Any, control: Control, descriptors: Sequence[int]) -> WorkerHandle:
        """A Ray actor on the node that was planned."""
        del descriptors  # memory is not shared between machines
        assert isinstance(control, RemoteControl)
        if index not in self._plan:
            raise NoRoom("no node of the cluster has a free core or a free share of a GPU")
        place = self._plan[index]
        setup = replace(setup, num_threads=place.threads)
        # What takes the place of shared memory:
        if isinstance(setup, ActorSetup):
            self._transport = self._transport or SupervisorTransport(setup)
            setup = replace(setup, memory=None)
        elif isinstance(setup, AsyncSetup):
            if self._server is None:
                where = NodeAffinitySchedulingStrategy(self._here, soft=False)
                options = ParameterServer.options(scheduling_strategy=where)  # type: ignore[attr-defined]
                folder = os.environ.get(FOLDER, "")
                self._server = options.remote(setup, control.descriptor, control.size, os.getpid(), folder)
            setup = replace(setup, server=self._server)
        else:
            setup = replace(setup, rendezvous=self._prefix)
        worker = RayWorker(role, index, setup, control, place, self._transport)
        self._workers.append(worker)
        return worker

    def _forget_ended(self) -> None:
        for worker in [worker for worker in self._workers if worker.ended]:
            self._workers.remove(worker)
            if worker.node_is_lost:
                self._avoided[worker.place.node] = time.monotonic()
            self._spent_before += worker.cpu_seconds

    def close(self) -> None:
        """Leave nothing of this run on the cluster."""
        self._watch.close()
        if not self._watch.lost:
            for worker in self._workers:
                worker.end()
            if self._server is not None:
                ray.kill(self._server)
            forget(self._prefix)


@contextlib.contextmanager
def joined(config: Config, address: Address) -> Iterator[RayPool]:
    """Be connected to a cluster for as long as the run takes."""
    with connected(config, address) as head:
        pool = RayPool(config, head, own=address.host is None)
        try:
            yield pool
        finally:
            pool.close()
