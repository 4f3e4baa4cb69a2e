"""Whether the process of a run or of a suite is alive. Its lock is only looked at: one that is tried, even for an
instant, could make a run that is just starting fail."""

import os
import re
import socket
from dataclasses import dataclass
from pathlib import Path

from rlcb.files import read_regular

_LARGEST_LOCK = 200  # bytes


@dataclass(frozen=True)
class Owner:
    """The process that a lock file names."""

    pid: int
    host: str
    alive: bool | None  # None: it is of another machine, where this one cannot ask

    def __str__(self) -> str:
        return f"pid {self.pid}" if self.alive is not None else f"pid {self.pid} on {self.host}"


def owner_of(folder: Path) -> Owner | None:
    """Whose lock file lies in a folder; None if there is none, or one that names no process."""
    lock = folder / ".lock"
    try:
        text = read_regular(lock, _LARGEST_LOCK).decode(errors="replace")
        named = re.match(r"pid ([1-9]\d{0,8}) on ([!-~]+)", text)
        if not named:
            return None
        here = named[2] == socket.gethostname()
        return Owner(int(named[1]), named[2], _has_open(int(named[1]), os.stat(lock)) if here else None)
    except OSError:
        return None


def _has_open(pid: int, file: os.stat_result) -> bool:
    """Whether a process of this machine has the file open; its number alone may be another program's by now."""
    try:
        for name in os.listdir(f"/proc/{pid}/fd"):
            try:
                if os.path.samestat(os.stat(f"/proc/{pid}/fd/{name}"), file):
                    return True
            except OSError:
                continue  # closed meanwhile
    except PermissionError:
        return not _is_zombie(pid)  # another user's process, whose files cannot be looked at
    except OSError:
        return _is_hidden(pid)
    return False


def _is_zombie(pid: int) -> bool:
    """Whether a process has ended and only its parent has not taken notice."""
    try:
        return read_regular(f"/proc/{pid}/stat", 4096).rpartition(b")")[2].split()[:1] in ([b"Z"], [b"X"])
    except OSError:
        return True


def _is_hidden(pid: int) -> bool:
    """Whether a process exists and is another user's, which a system may hide from /proc."""
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except OSError:
        return False
    return False
