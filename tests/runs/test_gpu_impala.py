"""IMPALA in parallel with its learner on a real GPU, where there is one."""

import json
import math
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
import yaml

from helpers.fault_runs import Start, ended, losses
from helpers.processes import Finished, run, wait_for_line
from rlcb.comm.rollout_slots import lag_bound
from rlcb.run.checkpoint import load_checkpoint

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="this machine has no GPU that torch can use"),
    pytest.mark.xdist_group("gpu"),
]


def rlcb(*words: str) -> Finished:
    return run([sys.executable, "-m", "rlcb", *words])


def impala(path: Path, *more: str) -> Finished:
    """A short parallel run of IMPALA with its learner on the GPU."""
    size = ("--num-actors", "2", "--num-envs-per-actor", "8", "--n-steps", "16", "--batch-size", "64")
    quiet = ("--tensorboard", "false", "--save-interval", "5", "--device", "cuda", "--output-dir", str(path))
    return rlcb("train", "impala", "--mode", "parallel", "--env", "coinrun", *size, *quiet, *more)


def impala_lines(path: Path) -> list[dict[str, Any]]:
    text = (path / "logs" / "IMPALA_Parallel" / "metrics.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]


@pytest.mark.parametrize(
    ("compiled", "acting"),
    [("graphs", "cpu"), ("graphs", "cuda"), ("false", "cpu"), ("false", "cuda"), ("true", "cpu")],
)
def test_impala_learns_on_the_gpu_while_actors_collect(compiled: str, acting: str, tmp_path: Path) -> None:
    path, rollout = tmp_path / "run", 16 * 16
    flags = ("--compile", compiled, "--actor-device", acting)
    done = impala(path, "--total-timesteps", str(20 * rollout), *flags)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"Device: cuda for the learner, {acting} for the actors" in done.stdout
    lines = impala_lines(path)
    assert [line["step"] for line in lines] == [rollout * (n + 1) for n in range(20)]
    assert max(line["lag/max"] for line in lines) <= lag_bound(num_slots=4, per_update=2, policy_update_frequency=1)
    assert all(math.isfinite(line["loss/total"]) and line["gradient/norm"] > 0 for line in lines)
    usage = json.loads((path / "benchmark_metrics.json").read_text())["resource_usage"]
    assert usage["peak_gpu_memory_gb"] >= usage["peak_gpu_tensors_gb"] > 0  # of the learner's process
    saved = yaml.safe_load((path / "config.yaml").read_text())
    assert (saved["hardware"]["device"], saved["parallel"]["actor_device"]) == ("cuda", acting)
    resumed = rlcb("train", "--resume", str(path), "--total-timesteps", str(25 * rollout))
    assert resumed.returncode == 0, resumed.stdout + resumed.stderr
    assert [line["update"] for line in impala_lines(path)] == list(range(1, 26))


def test_a_learner_that_is_killed_on_the_gpu_is_replaced(start: Start, tmp_path: Path) -> None:
    path = tmp_path / "run"
    size = ("--num-actors", "2", "--num-envs-per-actor", "8", "--n-steps", "16", "--batch-size", "64")
    more = ("--tensorboard", "false", "--device", "cuda", "--compile", "graphs", "--total-timesteps", str(200 * 256))
    command = ("train", "impala", "--mode", "parallel", "--env", "coinrun", *size, *more, "--output-dir", path)
    process = start(*command, fresh=True)
    wait_for_line(process, "Update 5 |")
    for child in psutil.Process(process.pid).children():
        if "learner" in child.cmdline():
            child.kill()
    ended(process, 0)
    assert losses(path) == [("learner 0", "killed by SIGKILL")]
    assert [line["update"] for line in impala_lines(path)] == list(range(1, 201))


def test_the_gpu_learner_moves_the_weights_as_the_cpu_learner(tmp_path: Path) -> None:
    """One actor, so that the rollouts are the same in the first update, which this is about.

    Without TF32, whose shorter mantissa in the GPU's convolutions would hide all but gross differences.
    """
    one = ("--num-actors", "1", "--num-envs-per-actor", "8", "--n-steps", "16", "--batch-size", "64")
    for device in ("cpu", "cuda"):
        flags = (*one, "--num-learners", "1", "--actor-device", "cpu", "--env", "coinrun", "--device", device,
                 "--total-timesteps", "128", "--tensorboard", "false")  # fmt: skip
        command = [sys.executable, "-m", "rlcb", "train", "impala", "--mode", "parallel", *flags]
        done = run([*command, "--output-dir", str(tmp_path / device)], env={"NVIDIA_TF32_OVERRIDE": "0"})
        assert done.returncode == 0, done.stderr
    here, there = (
        load_checkpoint(tmp_path / device / "checkpoints" / "impala_parallel_final.pt")["policy"]
        for device in ("cpu", "cuda")
    )
    for name, tensor in here.items():
        assert torch.allclose(tensor, there[name], atol=2e-4), name
