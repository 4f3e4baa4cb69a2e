"""Runs the same short fixed-seed trainings with an earlier commit and with this tree, and compares them bit for bit.

usage: .venv/bin/python scripts/golden.py BASE [--only WORD] [--python PYTHON]

If that commit needs other packages than this tree, it runs in an environment of its own (.venv-golden-…), made once
from its own pyproject.toml and constraints.txt, with the torch of this one.

Everything that is deterministic must match: weights, optimizer state and every metric that is not a time or a
measurement of resources. Nothing is stored: rounding depends on the processor, so both sides run here, now.
"""

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parent.parent
PROCGEN = ("--env", "coinrun", "--n-steps", "32", "--log-interval", "1000", "--num-threads", "1")
CARTPOLE = ("--env", "CartPole-v1", "--n-steps", "64", "--log-interval", "1000", "--num-threads", "1")
SEQUENTIAL, ONE, TWO = (
    ("--num-envs", "8"),
    ("--num-workers", "1", "--num-envs", "8"),
    ("--num-workers", "2", "--num-envs", "4"),
)
MINIBATCHES = ("--batch-size", "64")
STEPS = ("--total-timesteps", "2048")
# name → (algorithm, mode, flags)
CASES = {
    "ppo_sequential_coinrun": ("ppo", "sequential", (*PROCGEN, *SEQUENTIAL, *MINIBATCHES, "--total-timesteps", "1024")),
    "ppo_sequential_cartpole": ("ppo", "sequential", (*CARTPOLE, *SEQUENTIAL, *MINIBATCHES, *STEPS)),
    "ppo_linear_micro": (
        "ppo", "sequential",
        (*CARTPOLE, *SEQUENTIAL, *MINIBATCHES, *STEPS, "--lr-schedule", "linear", "--micro-batch-size", "16"),
    ),
    "ppo_one_worker": ("ppo", "parallel", (*CARTPOLE, *ONE, *MINIBATCHES, *STEPS)),
    "ppo_two_workers": ("ppo", "parallel", (*PROCGEN, *TWO, *MINIBATCHES, "--total-timesteps", "1024")),
    "ppo_two_workers_gloo": ("ppo", "parallel", (*CARTPOLE, *TWO, *MINIBATCHES, *STEPS, "--backend", "gloo")),
    "ppo_two_workers_ray": ("ppo", "parallel", (*CARTPOLE, *TWO, *MINIBATCHES, *STEPS, "--cluster", "local")),
    "a2c_sequential": ("a2c", "sequential", (*CARTPOLE, *SEQUENTIAL, *STEPS)),
    "a2c_one_worker": ("a2c", "parallel", (*CARTPOLE, *ONE, *STEPS)),
    "a2c_two_workers": ("a2c", "parallel", (*CARTPOLE, *TWO, *STEPS)),
    "a2c_two_workers_gloo": ("a2c", "parallel", (*CARTPOLE, *TWO, *STEPS, "--backend", "gloo")),
    "impala_sequential_coinrun": (
        "impala", "sequential", (*PROCGEN, *SEQUENTIAL, *MINIBATCHES, "--total-timesteps", "1024"),
    ),
    "impala_sequential_cartpole": ("impala", "sequential", (*CARTPOLE, *SEQUENTIAL, *MINIBATCHES, *STEPS)),
    "a3c_one_worker": ("a3c", "parallel", (*CARTPOLE, *ONE, *STEPS)),
}  # fmt: skip
MEASURED = ("time", "resource/", "rollout/queue", "queue/")  # metrics that no two runs share


