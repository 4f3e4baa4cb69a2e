"""Runs on a real GPU, where there is one: what they record, and its real failures."""

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
import yaml

from helpers.fault_runs import Start, ended, losses
from helpers.in_process import final
from helpers.processes import CARTPOLE, TINY_ROLLOUT, Finished, run, wait_for_line
from rlcb.comm.rollout_slots import lag_bound
from rlcb.run.checkpoint import load_checkpoint

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="this machine has no GPU that torch can use"),
    pytest.mark.xdist_group("gpu"),
]

# Takes all of the GPU's memory but this many bytes, says so, and keeps it until its input ends.
_HOLDER = """
import sys, torch
free, _ = torch.cuda.mem_get_info()
held = torch.empty(free - int(sys.argv[1]), dtype=torch.uint8, device="cuda")
print("held", flush=True)
sys.stdin.read()
"""
# `rlcb …` whose third update reads behind the end of a tensor on the GPU: the kernel's assertion fails.
_BREAKING = """
import sys, torch
from rlcb.cli import main
from rlcb.learner import Learner
update, count = Learner.update, 0
def updated(self, *arguments):
    global count
    count += 1
    if count == 3:
        torch.zeros(1, device="cuda")[torch.tensor([10**6], device="cuda")].sum().item()
    return update(self, *arguments)
Learner.update = updated
sys.exit(main(sys.argv[1:]))
"""


def arguments(path: Path, *more: str) -> list[str]:
    steps = ("--total-timesteps", str(4 * TINY_ROLLOUT), "--save-interval", "1", "--tensorboard", "false")
    return ["train", "ppo", *CARTPOLE, *steps, "--device", "cuda", *more, "--output-dir", str(path)]


def rlcb(*words: str) -> Finished:
    return run([sys.executable, "-m", "rlcb", *words])


def test_a_run_says_how_busy_the_gpu_was_and_the_doctor_knows_it(tmp_path: Path) -> None:
    done = rlcb(*arguments(tmp_path / "run"))
    assert done.returncode == 0, done.stderr
    name = torch.cuda.get_device_properties(0).name
    assert f"% busy, {name}, peak " in done.stdout
    usage = json.loads((tmp_path / "run" / "benchmark_metrics.json").read_text())["resource_usage"]
    assert 0 <= usage["gpu_percent"] <= 100
    assert usage["peak_gpu_in_use_gb"] > 0
    columns = json.loads((tmp_path / "run" / "metrics.json").read_text())
    assert all(0 <= value <= 100 for value in columns["resource/gpu_percent"])
    assert f"✓ GPU: {name}, " in rlcb("doctor").stdout


def test_memory_that_another_program_holds(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _HOLDER, str(64 * 2**20)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdin is not None
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        done = rlcb(*arguments(tmp_path / "run"))
        holder.stdin.close()
    done.assert_one_line_error(6, "out of memory on the GPU", "use fewer --num-envs", "nothing was saved yet")
    assert json.loads((tmp_path / "run" / "events.jsonl").read_text().splitlines()[-1])["event"] == "failed"


def test_a_kernel_that_fails(tmp_path: Path) -> None:
    path = tmp_path / "run"
    done = run([sys.executable, "-c", _BREAKING, *arguments(path)])
    assert done.returncode == 6, done.stdout + done.stderr
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("rlcb train: error: ")]
    assert "the GPU failed: CUDA error: " in line
    assert line.endswith(f"go on from the last checkpoint with: rlcb train --resume {path}")
    assert "Traceback" not in done.stderr
    assert rlcb("train", "--resume", str(path)).returncode == 0
    assert final(path).is_file()


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
    """One actor, so that the rollouts are the same up to rounding in the first update, which this is about."""
    one = (
        "--num-actors",
        "1",
        "--num-envs-per-actor",
        "8",
        "--n-steps",
        "16",
        "--batch-size",
        "64",
        "--num-learners",
        "1",
    )
    for device in ("cpu", "cuda"):
        flags = (*one, "--env", "coinrun", "--device", device, "--total-timesteps", "128", "--tensorboard", "false")
        done = rlcb("train", "impala", "--mode", "parallel", *flags, "--output-dir", str(tmp_path / device))
        assert done.returncode == 0, done.stderr
    here, there = (
        load_checkpoint(tmp_path / device / "checkpoints" / "impala_parallel_final.pt")["policy"]
        for device in ("cpu", "cuda")
    )
    for name, tensor in here.items():
        assert torch.allclose(tensor, there[name], atol=2e-4), name
