"""A process around a run on a cluster: Ray ends the one it is used in when its part of the cluster is lost."""

import os
import signal
import sys
from collections.abc import Callable
from types import FrameType

from rlcb.errors import WorkersLost
from rlcb.signals import die_with


def guarded(work: Callable[[], int], hint: str) -> int:
    """Do the work in a process of its own and return its exit code; WorkersLost if it is cut off in the middle."""
    sys.stdout.flush()
    sys.stderr.flush()
    reading, writing = os.pipe()
    here = os.getpid()
    child = os.fork()
    if child == 0:
        os.close(reading)
        os.setpgid(0, 0)  # Ctrl-C is for the other process, which passes it on
        die_with(here)
        code = work()
        sys.stdout.flush()
        sys.stderr.flush()
        os.write(writing, b".")
        os._exit(code)  # at once: what Ray would still do at the end may wait for what is gone
    os.close(writing)

    def pass_on(number: int, frame: FrameType | None) -> None:
        os.kill(child, number)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, pass_on)
    with os.fdopen(reading, "rb") as pipe:
        finished = pipe.read()
    _, status = os.waitpid(child, 0)
    if finished:
        return os.waitstatus_to_exitcode(status)
    raise WorkersLost(f"this machine's part of the cluster is gone; {hint}")
