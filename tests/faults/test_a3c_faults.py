"""A3C's workers killed, stopped, lost again and again; its supervisor killed; signals; divergence. Nothing is left."""

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch

from helpers.fault_runs import Start, ended, leaving_nothing, losses, summary
from helpers.processes import rlcb, wait_for_line
from rlcb.run.checkpoint import load_newest

DIVISION = ("--num-workers", "2", "--num-envs", "4", "--n-steps", "16", "--num-threads", "1", "--tensorboard", "false")
CARTPOLE = ("train", "a3c", "--env", "CartPole-v1", *DIVISION, "--log-interval", "1")
SHARE = 4 * 16  # steps of one worker's rollout
ROLLOUT = 2 * SHARE
ENDLESS = ("--total-timesteps", "1000000000")


def workers_of(pid: int) -> list[psutil.Process]:
    """The workers that a supervisor has or had, by the time they were started.

    They carry its number in their command line, so they are found even after its death.
    """
    found = []
    for process in psutil.process_iter():
        try:
            words = process.cmdline()
            if words[1:4] == ["-m", "rlcb.execution.entry", "async_worker"] and words[-1] == str(pid):
                found.append((process.create_time(), process.pid, process))
        except psutil.Error:  # it is just ending
            continue
    return [process for _, _, process in sorted(found, key=lambda entry: entry[:2])]


@pytest.fixture
def begin(start: Start) -> Iterator[Start]:
    """Starts runs; none that has ended may have left a process or a name in shared memory."""
    with leaving_nothing(start, workers_of) as go:
        yield go


def newest(path: Path) -> tuple[Path, dict[str, Any]]:
    """The newest checkpoint, none of which may be damaged."""
    return load_newest(path / "checkpoints", "a3c", pytest.fail)


def history(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (path / "logs/A3C_Parallel/metrics.jsonl").read_text().splitlines()]


def assert_whole(path: Path, steps: int) -> None:
    """Every update once, every step counted once, all rollouts of a round there unless the run was broken off."""
    lines = history(path)
    assert [line["update"] for line in lines] == list(range(1, len(lines) + 1))
    taken = [later["step"] - earlier["step"] for earlier, later in zip([{"step": 0}, *lines], lines, strict=False)]
    assert set(taken) <= {SHARE, ROLLOUT}
    found = summary(path)
    assert (found["status"], found["total_timesteps"]) == ("finished", steps)
    assert (lines[-1]["step"], found["total_updates"]) == (steps, len(lines))
    assert newest(path)[1]["meta"]["env_steps"] == steps


def finish(path: Path, more: int = 4) -> None:
    """Go on with a run that was broken off, for some rounds; it ends well, with the steps that were asked for."""
    rounds = newest(path)[1]["meta"]["env_steps"] // ROLLOUT + more
    done = rlcb("train", "--resume", path, "--total-timesteps", str(rounds * ROLLOUT))
    assert done.returncode == 0, done.stderr
    assert_whole(path, rounds * ROLLOUT)


def test_a_killed_worker_is_replaced_and_the_other_goes_on_meanwhile(begin: Start, tmp_path: Path) -> None:
    path, updates = tmp_path / "run", 300
    # New interpreters take seconds to start: the updates meanwhile are the other worker's.
    process = begin(*CARTPOLE, "--total-timesteps", str(updates * ROLLOUT), "--output-dir", path, fresh=True)
    wait_for_line(process, "Update 5 |")
    workers_of(process.pid)[0].kill()
    out, err = ended(process, 0)
    assert "warning: worker 0 was lost (killed by SIGKILL); replacing it" in err
    assert out.split("Worker 0 started")[0].count("Update ") > 5  # before there was somebody new
    assert "Worker Restarts: 1" in out
    assert losses(path) == [("worker 0", "killed by SIGKILL")]
    assert json.loads((path / "benchmark_metrics.json").read_text())["worker_restarts"] == 1
    assert_whole(path, updates * ROLLOUT)
    assert len(history(path)) == updates


def test_a_worker_that_is_killed_before_it_was_told_to_go_is_replaced_like_any_other(
    begin: Start, tmp_path: Path
) -> None:
    path, updates = tmp_path / "run", 300
    process = begin(*CARTPOLE, "--total-timesteps", str(updates * ROLLOUT), "--output-dir", path)
    wait_for_line(process, "started with 4 environments")
    worker = workers_of(process.pid)[0]
    wait_for_line(process, "started with 4 environments")  # the first checkpoint is being written now
    worker.kill()
    ended(process, 0)
    assert losses(path) == [("worker 0", "killed by SIGKILL")]
    assert_whole(path, updates * ROLLOUT)


def test_one_loss_after_another_then_ctrl_c_while_one_hangs(begin: Start, tmp_path: Path) -> None:
    path = tmp_path / "run"
    process = begin(*CARTPOLE, "--worker-timeout", "4", *ENDLESS, "--output-dir", path)
    wait_for_line(process, "Update 3 |")
    faults = ((signal.SIGABRT, "killed by SIGABRT"), (signal.SIGSTOP, "no heartbeat for 4 s, killed"))
    for number, _ in faults:
        victim = workers_of(process.pid)[0]  # the one that has worked for longest
        victim.send_signal(number)
        wait_for_line(process, "started with 4 environments")
        for _ in range(5):
            wait_for_line(process, "Update ")
    workers_of(process.pid)[0].suspend()
    process.send_signal(signal.SIGINT)
    out, _ = ended(process, 130)
    assert "Resume with:" in out
    assert losses(path) == [("worker 0", faults[0][1]), ("worker 1", faults[1][1]), ("worker 0", faults[1][1])]
    assert (summary(path)["status"], summary(path)["worker_restarts"]) == ("interrupted", 3)
    finish(path)
    assert summary(path)["worker_restarts"] == 3


