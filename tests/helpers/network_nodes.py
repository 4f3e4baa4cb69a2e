"""A Ray cluster whose nodes have network namespaces of their own, so that a link between them can really be cut.

A cut link is silent: no connection is closed, packets are lost. All nodes are on this machine and share its processes
and files; only the network is divided.
"""

import contextlib
import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from helpers.clusters import SETTINGS, kill_the_rest

_BASE = "10.77"


class NetworkNodes:
    """A head and further nodes, each in a namespace, joined by a bridge."""

    def __init__(self, *cores: int):
        self._tag = secrets.token_hex(2)
        self._cores = cores
        self._net = int(self._tag[:2], 16)
        self.processes: list[subprocess.Popen[bytes]] = []
        self.address = f"{self.host(0)}:6379"

    def host(self, node: int) -> str:
        """The address of a node; 0 is the head."""
        return f"{_BASE}.{self._net}.{node + 1}"

    def namespace(self, node: int) -> str:
        return f"rl{self._tag}n{node}"

    def inside(self, node: int) -> list[str]:
        """What to put before a command for it to run on a node."""
        return ["ip", "netns", "exec", self.namespace(node)]

    def open(self) -> None:
        _ip("link", "add", f"rl{self._tag}b", "type", "bridge")
        _ip("link", "set", f"rl{self._tag}b", "up")
        for node in range(len(self._cores)):
            self._add_namespace(node)
        for node in range(len(self._cores)):
            self.start_ray(node)

    def _add_namespace(self, node: int) -> None:
        name, link = self.namespace(node), self._link(node)
        _ip("netns", "add", name)
        _ip("link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", name)
        _ip("link", "set", link, "master", f"rl{self._tag}b", "up")
        _ip("-n", name, "addr", "add", f"{self.host(node)}/24", "dev", "eth0")
        _ip("-n", name, "link", "set", "eth0", "up")
        _ip("-n", name, "link", "set", "lo", "up")

    def _link(self, node: int) -> str:
        return f"rl{self._tag}v{node}"

    def start_ray(self, node: int) -> None:
        """Start Ray's processes of a node and wait until they have joined."""
        words = (
            ["--head", "--port", "6379", "--include-dashboard", "false"] if node == 0 else ["--address", self.address]
        )
        command = [str(Path(sys.executable).with_name("ray")), "start", *words, "--node-ip-address", self.host(node)]
        command += ["--num-cpus", str(self._cores[node]), "--object-store-memory", str(200 * 2**20)]
        command += ["--disable-usage-stats"]
        done = subprocess.run(
            [*self.inside(node), *command], env={**os.environ, **SETTINGS}, capture_output=True, text=True, check=False, timeout=120,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr

    def cut(self, *nodes: int) -> None:
        """Let nothing through to these nodes any more."""
        for node in nodes:
            _ip("link", "set", self._link(node), "down")

    def heal(self, *nodes: int) -> None:
        """Let everything through again."""
        for node in nodes:
            _ip("link", "set", self._link(node), "up")

    def close(self) -> None:
        kill_the_rest()
        for node in range(len(self._cores)):
            with contextlib.suppress(subprocess.CalledProcessError):
                _ip("netns", "del", self.namespace(node))
        with contextlib.suppress(subprocess.CalledProcessError):
            _ip("link", "del", f"rl{self._tag}b")


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


@contextmanager
def network_nodes(*cores: int) -> Iterator[NetworkNodes]:
    """A head with so many cores and a node for each further number; ended with everything on it."""
    nodes = NetworkNodes(*cores)
    try:
        nodes.open()
        yield nodes
    finally:
        nodes.close()
