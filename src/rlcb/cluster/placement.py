"""Who works where: workers spread over nodes by their cores, whole runs by all that they need."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from rlcb.cluster.address import Address
from rlcb.words import counted


@dataclass(frozen=True)
class Place:
    """A worker's node and how many of its cores it has."""

    node: str
    threads: int
    gpus: float = 0.0  # the share of a GPU that it has there


def with_gpus(cores: Mapping[str, float], gpus: Mapping[str, float], share: float) -> dict[str, float]:
    """The free cores of nodes, as far as as many workers find a free share of a GPU there."""
    return {node: min(free, gpus.get(node, 0.0) // share) for node, free in cores.items()}


def spread(
    workers: int, cores: Mapping[str, float], most_threads: int | None, last: Collection[str] = ()
) -> list[Place]:
    """A place for each worker, as far as there are cores; nodes in `last` only get what the others cannot take.

    The next worker goes to the node that has the most cores for each of its workers then. A node's cores are divided
    evenly among its workers, up to `most_threads` for each.
    """
    counts: dict[str, int] = {}
    for nodes in ([n for n in cores if n not in last], list(cores)):
        while sum(counts.values()) < workers:
            open_nodes = [node for node in nodes if counts.get(node, 0) + 1 <= cores[node]]
            if not open_nodes:
                break
            best = max(open_nodes, key=lambda node: cores[node] / (counts.get(node, 0) + 1))
            counts[best] = counts.get(best, 0) + 1
    places = []
    for node, count in counts.items():
        share = max(int(cores[node] // count), 1)
        places += [Place(node, min(share, most_threads or share))] * count
    return places


# Whole runs


@dataclass(frozen=True)
class Need:
    """What a run takes of a node."""

    cores: int | None  # None: all that the node has
    gpus: int
    memory: int  # bytes

    def __str__(self) -> str:
        cores = "all cores" if self.cores is None else counted(self.cores, "core")
        return f"{cores}{', a GPU' if self.gpus else ''} and {self.memory / 2**30:.1f} GB of memory"

    def on(self, node: "Node") -> "Need":
        """The same in numbers, on a node."""
        return replace(self, cores=int(node.cores)) if self.cores is None else self


@dataclass(frozen=True)
class Node:
    """A machine of the cluster and what it has, or has left."""

    id: str
    name: str
    host: str
    door: Address  # where its part of Ray listens
    cores: float
    gpus: float
    memory: float  # bytes

    def __str__(self) -> str:
        cores = counted(self.cores, "core")
        gpus = f", {counted(self.gpus, 'GPU')}" if self.gpus else ""
        return f"{self.name}: {cores}{gpus}, {self.memory / 2**30:.1f} GB of memory"

    def has(self, need: Need) -> bool:
        """Whether a run would find what it needs."""
        return self.cores >= (need.cores or 1) and self.gpus >= need.gpus and self.memory >= need.memory

    def less(self, cores: float, gpus: float, memory: float) -> "Node":
        """What is left when so much is taken."""
        return replace(self, cores=self.cores - cores, gpus=self.gpus - gpus, memory=self.memory - memory)


def node_for(need: Need, nodes: Mapping[str, Node], free: Mapping[str, Node]) -> Node | None:
    """The node with the most free cores that has room for a run; `free`: the same nodes, less what is taken."""
    fits = [
        node
        for name, node in nodes.items()
        if free[name].has(need) and (need.cores is not None or free[name].cores == node.cores)
    ]
    # Where GPUs are many and a run needs none, it leaves them to others.
    return max(fits, key=lambda node: (need.gpus > 0 or not node.gpus, free[node.id].cores), default=None)
