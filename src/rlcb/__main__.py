"""`python -m rlcb`: the same as the `rlcb` command."""

import sys

from rlcb.cli import main

if __name__ == "__main__":
    sys.exit(main())
