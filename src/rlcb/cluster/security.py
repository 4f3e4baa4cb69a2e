"""Whether a cluster may be used: who could run code on it, and whether its head and this machine agree on a token.

Anybody who reaches a Ray cluster without a token can run code on all of its machines, and Ray's processes listen on all
interfaces, whatever address the head was given. So what counts is what the head does, not the address that was typed.
"""

import ipaddress
import os
import socket
import subprocess
import sys
from pathlib import Path

from rlcb.cluster.address import Address
from rlcb.errors import UsageError, WorkersLost

_DANGER = "anyone who can reach it could run code here"
_PROBE = """
import sys
from ray._raylet import GcsClient
GcsClient(address=sys.argv[1]).internal_kv_get(b"rlcb", namespace=b"rlcb", timeout=5)
"""  # a question to the head, with whatever token there is


def refuse_open(address: Address, insecure: bool) -> None:
    """Refuse a cluster beyond this machine where nothing would be asked for a token."""
    if address.host is None or insecure or has_token() or is_loopback(address.host):
        return
    raise UsageError(
        f"--cluster {address}: is a remote machine and there is no token, so anyone there could run code here; "
        "put the token of the cluster into ~/.ray/auth_token or RAY_AUTH_TOKEN (see docs/cluster.md), or add --insecure"
    )


def has_token() -> bool:
    """Whether Ray will find a token to show and to ask for."""
    if os.environ.get("RAY_AUTH_MODE", "token").lower() != "token":
        return False
    if os.environ.get("RAY_AUTH_TOKEN", "").strip():
        return True
    path = Path(os.environ.get("RAY_AUTH_TOKEN_PATH") or Path.home() / ".ray" / "auth_token")
    return path.is_file() and path.stat().st_size > 0


def is_loopback(host: str) -> bool:
    """Whether a host is this machine and nothing else; one that has no address is not."""
    try:
        found = {entry[4][0] for entry in socket.getaddrinfo(host, None)}
    except OSError:
        return False
    return all(ipaddress.ip_address(str(one).split("%")[0]).is_loopback for one in found)


def agree_on_token(address: Address, insecure: bool) -> None:
    """See whether the head asks for a token; refuse one that is open to others, or that differs from this machine."""
    if address.host is None:
        return
    open_to_all = _answers_without_token(address)
    if open_to_all is None:  # not a cluster that answers in time; connecting will tell
        return
    if not open_to_all:
        if not has_token():
            raise WorkersLost(f"--cluster {address}: {TOKEN_WANTED}")
        os.environ["RAY_AUTH_MODE"] = "token"
        return
    if insecure:
        os.environ["RAY_AUTH_MODE"] = "disabled"
    elif has_token():
        raise UsageError(
            f"--cluster {address}: this machine has a token, but the head node requires none: {_DANGER}; start Ray "
            "with RAY_AUTH_MODE=token and the same token on all machines (see docs/cluster.md), or add --insecure"
        )
    elif not is_loopback(address.host) or _listens_outside(address.port):
        raise UsageError(
            f"--cluster {address}: the head node requires no token and listens on all interfaces: {_DANGER}; "
            "start Ray with RAY_AUTH_MODE=token (see docs/cluster.md), or add --insecure"
        )


TOKEN_WANTED = (
    "the cluster requires a token; the one on this machine is missing or differs; copy the head's ~/.ray/auth_token "
    "to this machine or set RAY_AUTH_TOKEN"
)


def _answers_without_token(address: Address) -> bool | None:
    """Whether the head answers somebody who shows no token; None if it does not answer at all.

    Asked by another process, as Ray reads its token once.
    """
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_AUTH")}
    environment["RAY_AUTH_MODE"] = "disabled"
    command = [sys.executable, "-c", _PROBE, str(address)]
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=15)
    except subprocess.TimeoutExpired:
        return None
    if done.returncode == 0:
        return True
    return False if "token" in done.stderr.lower() else None


def _listens_outside(port: int) -> bool:
    """Whether somebody on this machine listens at a port on more than the loopback interface."""
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        path = Path(table)
        for line in path.read_text().splitlines()[1:] if path.exists() else ():
            local, state = line.split()[1], line.split()[3]
            host, _, number = local.rpartition(":")
            if state == "0A" and int(number, 16) == port and not _from_kernel(host).is_loopback:
                return True
    return False


def _from_kernel(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """An address as /proc/net writes it: words of 4 bytes in the processor's order."""
    words = [bytes.fromhex(host[n : n + 8])[:: -1 if sys.byteorder == "little" else 1] for n in range(0, len(host), 8)]
    address = ipaddress.ip_address(b"".join(words))
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address
