"""Whether other processes know an environment: one that a program registers by itself exists in that program alone."""

import subprocess
import sys
from collections.abc import Sequence

from rlcb.envs.families import find
from rlcb.envs.own_code import load_all
from rlcb.errors import UsageError

_MODULE = "rlcb.envs.registered"
_UNKNOWN, _FAILED = 3, 4  # exit codes
_known: set[tuple[str, ...]] = set()


def refuse_unshared(name: str, modules: Sequence[str]) -> None:
    """Refuse an environment that a new process does not know after importing these modules; one is started to ask."""
    family, short = find(name)
    if family.games or (short, *modules) in _known:
        return
    command = [sys.executable, "-m", _MODULE, short, *modules]
    asked = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if asked.returncode == _UNKNOWN:
        raise UsageError(unknown_in_worker(short))
    if asked.returncode == _FAILED:
        raise UsageError(asked.stderr.strip().rpartition("\n")[2])
    _known.add((short, *modules))


def unknown_in_worker(name: str) -> str:
    """What is said of an environment that a worker does not know."""
    return (
        f"environment {name}: is not known to worker processes, which do not run your program; move its class and its "
        'registration to a module, such as my_envs.py, and pass imports=["my_envs"] (--import my_envs)'
    )


def main() -> int:
    """Import modules and look for an environment; the answer is the exit code."""
    name, *modules = sys.argv[1:]
    try:
        load_all(modules)
    except UsageError as error:
        print(error, file=sys.stderr)
        return _FAILED
    family, short = find(name)
    return 0 if family.exists(short) else _UNKNOWN


if __name__ == "__main__":
    sys.exit(main())