def main() -> int:
    """Run all cases on both sides; exit code 1 if any differs."""
    parser = argparse.ArgumentParser(description="Compare fixed-seed results with an earlier commit's, bit for bit.")
    parser.add_argument("base", help="the commit to compare with")
    parser.add_argument("--only", default="", metavar="WORD", help="only the cases whose name holds this")
    parser.add_argument("--python", default=sys.executable, help="the interpreter of that commit's environment")
    arguments = parser.parse_args()
    different = []
    with tempfile.TemporaryDirectory(prefix="rlcb-golden-") as folder, ThreadPoolExecutor(2) as beside:
        base = Path(folder) / "tree"
        git = ["git", "-C", str(ROOT), "worktree"]
        subprocess.run([*git, "add", "--quiet", "--detach", str(base), arguments.base], check=True)
        try:
            pythons = {base: environment_of(base, arguments.python), ROOT: sys.executable}
            for name in (name for name in CASES if arguments.only in name):
                sides = [(base, Path(folder) / "then" / name), (ROOT, Path(folder) / "now" / name)]
                then, now = beside.map(lambda side, name=name: train(*side, name, pythons[side[0]]), sides)
                problem = difference(then, now)
                print(
                    f"{'identical' if problem is None else 'DIFFERENT'}  {name}{f': {problem}' if problem else ''}",
                    flush=True,
                )
                different += [name] if problem else []
        finally:
            subprocess.run([*git, "remove", "--force", str(base)], check=True)
    print(f"{len(different)} of {len(CASES)} cases differ" if different else "all identical")
    return 1 if different else 0


def environment_of(tree: Path, python: str) -> str:
    """An interpreter with the packages that a tree asks for: this one, or that of an environment made for it."""
    wanted, here = (folder.joinpath("pyproject.toml").read_text() for folder in (tree, ROOT))
    pins, pins_here = (folder.joinpath("constraints.txt").read_text() for folder in (tree, ROOT))
    if (wanted, pins) == (here, pins_here):
        return sys.executable
    torch_here = f"torch=={version('torch')}"
    digest = hashlib.sha256("\n".join((wanted, pins, torch_here, str(Path(python).resolve()))).encode()).hexdigest()
    environment = ROOT / f".venv-golden-{digest[:8]}"
    inside, complete = environment / "bin/python", environment / ".installed"
    if not complete.exists():
        print(f"making {environment.name} for the packages of the earlier commit", flush=True)
        subprocess.run([python, "-m", "venv", "--clear", str(environment)], check=True)
        constraints = environment / "constraints.txt"
        constraints.write_text("".join(line for line in pins.splitlines(True) if not line.startswith("torch==")))
        install = [str(inside), "-m", "pip", "--disable-pip-version-check", "install", "-c", str(constraints)]
        alone = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        subprocess.run([*install, f"{tree}[cluster]", torch_here], env=alone, check=True)
        complete.touch()
    return str(inside)


def train(tree: Path, output: Path, name: str, python: str) -> Path:
    """Train half a case and the other half after a resume, with the code of one tree; returns the run's directory."""
    algorithm, mode, flags = CASES[name]
    steps = int(flags[flags.index("--total-timesteps") + 1])
    command = [python, "-m", "rlcb", "train"]
    first = [algorithm, "--mode", mode, *flags, "--total-timesteps", str(steps // 2), "--output-dir", str(output)]
    second = ["--resume", str(output), "--total-timesteps", str(steps)]
    for words in (first, second):
        environment = {**os.environ, "PYTHONPATH": str(tree / "src")}
        done = subprocess.run(
            [*command, *words], cwd=tree, env=environment, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise SystemExit(f"{name} failed with the code in {tree}:\n{done.stderr}")
    return output


def difference(then: Path, now: Path) -> str | None:
    """What differs between two runs' final checkpoints and histories, or None."""
    (before,), (after,) = (
        [torch.load(path, weights_only=True) for path in run.glob("checkpoints/*_final.pt")] for run in (then, now)
    )
    for section in ("policy", "optimizer"):
        if before[section].keys() != after[section].keys():
            return f"{section} has other entries"
        for name, tensor in before[section].items():
            if tensor.numpy().tobytes() != after[section][name].numpy().tobytes():
                return f"{section} {name}: up to {(tensor - after[section][name]).abs().max().item():.3g} apart"
    old, new = history(then), history(now)
    if len(old) != len(new):
        return f"{len(old)} updates, now {len(new)}"
    for one, other in zip(old, new, strict=True):
        changed = [name for name, value in one.items() if other.get(name) != value]
        if changed:
            return f"update {one['update']}: {changed[0]} was {one[changed[0]]}, is {other.get(changed[0])}"
    return None


def history(run: Path) -> list[dict[str, object]]:
    """The run's metrics without those that are measured."""
    (path,) = run.glob("logs/*/metrics.jsonl")
    lines = (json.loads(line) for line in path.read_text().splitlines())
    return [{name: value for name, value in line.items() if not name.startswith(MEASURED)} for line in lines]


if __name__ == "__main__":
    sys.exit(main())
