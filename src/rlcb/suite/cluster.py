"""The runs of a suite on the nodes of a Ray cluster: which node each goes to, as many at a time as fit.

A sequential run goes to one node as a whole (`RemoteRun`). A parallel run spreads its workers over several nodes, as
`rlcb train --cluster` does; it is started when no other run of the suite is in progress, and no other is started until
it has ended. So no run waits for what another one holds, and no core is given away twice.
"""

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import ray

from rlcb.analysis.suites import SuiteRun
from rlcb.cluster.address import Address
from rlcb.cluster.connect import connected, prepare
from rlcb.cluster.placement import Need, Node, node_for
from rlcb.cluster.run_actor import CONFIG, RUN
from rlcb.cluster.watch import ClusterWatch, door_of
from rlcb.console import note
from rlcb.envs.own_code import FOLDER
from rlcb.errors import ResourceError, WorkersLost
from rlcb.hardware import BESIDE_VARIABLE
from rlcb.suite.directory import config_path, resumable
from rlcb.suite.jobs import expected_memory, on_gpu, useful_threads
from rlcb.suite.machines import Machines, UnderWay, group_of, train_words
from rlcb.suite.process import Child
from rlcb.suite.remote_run import RemoteRun
from rlcb.suite.settings import Suite
from rlcb.words import counted, typed

_AVOIDED_FOR = 15.0  # seconds: it takes a while to see that a node has died
_SPANNING = "several nodes"


@contextmanager
def joined(suite: Suite, output: Path, jobs: int | str | None) -> "Iterator[Cluster]":
    """Be connected to the suite's cluster; `jobs`: the most runs at a time, if that is limited."""
    settings = suite.settings
    assert settings.cluster is not None
    address = prepare(settings.cluster, settings.insecure)
    with connected(next(iter(suite.configs.values())), address) as head:
        cluster = Cluster(suite, output, head, jobs if isinstance(jobs, int) else None)
        try:
            yield cluster
        finally:
            cluster.close()


@dataclass(frozen=True)
class _Taken:
    """What a run in progress has of a node."""

    node: Node
    need: Need
    remote: RemoteRun


