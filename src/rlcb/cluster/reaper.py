"""Ends what is left of a cluster that was started for a run: `python -m rlcb.cluster.reaper MARK`.

It waits until its standard input is closed, which happens when the run's process ends, also by SIGKILL. Then it kills
every process that has the mark in its environment. Ray's own processes would wait for up to a minute.
"""

import contextlib
import os
import signal
import sys
import time
from collections.abc import Collection
from pathlib import Path


def marked(mark: str) -> list[int]:
    """The other processes that have the mark in their environment."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):  # it has ended, or is another user's
                if mark.encode() in (entry / "environ").read_bytes():
                    found.append(int(entry.name))
    return found


def kill_marked(mark: str, spared: Collection[int] = ()) -> bool:
    """Kill every other process that has the mark in its environment and is not spared; whether there was one."""
    found = [process for process in marked(mark) if process not in spared]
    for process in found:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
    return bool(found)


def main() -> None:
    """Wait for the end of the run's process, then kill what it has left, until nothing is left."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    sys.stdin.buffer.read()
    while kill_marked(sys.argv[1]):
        time.sleep(0.05)


if __name__ == "__main__":
    main()
