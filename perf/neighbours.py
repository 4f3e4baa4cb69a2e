"""How runs get on with others on the same cores: alone, beside a copy of itself, beside a busy process; interleaved.

    python perf/neighbours.py --rounds 3 --seconds 10
    python perf/neighbours.py --only impala

The work is that of perf/modes.py. Two copies should make as many steps together as one makes alone. A process that does
nothing but compute on one core leaves the C others to the run, and the scheduler may do better: with as many threads T
as cores, of T + 1 that want to run, the run has C · T / (T + 1) cores. Speeds are taken from the span in which all
that run together are past their warm-up.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median

import numpy as np
from numpy.typing import NDArray

from modes import ENVS, REPO, WARM_UP_SECONDS, WORK, flags_of
from rlcb.hardware import cpu_model, usable_cpus

_BUSY = "while True: pass"


def cases(cores: int) -> list[tuple[str, str]]:
    """Every execution once, with as many workers as cores."""
    half = max(cores // 2, 1)
    divisions = {
        "ppo": ("sequential", str(cores), f"{cores}+gloo", f"{cores}+ray"),
        "impala": ("sequential", f"{half}x{cores - half}" if cores > 2 else "2x2"),
        "a2c": ("sequential", str(cores)),
        "a3c": (str(cores),),
    }
    return [(algorithm, division) for algorithm, several in divisions.items() for division in several]


def speeds(algorithm: str, division: str, seconds: float, copies: int, busy: bool) -> list[float]:
    """Steps per second of so many copies that are started together, while all of them run."""
    with tempfile.TemporaryDirectory() as folder:
        other = [subprocess.Popen([sys.executable, "-c", _BUSY])] if busy else []
        runs = [Path(folder) / f"run{number}" for number in range(copies)]
        processes = [_start(algorithm, division, seconds, run) for run in runs]
        try:
            for process in processes:
                _, problem = process.communicate()
                if process.returncode:
                    sys.exit(f"{algorithm} {division} failed: {problem.strip()[-2000:]}")
        finally:
            for one in processes:
                one.kill()
            for spinning in other:
                spinning.kill()
                spinning.wait()
        return _together([_history(run) for run in runs])


def _start(algorithm: str, division: str, seconds: float, run: Path) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "rlcb", "train", *flags_of(algorithm, division, ENVS), *WORK[algorithm]]
    command += ["--duration", str((seconds + WARM_UP_SECONDS) / 3600), "--tensorboard", "false"]
    command += ["--log-interval", "100000", "--output-dir", str(run)]
    environment = {**os.environ, "PYTHONPATH": f"{REPO / 'src'}:{os.environ.get('PYTHONPATH', '')}"}
    return subprocess.Popen(
        command, cwd=REPO, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )


def _history(run: Path) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """When a run had made how many steps, in seconds since 1970."""
    log = next(run.glob("logs/*/metrics.jsonl"))
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    began = log.stat().st_mtime - lines[-1]["time"]
    times, steps = [0.0, *(line["time"] for line in lines)], [0, *(line["step"] for line in lines)]
    return began + np.array(times), np.array(steps, float)


def _together(histories: Sequence[tuple[NDArray[np.float64], NDArray[np.float64]]]) -> list[float]:
    """The speed of each in the span that all have in common, less the warm-up."""
    first = max(times[0] for times, _ in histories) + WARM_UP_SECONDS
    last = min(times[-1] for times, _ in histories)
    return [
        float((np.interp(last, times, steps) - np.interp(first, times, steps)) / (last - first))
        for times, steps in histories
    ]


def main() -> None:
    """Measure every case in rounds, print each, then the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=10.0, help="timed span of each run")
    parser.add_argument("--only", default="", metavar="ALGORITHM", help="the cases of one algorithm")
    arguments = parser.parse_args()
    cores = usable_cpus()
    todo = [case for case in cases(cores) if arguments.only in ("", case[0])]
    found: dict[tuple[str, str], list[tuple[float, float, float, float]]] = {case: [] for case in todo}
    for number in range(arguments.rounds):
        for case in todo:
            (alone,) = speeds(*case, arguments.seconds, copies=1, busy=False)
            both = speeds(*case, arguments.seconds, copies=2, busy=False)
            (beside,) = speeds(*case, arguments.seconds, copies=1, busy=True)
            found[case].append((alone, sum(both) / alone, min(both) / max(both), beside / alone))
            print(
                f"round {number + 1}  {' '.join(case):16} alone {alone:7,.0f}, beside a copy "
                f"{both[0]:,.0f} + {both[1]:,.0f}, beside a busy process {beside:,.0f} FPS",
                flush=True,
            )
    left, shared = (cores - 1) / cores, cores / (cores + 1)
    print(f"\n{cpu_model()}, {usable_cpus()} usable cores\n")
    print("| run | alone, FPS | two copies together / one alone | the slower / the faster | beside a busy process |")
    print(f"|---|---|---|---|---|\n| fair | | 1.00 | 1.00 | {left:.2f}–{shared:.2f} |")
    for case, rows in found.items():
        fps, *ratios = zip(*rows, strict=True)
        spread = (f"{median(one):.2f} ({min(one):.2f}–{max(one):.2f})" for one in ratios)
        print(f"| {' '.join(case)} | {median(fps):,.0f} | {' | '.join(spread)} |")


if __name__ == "__main__":
    main()