class Cluster(Machines):
    """The nodes of a cluster, and which runs are on them."""

    def __init__(self, suite: Suite, output: Path, head: Address, limit: int | None):
        self._suite, self._output, self._limit = suite, output, limit
        self._watch = ClusterWatch(head, ray.get_runtime_context().get_node_id())
        self._taken: dict[SuiteRun, _Taken] = {}
        self._spanning: SuiteRun | None = None  # the parallel run in progress
        self._refused: dict[str, str] = {}  # node → why no run is started there
        self._avoided: dict[str, float] = {}  # node that a run was lost with → when
        self._needs: dict[tuple[str, str], Need] = {}
        self._without_room: set[Need] = set()  # that no node has now; most runs of a suite need the same

    def close(self) -> None:
        """Look at the nodes no more."""
        self._watch.close()

    # What there is

    def nodes(self) -> dict[str, Node]:
        """The nodes that are there, by their ids, as they are without any work."""
        found = {}
        for entry in self._watch.nodes:
            resources, door = entry["Resources"], door_of(entry)
            if entry["Alive"] and door not in self._watch.unreachable and resources.get("CPU"):
                identity, host = entry["NodeID"], entry["NodeManagerHostname"]
                amounts = (resources.get(name, 0.0) for name in ("CPU", "GPU", "memory"))
                found[identity] = Node(identity, f"{host} ({identity[:6]})", host, door, *amounts)
        return {identity: node for identity, node in found.items() if identity not in self._refused}

    def _free(self, nodes: dict[str, Node]) -> dict[str, Node]:
        """What the runs of this suite, and other work on the cluster, leave of the nodes."""
        free = {}
        for identity, node in nodes.items():
            ours = [taken.need for taken in self._taken.values() if taken.node.id == identity]
            mine = (
                sum(need.cores or 0 for need in ours),
                sum(need.gpus for need in ours),
                sum(need.memory for need in ours),
            )
            known = self._watch.free.get(identity, {})
            total = (node.cores, node.gpus, node.memory)
            # What is taken and is not ours; a run of ours that ended just now counts for a moment.
            others = [
                max(whole - known.get(name, 0.0) - own, 0.0) if known else 0.0
                for name, whole, own in zip(("CPU", "GPU", "memory"), total, mine, strict=True)
            ]
            free[identity] = node.less(*(own + other for own, other in zip(mine, others, strict=True)))
        return free

    def need_of(self, run: SuiteRun) -> Need:
        """What a whole run takes of a node: the threads of the suite's plan, or all cores if it trains by time."""
        key = run.kind.label, run.game
        if key not in self._needs:
            threads, gpus = self._suite.configs[run.kind].hardware.num_threads, int(on_gpu(self._suite, run.kind))
            self._needs[key] = Need(threads, gpus, expected_memory(self._suite, run))
        return self._needs[key]

    def check_needs(self, runs: Sequence[SuiteRun]) -> None:
        """Raise ResourceError if one of these runs needs more than any node has."""
        nodes = list(self.nodes().values())
        for run in runs:
            if run.kind.is_parallel or any(node.has(self.need_of(run)) for node in nodes):
                continue
            largest = max(nodes, key=lambda node: (node.gpus > 0, node.cores, node.memory), default=None)
            has = f"the largest one is {largest}" if largest else "there is no node with cores"
            raise ResourceError(
                f"--cluster {self._suite.settings.cluster}: {run.name} needs {self.need_of(run)} on one node; {has}; "
                "use a smaller --num-threads or a larger node"
            )

    @property
    def count(self) -> int:
        """How many runs can train at the same time."""
        most = max(map(self._fitting, self._one_of_each()), default=1)
        return max(min(most, self._limit or most), 1)

    def _one_of_each(self) -> list[SuiteRun]:
        """A whole run of each kind and game."""
        settings = self._suite.settings
        return [
            SuiteRun(kind, game, 0, self._output)
            for kind in settings.kinds
            if not kind.is_parallel
            for game in settings.games
        ]

    def _fitting(self, run: SuiteRun) -> int:
        """How many runs like this one would train at the same time on empty nodes."""
        need, count = self.need_of(run), 0
        for node in self.nodes().values():
            if node.has(need):
                shares = [node.cores // (need.cores or node.cores), node.memory // max(need.memory, 1)]
                count += int(min(shares + ([node.gpus // need.gpus] if need.gpus else [])))
        return count

    def at_once(self, run: SuiteRun) -> int:
        """How many runs like this one can train at the same time."""
        if run.kind.is_parallel:
            return 1
        most = self._fitting(run)
        return max(min(most, self._limit or most), 1)

    # Runs

    def start(self, run: SuiteRun, unfinished: Sequence[SuiteRun]) -> UnderWay | None:
        """Start or resume a run on the node with the most free cores, or a parallel one on all of them."""
        if self._spanning or (self._limit and len(self._taken) >= self._limit):
            return None
        if run.kind.is_parallel:
            return self._start_spanning(run) if not self._taken else None
        need = self.need_of(run)
        if need in self._without_room:
            return None
        nodes = self._usable()
        node = node_for(need, nodes, self._free(nodes))
        if node is None:
            self._without_room.add(need)
            if not self._taken:
                self.shortage = f"Cluster: no node has {need} free, which {run.name} needs; waiting"
            return None
        resumed = resumable(run)

        def words(folder: Path) -> list[str]:
            command = train_words(run, self._suite, folder / CONFIG, folder / RUN, resumed)
            threads = int(node.cores) if need.gpus else useful_threads(self._suite, run.kind, int(node.cores))
            return [*command, *(["--num-threads", str(threads)] if need.cores is None else [])]

        variables = {BESIDE_VARIABLE: str(self._beside(run, node, unfinished)), FOLDER: os.environ.get(FOLDER, "")}
        variables |= group_of(self._output)
        text = self._suite.configs[run.kind].to_yaml().encode()
        remote = RemoteRun(run, node, need.on(node), resumed, words, text, variables, self._watch)
        self._taken[run] = _Taken(node, need.on(node), remote)
        return remote

    def _start_spanning(self, run: SuiteRun) -> UnderWay:
        """Start a parallel run, whose process is here and whose workers are on the nodes."""
        resumed = resumable(run)
        words = train_words(run, self._suite, config_path(self._output, run.kind), run.path, resumed)
        child = Child(words, run.log, variables=group_of(self._output))
        child.where, child.resumed = _SPANNING, resumed
        self._spanning = run
        return child

    def _usable(self) -> dict[str, Node]:
        """The nodes that no run was lost with just now."""
        since = time.monotonic() - _AVOIDED_FOR
        return {name: node for name, node in self.nodes().items() if self._avoided.get(name, since) <= since}

    def _beside(self, run: SuiteRun, node: Node, unfinished: Sequence[SuiteRun]) -> int:
        """The most of the other runs that can be on the same machine at the same time."""
        cores = sum(other.cores for other in self.nodes().values() if other.host == node.host)
        cores -= self.need_of(run).on(node).cores or 0
        needs = [
            self.need_of(other).on(node).cores or 1
            for other in unfinished
            if other != run and not other.kind.is_parallel
        ]
        most = min(len(needs), self._limit - 1 if self._limit else len(needs))
        return min(int(cores // min(needs)), most) if needs else 0

    def leave(self, run: SuiteRun) -> None:
        """A run has ended; a node that it was lost with, or that refused it, is remembered."""
        if run == self._spanning:
            self._spanning = None
            return
        taken = self._taken.pop(run)
        if taken.remote.refused and taken.node.id not in self._refused:
            self._refused[taken.node.id] = taken.remote.refused
            note(f"no run is started on {taken.remote.refused}; install the same versions on all nodes")
        elif taken.remote.lost:
            self._avoided[taken.node.id] = time.monotonic()

    def check(self) -> None:
        """Look at the nodes anew; raise WorkersLost if the cluster is gone, or none of its nodes can be used."""
        self._without_room.clear()
        if self._watch.lost:
            raise WorkersLost(
                f"{self._watch.lost}; resume with: {typed(f'rlcb benchmark --output-dir {self._output}')}"
            )
        if self._refused and not self._taken and not self.nodes():
            raise WorkersLost(f"no node of the cluster can be used: {next(iter(self._refused.values()))}")

    # For people

    def description(self) -> list[str]:
        """The nodes, and how many runs at a time."""
        nodes = self.nodes()
        at_most = f"up to {counted(self.count, 'run')} at a time"
        alone = "; a parallel run uses all nodes exclusively" if any(k.is_parallel for k in self._suite.configs) else ""
        return [
            f"Cluster {self._suite.settings.cluster}: {at_most}{alone}; nodes:",
            *(f"  {node}" for node in nodes.values()),
        ]

    def outlook(self, runs: Sequence[SuiteRun]) -> list[list[tuple[SuiteRun, str]]]:
        """Which node each run would go to: first to those that are free now, then as if all runs took equally long."""
        waiting, found, nodes = list(runs), [], self.nodes()
        free = self._free(nodes)
        while waiting:
            together = self._wave(waiting, nodes, dict(free))
            if not together and free == nodes:
                break  # there is no room for them even when all is free
            if together:
                found.append(together)
            waiting = [run for run in waiting if run not in dict(together)]
            free = nodes
        return found

    def _wave(self, runs: list[SuiteRun], nodes: dict[str, Node], free: dict[str, Node]) -> list[tuple[SuiteRun, str]]:
        """The runs that would be started together, each with its node."""
        together: list[tuple[SuiteRun, str]] = []
        for run in runs:
            if self._limit and len(together) >= self._limit:
                break
            if run.kind.is_parallel:
                if not together:
                    return [(run, _SPANNING)]
                continue
            need = self.need_of(run)
            node = node_for(need, nodes, free)
            if node is not None:
                taken = need.on(node)
                free[node.id] = free[node.id].less(taken.cores or 0, taken.gpus, taken.memory)
                together.append((run, node.name))
        return together
