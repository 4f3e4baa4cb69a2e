"""How long it takes to compare many long runs, and how much memory.

    python perf/compare_many.py --runs 200 --lines 10000

Writes RUNS run directories of LINES log lines each (40 groups, so 5 seeds each with 200 runs) to a temporary folder and
compares them with `rlcb compare` in a process of its own: everything counts, from starting Python to the last file.
With --logs-only the runs have no metrics.json, as after a crash, and the logs themselves must be parsed.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

REPO = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(REPO / "src"), str(REPO / "tests")]

from helpers.run_directories import log_of, write_run  # noqa: E402

_GROUPS = 40
_DIFFERENT = 10  # runs with a history of their own; the others have one of these


def write_runs(folder: Path, runs: int, lines: int, logs_only: bool) -> int:
    """Make the runs; returns the bytes of all logs."""
    histories = []
    for number in range(min(_DIFFERENT, runs)):
        path = write_run(folder / f"own_{number}", seed=number, updates=lines, fps=1000.0 + 10 * number)
        histories.append((log_of(path).read_bytes(), (path / "metrics.json").read_bytes()))
    for number in range(len(histories), runs):
        settings: dict[str, Any] = {"seed": number // _GROUPS, "learning_rate": 1e-4 * (1 + number % _GROUPS)}
        path = write_run(folder / f"run_{number}", updates=20, total_timesteps=4096 * lines, **settings)
        log, columns = histories[number % len(histories)]
        log_of(path).write_bytes(log)
        (path / "metrics.json").write_bytes(columns)
        benchmark = json.loads((path / "benchmark_metrics.json").read_text())
        benchmark["total_timesteps"] = 4096 * lines
        (path / "benchmark_metrics.json").write_text(json.dumps(benchmark))
    if logs_only:
        for path in folder.glob("*/metrics.json"):
            path.unlink()
    return sum(path.stat().st_size for path in folder.glob("*/logs/*/metrics.jsonl"))


def main() -> None:
    """Write, compare, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--lines", type=int, default=10_000)
    parser.add_argument("--logs-only", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        size = write_runs(folder / "runs", arguments.runs, arguments.lines, arguments.logs_only)
        print(f"{arguments.runs} runs × {arguments.lines:,} lines, {size / 2**20:,.0f} MB of logs", flush=True)
        command = [sys.executable, "-m", "rlcb", "compare", str(folder / "runs"), "--output", str(folder / "out")]
        started = time.perf_counter()
        environment = {**os.environ, "PYTHONPATH": str(REPO / "src")}
        done = subprocess.run(command, env=environment, capture_output=True, check=False)
        seconds = time.perf_counter() - started
        if done.returncode:
            sys.exit(done.stderr.decode(errors="replace")[-2000:])
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    busy = used.ru_utime + used.ru_stime  # what it would take with a core to itself
    print(f"{seconds:.1f} s ({busy:.1f} s of processor time), peak memory {used.ru_maxrss / 2**20:.2f} GB")


if __name__ == "__main__":
    main()
