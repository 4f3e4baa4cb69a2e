"""What runs ran on: its name, the cores that they used, and speed-up per core."""

import re
from collections import Counter
from dataclasses import dataclass
from typing import Any

from rlcb.analysis.untrusted import number, plain, whole_number
from rlcb.config.registry import ALGORITHMS, EXECUTIONS
from rlcb.words import counted

_MOST_NODES = 6  # that are named


@dataclass(frozen=True)
class Node:
    """A node of a cluster, as a run recorded it."""

    host: str
    cores: int
    threads: int | None  # of the run's workers there; None: not recorded
    driver: bool  # the command was typed there: learners work there, too


def nodes_of(hardware: dict[str, Any]) -> list[Node]:
    """The nodes of the cluster that a run ran on; empty for a run on one machine."""
    entries = hardware.get("nodes")
    found = []
    for entry in entries if isinstance(entries, list) else []:
        if isinstance(entry, dict):
            # Earlier versions recorded a name that ends in a part of Ray's number of the node, which changes.
            host = plain(entry.get("host")) or re.sub(r" \([0-9a-f]{6}\)$", "", plain(entry.get("node")))
            cores = int(number(entry.get("cores")) or 0)
            found.append(Node(host, cores, whole_number(entry.get("threads")), entry.get("driver") is True))
    return sorted(found, key=lambda node: (node.host, node.cores))


def machine_of(hardware: dict[str, Any]) -> str:
    """What a run ran on: a machine, or the nodes of a cluster; empty where it is not recorded."""
    nodes = nodes_of(hardware)
    if not nodes:
        return own_machine(hardware)
    named = [f"{node.host} {_cores_text(node.cores)}" for node in nodes[:_MOST_NODES]]
    more = len(nodes) - len(named)
    total = f" and {more} more, {counted(sum(node.cores for node in nodes), 'core')} in total" if more else ""
    return f"{counted(len(nodes), 'node')}: {', '.join(named)}{total}"


def own_machine(hardware: dict[str, Any]) -> str:
    """The machine where the command was typed: processor, usable cores, GPUs; empty where it is not recorded."""
    cpu, cores = plain(hardware.get("cpu")), number(hardware.get("usable_cores"))
    gpus = Counter(gpus_of(hardware))
    names = [name if count == 1 else f"{count} × {name}" for name, count in gpus.items()]
    return ", ".join([cpu, *([_cores_text(int(cores))] if cores else []), *names]) if cpu else ""


def gpus_of(hardware: dict[str, Any]) -> list[str]:
    """The names of a machine's GPUs; of one whose driver does not tell, that of the GPU that was used."""
    found = hardware.get("gpus")
    entries = found if isinstance(found, list) and found else [hardware.get("gpu")]
    return [name for entry in entries if (name := plain(entry))]


def _cores_text(count: int) -> str:
    return counted(count, "core")


def learners_of(algorithm: str, mode: str, hardware: dict[str, Any], config: dict[str, Any]) -> int | None:
    """How many processes of a run learn beside those that act; None where that is not recorded."""
    recorded = whole_number(hardware.get("num_learners"))
    entry = ALGORITHMS.get(algorithm)
    if recorded is not None or entry is None or mode not in entry.executions:
        return recorded
    if not EXECUTIONS[entry.executions[mode]].has_learners:
        return 0
    return whole_number(config.get("num_learners"))  # earlier versions recorded it with the configuration alone


def cores_used(
    hardware: dict[str, Any], workers: int, learners: int | None, threads: int | None, nodes: list[Node]
) -> int | None:
    """Cores that a run can keep busy: the threads of all its processes, but at most the cores there are.

    `threads`: of each process that learns; where others learn, a process that acts has one. On a cluster it is the sum
    over the hosts. None where something of that is not recorded.
    """
    if learners is None or threads is None:
        return None
    if not nodes:
        usable = number(hardware.get("usable_cores"))
        busy = workers + learners * threads if learners else workers * threads
        return min(busy, int(usable)) if usable else None
    total = 0
    for host in {node.host for node in nodes}:
        there = [node for node in nodes if node.host == host]
        busy, cores = 0, sum(node.cores for node in there)
        for node in there:
            if node.threads is None:
                return None
            busy += node.threads + (learners * threads if node.driver else 0)
        # Nodes can share a machine and each claim its cores: of the driver's it is known how many there are.
        known = number(hardware.get("logical_cores")) if any(node.driver for node in there) else None
        total += min(busy, cores, int(known or cores))
    return total


def efficiency(speedup: float, cores: int | None, baseline_cores: int | None) -> float | None:
    """Speed-up per core: over the baseline's, each speed divided by the cores that it used; None if one is unknown."""
    return speedup * baseline_cores / cores if cores and baseline_cores else None
