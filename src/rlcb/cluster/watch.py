"""Which nodes of a cluster are there, and which of them, or its head, no longer answer."""

import contextlib
import threading
import time
from typing import Any

import ray
from ray._private.state import available_resources_per_node

from rlcb.cluster.address import Address, answering

_LOOKS_EVERY = 1.0  # seconds between looks at the nodes
SILENT_SECONDS = 10.0  # without an answer before a node counts as lost, or the head, or this machine's part


def door_of(entry: dict[str, Any]) -> Address:
    """Where the Ray processes of a node, as `ray.nodes()` lists it, listen."""
    return Address(entry["NodeManagerAddress"], entry["NodeManagerPort"])


class ClusterWatch:
    """Looks at the cluster from threads of its own: whoever asks a head that is gone waits for an answer for ever.

    A node that falls silent is found by connecting to it: Ray takes a minute to declare it dead.
    """

    def __init__(self, address: Address, here: str, patience: float = SILENT_SECONDS):
        """`here`: the node that this process belongs to; `patience`: seconds without an answer from any other one."""
        self.lost = ""  # what is, once it is
        self.patience = patience
        self.unreachable: set[Address] = set()
        self.nodes: list[dict[str, Any]] = ray.nodes()
        self.free = available_resources_per_node()  # node → resource → what is free, also of others' work
        mine = next(door_of(entry) for entry in self.nodes if entry["NodeID"] == here)
        self._vital = {
            address: f"the cluster's head at {address} no longer answers",
            mine: f"this machine's part of the cluster at {mine} no longer answers",
        }
        self._closed = threading.Event()
        for work in (self._watch, self._list):
            threading.Thread(target=work, daemon=True).start()

    def _watch(self) -> None:
        heard: dict[Address, float] = {}
        while not self._closed.wait(_LOOKS_EVERY):
            doors = {*self._vital, *(door_of(entry) for entry in self.nodes if entry["Alive"])}
            answered, now = answering(doors, 2.0), time.monotonic()
            heard = {door: now if door in answered else heard.get(door, now) for door in doors}
            self.lost = next((words for door, words in self._vital.items() if now - heard[door] > SILENT_SECONDS), "")
            if self.lost:
                return
            self.unreachable = {door for door in doors if now - heard[door] > self.patience}

    def _list(self) -> None:
        """Ask which nodes there are; in a thread of its own, as a head that is lost meanwhile never answers."""
        while not self._closed.wait(_LOOKS_EVERY) and not self.lost:
            with contextlib.suppress(Exception):
                self.nodes, self.free = ray.nodes(), available_resources_per_node()

    def close(self) -> None:
        """Look no more."""
        self._closed.set()
