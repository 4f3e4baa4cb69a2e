"""Are runs marked as disturbed when other programs use the cores, and only then?

    python perf/disturbance.py --runs 5
    python perf/disturbance.py --runs 1 --env coinrun --seconds 20
    python perf/disturbance.py --study

Trains for some seconds alone, beside one busy loop and beside two, sequential and with two workers, in turn, and prints
each run's speed, the figures that were recorded and whether it was marked; at the end how often in each situation.
`--study` runs the same small suite twice instead, alone and beside a busy loop for every core, and prints what the
reports conclude about speed. Nothing else should run meanwhile: what is marked "alone" is a false alarm.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

MODES = {"sequential": ("--mode", "sequential"), "2 workers": ("--mode", "parallel", "--num-workers", "2")}
LOOPS = (0, 1, 2)
FIGURES = ("others_percent", "idle_percent", "waited_percent", "lost_percent", "stolen_percent", "throttled_percent")


@contextmanager
def busy_loops(count: int) -> Iterator[None]:
    """Other programs that are always ready to run."""
    loops = [subprocess.Popen([sys.executable, "-c", "while True: sum(range(10**5))"]) for _ in range(count)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def rlcb(*arguments: str) -> None:
    """A command of this program, without its output."""
    done = subprocess.run([sys.executable, "-m", "rlcb", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"rlcb {' '.join(arguments)}: exit code {done.returncode}: {done.stderr.strip()}")


def trained(folder: Path, mode: Sequence[str], env: str, seconds: float) -> dict[str, Any]:
    """What a run of some seconds recorded of itself."""
    length = ("--env", env, "--duration", str(seconds / 3600), "--tensorboard", "false")
    rlcb("train", "ppo", *mode, *length, "--output-dir", str(folder))
    summary: dict[str, Any] = json.loads((folder / "training_summary.json").read_text())
    return summary


def show(words: Sequence[Any]) -> None:
    """A row of the table."""
    print("  ".join(str(word).rjust(11) for word in words), flush=True)


def in_turn(runs: int, env: str, seconds: float, modes: Sequence[str], loops: Sequence[int]) -> None:
    """All situations once, then all again."""
    marked: Counter[tuple[str, int]] = Counter()
    show(["mode", "busy loops", "FPS", *(name.removesuffix("_percent") + " %" for name in FIGURES), "disturbed"])
    with tempfile.TemporaryDirectory(prefix="rlcb-disturbance-") as folder:
        for number in range(runs):
            for count in loops:
                for mode in modes:
                    with busy_loops(count):
                        place = Path(folder) / f"{mode.replace(' ', '_')}_{count}_{number}"
                        summary = trained(place, MODES[mode], env, seconds)
                    found = summary["disturbance"]
                    figures = ["n/a" if found[name] is None else f"{found[name]:.1f}" for name in FIGURES]
                    show([mode, count, f"{summary['avg_fps']:,.0f}", *figures, found["disturbed"]])
                    marked[mode, count] += found["disturbed"] is True
    for mode in modes:
        for count in loops:
            print(f"{mode}, {count} busy loops: {marked[mode, count]} of {runs} runs marked")


def study(seconds: float) -> None:
    """The same suite alone and beside a busy loop for every core, and what its report says of speed."""
    with tempfile.TemporaryDirectory(prefix="rlcb-disturbance-") as folder:
        for count in (0, len(psutil.Process().cpu_affinity())):
            output = Path(folder) / f"suite_{count}"
            size = ("--games", "CartPole-v1", "--seeds", "1", "2", "--modes", "sequential", "parallel", "--jobs", "1")
            more = ("--duration", str(seconds / 3600), "--eval-episodes", "0", "--tensorboard", "false")
            with busy_loops(count):
                rlcb("benchmark", *size, *more, "--output-dir", str(output))
            print(f"\nBeside {count} busy loops:")
            report = (output / "report" / "comparison_report.txt").read_text()
            words = ("Average FPS  ", "Speed-up", "Efficiency", "* (disturbed)")
            print("\n".join(line for line in report.splitlines() if line.startswith(words)), flush=True)
            comparison = json.loads((output / "report" / "comparison.json").read_text())
            print(comparison["verdict"], flush=True)


def main() -> None:
    """Parse the arguments, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5, help="of every situation")
    parser.add_argument("--env", default="CartPole-v1")
    parser.add_argument("--seconds", type=float, default=8.0, help="of training in each run")
    parser.add_argument("--modes", nargs="+", choices=list(MODES), default=list(MODES))
    parser.add_argument("--loops", nargs="+", type=int, default=list(LOOPS), help="busy loops beside the runs")
    parser.add_argument("--study", action="store_true", help="two small suites instead")
    given = parser.parse_args()
    if given.study:
        study(given.seconds)
    else:
        in_turn(given.runs, given.env, given.seconds, given.modes, given.loops)


if __name__ == "__main__":
    main()
