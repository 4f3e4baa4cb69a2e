"""Every algorithm learns, in each of its modes: it solves something small."""

import json
from pathlib import Path

import pytest

from helpers.learning import assert_learned
from helpers.processes import rlcb

COMMON = ("--env", "CartPole-v1", "--lr-schedule", "linear", "--num-threads", "1", "--tensorboard", "false",
          "--log-interval", "1000")  # fmt: skip
# Each of these recipes solved CartPole with ten seeds of ten, run alone.
PPO = ("--n-steps", "32", "--batch-size", "256", "--n-epochs", "10", "--learning-rate", "2e-3", "--gamma", "0.98",
       "--gae-lambda", "0.8", "--ent-coef", "0", "--normalize-rewards", "false",
       "--total-timesteps", "49152")  # fmt: skip
A2C = ("--n-steps", "8", "--learning-rate", "5e-3", "--gamma", "0.98", "--gae-lambda", "0.9",
       "--normalize-rewards", "false", "--normalize-advantages", "true", "--ent-coef", "0.01",
       "--total-timesteps", "98304")  # fmt: skip
A3C = (*A2C, "--learning-rate", "2e-3", "--total-timesteps", "131072")
IMPALA = ("--n-steps", "32", "--batch-size", "256", "--learning-rate", "3e-3", "--gamma", "0.99",
          "--gae-lambda", "0.95", "--ent-coef", "0.001", "--total-timesteps", "98304")  # fmt: skip
WORKERS = ("--mode", "parallel", "--num-workers", "2", "--num-envs")


@pytest.mark.parametrize(
    ("algorithm", "flags"),
    [
        pytest.param("ppo", ("--num-envs", "8", *PPO), id="ppo-sequential"),
        pytest.param("ppo", (*WORKERS, "4", *PPO), id="ppo-parallel"),
        pytest.param("a2c", ("--num-envs", "16", *A2C), id="a2c-sequential"),
        pytest.param("a2c", (*WORKERS, "8", *A2C), id="a2c-parallel"),
        pytest.param("a3c", (*WORKERS, "8", *A3C), id="a3c-parallel"),
        pytest.param("impala", ("--num-envs", "8", *IMPALA), id="impala-sequential"),
        pytest.param("impala", (*WORKERS, "4", "--num-learners", "1", *IMPALA), id="impala-parallel"),
    ],
)
def test_cartpole_is_solved(algorithm: str, flags: tuple[str, ...], tmp_path: Path) -> None:
    """The last policy keeps the pole up for at least 475 of 500 steps, in the mean of 100 episodes."""
    assert_learned(475, algorithm, (*COMMON, *flags), tmp_path, evaluated)


def evaluated(path: Path) -> float:
    """The mean return of the final policy, which is not the one that the run began with."""
    performance = json.loads((path / "benchmark_metrics.json").read_text())["performance"]
    assert performance["num_episodes"] >= 100
    assert performance["initial_reward"] < 100
    done = rlcb("evaluate", "--checkpoint", path, "--num-episodes", "100", "--num-threads", "1")
    assert done.returncode == 0, done.stderr
    (evaluation,) = (path / "checkpoints").glob("*_final_evaluation.json")
    mean: float = json.loads(evaluation.read_text())["evaluations"][0]["mean_reward"]
    return mean
