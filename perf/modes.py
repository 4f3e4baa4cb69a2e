"""Parallel beside sequential for any algorithm: the same work, interleaved, as ratios within one run.

    python perf/modes.py impala --rounds 4 --seconds 12 --divisions 1x2 2x1 2x2
    python perf/modes.py a2c --rounds 4 --seconds 12 --divisions 2
    python perf/modes.py ppo --base 2+gloo --divisions 2+ray        # what a cluster costs, on this machine alone
    python perf/modes.py a2c --divisions sequential+bf16 2 2+bf16   # what bf16 gains
    python perf/modes.py ppo --shipped --divisions auto 1 2         # config/ppo_parallel.yaml as it is

The work: Procgen CoinRun, easy, 200 levels, 32 environments in all (or --envs), Nature CNN, fp32, CPU, and
W1 (ppo): 128 steps, 4 epochs of minibatches of 1024; W3 (impala): 128 steps, one pass in minibatches of 1024;
W4 (a2c, a3c): 5 steps, RMSProp; with --shipped that of the files in config/. A division is a number of workers, for
IMPALA ACTORSxLEARNERS, or auto; with +gloo gradients are exchanged over sockets, with +ray the workers are on a
cluster of this machine alone, with +bf16 the network computes in bf16. Sequential gets all cores as threads (A3C is
measured beside sequential A2C). The first updates of each run are warm-up.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

REPO = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPO / "src"))

from rlcb.hardware import cpu_model, usable_cpus  # noqa: E402

WORK = {
    "ppo": ("--n-steps", "128", "--batch-size", "1024", "--n-epochs", "4"),
    "impala": ("--n-steps", "128", "--batch-size", "1024", "--n-epochs", "1"),
    "a2c": ("--n-steps", "5"),
    "a3c": ("--n-steps", "5"),
}
ENVS, WARM_UP_SECONDS = 32, 3.0
EXTRAS = {"gloo": ["--backend", "gloo"], "ray": ["--cluster", "local"], "bf16": ["--precision", "bf16"]}


def flags_of(algorithm: str, division: str, envs: int) -> list[str]:
    """How to start a division; `sequential` is one too."""
    division, *words = division.split("+")
    extras = [flag for word in words for flag in EXTRAS[word]]
    if division == "sequential":
        return ["a2c" if algorithm == "a3c" else algorithm, "--mode", "sequential", "--num-envs", str(envs), *extras]
    if division == "auto":
        return [algorithm, "--mode", "parallel", "--num-workers", "auto", *extras]
    workers, _, learners = division.partition("x")
    flags = [algorithm, "--mode", "parallel", "--num-workers", workers, "--num-envs-per-worker"]
    return [*flags, str(envs // int(workers)), *(["--num-learners", learners] if learners else []), *extras]


def run_once(
    algorithm: str, division: str, seconds: float, tree: Path = REPO, envs: int = ENVS, shipped: bool = False
) -> tuple[float, float]:
    """One run with the code in a tree: its speed after the warm-up, and the share of the cores that it kept busy."""
    work = () if shipped else WORK[algorithm]
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "rlcb", "train", *flags_of(algorithm, division, envs), *work]
        command += ["--duration", str((seconds + WARM_UP_SECONDS) / 3600), "--tensorboard", "false"]
        command += ["--log-interval", "100000", "--output-dir", f"{folder}/run"]
        environment = {**os.environ, "PYTHONPATH": f"{tree / 'src'}:{os.environ.get('PYTHONPATH', '')}"}
        done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(f"{division} failed: {done.stderr.strip()[-2000:]}")
        log = next(Path(folder).glob("run/logs/*/metrics.jsonl"))
        lines = [json.loads(line) for line in log.read_text().splitlines()]
    timed = [line for line in lines if line["time"] >= WARM_UP_SECONDS]
    first, last = timed[0], timed[-1]
    elapsed = last["time"] - first["time"]
    busy = [line["resource/cpu_percent"] for line in timed[1:]]
    return (last["step"] - first["step"]) / elapsed, sum(busy) / len(busy)


def main() -> None:
    """Measure in rounds, print each, then medians and ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("algorithm", choices=tuple(WORK))
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=12.0, help="timed span of each run")
    parser.add_argument("--divisions", nargs="+", required=True, metavar="N", help="workers, or ACTORSxLEARNERS")
    parser.add_argument("--envs", type=int, default=ENVS, metavar="N", help="environments in all")
    parser.add_argument("--shipped", action="store_true", help="the work of config/<algorithm>_<mode>.yaml")
    parser.add_argument("--base", default="sequential", metavar="N", help="what the others are measured beside")
    arguments = parser.parse_args()
    todo = [arguments.base, *arguments.divisions]
    found: dict[str, list[tuple[float, float]]] = {division: [] for division in todo}
    for number in range(arguments.rounds):
        for division in todo if number % 2 == 0 else reversed(todo):
            how = {"envs": arguments.envs, "shipped": arguments.shipped}
            found[division].append(run_once(arguments.algorithm, division, arguments.seconds, **how))
            print(f"round {number + 1}  {division:12} {found[division][-1][0]:8,.0f} FPS", flush=True)
    print(f"\n{arguments.algorithm}, {cpu_model()}, {usable_cpus()} usable cores\n")
    print(
        f"| division | FPS, median (min–max) | × {arguments.base}, median of pairs (min–max) | CPU |\n|---|---|---|---|"
    )
    for division, runs in found.items():
        speeds, busy = [run[0] for run in runs], median(run[1] for run in runs)
        ratios = [run[0] / base[0] for run, base in zip(runs, found[arguments.base], strict=True)]
        spread = f"{median(ratios):.2f} ({min(ratios):.2f}–{max(ratios):.2f})"
        print(
            f"| {division} | {median(speeds):,.0f} ({min(speeds):,.0f}–{max(speeds):,.0f}) | {spread} | {busy:.0f} % |"
        )


if __name__ == "__main__":
    main()
