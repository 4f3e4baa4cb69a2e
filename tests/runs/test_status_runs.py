"""`rlcb status` beside real runs and suites: running, finished, interrupted, killed; tables, JSON, --watch."""

import fcntl
import json
import os
import pty
import re
import select
import shutil
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from helpers.in_process import rlcb_here
from helpers.processes import CARTPOLE, ROOT, TINY, run, wait_for_line

Start = Callable[..., subprocess.Popen[str]]
ENDLESS = ("--total-timesteps", "1000000000", "--tensorboard", "false", "--log-interval", "1")
SUITE = ("--games", "CartPole-v1", *TINY, "--tensorboard", "false", "--modes", "sequential", "--eval-episodes", "0")


@pytest.fixture(autouse=True)
def _in_the_repository(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the usual config files are."""
    monkeypatch.chdir(ROOT)


def status(folder: Path) -> dict[str, Any]:
    """What `rlcb status --json` prints."""
    done = rlcb_here("status", folder, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    (line,) = done.stdout.splitlines()
    content: dict[str, Any] = json.loads(line)
    return content


def one_run(folder: Path) -> dict[str, Any]:
    (found,) = status(folder)["runs"]
    return dict(found)


def wait_for(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not true():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.1)


def test_a_finished_run(cartpole: Path) -> None:
    found = one_run(cartpole.parent)
    assert (found["run"], found["algorithm"], found["mode"], found["game"]) == (
        "run",
        "ppo",
        "sequential",
        "CartPole-v1",
    )
    assert (found["state"], found["fraction"], found["step"], found["detail"]) == ("finished", 1.0, 512, "")
    assert found["fps"] > 0
    assert found["reward"] > 0
    assert found["checkpoint_age_seconds"] >= 0
    done = rlcb_here("status", cartpole)  # the run itself
    head, row, total, _ = done.stdout.split("\n")
    assert head.split() == ["run", "algorithm", "game", "seed", "state", "done", "ETA", "FPS", "reward", "saved"]
    assert re.match(r"run  PPO sequential  CartPole-v1 +42  finished  100 % ", row)
    assert total.startswith("1 finished in ")


def test_a_run_that_is_running_then_interrupted_then_running_then_killed_then_failed(
    start: Start, tmp_path: Path
) -> None:
    path = tmp_path / "run"
    process = start("train", "ppo", *CARTPOLE, *ENDLESS, "--output-dir", path)
    wait_for_line(process, "Update 3 ")
    found = one_run(tmp_path)
    assert found["state"] == "running"
    assert 0 < found["fraction"] < 1
    assert found["eta_seconds"] > 0
    assert found["fps"] > 0
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=100)
    assert process.returncode == 130
    found = one_run(tmp_path)
    assert (found["state"], found["detail"]) == ("interrupted", f"at step {found['step']:,}")
    assert found["eta_seconds"] is None
    process = start("train", "--resume", path)
    wait_for_line(process, "Update ")
    assert one_run(tmp_path)["state"] == "running"
    os.kill(process.pid, signal.SIGKILL)
    process.communicate(timeout=100)
    found = one_run(tmp_path)
    assert (found["state"], found["detail"]) == (
        "dead",
        f"pid {process.pid} ended at step {found['step']:,}",
    )
    for checkpoint in (path / "checkpoints").iterdir():
        checkpoint.write_bytes(b"damaged")
    assert rlcb_here("train", "--resume", path).returncode == 5
    found = one_run(tmp_path)
    assert found["state"] == "failed"
    assert "checkpoint" in found["detail"]


def test_a_suite_half_done_with_a_run_that_failed(start: Start, tmp_path: Path) -> None:
    output = tmp_path / "suite"
    obstacle = output / "CartPole-v1" / "ppo_sequential" / "seed_1"
    obstacle.parent.mkdir(parents=True)
    obstacle.touch()
    seeds = ("--seeds", "1", "2", "3", "--jobs", "1")
    process = start("benchmark", *SUITE, *seeds, "--total-timesteps", "1000000000", "--output-dir", output)
    wait_for_line(process, "seed 2: started")
    wait_for(lambda: status(tmp_path)["runs"][1]["fps"] is not None)
    found = status(tmp_path)
    assert [one["run"][-6:] for one in found["runs"]] == ["seed_1", "seed_2", "seed_3"]
    assert [one["state"] for one in found["runs"]] == ["failed", "running", "waiting"]
    assert "is a file" in found["runs"][0]["detail"]
    (suite,) = found["suites"]
    counts = {name: suite[name] for name in ("suite", "state", "runs", "done", "running", "waiting", "failed")}
    assert counts == {
        "suite": "suite", "state": "running", "runs": 3, "done": 0, "running": 1, "waiting": 1, "failed": 1,
    }  # fmt: skip
    assert suite["eta_seconds"] > 0
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=100)
    assert process.returncode == 130
    found = status(tmp_path)
    assert [one["state"] for one in found["runs"]] == ["failed", "interrupted", "waiting"]
    lines = rlcb_here("status", tmp_path).stdout.splitlines()
    again = f"resume with: rlcb benchmark --output-dir {output}"
    assert f"suite suite: interrupted, 0 of 3 runs done, 1 failed, 1 interrupted, 1 waiting, {again}" in lines


def test_watching_prints_a_table_each_time_until_ctrl_c(start: Start, cartpole: Path) -> None:
    process = start("status", cartpole.parent, "--watch", "0.1")
    for _ in range(3):
        wait_for_line(process, "CartPole-v1")
        wait_for_line(process, "1 finished")
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=100)
    assert (process.returncode, err) == (130, "")


def test_watching_ends_with_its_reader(cartpole: Path) -> None:
    rlcb = f"{sys.executable} -m rlcb status {cartpole.parent} --json --watch 0.1"
    done = run(["bash", "-c", f"{rlcb} | head -n 2; echo ${{PIPESTATUS[0]}}"])
    *lines, code = done.stdout.splitlines()
    assert [json.loads(line)["runs"][0]["state"] for line in lines] == ["finished", "finished"]
    assert (code, done.stderr) == ("141", "")


def test_a_terminal_shows_what_fits(cartpole: Path, tmp_path: Path) -> None:
    for number in range(12):
        copy = Path(shutil.copytree(cartpole, tmp_path / f"run_{number}"))
    for name in ("benchmark_metrics.json", "training_summary.json"):
        (copy / name).unlink()
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 9, 70, 0, 0))
    command = [sys.executable, "-m", "rlcb", "status", str(tmp_path), "--watch", "0.1"]
    # A size in the environment, which pytest-xdist sets, would count instead of the terminal's.
    environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    environment["TERM"] = "xterm"
    with subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, env=environment) as process:
        os.close(slave)
        shown, deadline = b"", time.monotonic() + 60
        while shown.count(b"1 dead, 11 finished") < 3 and time.monotonic() < deadline:
            if select.select([master], [], [], 1)[0]:
                shown += os.read(master, 65536)
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=100) == 130
    os.close(master)
    first = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown.decode()).split("1 dead, 11 finished")[0]
    lines = [line.rstrip() for line in first.splitlines()]
    assert len(lines) <= 8
    assert lines[1].startswith("run_11")  # what matters most comes first
    assert "run_11: dead, ended at step 512 without recording a reason" in lines
    assert any(re.fullmatch(r"not shown: \d+ finished", line) for line in lines)


def test_folders_without_a_run_and_wrong_arguments(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    rlcb_here("status", tmp_path).assert_one_line_error(2, "contains no run", "./benchmarks")
    rlcb_here("status", tmp_path / "missing").assert_one_line_error(2, "no such directory")
    rlcb_here("status", tmp_path / "file").assert_one_line_error(2, "not a directory")
    rlcb_here("status", folder=tmp_path).assert_one_line_error(2, "benchmarks: no such directory")
    for wrong in ("0", "-1", "nan", "1e9", "often"):
        rlcb_here("status", tmp_path, f"--watch={wrong}").assert_one_line_error(2, "--watch", wrong)
    rlcb_here("status", tmp_path, "--jsn").assert_one_line_error(2, "did you mean --json?")
