"""Train IMPALA sequentially for a fixed number of steps."""

import sys

from _launch import use_project

if __name__ == "__main__":
    use_project()
    from rlcb.cli import train_script

    sys.exit(train_script("train_impala_sequential.py", "impala", "sequential", timed=False))
