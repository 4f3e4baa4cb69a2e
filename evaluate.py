"""Evaluate a trained policy."""

import sys

from _launch import use_project

if __name__ == "__main__":
    use_project()
    from rlcb.cli import evaluate

    sys.exit(evaluate(prog="evaluate.py", universal=False))
