"""Compare a sequential and a parallel run: a table, a picture with four panels and a report."""

import sys

from _launch import use_project

if __name__ == "__main__":
    use_project()
    from rlcb.cli import compare_script

    sys.exit(compare_script("compare_results.py"))
