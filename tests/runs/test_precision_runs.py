"""Runs in bf16, by every algorithm and execution: exact as in fp32, and what `auto` decided stays decided."""

import json
import re
from pathlib import Path

import pytest

from helpers.processes import SHORT_CARTPOLE, TINY, rlcb, weights

BF16 = ("--precision", "bf16")
TWO = ("--mode", "parallel", "--num-workers", "2", "--num-envs", "4")


@pytest.mark.parametrize(
    ("algorithm", "more"),
    [
        ("ppo", TWO),
        ("ppo", (*TWO, "--backend", "gloo")),
        ("a2c", ("--num-envs", "8")),
        ("a2c", TWO),
        ("a3c", TWO),
        ("impala", ("--num-envs", "8")),
        ("impala", (*TWO, "--num-learners", "2")),
    ],
)
def test_every_execution_computes_in_bf16_and_keeps_fp32_weights(
    algorithm: str, more: tuple[str, ...], tmp_path: Path
) -> None:
    minibatches = ("--batch-size", "128") if algorithm in ("ppo", "impala") else ()
    arguments = ("train", algorithm, *SHORT_CARTPOLE, *more, *minibatches, *BF16, "--total-timesteps", "768")
    done = rlcb(*arguments, "--output-dir", tmp_path / "run")
    assert done.returncode == 0, done.stderr
    assert "Precision: bf16 in the network" in done.stdout
    metrics = json.loads((tmp_path / "run" / "benchmark_metrics.json").read_text())
    assert metrics["hardware"]["precision"] == metrics["config"]["hardware"]["precision"] == "bf16"
    (final,) = (tmp_path / "run" / "checkpoints").glob("*_final.pt")
    assert final.is_file()


def test_precision_changes_what_is_learned_and_one_worker_is_sequential_in_bf16_too(tmp_path: Path) -> None:
    common = ("train", "ppo", *SHORT_CARTPOLE, "--batch-size", "128", "--total-timesteps", "1024")
    found = {}
    for name, flags in (
        ("fp32", ("--num-envs", "8")),
        ("bf16", ("--num-envs", "8", *BF16)),
        ("worker", ("--mode", "parallel", "--num-workers", "1", "--num-envs", "8", *BF16)),
    ):
        done = rlcb(*common, *flags, "--output-dir", tmp_path / name)
        assert done.returncode == 0, done.stderr
        (final,) = (tmp_path / name / "checkpoints").glob("*_final.pt")
        found[name] = weights(final)
    assert found["worker"] == found["bf16"]
    assert found["bf16"] != found["fp32"]


def test_what_auto_decided_is_saved_and_cannot_change(tmp_path: Path) -> None:
    path = tmp_path / "run"
    common = ("--env", "CartPole-v1", *TINY, "--total-timesteps", "512")
    done = rlcb("train", "ppo", *common, "--precision", "auto", "--device", "auto", "--output-dir", path)
    assert done.returncode == 0, done.stderr
    (line,) = (line for line in done.stdout.splitlines() if re.match("Precision: .*(the faster|disturbed)", line))
    chosen = line.removeprefix("Precision: ").split(",")[0]  # fp32 where other programs used the cores meanwhile
    assert f"precision: {chosen}" in (path / "config.yaml").read_text()
    assert "device: auto" not in (path / "config.yaml").read_text()
    again = rlcb("train", "--resume", path, "--total-timesteps", "1024")
    assert again.returncode == 0, again.stderr
    assert "the faster" not in again.stdout
    assert "disturbed:" not in again.stdout  # nothing was measured again
    other = "fp32" if chosen == "bf16" else "bf16"
    rlcb("train", "--resume", path, "--precision", other).assert_one_line_error(2, "--precision", "cannot be changed")


def test_a_dry_run_measures_nothing(tmp_path: Path) -> None:
    done = rlcb("train", "ppo", "--precision", "auto", "--dry-run", "--output-dir", tmp_path / "run")
    assert done.returncode == 0, done.stderr
    assert "Precision: auto, the faster of fp32 and bf16, measured at the start" in done.stdout
