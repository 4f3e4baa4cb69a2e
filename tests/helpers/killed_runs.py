"""A run that is killed and resumed, beside one that was left alone."""

import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from helpers.processes import rlcb, wait_for_line
from rlcb.run.checkpoint import load_checkpoint

Start = Callable[..., subprocess.Popen[str]]


def assert_killed_is_whole(start: Start, folder: Path, flags: tuple[str, ...], rollout: int, total: int) -> Any:
    """PPO, killed after its third update and resumed from its second, ends with the weights and states of a whole run.

    Returns the final checkpoints of both runs, and what resuming said on stderr.
    """
    arguments, length = ("train", "ppo", *flags, "--save-interval", "2"), ("--total-timesteps", str(total))
    whole, killed = folder / "whole", folder / "killed"
    done = rlcb(*arguments, *length, "--output-dir", whole)
    assert done.returncode == 0, done.stderr
    process = start(*arguments, "--total-timesteps", str(10**6 * rollout), "--output-dir", killed)
    wait_for_line(process, "Update 3 |")
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    for file in (killed / "checkpoints").glob("*_step_*.pt"):  # it may have gone further before it was killed
        if int(file.stem.rpartition("_")[2]) > 2 * rollout:
            file.unlink()
    done = rlcb("train", "--resume", killed, *length)
    assert done.returncode == 0, done.stderr
    (one,), (two,) = ((run / "checkpoints").glob("*_final.pt") for run in (whole, killed))
    first, second = load_checkpoint(one), load_checkpoint(two)
    for section in ("policy", "optimizer"):
        for name, tensor in first[section].items():
            assert tensor.tolist() == second[section][name].tolist(), name
    assert [state.tolist() for state in first["envs"]] == [state.tolist() for state in second["envs"]]
    return first, second, done.stderr
