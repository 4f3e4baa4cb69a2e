"""Writes the learning curves of finished runs as a small CSV file, as they are kept beside docs/results.md.

usage: python docs/results/curves.py RUNS… --output FILE.csv [--every N | --every-steps N]

RUNS are run directories or folders of them.
"""

import argparse
import csv
from pathlib import Path

from rlcb.analysis.load import load_runs
from rlcb.analysis.run import Run

HEAD = ("game", "algorithm", "mode", "variant", "seed", "step", "seconds", "ep_reward_mean")


def rows_of(run: Run, every: int, every_steps: int | None) -> list[tuple[object, ...]]:
    """Every so many updates of a run, or the first update after every so many steps; and its last one."""
    history, last = run.history, len(run.history) - 1
    about = (run.game, run.algorithm, run.mode, run.variant, run.seed)
    if every_steps:
        passed = [int(step) // every_steps for step in history.step]
        kept = [n for n in range(last + 1) if passed[n] > (passed[n - 1] if n else 0) or n == last]
    else:
        kept = [n for n in range(last + 1) if n % every == every - 1 or n == last]
    return [
        (*about, int(history.step[n]), round(float(history.time[n]), 1), round(float(history.reward[n]), 3))
        for n in kept
    ]


def main() -> None:
    """Write the curves of all finished runs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--output", type=Path, required=True)
    cadence = parser.add_mutually_exclusive_group()
    cadence.add_argument("--every", type=int, default=1, help="keep every so many updates")
    cadence.add_argument("--every-steps", type=int, help="keep the first update after every so many environment steps")
    given = parser.parse_args()
    runs = [run for run in load_runs(given.runs, print) if run.status == "finished"]
    runs.sort(key=lambda run: (run.game, run.algorithm, run.mode, run.variant, run.seed or 0))
    with given.output.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(HEAD)
        for run in runs:
            writer.writerows(rows_of(run, given.every, given.every_steps))
    print(f"{len(runs)} runs: {given.output}")


if __name__ == "__main__":
    main()
