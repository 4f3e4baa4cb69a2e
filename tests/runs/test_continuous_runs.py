"""Trainings with continuous actions and scaled observations: they learn, resume exactly and are evaluated."""

import json
import shutil
from pathlib import Path

import pytest

from helpers.a2c_runs import learned as learned_by_a2c
from helpers.equal_runs import FINAL, assert_equal_runs
from helpers.killed_runs import Start, assert_killed_is_whole
from helpers.learning import assert_learned
from helpers.processes import rlcb
from rlcb.run.checkpoint import load_checkpoint

PENDULUM = ("--env", "Pendulum-v1", "--num-threads", "1", "--tensorboard", "false", "--normalize-observations", "true")
SMALL = (*PENDULUM, "--num-envs", "4", "--n-steps", "64", "--batch-size", "64", "--n-epochs", "2",
         "--lr-schedule", "constant")  # fmt: skip
ROLLOUT = 4 * 64


def evaluated(path: Path, *flags: str) -> float:
    """The mean return of the final policy."""
    done = rlcb("evaluate", "--checkpoint", path, "--num-episodes", "50", "--num-threads", "1", *flags)
    assert done.returncode == 0, done.stderr
    assert "Action dimensions: 1" in done.stdout
    (file,) = (path / "checkpoints").glob("*_final_evaluation.json")
    mean: float = json.loads(file.read_text())["evaluations"][-1]["mean_reward"]
    return mean


def test_ppo_solves_pendulum(tmp_path: Path) -> None:
    path = tmp_path / "run"
    done = rlcb("train", "ppo", "--config", "config/ppo_pendulum.yaml", "--output-dir", path, timeout=900)
    assert done.returncode == 0, done.stderr
    performance = json.loads((path / "benchmark_metrics.json").read_text())["performance"]
    assert performance["initial_reward"] < -700
    assert evaluated(path) >= -250
    assert evaluated(path, "--deterministic") >= -250


# Resuming


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_half_and_half_is_the_whole(precision: str, tmp_path: Path) -> None:
    arguments = ("train", "ppo", *SMALL, "--precision", precision)
    whole, half = tmp_path / "whole", tmp_path / "half"
    assert rlcb(*arguments, "--total-timesteps", str(8 * ROLLOUT), "--output-dir", whole).returncode == 0
    assert rlcb(*arguments, "--total-timesteps", str(4 * ROLLOUT), "--output-dir", half).returncode == 0
    done = rlcb("train", "--resume", half, "--total-timesteps", str(8 * ROLLOUT))
    assert done.returncode == 0, done.stderr
    assert_equal_runs(whole, half)
    assert load_checkpoint(half / FINAL)["policy"]["count"].item() == 8 * ROLLOUT


@pytest.mark.parametrize("mode", ["sequential", "parallel"])
def test_a_killed_run_goes_on_as_if_nothing_had_happened(start: Start, tmp_path: Path, mode: str) -> None:
    workers = ("--mode", "parallel", "--num-workers", "2", "--num-envs", "2") if mode == "parallel" else ()
    first, _, _ = assert_killed_is_whole(start, tmp_path, (*SMALL, *workers), ROLLOUT, 8 * ROLLOUT)
    assert first["policy"]["count"].item() == 8 * ROLLOUT


def test_one_worker_of_a3c_is_a2c(tmp_path: Path) -> None:
    flags = (*PENDULUM, "--num-envs", "4", "--n-steps", "16", "--learning-rate", "7e-4",
             "--total-timesteps", "1280")  # fmt: skip
    runs = {"a2c": (), "a3c": ("--mode", "parallel", "--num-workers", "1")}
    for algorithm, more in runs.items():
        done = rlcb("train", algorithm, *flags, *more, "--output-dir", tmp_path / algorithm)
        assert done.returncode == 0, done.stderr
    weights, history, *_ = learned_by_a2c(tmp_path / "a2c")
    others, lines, *_ = learned_by_a2c(tmp_path / "a3c")
    assert weights == others
    assert [line["loss/total"] for line in history] == [line["loss/total"] for line in lines]


# Refusals


def test_pictures_are_refused_before_anything_starts(tmp_path: Path) -> None:
    for more in ((), ("--dry-run",)):
        flags = ("--env", "coinrun", "--normalize-observations", "true", "--output-dir", tmp_path / "run", *more)
        rlcb("train", "ppo", *flags).assert_one_line_error(2, "normalize_observations", "images")
        shutil.rmtree(tmp_path / "run", ignore_errors=True)


def test_a_policy_does_not_fit_another_kind_of_actions(tmp_path: Path) -> None:
    path = tmp_path / "run"
    assert rlcb("train", "ppo", *SMALL, "--total-timesteps", str(ROLLOUT), "--output-dir", path).returncode == 0
    done = rlcb("evaluate", "--checkpoint", path, "--env", "CartPole-v1", "--num-episodes", "1")
    done.assert_one_line_error(5, "actions of 1 number", "2 actions")


# Learning: in MountainCarContinuous every push costs, so policies first learn to push less


CAR = ("--env", "MountainCarContinuous-v0", "--num-threads", "1", "--tensorboard", "false", "--log-interval", "1000",
       "--gamma", "0.9", "--ent-coef", "0", "--normalize-observations", "true",
       "--total-timesteps", "40000")  # fmt: skip
WORKERS = ("--mode", "parallel", "--num-workers", "2", "--num-envs", "4")
PPO = ("--n-steps", "128", "--batch-size", "256", "--learning-rate", "3e-3")
A2C = ("--n-steps", "16", "--learning-rate", "5e-3", "--lr-schedule", "constant")
IMPALA = ("--n-steps", "32", "--batch-size", "128", "--learning-rate", "5e-3")
SLOWLY = ("--learning-rate", "2e-3", "--total-timesteps", "60000")


@pytest.mark.parametrize(
    ("algorithm", "flags"),
    [
        pytest.param("ppo", ("--num-envs", "8", *PPO), id="ppo-sequential"),
        pytest.param("ppo", (*WORKERS, *PPO), id="ppo-parallel"),
        pytest.param("a2c", ("--num-envs", "8", *A2C), id="a2c-sequential"),
        pytest.param("a2c", (*WORKERS, *A2C), id="a2c-parallel"),
        pytest.param("a3c", (*WORKERS, *A2C), id="a3c-parallel"),
        pytest.param("impala", ("--num-envs", "8", *IMPALA), id="impala-sequential"),
        # Which rollouts are learned from together differs from run to run: with 5e-3 a few runs diverge.
        pytest.param("impala", (*WORKERS, "--num-learners", "1", *IMPALA, *SLOWLY), id="impala-parallel"),
    ],
)
def test_every_algorithm_learns(algorithm: str, flags: tuple[str, ...], tmp_path: Path) -> None:
    """A policy as it begins pays about 45 per episode for its pushes; the trained one a third of that or less."""
    assert_learned(-15, algorithm, (*CAR, *flags), tmp_path, evaluated)
