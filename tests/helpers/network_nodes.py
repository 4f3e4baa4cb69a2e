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

import psutil

from helpers.clusters import SETTINGS, kill_the_rest, ours

_OPTIONS = ("--object-store-memory", str(200 * 2**20), "--disable-usage-stats")


class NetworkNodes:
    """A head (node 0) and further nodes, each in a namespace, joined by a bridge."""

    def __init__(self, *cores: int):
        self.cores = cores
        self._disturbed: set[int] = set()  # nodes that the head may have declared dead, or is about to
        self._tag = secrets.token_hex(2)
        self._bridge = f"rl{self._tag}b"
        self._third = int(self._tag[:2], 16)  # byte of the addresses
        self.address = f"{self.host(0)}:6379"

    def host(self, node: int) -> str:
        """The address of a node."""
        return f"10.77.{self._third}.{node + 1}"

    def inside(self, node: int) -> list[str]:
        """What to put before a command for it to run on a node."""
        return ["ip", "netns", "exec", self._namespace(node)]

    def processes(self, node: int) -> list[psutil.Process]:
        """Ray's processes on a node, and the workers there."""
        done = subprocess.run(
            ["ip", "netns", "pids", self._namespace(node)], capture_output=True, text=True, check=True
        )
        numbers = set(map(int, done.stdout.split()))
        return [process for process in ours() if process.pid in numbers]

    def cut(self, *nodes: int) -> None:
        """Let nothing through to these nodes any more."""
        self._disturbed.update(nodes)
        for node in nodes:
            _ip("link", "set", self._link(node), "down")

    def heal(self, *nodes: int) -> None:
        """Let everything through again."""
        for node in nodes:
            _ip("link", "set", self._link(node), "up")

    def freeze(self, node: int) -> list[psutil.Process]:
        """Stop every process on a node, as a host that hangs; returns them."""
        self._disturbed.add(node)
        processes = self.processes(node)
        for process in processes:
            process.suspend()
        return processes

    def repair(self) -> None:
        """Heal all links, and start Ray anew on nodes that were cut off or frozen."""
        self.heal(*range(len(self.cores)))
        for node in self._disturbed:
            for process in self.processes(node):
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
            self._start_ray(node)
        if self._disturbed:
            self._wait_for_nodes()
        self._disturbed.clear()

    def open(self) -> None:
        """Make the namespaces and start Ray in each."""
        _ip("link", "add", self._bridge, "type", "bridge")
        _ip("link", "set", self._bridge, "up")
        for node in range(len(self.cores)):
            self._add_namespace(node)
        for node in range(len(self.cores)):
            self._start_ray(node)

    def close(self) -> None:
        """End everything on the nodes and remove the namespaces."""
        kill_the_rest()
        with contextlib.suppress(subprocess.CalledProcessError):
            for node in range(len(self.cores)):
                _ip("netns", "del", self._namespace(node))
        with contextlib.suppress(subprocess.CalledProcessError):
            _ip("link", "del", self._bridge)

    def _namespace(self, node: int) -> str:
        return f"rl{self._tag}n{node}"

    def _link(self, node: int) -> str:
        return f"rl{self._tag}v{node}"

    def _add_namespace(self, node: int) -> None:
        name, link = self._namespace(node), self._link(node)
        _ip("netns", "add", name)
        _ip("link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", name)
        _ip("link", "set", link, "master", self._bridge, "up")
        _ip("-n", name, "addr", "add", f"{self.host(node)}/24", "dev", "eth0")
        _ip("-n", name, "link", "set", "eth0", "up")
        _ip("-n", name, "link", "set", "lo", "up")

    def _wait_for_nodes(self) -> None:
        """Wait until the head knows the nodes that are there, and no other one as alive."""
        command = [*self.inside(0), sys.executable, "-c", _WAIT_FOR_NODES, self.address, str(len(self.cores))]
        done = subprocess.run(
            command, env={**os.environ, **SETTINGS}, capture_output=True, text=True, check=False, timeout=180
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def _start_ray(self, node: int) -> None:
        role = ["--address", self.address]
        if node == 0:
            role = ["--head", "--port", "6379", "--include-dashboard", "false"]
        ray = Path(sys.executable).with_name("ray")
        command = [ray, "start", *role, "--node-ip-address", self.host(node), "--num-cpus", str(self.cores[node])]
        done = subprocess.run(
            [*self.inside(node), *map(str, command), *_OPTIONS],
            env={**os.environ, **SETTINGS},
            capture_output=True,
            text=True,
            check=False,
            timeout=180,
        )
        assert done.returncode == 0, done.stdout + done.stderr


_WAIT_FOR_NODES = """
import sys, time, ray
ray.init(address=sys.argv[1], log_to_driver=False, logging_level="ERROR")
deadline = time.monotonic() + 120
while sum(node["Alive"] for node in ray.nodes()) != int(sys.argv[2]):
    assert time.monotonic() < deadline, ray.nodes()
    time.sleep(0.2)
"""


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


def why_not() -> str:
    """Why network namespaces cannot be made here; empty if they can."""
    name = f"rl{secrets.token_hex(3)}"
    try:
        _ip("netns", "add", name)
        _ip("-n", name, "link", "add", "probe", "type", "veth", "peer", "name", "eborp")
        _ip("netns", "del", name)
    except FileNotFoundError:
        return "there is no `ip` (Debian: iproute2)"
    except subprocess.CalledProcessError as error:
        return f"network namespaces cannot be made: {error.stderr.decode().strip()}"
    return ""


@contextmanager
def network_nodes(*cores: int) -> Iterator[NetworkNodes]:
    """A head with so many cores and a node for each further number; ended with everything on it."""
    nodes = NetworkNodes(*cores)
    try:
        nodes.open()
        yield nodes
    finally:
        nodes.close()
