"""Trackers that fail, hang or are killed: the run goes on as if there were none, after one warning."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from helpers.processes import CARTPOLE, TINY_ROLLOUT, descendants, rlcb, wait_for_line
from helpers.wandb_files import uploaded
from rlcb.run.sinks import is_installed

Start = Callable[..., subprocess.Popen[str]]
QUIET = ("--tensorboard", "false")
OFFLINE = {"WANDB_MODE": "offline"}
SHORT = ("train", "ppo", *CARTPOLE, *QUIET, "--total-timesteps", str(8 * TINY_ROLLOUT), "--track", "wandb")
ENDLESS = ("train", "ppo", *CARTPOLE, *QUIET, "--total-timesteps", "1000000000", "--track", "wandb")
needs_wandb = pytest.mark.skipif(not is_installed("wandb"), reason="W&B is not installed")
pytestmark = pytest.mark.xdist_group("tracking_faults")


def warnings(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("warning:")]


def updates(path: Path) -> list[int]:
    (file,) = path.glob("logs/*/metrics.jsonl")
    return [json.loads(line)["update"] for line in file.read_text().splitlines()]


def tracked(start: Start, path: Path) -> tuple[subprocess.Popen[str], psutil.Process]:
    """An endless run whose metrics arrive at W&B, and its tracker's process."""
    process = start(*ENDLESS, "--output-dir", path)
    assert process.stdout is not None
    for line in process.stdout:
        if "Update" in line and any(found.rows for found in uploaded(path)):
            break
    (tracker,) = [one for one in descendants(process.pid) if "rlcb.run.tracking" in " ".join(one.cmdline())]
    return process, tracker


def stopped(process: subprocess.Popen[str]) -> str:
    """End a run as Ctrl-C does; what it printed to standard error."""
    os.kill(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 130, err
    return err


def assert_ended(processes: list[psutil.Process]) -> None:
    """All of them end, whether or not somebody has asked how."""
    deadline = time.monotonic() + 120
    for one in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            while one.status() != psutil.STATUS_ZOMBIE:
                assert time.monotonic() < deadline, one
                time.sleep(0.1)


@pytest.fixture(autouse=True)
def _offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")


@needs_wandb
@pytest.mark.parametrize("victim", ["service", "tracker"])
def test_the_run_outlives_its_tracker(start: Start, tmp_path: Path, victim: str) -> None:
    process, tracker = tracked(start, tmp_path / "run")
    left = [tracker, *tracker.children(recursive=True)]
    for one in left[1:] if victim == "service" else left[:1]:
        one.kill()
    seen = wait_for_line(process, "Update")
    assert_ended(left)
    later = int(seen.split("Update ")[1].split()[0]) + 500
    wait_for_line(process, f"Update {later} |")
    err = stopped(process)
    (warning,) = warnings(err)
    assert warning.startswith("warning: W&B: ")
    assert warning.endswith("; continuing without it")
    made = updates(tmp_path / "run")
    assert made == list(range(1, len(made) + 1))
    assert len(made) >= later


@needs_wandb
def test_a_run_does_not_wait_for_a_tracker_that_does_not_answer(start: Start, tmp_path: Path) -> None:
    process, tracker = tracked(start, tmp_path / "run")
    tracker.suspend()
    seen = int(wait_for_line(process, "Update").split("Update ")[1].split()[0])
    wait_for_line(process, f"Update {seen + 500} |")
    (warning,) = warnings(stopped(process))
    assert "W&B: has not finished within 5 s and was stopped" in warning
    assert not tracker.is_running()
    summary = json.loads((tmp_path / "run" / "training_summary.json").read_text())
    assert summary["status"] == "interrupted"


@needs_wandb
def test_a_server_that_does_not_answer_keeps_nobody(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        monkeypatch.setenv("WANDB_MODE", "online")
        monkeypatch.setenv("WANDB_INIT_TIMEOUT", "600")
        monkeypatch.setenv("WANDB_API_KEY", 40 * "a")
        monkeypatch.setenv("WANDB_BASE_URL", f"http://127.0.0.1:{server.getsockname()[1]}")
        process = start(*ENDLESS, "--output-dir", tmp_path / "run")
        server.settimeout(120)
        server.accept()[0].close()  # now it waits for the answer
        wait_for_line(process, "Update")
        (warning,) = warnings(stopped(process))
    assert "W&B: has not finished within 5 s" in warning


@needs_wandb
def test_without_an_account_it_records_offline_unless_told_how(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nobody = {"HOME": str(tmp_path), "NETRC": str(tmp_path / "none"), "WANDB_CONFIG_DIR": str(tmp_path)}
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    done = rlcb(*SHORT, "--output-dir", tmp_path / "told", env={**nobody, "WANDB_MODE": "online"})
    assert done.returncode == 0
    (warning,) = warnings(done.stderr)
    assert warning.endswith("; continuing without it")
    assert not uploaded(tmp_path / "told")
    monkeypatch.delenv("WANDB_MODE")
    done = rlcb(*SHORT, "--output-dir", tmp_path / "run", env=nobody)
    assert done.returncode == 0
    (warning,) = warnings(done.stderr)
    assert f"recording offline, to be uploaded with: wandb sync {tmp_path}/run/wandb/offline-run-" in warning
    (found,) = uploaded(tmp_path / "run")
    assert len(found.rows) == 8
    assert found.exit_code == 0


@needs_wandb
def test_a_tracker_ends_with_a_run_that_is_killed(start: Start, tmp_path: Path) -> None:
    process, tracker = tracked(start, tmp_path / "run")
    left = [tracker, *tracker.children(recursive=True)]
    process.kill()
    assert_ended(left)
    (found,) = uploaded(tmp_path / "run")
    assert found.exit_code == 1
    assert found.summary["status"] == "killed"
    assert len(found.rows) == len(updates(tmp_path / "run"))


@needs_wandb
def test_no_place_for_its_files(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (run / "wandb").touch()
    done = rlcb(*SHORT, "--output-dir", run)
    assert done.returncode == 0
    (warning,) = warnings(done.stderr)
    assert "W&B: " in warning
    assert "Not a directory" in warning
    assert updates(run) == list(range(1, 9))


@needs_wandb
def test_a_full_disk(tmp_path: Path, tmpfs: Callable[[str], Path]) -> None:
    disk, run = tmpfs("size=64k"), tmp_path / "run"
    long = ("train", "ppo", *CARTPOLE, *QUIET, "--total-timesteps", str(300 * TINY_ROLLOUT), "--track", "wandb")
    done = rlcb(*long, "--output-dir", run, env={"WANDB_DIR": str(disk)})
    assert done.returncode == 0
    (warning,) = warnings(done.stderr)
    assert "No space left on device; continuing without it" in warning
    assert updates(run) == list(range(1, 301))


def test_a_tensorboard_that_is_broken(tmp_path: Path) -> None:
    broken = tmp_path / "site" / "tensorboard"
    broken.mkdir(parents=True)
    (broken / "__init__.py").touch()
    paths = os.pathsep.join([str(broken.parent), os.environ.get("PYTHONPATH", "")])
    short = ("train", "ppo", *CARTPOLE, "--total-timesteps", "512", "--output-dir", tmp_path / "run")
    done = rlcb(*short, "--tensorboard", "true", env={"PYTHONPATH": paths})
    assert done.returncode == 0
    assert warnings(done.stderr) == [
        "warning: TensorBoard: No module named 'tensorboard.compat'; continuing without it"
    ]
    assert updates(tmp_path / "run") == [1, 2]
