"""Small runs on a cluster and what they leave behind."""

import json
import subprocess
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psutil
import pytest

from helpers.clusters import ours
from helpers.processes import EVERY_LINE, SHORT_CARTPOLE

CART = (*SHORT_CARTPOLE, *EVERY_LINE, "--log-interval", "1")
FOUR = ("--mode", "parallel", "--num-workers", "4", "--num-envs", "4")
TWO = ("--mode", "parallel", "--num-workers", "2", "--num-envs", "8")  # each worker more has to import torch
ROLLOUT = 4 * 4 * 32
BATCH = {"ppo": ("--batch-size", "128", "--n-epochs", "1"), "impala": ("--batch-size", "128")}
Begin = Callable[..., "subprocess.Popen[str]"]


def flags(algorithm: str, updates: int, path: Path, division: tuple[str, ...] = FOUR) -> list[str | Path]:
    total = ("--total-timesteps", str(updates * ROLLOUT), "--output-dir", path)
    return ["train", algorithm, *division, *CART, *BATCH.get(algorithm, ()), *total]


def whole_lines(file: Path) -> list[dict[str, Any]]:
    """The lines of a file that a run may be writing just now: the last one counts once it is complete."""
    return [json.loads(line) for line in file.read_text().splitlines(keepends=True) if line.endswith("\n")]


def lines_of(path: Path) -> list[dict[str, Any]]:
    (log,) = (path / "logs").glob("*/metrics.jsonl")
    return whole_lines(log)


def events_of(path: Path) -> list[dict[str, Any]]:
    file = path / "events.jsonl"  # there is none before the first
    return whole_lines(file) if file.exists() else []


def assert_every_step_once(path: Path, updates: int) -> None:
    assert [line["step"] for line in lines_of(path)] == [ROLLOUT * (n + 1) for n in range(updates)]
    assert json.loads((path / "training_summary.json").read_text())["total_timesteps"] == updates * ROLLOUT


def hosts() -> list[psutil.Process]:
    """The processes on this machine that run a child of a run."""
    return [p for p in ours() if "ray::WorkerActor" in " ".join(p.info["cmdline"] or ())]


def ended(process: "subprocess.Popen[str]", code: int, within: float = 240) -> str:
    out, err = process.communicate(timeout=within)
    assert process.returncode == code, out + err
    return err


def needs_ray() -> None:
    if find_spec("ray") is None:  # not imported yet: it reads its settings when it is
        pytest.skip("the extra [cluster] is not installed")


def updates_after(path: Path, event: str) -> int:
    """Wait until this has happened and a few updates more are done; the number of the last one."""
    wait_until(lambda: any(one["event"] == event for one in events_of(path)))
    at: int = lines_of(path)[-1]["update"]
    wait_until(lambda: lines_of(path)[-1]["update"] > at + 5)
    return at


def wait_until(true: Callable[[], bool], seconds: float = 180) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.2)
