"""Speed on one GPU: the configurations for it, what compiling and bf16 gain, and a plain loop beside them.

    python perf/gpu.py                                          # the published recipe beside a plain loop
    python perf/gpu.py --cases plain before paper --before ../old   # and beside another checkout of this project
    python perf/gpu.py --cases paper_eager paper_graphs paper_fp32 paper paper_deterministic
    python perf/gpu.py --cases ppo impala impala_one_pass a2c --rounds 3
    python perf/gpu.py --cases actors_cpu actors_cuda           # IMPALA's actors on cores, or on the GPU

Runs follow each other, round by round; a run's start-up (compiling, recording) and its first seconds do not count.
Needs an NVIDIA GPU; CoinRun, easy, 200 levels throughout.
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
WARM_UP_SECONDS = 2.0
PAPER = ("ppo", "--config", "config/ppo_paper.yaml", "--device", "cuda")
FAST = ("--precision", "bf16", "--compile", "true")
IMPALA = ("impala", "--config", "config/impala_gpu.yaml", "--n-epochs", "1")
CASES = {
    "before": PAPER,
    "paper": (*PAPER, *FAST),
    "paper_fp32": (*PAPER, "--compile", "true"),
    "paper_graphs": (*PAPER, "--precision", "bf16", "--compile", "graphs"),
    "paper_eager": (*PAPER, "--precision", "bf16", "--compile", "false"),
    "paper_deterministic": (*PAPER, *FAST, "--deterministic", "true"),
    "paper_1_group": (*PAPER, *FAST, "--env-groups", "1"),
    "paper_4_groups": (*PAPER, *FAST, "--env-groups", "4"),
    "ppo": ("ppo", "--config", "config/ppo_gpu.yaml", "--compile", "true"),
    "impala": ("impala", "--config", "config/impala_gpu.yaml", "--compile", "true"),
    "impala_one_pass": (*IMPALA, "--compile", "true"),
    "a2c": ("a2c", "--config", "config/a2c_gpu.yaml", "--compile", "true"),
    "actors_cpu": (*IMPALA, "--compile", "true", "--mode", "parallel", "--actor-device", "cpu"),
    "actors_cuda": (*IMPALA, "--compile", "true", "--mode", "parallel", "--actor-device", "cuda"),
}


def speed_of(case: str, seconds: float, before: Path | None) -> tuple[float, str]:
    """Steps per second of one run, and where its time went."""
    if case == "plain":
        command = [sys.executable, str(REPO / "perf" / "plain_ppo.py"), "--seconds", str(seconds)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            return float("nan"), done.stderr.strip()[-500:]
        return float(done.stdout.split()[-1]), "one operation at a time"
    tree = before if case == "before" and before else REPO
    with tempfile.TemporaryDirectory() as folder:
        length = ("--duration", str((seconds + WARM_UP_SECONDS) / 3600), "--tensorboard", "false")
        command = [sys.executable, "-m", "rlcb", "train", *CASES[case], *length, "--log-interval", "100000"]
        environment = {**os.environ, "PYTHONPATH": f"{tree / 'src'}:{os.environ.get('PYTHONPATH', '')}"}
        done = subprocess.run(
            [*command, "--output-dir", f"{folder}/run"], cwd=REPO, env=environment, capture_output=True, text=True,
            check=False,
        )  # fmt: skip
        if done.returncode:
            return float("nan"), done.stderr.strip()[-500:]
        log = next(Path(folder).glob("run/logs/*/metrics.jsonl"))
        lines = [json.loads(line) for line in log.read_text().splitlines()]
    timed = [line for line in lines if line["time"] >= WARM_UP_SECONDS]
    first, last = timed[0], timed[-1]
    spent = [name for name in last if name.startswith("time/") and name.endswith("_seconds")]
    total = {name: sum(line[name] for line in timed[1:]) / (len(timed) - 1) for name in spent}
    words = ", ".join(f"{name[5:-8]} {1000 * value:.1f}" for name, value in total.items())
    busy = last.get("resource/gpu_percent")
    gpu = f"; GPU {busy:.0f} %" if busy is not None else ""
    return (last["step"] - first["step"]) / (last["time"] - first["time"]), f"ms per update: {words}{gpu}"


def main() -> None:
    """Measure in rounds, print each, then medians."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="+", choices=("plain", *CASES), default=["plain", "paper"], metavar="CASE")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=10.0, help="timed span of each run")
    parser.add_argument("--before", type=Path, help="another checkout, for the case `before`")
    arguments = parser.parse_args()
    found: dict[str, list[float]] = {case: [] for case in arguments.cases}
    for number in range(arguments.rounds):
        for case in arguments.cases if number % 2 == 0 else reversed(arguments.cases):
            speed, words = speed_of(case, arguments.seconds, arguments.before)
            found[case].append(speed)
            print(f"round {number + 1}  {case:20} {speed:9,.0f} FPS  {words}", flush=True)
    base = arguments.cases[0]
    print(f"\n| case | FPS, median (min–max) | × {base}, median of pairs |\n|---|---|---|")
    for case, speeds in found.items():
        ratio = median(one / other for one, other in zip(speeds, found[base], strict=True))
        print(f"| {case} | {median(speeds):,.0f} ({min(speeds):,.0f}–{max(speeds):,.0f}) | {ratio:.2f} |")


if __name__ == "__main__":
    main()
