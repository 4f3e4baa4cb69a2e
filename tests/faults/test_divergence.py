"""A learning rate that is far too high ends every algorithm in every mode with exit code 3 and a finite checkpoint."""

import json
from pathlib import Path

import pytest
import torch

from helpers.in_process import rlcb_here
from helpers.processes import SHORT_CARTPOLE, Finished, rlcb
from rlcb.run.checkpoint import load_newest

pytestmark = pytest.mark.xdist_group("divergence")

SMALL = (*SHORT_CARTPOLE, "--save-interval", "1")
TWO = ("--mode", "parallel", "--num-workers", "2", "--num-envs", "2")


def check(done: Finished, path: Path, algorithm: str) -> None:
    done.assert_one_line_error(3, "diverged", "not finite", "lower learning rate")
    content = load_newest(path / "checkpoints", algorithm, pytest.fail)[1]
    assert all(torch.isfinite(tensor).all() for tensor in content["policy"].values())
    assert json.loads((path / "training_summary.json").read_text())["status"] == "diverged"
    assert "is lost" not in done.stderr


@pytest.mark.parametrize("algorithm", ["ppo", "a2c", "impala"])
@pytest.mark.parametrize("rate", ["1e300", "1e39", "1e38"])
def test_in_one_process(algorithm: str, rate: str, tmp_path: Path) -> None:
    more = ("--num-envs", "4", "--total-timesteps", "8192", "--learning-rate", rate, "--output-dir", tmp_path / "run")
    check(rlcb_here("train", algorithm, *SMALL, *more), tmp_path / "run", algorithm)


@pytest.mark.parametrize("rate", ["1e300", "1e30"])  # weights become infinite, or first the gradients
@pytest.mark.parametrize("kind", ["ppo", "ppo --backend gloo", "a2c", "impala", "a3c"])
def test_in_workers(kind: str, rate: str, tmp_path: Path) -> None:
    algorithm, *backend = kind.split()
    more = ("--total-timesteps", "8192", "--learning-rate", rate, "--output-dir", tmp_path / "run")
    check(rlcb("train", algorithm, *backend, *SMALL, *TWO, *more), tmp_path / "run", algorithm)
