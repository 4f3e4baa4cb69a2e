"""Runs that version 0.1.0 left behind resume and evaluate: see tests/fixtures/README.md."""

import json
import shutil
from pathlib import Path

import pytest

from helpers.processes import ROOT, rlcb

FIXTURES = ROOT / "tests" / "fixtures"
RUNS = FIXTURES / "runs"


@pytest.mark.parametrize("name", sorted(path.parents[1].name for path in RUNS.glob("*/checkpoints/*_final.pt")))
def test_a_stored_run_resumes_and_evaluates(name: str, tmp_path: Path) -> None:
    run = tmp_path / name
    shutil.copytree(RUNS / name, run)
    before = json.loads((run / "training_summary.json").read_text())
    steps = before["total_timesteps"] + 1024
    done = rlcb("train", "--resume", run, "--total-timesteps", str(steps))
    assert done.returncode == 0, done.stderr
    assert "could not be restored" not in done.stderr
    after = json.loads((run / "training_summary.json").read_text())
    assert after["total_timesteps"] == steps
    assert after["num_episodes"] > before["num_episodes"]
    assert after["initial_reward"] == before["initial_reward"]
    done = rlcb("evaluate", "--checkpoint", run, "--num-episodes", "4")
    assert done.returncode == 0, done.stderr
