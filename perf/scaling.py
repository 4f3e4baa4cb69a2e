"""How parallel PPO scales on this machine: steps per second, speed-up and efficiency, interleaved.

    python perf/scaling.py --rounds 3 --seconds 20 --envs 32 --output perf/results/scaling

The work (W1): Procgen CoinRun, easy, 200 levels, ENVS environments in all x 128 steps, 4 epochs of minibatches of
1024, Nature CNN, fp32, CPU. Measured are sequential PPO with one and with all threads, and 1, 2, 4, 8, … workers of one
thread; with --threads also fewer workers with several threads each. Every round runs every division once, in changing
order; the first update of each run is warm-up. Writes OUTPUT.json and, where matplotlib is installed, OUTPUT.png.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

REPO = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPO / "src"))

from rlcb.hardware import cpu_model, usable_cpus  # noqa: E402
from rlcb.words import counted  # noqa: E402


@dataclass(frozen=True)
class Division:
    """A way to run the same work: no workers means sequential."""

    workers: int
    threads: int

    @property
    def name(self) -> str:
        """How it is called in the table."""
        if not self.workers:
            return f"sequential, {counted(self.threads, 'thread')}"
        return f"{counted(self.workers, 'worker')} × {self.threads}"


def divisions(cores: int, envs: int, several_threads: bool, slow: bool) -> list[Division]:
    """What to measure on this many cores."""
    found = [Division(0, 1)] if slow else []
    found += [Division(0, cores)] if cores > 1 else []
    counts = [2**power for power in range(cores.bit_length()) if 2**power <= cores and envs % 2**power == 0]
    found += [Division(count, 1) for count in counts if slow or count == counts[-1]]
    if several_threads:
        found += [Division(count, cores // count) for count in counts if 1 < count < cores]
    return found


def run_once(division: Division, envs: int, seconds: float) -> dict[str, float]:
    """One run: its speed after the first update, its processor share, and where its time went."""
    mode = "parallel" if division.workers else "sequential"
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        command: list[Any] = [sys.executable, "-m", "rlcb", "train", "ppo", "--mode", mode, "--batch-size", 1024]
        command += ["--num-envs", envs // max(division.workers, 1), "--num-threads", division.threads]
        command += ["--num-workers", division.workers] if division.workers else []
        command += ["--duration", seconds / 3600, "--tensorboard", "false", "--output-dir", run]
        environment = {**os.environ, "PYTHONPATH": f"{REPO / 'src'}:{os.environ.get('PYTHONPATH', '')}"}
        words = [str(word) for word in command]
        done = subprocess.run(words, cwd=REPO, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(f"{division.name} failed: {done.stderr.strip()[-2000:]}")
        label = "PPO_Parallel" if division.workers else "PPO_Sequential"
        lines = [json.loads(line) for line in (run / "logs" / label / "metrics.jsonl").read_text().splitlines()]
        metrics = json.loads((run / "benchmark_metrics.json").read_text())
    first, last = lines[0], lines[-1]
    if len(lines) > 1:
        fps = (last["step"] - first["step"]) / (last["time"] - first["time"])
    else:
        fps = first["step"] / first["time"]
    shares = {f"share_{name}": value for name, value in metrics["time_shares"].items()}
    return {"fps": fps, "cpu": metrics["resource_usage"]["cpu_percent"], "updates": len(lines), **shares}


def table(results: dict[Division, list[dict[str, float]]], cores: int) -> str:
    """Medians, speed-ups over one worker of one thread and over sequential with all threads, efficiency."""
    speed = {division: median(run["fps"] for run in runs) for division, runs in results.items() if runs}
    single, sequential = speed.get(Division(1, 1)), speed.get(Division(0, cores))
    rows = [
        "| division | FPS, median (min–max) | × one worker | × sequential | efficiency | CPU | waiting | all-reduce |"
    ]
    rows.append("|---|---|---|---|---|---|---|---|")
    for division, runs in results.items():
        fps = speed[division]
        spread = f"{min(run['fps'] for run in runs):,.0f}–{max(run['fps'] for run in runs):,.0f}"
        used = max(division.workers, 1) * division.threads
        by_single = f"{fps / single:.2f}" if single else "–"
        by_sequential = f"{fps / sequential:.2f}" if sequential else "–"
        efficiency = f"{100 * fps / single / used:.0f} %" if single else "–"
        shares = [median(run.get(f"share_{name}", 0.0) for run in runs) for name in ("waiting", "allreduce")]
        cells = [division.name, f"{fps:,.0f} ({spread})", by_single, by_sequential, efficiency]
        cells += [f"{median(run['cpu'] for run in runs):.0f} %", *(f"{100 * share:.1f} %" for share in shares)]
        rows.append("| " + " | ".join(cells) + " |")
    return "\n".join(rows)


def draw(results: dict[Division, list[dict[str, float]]], cores: int, envs: int, path: Path) -> None:
    """Steps per second over the number of workers, with the ideal line and the sequential levels."""
    try:
        import matplotlib as mpl
    except ImportError:
        print(f"matplotlib is not installed: {path} was not drawn")
        return
    mpl.use("Agg")
    from matplotlib import pyplot as plt

    speed = {division: median(run["fps"] for run in runs) for division, runs in results.items()}
    figure, axis = plt.subplots(figsize=(7, 4.2), dpi=110)
    counts = sorted(division.workers for division in speed if division.workers and division.threads == 1)
    axis.plot(counts, [speed[Division(count, 1)] for count in counts], "o-", label="workers of one thread")
    if Division(1, 1) in speed:
        axis.plot(counts, [count * speed[Division(1, 1)] for count in counts], ":", color="gray", label="ideal")
    for division, fps in speed.items():
        if division.workers and division.threads > 1:
            axis.plot(division.workers, fps, "s", label=division.name)
        elif not division.workers:
            axis.axhline(fps, ls="--", lw=1, color="black" if division.threads > 1 else "silver")
            axis.annotate(division.name, (counts[0], fps), fontsize=8, va="bottom")
    axis.set(xlabel="workers", ylabel="environment steps per second")
    axis.set_title(f"PPO, CoinRun, {envs} envs, {cores} cores")
    axis.set_xscale("log", base=2)
    axis.set_xticks(counts, [str(count) for count in counts])
    axis.set_ylim(bottom=0)
    axis.grid(alpha=0.3)
    axis.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path)


def main() -> None:
    """Measure, print the table, write the files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=20.0, help="training time of each run")
    parser.add_argument("--envs", type=int, default=32, help="environments in all")
    parser.add_argument("--threads", action="store_true", help="also several threads per worker")
    parser.add_argument("--fast-only", action="store_true", help="leave out what uses one or few cores")
    parser.add_argument("--output", type=Path, help="path without ending, for .json and .png")
    arguments = parser.parse_args()
    cores = usable_cpus()
    todo = divisions(cores, arguments.envs, arguments.threads, not arguments.fast_only)
    results: dict[Division, list[dict[str, float]]] = {division: [] for division in todo}
    for number in range(arguments.rounds):
        for division in todo if number % 2 == 0 else reversed(todo):
            found = run_once(division, arguments.envs, arguments.seconds)
            results[division].append(found)
            print(f"round {number + 1}  {division.name:24} {found['fps']:8,.0f} FPS", flush=True)
    print(f"\n{cpu_model()}, {cores} usable cores, {arguments.envs} environments\n")
    print(table(results, cores))
    if arguments.output:
        arguments.output.parent.mkdir(parents=True, exist_ok=True)
        rows = {division.name: runs for division, runs in results.items()}
        content = {"cpu": cpu_model(), "cores": cores, "envs": arguments.envs, "results": rows}
        arguments.output.with_suffix(".json").write_text(json.dumps(content, indent=1))
        draw(results, cores, arguments.envs, arguments.output.with_suffix(".png"))


if __name__ == "__main__":
    main()
