"""Real Ray clusters of several nodes on this machine, for the tests that are marked `cluster`."""

import contextlib
import os
import secrets
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import psutil

if TYPE_CHECKING:
    from ray.cluster_utils import Cluster

TOKEN = secrets.token_hex(16)
SETTINGS = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": TOKEN, "RAY_USAGE_STATS_ENABLED": "0"}
SETTINGS["RAY_worker_niceness"] = "0"  # tests beside these would starve them


@contextmanager
def ray_cluster(*cores: int, gpus: Sequence[int] = ()) -> "Iterator[Cluster]":
    """A head with so many cores, and a node for each further number; ended with everything on it.

    `gpus`: how many each node declares, by default none; Ray believes it and places by it, real ones are not needed.
    """
    os.environ.update(SETTINGS)  # before Ray is imported: it reads them only then
    from ray.cluster_utils import Cluster

    options: dict[str, Any] = {"include_dashboard": False, "object_store_memory": 200 * 2**20}
    declared = [*gpus, *[0] * (len(cores) - len(gpus))]
    head = {"num_cpus": cores[0], "num_gpus": declared[0], **options}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    address = cluster.address
    try:
        for count, num_gpus in zip(cores[1:], declared[1:], strict=True):
            cluster.add_node(num_cpus=count, num_gpus=num_gpus, object_store_memory=200 * 2**20)
        yield cluster
    finally:
        if _answers(address):  # one without a head cannot be taken down in order
            cluster.shutdown()
        kill_the_rest()


def _answers(address: str) -> bool:
    host, port = address.rsplit(":", 1)
    with socket.socket() as probe:
        probe.settimeout(2)
        return probe.connect_ex((host, int(port))) == 0


def ours() -> list[psutil.Process]:
    """Every other process that was started with this process's token."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        with contextlib.suppress(psutil.Error):
            if process.pid != os.getpid() and process.environ().get("RAY_AUTH_TOKEN") == TOKEN:
                found.append(process)
    return found


def kill_the_rest() -> None:
    """Nothing of a test may outlive it."""
    for process in ours():
        with contextlib.suppress(psutil.Error):
            process.kill()
