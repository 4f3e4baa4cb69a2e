"""Actors and learners that are killed, stopped or crash; supervisors that are; nothing is lost, invented or left."""

import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psutil
import pytest
import torch
from numpy.typing import NDArray

from helpers.fault_runs import Start, ended, leaving_nothing, losses, summary
from helpers.processes import rlcb, wait_for_line
from rlcb.comm.control import Control
from rlcb.comm.pool import LocalWorker, WorkerDied
from rlcb.run.checkpoint import load_newest

DIVISION = ("--mode", "parallel", "--num-actors", "2", "--num-envs-per-actor", "2", "--n-steps", "32",
            "--batch-size", "64", "--num-threads", "1", "--tensorboard", "false")  # fmt: skip
ONE, TWO = ("--num-learners", "1"), ("--num-learners", "2")
# With a policy that hardly moves nobody gets over the hill: every episode has 200 steps. One that was put together
# from two actors' steps, or that had steps twice or not at all, would not.
CAR = ("train", "impala", *DIVISION, "--env", "MountainCar-v0", "--learning-rate", "1e-7")
EPISODE, ROLLOUT = 200, 2 * 2 * 32
ENDLESS = ("--total-timesteps", "1000000000")


def children(pid: int, kind: str = "") -> list[psutil.Process]:
    """The actors (`kind` "actor") or learners ("learner") that a supervisor has or had, in the order of their start.

    They carry its number in their command line, so they are found even after its death.
    """
    found = []
    for process in psutil.process_iter():
        try:
            words, parent = process.cmdline(), process.ppid()
        except psutil.Error:  # it is just ending
            continue
        if words[1:3] == ["-m", "rlcb.execution.entry"] and kind in ("", words[3]) and words[-1] == str(pid):
            found.append((process, parent))
    # What such a process starts has its command line, too, until it becomes the other program.
    own = {process.pid for process, _ in found}
    mine = [process for process, parent in found if parent not in own]
    return sorted(mine, key=lambda process: (process.create_time(), process.pid))


def oldest(pid: int, kind: str) -> psutil.Process:
    """The child of this kind that has been there for longest, as soon as there is one."""
    deadline = time.monotonic() + 60
    while not (found := children(pid, kind)):
        assert time.monotonic() < deadline, f"no {kind}"
        time.sleep(0.05)
    return found[0]


@pytest.fixture
def begin(start: Start) -> Iterator[Start]:
    """Starts runs; none that has ended may have left a process or a name in shared memory."""
    with leaving_nothing(start, children) as go:
        yield go


def assert_whole(path: Path, updates: int) -> None:
    """Every update once, all steps counted, and no episode but real ones."""
    lines = [json.loads(line) for line in (path / "logs/IMPALA_Parallel/metrics.jsonl").read_text().splitlines()]
    assert [(line["update"], line["step"]) for line in lines] == [(n, n * ROLLOUT) for n in range(1, updates + 1)]
    assert {line["rollout/ep_len_mean"] for line in lines} == {None, EPISODE}
    assert {line["rollout/ep_reward_mean"] for line in lines} == {None, -EPISODE}
    found = summary(path)
    assert (found["status"], found["total_timesteps"]) == ("finished", updates * ROLLOUT)
    assert found["num_episodes"] == lines[-1]["rollout/episodes"] <= updates * ROLLOUT // EPISODE