def test_the_loss_of_all_workers_at_once_is_4(begin: Start, tmp_path: Path) -> None:
    path = tmp_path / "run"
    process = begin(*CARTPOLE, *ENDLESS, "--output-dir", path)
    wait_for_line(process, "Update 3 |")
    workers = workers_of(process.pid)
    for worker in workers:
        worker.suspend()
    for worker in workers:
        worker.kill()
    _, err = ended(process, 4)
    last = err.splitlines()[-1]
    for word in ("all 2 workers are lost", "killed by SIGKILL", "saved", f"--resume {path}"):
        assert word in last
    assert newest(path)[1]["meta"]["updates"] == len(history(path)) >= 3


def test_a_worker_that_is_lost_again_and_again_is_4(begin: Start, tmp_path: Path) -> None:
    path = tmp_path / "run"
    process = begin(*CARTPOLE, *ENDLESS, "--output-dir", path)
    wait_for_line(process, "Update 3 |")
    victim, other = workers_of(process.pid)
    known = {victim, other}
    while process.poll() is None:
        victim.kill()
        while process.poll() is None and not (new := set(workers_of(process.pid)) - known):
            time.sleep(0.05)
        if process.poll() is None:
            (victim,) = new
            known.add(victim)
    assert len(known) == 2 + 3  # it was replaced three times
    _, err = ended(process, 4)
    for word in ("worker 0 was lost 4 times", "killed by SIGKILL", "saved", f"--resume {path}"):
        assert word in err.splitlines()[-1]
    assert losses(path) == [("worker 0", "killed by SIGKILL")] * 4
    assert newest(path)[1]["meta"]["updates"] == len(history(path)) > 3


def test_nobody_outlives_the_supervisor_and_a_run_killed_as_a_whole_resumes(begin: Start, tmp_path: Path) -> None:
    path = tmp_path / "run"
    process = begin(*CARTPOLE, *ENDLESS, "--save-interval", "2", "--output-dir", path)
    wait_for_line(process, "Update 7 |")
    orphans = workers_of(process.pid)
    assert len(orphans) == 2
    process.kill()
    assert psutil.wait_procs(orphans, timeout=60)[1] == []
    assert newest(path)[1]["meta"]["updates"] >= 6
    process = begin("train", "--resume", path)
    wait_for_line(process, "Update ")
    for worker in workers_of(process.pid):
        worker.kill()
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    finish(path)


def test_signals_before_the_first_update_once_and_twice(begin: Start, tmp_path: Path) -> None:
    path = tmp_path / "run"
    process = begin(*CARTPOLE, *ENDLESS, "--output-dir", path)
    wait_for_line(process, "Output:")  # processes are starting
    os.killpg(process.pid, signal.SIGTERM)
    assert "Resume with:" in ended(process, 143)[0]
    assert summary(path)["status"] == "interrupted"
    assert newest(path)[1]["meta"]["env_steps"] == summary(path)["total_timesteps"]

    process = begin("train", "--resume", path)
    before = summary(path)["total_updates"]
    wait_for_line(process, f"Update {before + 3} |")
    os.killpg(process.pid, signal.SIGINT)
    assert "Resume with:" in ended(process, 130)[0]
    file, content = newest(path)
    assert content["meta"]["updates"] == summary(path)["total_updates"] >= before + 3
    assert file.name == f"a3c_parallel_step_{summary(path)['total_timesteps']}.pt"

    process = begin("train", "--resume", path)
    wait_for_line(process, "Update ")
    for worker in workers_of(process.pid):
        worker.suspend()  # what is under way will not end
    process.send_signal(signal.SIGINT)
    time.sleep(0.5)
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    ended(process, 130)
    assert newest(path)[0] == file


def test_divergence_is_3_with_a_dump(begin: Start, tmp_path: Path) -> None:
    path = tmp_path / "run"
    flags = ("--env", "coinrun", *DIVISION, "--learning-rate", "1e6", "--save-interval", "1", *ENDLESS)
    process = begin("train", "a3c", *flags, "--output-dir", path)
    _, err = ended(process, 3)
    assert "diverged" in err.splitlines()[-1]
    assert "learning rate" in err.splitlines()[-1]
    dumps = list(path.glob("diverged_update_*.pt"))
    assert len(dumps) in (1, 2)  # both workers may get there at the same time
    named = Path(next(word for word in err.splitlines()[-1].replace(",", " ").split() if "diverged_update_" in word))
    assert torch.load(named, weights_only=True)["actions"].shape == (SHARE,)
    assert summary(path)["status"] == "diverged"
    assert all(bool(torch.isfinite(tensor).all()) for tensor in newest(path)[1]["policy"].values())
