"""Who works where: workers spread over nodes by their cores."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass


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
