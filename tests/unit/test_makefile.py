"""The Make targets do what README and `make help` say."""

import shutil
import subprocess

import pytest

from helpers.documented import make_targets
from helpers.processes import ROOT

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
ALGORITHMS = ("", "-impala", "-a2c", "-a3c")
REQUIRED = {
    "install", "test", "check", "compare", "benchmark", "tensorboard", "docs", "clean", "evaluate",
    *(f"train{algorithm}{mode}" for algorithm in ALGORITHMS for mode in ("", "-timed", "-parallel", "-parallel-timed")),
    *(f"evaluate-{algorithm}" for algorithm in ("ppo", "impala", "a2c", "a3c")),
}  # fmt: skip


def would_run(*arguments: str) -> list[str]:
    """What `make` would run, without installing."""
    done = subprocess.run(["make", "-n", *arguments], cwd=ROOT, capture_output=True, text=True, check=True)
    return [" ".join(line.split()) for line in done.stdout.splitlines() if line != "bash scripts/setup.sh"]


def test_the_targets_exist() -> None:
    assert set(make_targets()) >= REQUIRED


@pytest.mark.parametrize("target", sorted(REQUIRED - {"install"}))
def test_a_target_first_says_what_it_does(target: str) -> None:
    first, second, *_ = would_run(target)
    assert first.startswith(r"printf '%s\n' '")
    assert not second.startswith("printf")


@pytest.mark.parametrize(
    ("target", "command"),
    [
        ("train", "train_ppo_sequential.py"),
        ("train-timed", "train_timed.py --duration 1 --output-dir ./benchmarks/sequential_1h"),
        ("train-parallel", "train_parallel_timed.py --duration 1 --output-dir ./benchmarks/parallel_1h"),
        ("train-parallel-timed", "train_parallel_timed.py --duration 1 --output-dir ./benchmarks/parallel_1h"),
        ("train-impala", "train_impala_sequential.py"),
        (
            "train-impala-timed",
            "train_impala_sequential_timed.py --duration 0.5 --output-dir ./benchmarks/impala_sequential_0.5h",
        ),
        ("train-impala-parallel", "train_impala_parallel.py"),
        (
            "train-impala-parallel-timed",
            "train_impala_parallel_timed.py --duration 0.5 --output-dir ./benchmarks/impala_parallel_0.5h",
        ),
        ("train-a2c-parallel", "-m rlcb train a2c --mode parallel"),
        (
            "train-a3c-timed",
            "-m rlcb train a3c --mode parallel --duration 1 --output-dir ./benchmarks/a3c_parallel_1h",
        ),
        ("evaluate-a2c", "evaluate_universal.py --algorithm a2c --num-episodes 100 --levels train"),
        ("compare", "compare_results.py --newest ./benchmarks --output ./benchmarks/comparison.png"),
        ("tensorboard", "-m tensorboard.main --logdir ./benchmarks --host localhost"),
    ],
)
def test_a_target_runs_the_documented_command(target: str, command: str) -> None:
    assert would_run(target)[-1] == f".venv/bin/python {command}"


def test_variables_change_what_a_target_does() -> None:
    assert would_run("train-timed", "DURATION=0.25", "ARGS=--env 'starpilot'") == [
        r"printf '%s\n' 'Training PPO sequentially on CoinRun for 0.25 hours into ./benchmarks/sequential_0.25h"
        r" (--env '\''starpilot'\'')'",
        ".venv/bin/python train_timed.py --duration 0.25 --output-dir ./benchmarks/sequential_0.25h --env 'starpilot'",
    ]
    assert "for 2 hours" in would_run("train-impala-timed", "DURATION=2")[0]
    half = would_run("train-timed", "DURATION=30m")
    assert half[-1].endswith("--duration 30m --output-dir ./benchmarks/sequential_30m")
    assert "for 30m into" in half[0]
    assert "for 1 hour into" in would_run("train-parallel")[0]
    served = would_run("tensorboard", "HOST=0.0.0.0", "PORT=7000", "LOGS=./mine")[-1]
    assert served.endswith("--logdir ./mine --host 0.0.0.0 --port 7000")
    assert "--checkpoint RUN --num-episodes 5 --levels both" in would_run(
        "evaluate", "CHECKPOINT=RUN", "EPISODES=5", "LEVELS=both"
    )[-1]  # fmt: skip
