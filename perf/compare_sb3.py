"""PPO or A2C of this program, sequential and parallel, against Stable-Baselines3's: the same work, interleaved, here.

    python perf/compare_sb3.py --rounds 4 --updates 6 --workers 2 --output perf/results/sb3.json
    python perf/compare_sb3.py --algorithm a2c --rounds 4 --updates 200 --workers 2

The work: Procgen CoinRun, easy, 200 levels, 32 environments, Nature CNN, fp32, CPU. PPO (W1): 128 steps, 4 epochs of
minibatches of 1024. A2C (W4): 5 steps, one optimizer step of RMSProp on all of them. Both sides act and learn inside
the timed span, and the first update of each run (of A2C, the first twenty) is warm-up. Stable-Baselines3 gets a virtual
environment of its own, built on first use.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

REPO = Path(__file__).resolve().parent.parent
OUR_PYTHON = REPO / ".venv" / "bin" / "python"
WORKER = REPO / "perf" / "sb3_worker.py"
NUM_ENVS, BATCH_SIZE, N_EPOCHS = 32, 1024, 4

# torch is pinned exactly: any other release would be another program, and may pull gigabytes of GPU libraries.
SB3_PACKAGES = (
    "torch==2.13.0",
    "stable-baselines3>=2.9,<2.10",
    "procgen-mirror==0.10.7",
    "numpy<2",
    "gymnasium",
)


@dataclass(frozen=True)
class Work:
    """What both sides do."""

    n_steps: int  # of each environment per update
    warm_up: int  # updates that are not timed
    flags: tuple[str, ...] = ()  # of ours, beside the configuration

    @property
    def steps_per_update(self) -> int:
        """Environment steps of an update."""
        return NUM_ENVS * self.n_steps


WORK = {
    "ppo": Work(128, 1, ("--batch-size", str(BATCH_SIZE), "--n-epochs", str(N_EPOCHS))),
    "a2c": Work(5, 20, ("--gamma", "0.99", "--gae-lambda", "1.0")),
}


class CompareError(Exception):
    """Something that stops the comparison, said in one line."""


@dataclass(frozen=True)
class Run:
    """One timed training run of one side; its warm-up update is in none of the numbers but the memory."""

    side: str
    round: int
    fps: float
    updates: int
    env_steps: int
    seconds: float
    peak_memory_mb: float


def run_process(what: str, command: Sequence[str | Path]) -> str:
    """Run a command in the repository root and return its stdout; a failure becomes one line with its last words."""
    try:
        done = subprocess.run([str(part) for part in command], cwd=REPO, capture_output=True, text=True, check=False)
    except OSError as error:
        raise CompareError(f"{what} could not start: {error}") from error
    if done.returncode != 0:
        said = [line.strip() for line in (done.stderr or done.stdout).splitlines() if line.strip()]
        raise CompareError(f"{what} failed with exit status {done.returncode}: {' | '.join(said[-4:]) or 'no output'}")
    return done.stdout


def set_up_sb3(venv: Path) -> None:
    """Build the virtual environment for Stable-Baselines3, unless the one there was built from the same packages."""
    stamp = venv / "built-from.txt"
    wanted = "\n".join(SB3_PACKAGES) + "\n"
    if stamp.is_file() and stamp.read_text(encoding="utf-8") == wanted:
        return
    print(f"building {venv} (once, some minutes) ...", flush=True)
    run_process("making the SB3 virtual environment", [sys.executable, "-m", "venv", venv])
    run_process("installing SB3", [venv / "bin" / "python", "-m", "pip", "install", "--quiet", *SB3_PACKAGES])
    # Written last, so that a build that broke off is taken up again.
    stamp.write_text(wanted, encoding="utf-8")


def last_json_line(what: str, text: str) -> dict[str, Any]:
    """The JSON object on the last line of `text`; libraries may have printed anything before it."""
    lines = text.strip().splitlines()
    try:
        found = json.loads(lines[-1]) if lines else None
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise CompareError(f"{what} printed no JSON line")
    return found


def run_sb3(venv: Path, algorithm: str, updates: int, number: int) -> tuple[Run, dict[str, str]]:
    """Train once with Stable-Baselines3; the run, and the versions and threads it ran with."""
    what = f"SB3 run of round {number}"
    command = [str(venv / "bin" / "python"), str(WORKER), algorithm]
    command += ["--updates", str(updates), "--seed", str(number)]
    found = last_json_line(what, run_process(what, command))
    numbers = {key: found[key] for key in ("fps", "updates", "env_steps", "seconds", "peak_memory_mb")}
    return Run(side="sb3", round=number, **numbers), found["versions"] | {"torch threads": str(found["threads"])}


def run_ours(algorithm: str, updates: int, number: int, workers: int) -> Run:
    """Train once with this program, with no workers sequentially, into a folder that is thrown away."""
    work, mode = WORK[algorithm], "parallel" if workers else "sequential"
    with tempfile.TemporaryDirectory(prefix="rlcb-compare-") as folder:
        command = [str(OUR_PYTHON), "-m", "rlcb", "train", algorithm, "--mode", mode]
        command += ["--num-workers", str(workers)] if workers else []
        command += ["--config", f"config/{algorithm}_sequential.yaml", *work.flags]
        command += ["--total-timesteps", str((updates + work.warm_up) * work.steps_per_update)]
        command += ["--num-envs", str(NUM_ENVS // (workers or 1)), "--n-steps", str(work.n_steps)]
        command += ["--seed", str(number), "--output-dir", folder]
        run_process(f"rlcb run of round {number}", command)
        return read_our_run(Path(folder), algorithm, updates, number, mode)


def read_our_run(folder: Path, algorithm: str, updates: int, number: int, side: str) -> Run:
    """The speed and memory of one finished run of this program, from the files it left in `folder`."""
    work = WORK[algorithm]
    log = folder / "logs" / f"{algorithm.upper()}_{side.capitalize()}" / "metrics.jsonl"
    try:
        lines = log.read_text(encoding="utf-8").splitlines()
        marks = [(int(row["step"]), float(row["time"])) for row in map(json.loads, filter(str.strip, lines))]
        usage = json.loads((folder / "benchmark_metrics.json").read_text(encoding="utf-8"))["resource_usage"]
        peak_memory_mb = float(usage["peak_rss_gb"]) * 1024  # RSS, which is what is known of the other side
    except (OSError, KeyError, ValueError, TypeError) as error:
        raise CompareError(f"rlcb run of round {number} left unreadable results: {error!r}") from error
    expected = [work.steps_per_update * (index + 1) for index in range(updates + work.warm_up)]
    if [step for step, _ in marks] != expected:
        # Another number of steps would be other work, and its speed no comparison.
        raise CompareError(
            f"rlcb run of round {number} logged {len(marks)} updates to step {marks[-1][0]}, "
            f"expected {len(expected)} to step {expected[-1]}"
        )
    marks = marks[work.warm_up - 1 :]
    seconds = marks[-1][1] - marks[0][1]
    if seconds <= 0:
        raise CompareError(f"rlcb run of round {number} logged no time between its updates")
    env_steps = marks[-1][0] - marks[0][0]
    return Run(side, number, env_steps / seconds, updates, env_steps, seconds, peak_memory_mb)


def describe_machine() -> dict[str, str]:
    """What the numbers depend on: CPU model, usable cores, system and this program's torch."""
    cpu = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            cpu = next(line.split(":", 1)[1].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        pass  # not Linux, or a CPU that says no model: the short name is all there is
    # Affinity, not the number of cores in the box: a container may be allowed only some of them.
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    ask = "from importlib.metadata import version; print(version('torch'))"
    torch = run_process("asking for rlcb's torch version", [OUR_PYTHON, "-c", ask]).strip()
    return {"cpu": cpu, "usable_cores": str(cores), "system": platform.platform(), "rlcb_torch": torch}


def measure(venv: Path, algorithm: str, rounds: int, updates: int, workers: int) -> tuple[list[Run], dict[str, str]]:
    """Run all sides `rounds` times in turn and print a line per run; the runs and SB3's versions."""
    runs: list[Run] = []
    versions: dict[str, str] = {}
    for number in range(1, rounds + 1):
        # The order swaps every round, so that a machine that slows down as it warms up favours neither side.
        sides = ("sequential", "parallel", "sb3") if workers else ("sequential", "sb3")
        for side in sides if number % 2 else reversed(sides):
            if side != "sb3":
                run = run_ours(algorithm, updates, number, workers if side == "parallel" else 0)
            else:
                run, versions = run_sb3(venv, algorithm, updates, number)
            runs.append(run)
            print(
                f"round {number}  {side:<10}  {run.fps:8.1f} fps  {run.env_steps} steps in {run.seconds:.1f} s  "
                f"peak {run.peak_memory_mb:.0f} MB RSS",
                flush=True,
            )
    return runs, versions


def summarise(runs: Sequence[Run]) -> dict[str, Any]:
    """Medians of all sides, and of every round the ratio of each of our sides to SB3."""
    sides = {side: [run for run in runs if run.side == side] for side in dict.fromkeys(run.side for run in runs)}
    fps = {side: {run.round: run.fps for run in found} for side, found in sides.items()}
    ratios = {
        side: [fps[side][number] / fps["sb3"][number] for number in sorted(fps[side])] for side in fps if side != "sb3"
    }
    return {
        "median_fps": {side: median(run.fps for run in found) for side, found in sides.items()},
        "peak_memory_mb": {side: max(run.peak_memory_mb for run in found) for side, found in sides.items()},
        "ratios_to_sb3": ratios,
        "median_ratio": {side: median(found) for side, found in ratios.items()},
    }


def print_table(summary: dict[str, Any], machine: dict[str, str], versions: dict[str, str]) -> None:
    """Print the comparison for a person."""
    print(f"\n{'side':<12}{'median fps':>12}{'peak MB':>10}   fps / SB3 fps: median, and of each round")
    for side, fps in summary["median_fps"].items():
        line = f"{side:<12}{fps:>12.1f}{summary['peak_memory_mb'][side]:>10.0f}"
        if side in summary["median_ratio"]:
            each = "  ".join(f"{ratio:.2f}" for ratio in summary["ratios_to_sb3"][side])
            line += f"   {summary['median_ratio'][side]:.2f}   ({each})"
        print(line)
    print(f"machine: {machine['cpu']}, {machine['usable_cores']} usable cores, {machine['system']}")
    print(
        f"torch: {machine['rlcb_torch']}; SB3's side: {', '.join(f'{name} {text}' for name, text in versions.items())}"
    )


def positive(text: str) -> int:
    """A whole number from 1 on, for argparse."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return number


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the comparison; the exit status."""
    parser = argparse.ArgumentParser(description="Time this program against Stable-Baselines3, interleaved.")
    parser.add_argument("--algorithm", choices=tuple(WORK), default="ppo", help="what to train (default: ppo)")
    parser.add_argument("--rounds", type=positive, default=4, help="runs of each side (default: 4)")
    parser.add_argument("--updates", type=positive, default=6, help="timed updates in a run (default: 6)")
    parser.add_argument("--workers", type=int, default=0, help="also run in parallel with this many (default: not)")
    parser.add_argument("--output", type=Path, help="also write everything to this JSON file")
    parser.add_argument("--venv", type=Path, default=REPO / ".venv-sb3", help="SB3's environment (default: .venv-sb3)")
    parser.add_argument("--skip-setup", action="store_true", help="use SB3's environment as it is, never build it")
    options = parser.parse_args(arguments)
    venv = options.venv.absolute()  # not resolve(): nothing inside a virtual environment may be followed out of it
    try:
        if options.output:
            options.output.parent.mkdir(parents=True, exist_ok=True)  # before the minutes of measuring, not after
        if not options.skip_setup:
            set_up_sb3(venv)
        machine = describe_machine()
        runs, versions = measure(venv, options.algorithm, options.rounds, options.updates, options.workers)
    except (CompareError, OSError) as error:
        print(f"compare_sb3: {error}", file=sys.stderr)
        return 1
    summary = summarise(runs)
    print_table(summary, machine, versions)
    if options.output:
        report = {"summary": summary, "machine": machine, "sb3": versions, "runs": [asdict(run) for run in runs]}
        options.output.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
