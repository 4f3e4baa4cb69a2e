"""A crew on a Ray cluster: connects to it, spreads children over its nodes, notices what is lost."""

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
from rlcb.cluster.parameter_server import Keeper
from rlcb.cluster.placement import Place, spread
from rlcb.cluster.rendezvous import forget
from rlcb.cluster.transport import ActorMember, Policies, slots_here
from rlcb.cluster.worker_handle import Member, RemoteControl
from rlcb.comm.pool import Child, NoRoom
from rlcb.comm.process_group import Control
from rlcb.config.schema import Config
from rlcb.envs.families import spec_of
from rlcb.errors import WorkersLost
from rlcb.execution.messages import ActorSetup, AsyncSetup, Setup
from rlcb.networks import make_network

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


class RayCrew:
    """Children are Ray actors, spread over the nodes by their cores."""

    spread = True

    def __init__(self, config: Config, address: Address, own: bool):
        """`own`: the cluster was started for this run, so its processes belong to this one's tree."""
        self._config, self._address, self._own = config, address, own
        self.elastic = config.parallel.num_workers == "auto"
        self._here = ray.get_runtime_context().get_node_id()
        self._nodes: dict[str, _Node] = {}
        self._members: list[Member] = []
        self._plan: list[Place] = []
        self._spent_before = 0.0  # processor seconds of members that are gone
        self._looked, self._groups = 0.0, 0
        self._prefix = f"rlcb-{os.getpid()}-{time.time_ns()}"
        self._policies: Policies | None = None
        self._slots: Any = None
        self._keeper: Any = None
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
        """Cores of the living nodes that no member has."""
        free = {name: node.cores for name, node in self._nodes.items() if node.alive}
        for member in self._members:
            if member.place.node in free and not member.ended:
                free[member.place.node] -= member.place.threads
        return free

    def cores(self) -> int | None:
        """Cores of all living nodes."""
        return int(sum(node.cores for node in self._nodes.values() if node.alive))

    def others(self) -> int:
        """Cores of the other nodes."""
        return int(sum(node.cores for name, node in self._nodes.items() if node.alive and name != self._here))

    def room(self) -> int | None:
        """How many more children could be started now, with one core each."""
        self._look()
        return sum(max(int(cores), 0) for cores in self._free().values())

    def attend(self) -> None:
        """Look at nodes and members; without a head there is no cluster."""
        if self._watch.lost:
            for member in self._members:
                member.cluster_is_gone = True
            raise WorkersLost(self._watch.lost)
        if time.monotonic() - self._looked >= _LOOKS_EVERY:
            self._looked = time.monotonic()
            self._look()
            self._weigh()

    def _weigh(self) -> None:
        """Remember the most memory that the members of each node took together."""
        for name, node in self._nodes.items():
            there = [member for member in self._members if member.place.node == name and not member.ended]
            node.workers = max(node.workers, len(there))
            node.peak_bytes = max(node.peak_bytes, sum(member.memory for member in there))
            for member in there:
                member.silent_for()  # asks for its memory, too

    def usage(self) -> tuple[int, float]:
        """Memory and processor time of the members, as they last told, unless they are in this process's tree."""
        if self._own:
            return 0, 0.0
        memory = sum(member.memory for member in self._members)
        return memory, self._spent_before + sum(member.cpu_seconds for member in self._members)

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
        """A control page for so many children, who are to be spread over the nodes as they are now."""
        self._look()
        has_learners = self._config.algorithm == "impala"
        last = {self._here} if has_learners else set()  # learners have its cores, if others can do without
        threads = 1 if has_learners else self._config.hardware.num_threads
        self._plan = spread(size, self._free(), threads, last)
        self._groups += 1
        return RemoteControl(name, size, self._prefix)

    def start(
        self, name: str, module: str, index: int, setup: Any, control: Control, descriptors: Sequence[int]
    ) -> Child:
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
            member: Member = self._actor(name, module, index, setup, control, place)
        elif isinstance(setup, AsyncSetup):
            keeper = self._keeper_for(setup, control)
            member = Member(name, module, index, replace(setup, keeper=keeper), control, place)
        else:
            assert isinstance(setup, Setup)
            meeting = f"{self._prefix}-{self._groups}"
            member = Member(name, module, index, replace(setup, rendezvous=meeting), control, place)
        self._members.append(member)
        return member

    def _place(self, index: int) -> Place:
        free = self._free()
        planned = self._plan[index] if index < len(self._plan) else None
        if planned and free.get(planned.node, 0) >= planned.threads:
            return planned
        best = max(free, key=lambda node: free[node], default=None)
        if best is None or free[best] < 1:
            raise NoRoom("no node of the cluster has a core to spare")
        return Place(best, max(min(int(free[best]), planned.threads if planned else 1), 1))

    def _actor(
        self, name: str, module: str, index: int, setup: ActorSetup, control: RemoteControl, place: Place
    ) -> ActorMember:
        if self._policies is None:
            network = make_network(setup.config.training.network, spec_of(setup.config.env))
            length = sum(parameter.numel() for parameter in network.parameters())
            assert setup.memory is not None
            self._policies, self._slots = Policies(setup.memory, length), slots_here(setup)
        return ActorMember(name, module, index, setup, control, place, self._slots, self._policies)

    def _keeper_for(self, setup: AsyncSetup, control: Control) -> Any:
        if self._keeper is None:
            where = NodeAffinitySchedulingStrategy(self._here, soft=False)
            options = Keeper.options(scheduling_strategy=where)  # type: ignore[attr-defined]
            self._keeper = options.remote(setup, control.descriptor, control.size, os.getpid())
        return self._keeper

    def _forget_ended(self) -> None:
        for member in [member for member in self._members if member.ended]:
            self._members.remove(member)
            self._spent_before += member.cpu_seconds
            if member.node_is_gone:
                self._declare_dead(member.place.node)

    def _declare_dead(self, node: str) -> None:
        self._nodes[node].alive, self._nodes[node].gone_at = False, time.monotonic()

    def close(self) -> None:
        """Leave nothing of this run on the cluster."""
        self._watch.close()
        if not self._watch.lost:
            for member in self._members:
                member.end()
            if self._keeper is not None:
                ray.kill(self._keeper)
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
def joined(config: Config, address: Address) -> Iterator[RayCrew]:
    """Be connected to a cluster for as long as the run takes."""
    with connected(config, address) as head:
        crew = RayCrew(config, head, own=address.host is None)
        try:
            yield crew
        finally:
            crew.close()
