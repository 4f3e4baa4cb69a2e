"""The address of a run's cluster, and whether it may be used."""

import contextlib
import os
import selectors
import socket
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from rlcb.errors import UsageError, WorkersLost
from rlcb.files import read_regular

INSTALL = "pip install 'rl-cluster-benchmark[cluster]'"
_HERE = Path("/tmp/ray/ray_current_cluster")  # where `ray start` notes the address of what it started


@dataclass(frozen=True)
class Address:
    """Where a cluster's head listens; None: a cluster of this machine alone is to be started for the run."""

    host: str | None
    port: int = 0

    def __str__(self) -> str:
        return f"{self.host}:{self.port}" if self.host else "local"


def resolved(cluster: str) -> Address:
    """The address that `local`, `auto` or HOST:PORT stands for."""
    if cluster == "local":
        return Address(None)
    if cluster != "auto":
        return _parsed(cluster, "--cluster")
    found = os.environ.get("RAY_ADDRESS", "").strip()
    if found:
        return _parsed(found, "RAY_ADDRESS")
    noted = _noted()
    if not noted:
        raise WorkersLost(
            "--cluster auto: no Ray cluster is running on this machine; start one with `ray start --head`, or use local"
        )
    return _parsed(noted, str(_HERE))


def _noted() -> str:
    """The address that Ray has noted on this machine; empty where there is none."""
    try:
        return read_regular(_HERE, 1024).decode(errors="replace").strip()
    except OSError:
        return ""


def _parsed(text: str, where: str) -> Address:
    host, separator, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not separator or not host or "/" in host or not port.isdigit() or not 0 < int(port) < 65536:
        raise UsageError(f"{where}: {text!r} is not valid; must be HOST:PORT (as in 10.0.0.1:6379), auto or local")
    return Address(host, int(port))


def refuse_silent(address: Address, seconds: float = 5.0) -> None:
    """Refuse an address that does not answer."""
    if address.host is not None and not answering([address], seconds):
        raise WorkersLost(
            f"--cluster {address}: no answer; is the head node running (`ray start --head`) and the port open?"
        )


def answering(addresses: Iterable[Address], seconds: float) -> set[Address]:
    """Those of the addresses at which somebody accepts connections, all asked at once."""
    with selectors.DefaultSelector() as selector, contextlib.ExitStack() as sockets:
        for address in addresses:
            with contextlib.suppress(OSError):
                family, kind, _, _, where = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)[0]
                probe = sockets.enter_context(socket.socket(family, kind))
                probe.setblocking(False)
                probe.connect_ex(where)
                selector.register(probe, selectors.EVENT_WRITE, address)
        answered, deadline = set(), time.monotonic() + seconds
        while selector.get_map() and (left := deadline - time.monotonic()) > 0:
            for key, _ in selector.select(left):
                assert isinstance(key.fileobj, socket.socket)
                if key.fileobj.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0:
                    answered.add(key.data)
                selector.unregister(key.fileobj)
        return answered
