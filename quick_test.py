"""Check the installation: what is there, what is missing, how to get it."""

import sys
from pathlib import Path

if __name__ == "__main__":
    # No detour over the virtual environment: what is examined is the Python that runs this.
    sys.path.insert(0, str(Path(__file__).resolve().parent / "src"))
    from rlcb.cli import doctor

    sys.exit(doctor(sys.argv[1:], "quick_test.py"))
