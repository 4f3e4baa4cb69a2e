"""A2C's workers killed: the run repeats bit for bit."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import psutil

from helpers.a2c_runs import ROLLOUT, division, learned, trained
from helpers.processes import rlcb, wait_for_line

Start = Callable[..., subprocess.Popen[str]]


def test_two_workers_repeat_bit_for_bit_when_resumed_and_when_one_is_killed(start: Start, tmp_path: Path) -> None:
    # Where the learning rate knows the end, a run that was to be shorter is another run.
    updates, more = 240, ("--env", "CartPole-v1", "--lr-schedule", "constant", "--log-interval", "1")
    total = ("--total-timesteps", str(updates * ROLLOUT))
    process = start("train", "a2c", *division("parallel", 2), *more, *total, "--output-dir", tmp_path / "killed")
    wait_for_line(process, "Update 5 |")
    children = psutil.Process(process.pid).children()
    workers = [child for child in children if child.cmdline()[1:4] == ["-m", "rlcb.execution.entry", "worker"]]
    assert len(workers) == 2
    workers[0].kill()
    _, err = process.communicate(timeout=200)
    assert process.returncode == 0, err
    assert "killed by SIGKILL" in err
    assert json.loads((tmp_path / "killed" / "benchmark_metrics.json").read_text())["worker_restarts"] == 1
    killed = learned(tmp_path / "killed")
    assert len(killed[1]) == updates

    half = trained(tmp_path / "h", "a2c", "parallel", 2, *more, "--total-timesteps", str(updates * ROLLOUT // 2))
    done = rlcb("train", "--resume", half, *total)
    assert done.returncode == 0, done.stderr
    assert learned(half) == killed
