"""Runs `python -m rlcb …` in this process, which the kernel kills if its parent dies. Usage: PARENT_PID ARGUMENTS…"""

import os
import sys

from rlcb.signals import die_with


def main() -> None:
    """Replace this program by the command; the bond to the parent remains."""
    die_with(int(sys.argv[1]))
    os.execv(sys.executable, [sys.executable, "-m", "rlcb", *sys.argv[2:]])


if __name__ == "__main__":
    main()
