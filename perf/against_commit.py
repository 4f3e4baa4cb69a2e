"""This tree beside an earlier commit: the workloads of perf/modes.py, interleaved, as ratios within one run.

python perf/against_commit.py COMMIT --rounds 4 --seconds 10
python perf/against_commit.py COMMIT --only impala
"""

import argparse
import subprocess
import tempfile
from pathlib import Path
from statistics import median

from modes import REPO, run_once
from rlcb.hardware import cpu_model, usable_cpus

CASES = (("ppo", "sequential"), ("ppo", "2"), ("impala", "2x2"), ("a2c", "sequential"), ("a2c", "2"), ("a3c", "2"))


def main() -> None:
    """Measure all cases in rounds, print each pair, then the table of ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("commit", help="what to measure beside")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=10.0, help="timed span of each run")
    parser.add_argument("--only", default="", metavar="ALGORITHM", help="the cases of one algorithm")
    arguments = parser.parse_args()
    cases = [case for case in CASES if arguments.only in ("", case[0])]
    found: dict[tuple[str, str], list[tuple[float, float]]] = {case: [] for case in cases}
    with tempfile.TemporaryDirectory() as folder:
        before, git = Path(folder) / "tree", ["git", "-C", str(REPO), "worktree"]
        subprocess.run([*git, "add", "--quiet", "--detach", str(before), arguments.commit], check=True)
        try:
            for number in range(arguments.rounds):
                for case in cases:
                    trees = [before, REPO] if number % 2 == 0 else [REPO, before]
                    speeds = {tree: run_once(*case, arguments.seconds, tree)[0] for tree in trees}
                    found[case].append((speeds[before], speeds[REPO]))
                    old, new = found[case][-1]
                    print(f"round {number + 1}  {' '.join(case):18} {old:8,.0f} → {new:8,.0f} FPS", flush=True)
        finally:
            subprocess.run([*git, "remove", "--force", str(before)], check=True)
    print(f"\n{cpu_model()}, {usable_cpus()} usable cores\n\n| work | FPS before | FPS now | now / before (min–max) |")
    print("|---|---|---|---|")
    for case, pairs in found.items():
        ratios = [new / old for old, new in pairs]
        old, new = (median(column) for column in zip(*pairs, strict=True))
        spread = f"{median(ratios):.2f} ({min(ratios):.2f}–{max(ratios):.2f})"
        print(f"| {' '.join(case)} | {old:,.0f} | {new:,.0f} | {spread} |")


if __name__ == "__main__":
    main()
