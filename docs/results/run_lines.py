"""Prints a line for each finished run of a default recipe, as in report.csv beside this file.

usage: python docs/results/run_lines.py RUNS… --machine "2 cores"

RUNS are run directories or folders of them.
"""

import argparse
import csv
import sys
from pathlib import Path

from tables import PICKS

from rlcb.analysis.load import load_runs
from rlcb.analysis.run import Run


def line_of(run: Run, machine: str) -> tuple[object, ...]:
    """What report.csv says of a run."""
    known = run.metrics
    if run.variant or known.late_reward is None or known.final_reward is None:
        raise ValueError(f"{run.name} is not a run of a default recipe, or ended too early")
    evaluations = (run.evaluations.find(run.env, levels, "sampled") for levels in ("train", "unseen"))
    evaluated = [round(found.mean_reward, 3) if found else "" for found in evaluations]
    rewards = round(known.late_reward, 3), round(known.final_reward, 3)
    about = PICKS[run.algorithm], run.algorithm, run.mode, run.game, run.seed, int(known.total_timesteps or 0)
    return (*about, *rewards, *evaluated, round(known.average_fps or 0), machine, run.config["hardware"]["precision"])


def main() -> None:
    """Print the lines of all finished runs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--machine", required=True)
    given = parser.parse_args()
    runs = [run for run in load_runs(given.runs, lambda text: print(text, file=sys.stderr)) if run.status == "finished"]
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerows(sorted((line_of(run, given.machine) for run in runs), key=str))


if __name__ == "__main__":
    main()
