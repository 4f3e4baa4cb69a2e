"""Real runs compared, from end to end."""

import json
from pathlib import Path
from typing import Any

from helpers.processes import CARTPOLE, python, rlcb
from helpers.run_directories import log_of, write_run

PARALLEL: dict[str, Any] = {"mode": "parallel", "workers": 4, "threads": 2, "fps": 2100.0, "rewards": (3.0, 9.0)}


def assert_real(made: Any, real: Any, where: str) -> None:
    """Every key of a made-up file is in the real one, with the same kind of value."""
    if isinstance(made, dict):
        assert isinstance(real, dict), where
        for key, value in made.items():
            assert key in real, f"{where}: {key}"
            assert_real(value, real[key], f"{where}: {key}")
    elif made is not None and real is not None:
        kind = int | float if isinstance(made, int | float) else type(made)
        assert isinstance(real, kind), where


def test_real_runs_from_end_to_end(tmp_path: Path) -> None:
    for mode, more in (("sequential", ()), ("parallel", ("--num-workers", "2", "--num-envs", "4"))):
        arguments = (*CARTPOLE, *more, "--total-timesteps", "2048", "--output-dir", tmp_path / mode)
        done = rlcb("train", "ppo", "--mode", mode, *arguments)
        assert done.returncode == 0, done.stderr
    made = write_run(tmp_path / "made" / "run", **PARALLEL)
    real = tmp_path / "parallel"
    for name in ("benchmark_metrics.json", "training_summary.json", "run.json"):
        assert_real(*(json.loads((path / name).read_text()) for path in (made, real)), name)
    assert_real(*(json.loads(log_of(path).read_text().splitlines()[0]) for path in (made, real)), "metrics.jsonl")
    done = rlcb("compare", tmp_path, tmp_path / "gone", "--output", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert "PPO Parallel (2 workers)" in done.stdout
    assert "CartPole-v1, 2,048 steps" in done.stdout
    assert "different environment: coinrun instead of CartPole-v1" in done.stdout
    folders = ("--sequential", str(tmp_path / "sequential"), "--parallel", str(real))
    done = python("compare_results.py", *folders, "--output", str(tmp_path / "two.png"))
    assert done.returncode == 0, done.stderr
    assert "Speedup (Parallel/Sequential)" in done.stdout
    assert (tmp_path / "two.png").stat().st_size > 20_000
    rlcb("compare", tmp_path / "gone").assert_one_line_error(2, "no usable run")
    rlcb("compare", real, "--reward-threshold", "nan").assert_one_line_error(2, "'nan' is not a number")
