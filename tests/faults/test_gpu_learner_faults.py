"""IMPALA with a learner that works as on a GPU and loses its process, is slow to compile or whose device fails.

The tensors are in this machine's memory: "cpu:0" is torch's other name of it, and whatever is not named "cpu" counts as
a GPU. The supervisor's plan is changed, and what the learner's process imports; everything else is the real run.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from helpers.fault_runs import ended, losses, summary
from helpers.processes import EVERY_LINE, ROOT, rlcb, wait_for_line
from rlcb.run.checkpoint import load_newest

pytestmark = pytest.mark.xdist_group("gpu learner faults")

UPDATES, ROLLOUT = 40, 2 * 4 * 16
RUN = ("train", "impala", "--mode", "parallel", "--env", "CartPole-v1", "--num-actors", "2",
       "--num-envs-per-actor", "4", "--n-steps", "16", "--batch-size", "64", "--num-learners", "1",
       "--num-threads", "1", "--compile", "false", "--tensorboard", "false", "--save-interval", "5",
       "--total-timesteps", str(UPDATES * ROLLOUT), *EVERY_LINE)  # fmt: skip
# `rlcb …` whose learner is told that its device is another one.
_PROGRAM = """
import sys
from dataclasses import replace
from rlcb import training
from rlcb.cli import main
make_plan = training.make_plan
def changed(*arguments):
    config, plan = make_plan(*arguments)
    return config, replace(plan, device="cpu:0")
training.make_plan = changed
sys.exit(main(sys.argv[1:]))
"""
# What is done in every process before its program; the learner's alone is concerned.
_IN_LEARNERS = """
import sys
if "rlcb.execution.entry" in sys.orig_argv and "learner" in sys.orig_argv:
    from rlcb.gpu.learner import GpuLearner
"""
_SLOW = """
    import time
    GpuLearner.prepare = lambda self: time.sleep(7)
"""
_FAILING = """
    update, count = GpuLearner.update, 0
    def failing(self, *arguments):
        global count
        count += 1
        if count == 12:
            raise RuntimeError("CUDA error: an illegal memory access was encountered\\nCompile with ...")
        return update(self, *arguments)
    GpuLearner.update = failing
"""


@pytest.fixture
def begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[subprocess.Popen[str]]]:
    """Processes that are killed at the end of the test, if they still run."""
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{ROOT / 'src'}")
    processes: list[subprocess.Popen[str]] = []
    yield processes
    for process in processes:
        process.kill()
        process.communicate()


def begin(begun: list[subprocess.Popen[str]], folder: Path, *more: str, learners: str = "") -> subprocess.Popen[str]:
    (folder / "sitecustomize.py").write_text(_IN_LEARNERS + learners)
    command = [sys.executable, "-c", _PROGRAM, *RUN, *more, "--output-dir", str(folder / "run")]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    begun.append(process)
    return process


def assert_whole(path: Path) -> None:
    """Every update once, with a lag that the slots bound."""
    lines = [json.loads(line) for line in (path / "logs/IMPALA_Parallel/metrics.jsonl").read_text().splitlines()]
    assert [(line["update"], line["step"]) for line in lines] == [(n, n * ROLLOUT) for n in range(1, UPDATES + 1)]
    assert max(line["lag/max"] for line in lines) <= 3  # 2 · (4 slots − 1) / 2 rollouts of an update
    assert summary(path)["status"] == "finished"


def test_a_killed_learner_is_replaced(begun: list[subprocess.Popen[str]], tmp_path: Path) -> None:
    process = begin(begun, tmp_path)
    wait_for_line(process, "Update 5 |")
    for child in psutil.Process(process.pid).children():
        if "learner" in child.cmdline():
            child.kill()
    ended(process, 0)
    assert losses(tmp_path / "run") == [("learner 0", "killed by SIGKILL")]
    assert_whole(tmp_path / "run")


def test_a_learner_that_compiles_for_longer_than_a_worker_may_be_silent_is_waited_for(
    begun: list[subprocess.Popen[str]], tmp_path: Path
) -> None:
    process = begin(begun, tmp_path, "--worker-timeout", "5", learners=_SLOW)
    ended(process, 0)
    assert not (tmp_path / "run" / "events.jsonl").exists() or losses(tmp_path / "run") == []
    assert_whole(tmp_path / "run")


def test_a_device_that_fails_ends_the_run_in_one_line_and_its_last_checkpoint_goes_on(
    begun: list[subprocess.Popen[str]], tmp_path: Path
) -> None:
    path = tmp_path / "run"
    process = begin(begun, tmp_path, learners=_FAILING)
    _, err = ended(process, 6)
    (line,) = [line for line in err.splitlines() if not line.startswith(("note:", "warning:"))]
    assert "the GPU failed: CUDA error: an illegal memory access was encountered" in line
    assert line.endswith(f"resume with --resume {path}")
    assert load_newest(path / "checkpoints", "impala", pytest.fail)[1]["meta"]["updates"] == 10
    (tmp_path / "sitecustomize.py").unlink()
    assert rlcb("train", "--resume", path).returncode == 0
    assert_whole(path)