def finish(path: Path) -> None:
    """Go on with a run that was broken off, for long enough that some episode ends; it ends well."""
    more = -(-EPISODE // 32) + 1
    updates = load_newest(path / "checkpoints", "impala", pytest.fail)[1]["meta"]["updates"] + more
    done = rlcb("train", "--resume", path, "--total-timesteps", str(updates * ROLLOUT))
    assert done.returncode == 0, done.stderr
    assert_whole(path, updates)


def test_a_killed_actor_is_replaced_and_nobody_waits_for_it(begin: Start, tmp_path: Path) -> None:
    path, updates = tmp_path / "run", 200
    # New interpreters take seconds to start: the updates meanwhile are the other actor's.
    process = begin(*CAR, *ONE, "--total-timesteps", str(updates * ROLLOUT), "--output-dir", path, fresh=True)
    wait_for_line(process, "Update 1 |")
    actors = children(process.pid, "actor")
    wait_for_line(process, "Update 5 |")
    actors[0].kill()
    out, err = ended(process, 0)
    assert "warning: actor 0 was lost (killed by SIGKILL); replacing it" in err
    # Slots hold rollouts for two updates, two more may be under way: beyond these somebody must have gone on.
    meanwhile = out.split("Actor 0 started")[0]
    assert meanwhile.count("Update ") > 5
    assert "Worker Restarts: 1" in out
    assert summary(path)["worker_restarts"] == 1
    assert losses(path) == [("actor 0", "killed by SIGKILL")]
    assert_whole(path, updates)


def test_a_killed_learner_takes_the_other_with_it_and_new_ones_go_on(begin: Start, tmp_path: Path) -> None:
    path, updates = tmp_path / "run", 60
    process = begin(*CAR, *TWO, "--total-timesteps", str(updates * ROLLOUT), "--output-dir", path)
    wait_for_line(process, "Update 1 |")
    learners = children(process.pid, "learner")
    wait_for_line(process, "Update 5 |")
    learners[1].kill()
    ended(process, 0)
    assert summary(path)["worker_restarts"] == 1
    assert losses(path) == [("learner 1", "killed by SIGKILL")]
    assert_whole(path, updates)


def test_one_loss_after_another_then_ctrl_c_while_the_learner_hangs(begin: Start, tmp_path: Path) -> None:
    path = tmp_path / "run"
    process = begin(*CAR, *ONE, "--worker-timeout", "5", *ENDLESS, "--output-dir", path)
    wait_for_line(process, "Update 3 |")
    faults = (
        ("learner", signal.SIGKILL, "killed by SIGKILL"),
        ("actor", signal.SIGABRT, "killed by SIGABRT"),
        ("learner", signal.SIGSTOP, "no heartbeat for 5 s, killed"),
        ("actor", signal.SIGSTOP, "no heartbeat for 5 s, killed"),
    )
    for kind, number, _ in faults:
        victim = oldest(process.pid, kind)
        victim.send_signal(number)
        victim.wait(timeout=60)
        if kind == "actor":
            wait_for_line(process, "started with 2 environments")
        for _ in range(6):
            wait_for_line(process, "Update ")
    actors, (learner,) = children(process.pid, "actor"), children(process.pid, "learner")
    for actor in actors:
        actor.suspend()
    time.sleep(0.5)  # so that the learner most likely has nothing to do
    learner.suspend()
    process.send_signal(signal.SIGINT)
    for actor in actors:
        actor.resume()
    out, _ = ended(process, 130)
    assert "Resume with:" in out
    assert [how for _, how in losses(path)] == [*(how for _, _, how in faults), "no heartbeat for 5 s, killed"]
    assert [who.split()[0] for who, _ in losses(path)] == ["learner", "actor", "learner", "actor", "learner"]
    assert (summary(path)["status"], summary(path)["worker_restarts"]) == ("interrupted", 5)
    finish(path)
    assert summary(path)["worker_restarts"] == 5


def test_the_loss_of_all_actors_at_once_is_4(begin: Start, tmp_path: Path) -> None:
    process = begin(*CAR, *ONE, *ENDLESS, "--output-dir", tmp_path / "run")
    wait_for_line(process, "Update 3 |")
    actors = children(process.pid, "actor")
    for actor in actors:
        actor.suspend()
    for actor in actors:
        actor.kill()
    _, err = ended(process, 4)
    last = err.splitlines()[-1]
    for word in ("all 2 actors are lost", "killed by SIGKILL", "saved", "--resume"):
        assert word in last
    content = load_newest(tmp_path / "run" / "checkpoints", "impala", pytest.fail)[1]
    lines = (tmp_path / "run/logs/IMPALA_Parallel/metrics.jsonl").read_text().splitlines()
    assert content["meta"]["updates"] == len(lines) >= 3


def test_an_actor_that_is_lost_again_and_again_is_4(begin: Start, tmp_path: Path) -> None:
    path = tmp_path / "run"
    process = begin(*CAR, *ONE, *ENDLESS, "--output-dir", path)
    wait_for_line(process, "Update 3 |")
    known = set(children(process.pid, "actor"))
    victim = children(process.pid, "actor")[0]
    while process.poll() is None:
        victim.kill()
        known.add(victim)
        while process.poll() is None and not (new := set(children(process.pid, "actor")) - known):
            time.sleep(0.05)
        if process.poll() is None:
            (victim,) = new
    assert len(known) == 2 + 3  # it was replaced three times
    _, err = ended(process, 4)
    for word in ("actor 0 was lost 4 times", "killed by SIGKILL", "saved", "--resume"):
        assert word in err.splitlines()[-1]
    assert losses(path) == [("actor 0", "killed by SIGKILL")] * 4
    assert load_newest(path / "checkpoints", "impala", pytest.fail)[1]["meta"]["updates"] > 3


def test_nobody_outlives_the_supervisor_and_a_run_killed_as_a_whole_resumes(begin: Start, tmp_path: Path) -> None:
    path = tmp_path / "run"
    process = begin(*CAR, *ONE, *ENDLESS, "--save-interval", "2", "--output-dir", path)
    wait_for_line(process, "Update 7 |")
    orphans = children(process.pid)
    assert len(orphans) == 3
    process.kill()
    assert psutil.wait_procs(orphans, timeout=60)[1] == []
    assert load_newest(path / "checkpoints", "impala", pytest.fail)[1]["meta"]["updates"] >= 4
    process = begin("train", "--resume", path)
    wait_for_line(process, "Update ")
    for child in children(process.pid):
        os.killpg(child.pid, signal.SIGKILL)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    finish(path)


def test_signals_before_the_first_update_once_and_twice(begin: Start, tmp_path: Path) -> None:
    path = tmp_path / "run"
    process = begin(*CAR, *ONE, *ENDLESS, "--output-dir", path)
    wait_for_line(process, "Output:")  # processes are starting
    os.killpg(process.pid, signal.SIGTERM)
    assert "Resume with:" in ended(process, 143)[0]
    assert load_newest(path / "checkpoints", "impala", pytest.fail)[1]["meta"]["updates"] == 0

    process = begin("train", "--resume", path)
    wait_for_line(process, "Update 3 |")
    os.killpg(process.pid, signal.SIGINT)
    assert "Resume with:" in ended(process, 130)[0]
    newest, content = load_newest(path / "checkpoints", "impala", pytest.fail)
    assert content["meta"]["updates"] == summary(path)["total_updates"] >= 3
    assert newest.name == f"impala_parallel_step_{summary(path)['total_timesteps']}.pt"

    process = begin("train", "--resume", path)
    wait_for_line(process, "Update ")
    children(process.pid, "learner")[0].suspend()  # what is under way will not end
    process.send_signal(signal.SIGINT)
    time.sleep(0.5)
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    ended(process, 130)
    assert load_newest(path / "checkpoints", "impala", pytest.fail)[0] == newest


def test_divergence_in_the_learners_is_3_with_a_dump(begin: Start, tmp_path: Path) -> None:
    path = tmp_path / "run"
    wild = ("--env", "coinrun", "--learning-rate", "1e6", "--save-interval", "1")
    process = begin("train", "impala", *DIVISION, *TWO, *wild, *ENDLESS, "--output-dir", path)
    _, err = ended(process, 3)
    assert "diverged" in err.splitlines()[-1]
    assert "learning rate" in err.splitlines()[-1]
    (dump,) = path.glob("diverged_update_*.pt")
    assert torch.load(dump, weights_only=True)["actions"].shape[0] == 32
    assert summary(path)["status"] == "diverged"
    content = load_newest(path / "checkpoints", "impala", pytest.fail)[1]
    assert all(bool(torch.isfinite(tensor).all()) for tensor in content["policy"].values())


@dataclass(frozen=True)
class LargeSetup:
    """More than a socket takes at once."""

    content: NDArray[np.float64]
    num_threads: int = 1


def test_a_child_that_dies_before_it_has_read_what_to_do_is_lost_like_any_other() -> None:
    """A resumed learner is told everything at once; it may die while this is written to it."""
    control = Control(os.memfd_create("test"), 1)
    setup = LargeSetup(np.zeros(10**6))
    child = LocalWorker("learner", 0, setup, control, (), program="this")  # ends without reading
    with pytest.raises(WorkerDied, match="ended with exit code 0"):
        child.receive()
    child.end()
    os.close(control.descriptor)


def test_a_child_that_is_stopped_before_it_has_read_what_to_do_does_not_stop_its_supervisor(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "deaf.py").write_text("import signal\nsignal.pause()\n")  # never reads
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    control, started = Control(os.memfd_create("test"), 1), list[LocalWorker]()

    def start() -> None:
        started.append(LocalWorker("learner", 0, LargeSetup(np.zeros(10**6)), control, (), program="deaf"))
        started[0].send(LargeSetup(np.zeros(10**6)))

    thread = threading.Thread(target=start, daemon=True)
    thread.start()
    thread.join(60)
    assert not thread.is_alive()
    assert started[0].process.poll() is None
    started[0].end()
    assert started[0].process.returncode == -signal.SIGKILL
    os.close(control.descriptor)
