"""Other programs that use the cores while something is tested."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from rlcb.hardware import usable_cpus

# It ends by itself when the test's process does.
_BUSY = (
    "import os\nprint('busy', flush=True)\nparent = os.getppid()\nwhile os.getppid() == parent:\n    sum(range(10**5))"
)


@contextmanager
def busy_neighbours(per_core: int = 2) -> Iterator[None]:
    """So many busy loops for every usable core, from now on until the end of the block."""
    loops = [
        subprocess.Popen([sys.executable, "-c", _BUSY], stdout=subprocess.PIPE, text=True)
        for _ in range(per_core * usable_cpus())
    ]
    try:
        for loop in loops:
            assert loop.stdout is not None
            assert loop.stdout.readline() == "busy\n"
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.communicate()
