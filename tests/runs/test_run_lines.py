"""What runs and suites that are not on a terminal print about how far they are, in every algorithm and mode."""

import json
import re
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from helpers.in_process import rlcb_here
from helpers.processes import SHORT_CARTPOLE, rlcb, wait_for_line
from rlcb.suite import display

WORKERS = ("--mode", "parallel", "--num-workers", "2")
RUNS = {
    "ppo": ("ppo", "--batch-size", "128"),
    "ppo parallel": ("ppo", *WORKERS, "--batch-size", "128"),
    "a2c": ("a2c",),
    "a2c parallel": ("a2c", *WORKERS),
    "a3c parallel": ("a3c", *WORKERS),
    "impala": ("impala", "--batch-size", "128"),
    "impala parallel": ("impala", *WORKERS, "--batch-size", "128"),
}
RARELY = ("--log-every-seconds", "1e6")
UPDATES, ROLLOUT = 12, 8 * 32
POSITION = r"\[(\d+:\d\d:\d\d), (\d+) %, ETA (\d+:\d\d:\d\d|n/a)\]"
LINE = re.compile(rf"^Update (\d+) \| Step ([\d,]+) \| FPS: \d+ \| Reward: .+ \| {POSITION}$", re.MULTILINE)


def flags(name: str, path: Path) -> tuple[str | Path, ...]:
    size = (*SHORT_CARTPOLE, "--num-envs", "4" if "parallel" in name else "8")
    return ("train", *RUNS[name], *size, "--log-interval", "1", "--output-dir", path)


@pytest.mark.parametrize("name", RUNS)
def test_the_first_and_the_last_update_are_always_shown(name: str, tmp_path: Path) -> None:
    path = tmp_path / "run"
    done = rlcb(*flags(name, path), *RARELY, "--total-timesteps", str(UPDATES * ROLLOUT))
    assert done.returncode == 0, done.stderr
    found = [(int(update), step, int(percent)) for update, step, _, percent, _ in LINE.findall(done.stdout)]
    assert found == [(1, f"{ROLLOUT}", 100 // UPDATES), (UPDATES, f"{UPDATES * ROLLOUT:,}", 100)]
    (log,) = (path / "logs").glob("*/metrics.jsonl")
    assert [json.loads(line)["update"] for line in log.read_text().splitlines()] == list(range(1, UPDATES + 1))


@pytest.mark.parametrize("name", ["a2c", "impala parallel"])
def test_a_run_that_is_stopped_shows_its_last_update(
    name: str, start: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    path = tmp_path / "run"
    process = start(*flags(name, path), *RARELY, "--total-timesteps", "1000000000")
    wait_for_line(process, "Update 1 |")
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 143, err
    updates = json.loads((path / "training_summary.json").read_text())["total_updates"]
    assert [int(line[0]) for line in LINE.findall(out)] == ([updates] if updates > 1 else [])


def test_a_resumed_run_may_have_another_interval(tmp_path: Path) -> None:
    path = tmp_path / "run"
    assert rlcb(*flags("a2c", path), *RARELY, "--total-timesteps", str(2 * ROLLOUT)).returncode == 0
    total = ("--total-timesteps", str(6 * ROLLOUT))
    done = rlcb("train", "--resume", path, *total, "--log-every-seconds", "0", "--log-interval", "2")
    assert done.returncode == 0, done.stderr
    assert [int(line[0]) for line in LINE.findall(done.stdout)] == [3, 4, 6]


def test_a_wrong_interval_is_refused(tmp_path: Path) -> None:
    done = rlcb(*flags("a2c", tmp_path / "run"), "--log-every-seconds", "-1")
    done.assert_one_line_error(2, "--log-every-seconds: -1", "must be a number from 0 to 1000000.0")


def test_a_suite_says_how_far_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(display, "_SAY_EVERY", 0.0)  # whenever it looks, and it looks while torch is being imported
    size = ("--algorithms", "a2c", "--modes", "sequential", "--seeds", "1", "--games", "CartPole-v1")
    short = ("--total-timesteps", "20000", "--eval-episodes", "3", "--tensorboard", "false")
    done = rlcb_here("benchmark", *size, *short, "--output-dir", tmp_path / "out")
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [line for line in done.stdout.splitlines() if line.startswith("Training: ")]
    assert lines[0].startswith("Training: 0 %, elapsed 0:00:0")
    assert lines[0].endswith(" [0 of 1 done, 1 running] | [1/1] a2c sequential CartPole-v1 seed 1: starting")
    assert "\nEvaluation: 0 %, elapsed " in done.stdout
    assert " left | [1/1] evaluation of a2c sequential CartPole-v1 seed 1\n" in done.stdout
