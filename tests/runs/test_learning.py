"""The algorithm learns: it solves something small."""

import json
from pathlib import Path

from helpers.processes import rlcb

CARTPOLE_RECIPE = (
    "--env", "CartPole-v1", "--num-envs", "8", "--n-steps", "128", "--batch-size", "256", "--n-epochs", "10",
    "--learning-rate", "1e-3", "--lr-schedule", "linear", "--gamma", "0.99", "--ent-coef", "0",
    "--normalize-rewards", "false", "--num-threads", "1", "--log-interval", "1000",
)  # fmt: skip


def test_ppo_solves_cartpole(tmp_path: Path) -> None:
    done = rlcb("train", "ppo", *CARTPOLE_RECIPE, "--total-timesteps", "196608", "--output-dir", tmp_path / "run")
    assert done.returncode == 0, done.stderr
    performance = json.loads((tmp_path / "run" / "benchmark_metrics.json").read_text())["performance"]
    assert performance["num_episodes"] >= 100
    assert performance["final_reward"] >= 475
    assert performance["initial_reward"] < 100
