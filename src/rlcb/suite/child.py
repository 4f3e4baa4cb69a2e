"""Becomes `python -m rlcb …`, bound to the life of the process that started it. Usage: PARENT_PID ARGUMENTS…"""

import os
import sys

from rlcb.signals import die_with


def main() -> None:
    """Go over to the command, which keeps what was said about its parent."""
    die_with(int(sys.argv[1]))
    os.execv(sys.executable, [sys.executable, "-m", "rlcb", *sys.argv[2:]])


if __name__ == "__main__":
    main()
