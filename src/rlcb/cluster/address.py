"""Which cluster a run goes to, and whether it may."""

import ipaddress
import os
import socket
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
            "--cluster auto: no Ray cluster was started here; `ray start --head` starts one, or use local"
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


def refuse_open(address: Address, insecure: bool) -> None:
    """Refuse a cluster beyond this machine where nothing would be asked for a token."""
    if address.host is None or insecure or has_token() or is_loopback(address.host):
        return
    raise UsageError(
        f"--cluster {address}: not this machine, and there is no token: anybody there could run code here; "
        "put the cluster's token into ~/.ray/auth_token or RAY_AUTH_TOKEN (see docs/cluster.md), or add --insecure"
    )


def has_token() -> bool:
    """Whether Ray will find a token to show and to ask for."""
    if os.environ.get("RAY_AUTH_MODE", "token").lower() != "token":
        return False
    if os.environ.get("RAY_AUTH_TOKEN", "").strip():
        return True
    path = Path(os.environ.get("RAY_AUTH_TOKEN_PATH") or Path.home() / ".ray" / "auth_token")
    return os.path.isfile(path) and os.path.getsize(path) > 0


def is_loopback(host: str) -> bool:
    """Whether a host is this machine and nothing else; one that has no address is not."""
    try:
        found = {entry[4][0] for entry in socket.getaddrinfo(host, None)}
    except OSError:
        return False
    return all(ipaddress.ip_address(str(one).split("%")[0]).is_loopback for one in found)


def refuse_silent(address: Address, seconds: float = 5.0) -> None:
    """Refuse an address that nobody answers at."""
    if address.host is not None and not answers(address, seconds):
        raise WorkersLost(
            f"--cluster {address}: nobody answers there; is the head running (`ray start --head`) and the port open?"
        )


def answers(address: Address, seconds: float) -> bool:
    """Whether somebody accepts connections at the address."""
    try:
        with socket.create_connection((address.host, address.port), timeout=seconds):
            return True
    except OSError:
        return False
