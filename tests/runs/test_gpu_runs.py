"""Runs on a real GPU, where there is one: what they record, and its real failures."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from helpers.in_process import final
from helpers.processes import CARTPOLE, TINY_ROLLOUT, Finished, run
from rlcb.envs.families import spec_of
from rlcb.execution.worker import make_policy
from rlcb.run.directory import read_run

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
from rlcb.gpu.learner import GpuLearner
update, count = GpuLearner.update, 0
def updated(self, *arguments):
    global count
    count += 1
    if count == 3:
        torch.zeros(1, device="cuda")[torch.tensor([10**6], device="cuda")].sum().item()
    return update(self, *arguments)
GpuLearner.update = updated
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
    assert line.endswith(f"resume from the last checkpoint with: rlcb train --resume {path}")
    assert "Traceback" not in done.stderr
    assert rlcb("train", "--resume", str(path)).returncode == 0
    assert final(path).is_file()


COINRUN = ("--num-envs", "16", "--n-steps", "32", "--batch-size", "128", "--network", "impala", "--precision", "bf16")


def weights_of(path: Path) -> dict[str, torch.Tensor]:
    """The final policy of a run."""
    (checkpoint,) = path.glob("checkpoints/*_final.pt")
    loaded: dict[str, torch.Tensor] = torch.load(checkpoint, map_location="cpu", weights_only=True)["policy"]
    return loaded


def coinrun(path: Path, algorithm: str, *more: str, updates: int = 6) -> list[str]:
    words = [word for word in COINRUN if algorithm != "a2c" or word not in ("--batch-size", "128")]
    length = ("--total-timesteps", str(updates * 512), "--save-interval", "2", "--tensorboard", "false")
    return ["train", algorithm, *words, *length, "--device", "cuda", *more, "--output-dir", str(path)]


@pytest.mark.parametrize("algorithm", ["ppo", "a2c", "impala"])
def test_graphs_and_compiled_kernels_give_what_single_operations_give(algorithm: str, tmp_path: Path) -> None:
    """After one update: later ones differ once rounding has changed an action."""
    found = {}
    for how in ("false", "graphs", "true"):
        done = rlcb(*coinrun(tmp_path / how, algorithm, "--compile", how, updates=1))
        assert done.returncode == 0, done.stderr
        found[how] = torch.cat([tensor.flatten() for tensor in weights_of(tmp_path / how).values()])
    config, _ = read_run(tmp_path / "false")
    start = make_policy(config, spec_of(config.env)).state_dict()
    begun = torch.cat([tensor.flatten() for tensor in start.values()])
    moved = (found["false"] - begun).norm()
    for how in ("graphs", "true"):  # bf16 changes the signs of small gradients, and with them whole steps of a weight
        assert (found[how] - found["false"]).norm() < 0.5 * moved, how


def test_deterministic_runs_repeat_and_a_killed_one_continues_exactly(tmp_path: Path) -> None:
    whole, again, killed = (tmp_path / name for name in ("whole", "again", "killed"))
    more = ("--deterministic", "true", "--compile", "true")
    for path in (whole, again):
        done = rlcb(*coinrun(path, "ppo", *more, updates=200))
        assert done.returncode == 0, done.stderr
    command = [sys.executable, "-m", "rlcb", *coinrun(killed, "ppo", *more, updates=200)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        deadline = time.monotonic() + 300
        while not list(killed.glob("checkpoints/*_step_*.pt")) and process.poll() is None:
            assert time.monotonic() < deadline, "no checkpoint"
            time.sleep(0.01)
        os.kill(process.pid, signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL, "it ended before it could be killed"
    done = rlcb("train", "--resume", str(killed))
    assert done.returncode == 0, done.stderr
    expected = weights_of(whole)
    for path in (again, killed):
        assert all(torch.equal(tensor, expected[name]) for name, tensor in weights_of(path).items()), path
