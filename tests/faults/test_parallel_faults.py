"""Workers that are killed, stopped or crash; supervisors that are killed; nothing is ever left behind."""

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from pathlib import Path

import psutil
import pytest

from helpers.processes import rlcb, wait_for_file, wait_for_line, weights
from rlcb.run.checkpoint import load_newest

Start = Callable[..., subprocess.Popen[str]]
DIVISION = ("--mode", "parallel", "--num-workers", "2", "--num-envs", "4", "--n-steps", "64", "--batch-size", "128")
CARTPOLE = ("train", "ppo", *DIVISION, "--env", "CartPole-v1", "--n-epochs", "4", "--num-threads", "1")
ENDLESS, SHORT = ("--total-timesteps", "1000000000"), ("--total-timesteps", "20480")
FINAL = Path("checkpoints") / "ppo_parallel_final.pt"


def workers_of(process: subprocess.Popen[str]) -> list[psutil.Process]:
    """The worker processes that are alive, in the order in which they were started; none once the run has ended."""
    found, children = [], list[psutil.Process]()
    with contextlib.suppress(psutil.NoSuchProcess):
        children = psutil.Process(process.pid).children()
    for child in children:
        try:
            if child.cmdline()[1:4] == ["-m", "rlcb.execution.entry", "worker"]:
                found.append(child)
        except psutil.Error:  # it is just ending
            continue
    return sorted(found, key=lambda child: child.pid)


def assert_gone(processes: list[psutil.Process]) -> None:
    _, alive = psutil.wait_procs(processes, timeout=30)
    assert alive == []


def shared_names() -> set[str]:
    return {name for name in os.listdir("/dev/shm") if "rlcb" in name or "torch" in name or "psm_" in name}


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], dict[str, object]]:
    """The final weights of an undisturbed run, for each backend trained once."""

    @cache
    def train(backend: str) -> dict[str, object]:
        path = tmp_path_factory.mktemp(backend) / "run"
        assert rlcb(*CARTPOLE, "--backend", backend, *SHORT, "--output-dir", path).returncode == 0
        return weights(path / FINAL)

    return train


@pytest.mark.parametrize(
    "backend", [pytest.param(name, marks=pytest.mark.xdist_group(name)) for name in ("shared_memory", "gloo")]
)
@pytest.mark.parametrize("rank", [0, 1])
def test_a_killed_worker_is_replaced_and_the_run_ends_as_if_nothing_had_happened(
    start: Start, tmp_path: Path, calm: Callable[[str], dict[str, object]], rank: int, backend: str
) -> None:
    process = start(*CARTPOLE, "--backend", backend, *SHORT, "--output-dir", tmp_path / "killed")
    wait_for_line(process, "Update 5 |")
    workers = workers_of(process)
    assert len(workers) == 2
    workers[rank].kill()
    out, err = process.communicate(timeout=200)
    assert process.returncode == 0, err
    assert "killed by SIGKILL" in err
    assert "Traceback" not in err
    assert "Worker Restarts: 1" in out
    metrics = json.loads((tmp_path / "killed" / "benchmark_metrics.json").read_text())
    assert metrics["worker_restarts"] == 1
    assert metrics["total_timesteps"] == 20480
    assert weights(tmp_path / "killed" / FINAL) == calm(backend)
    lines = (tmp_path / "killed" / "logs" / "PPO_Parallel" / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["update"] for line in lines] == list(range(1, 41))
    assert_gone(workers)


def test_a_worker_that_hangs_is_killed_and_replaced(start: Start, tmp_path: Path) -> None:
    path = tmp_path / "run"
    process = start(*CARTPOLE, "--worker-timeout", "3", "--total-timesteps", "20480", "--output-dir", path)
    wait_for_line(process, "Update 5 |")
    workers = workers_of(process)
    workers[1].send_signal(signal.SIGSTOP)
    _, err = process.communicate(timeout=200)
    assert process.returncode == 0, err
    assert "no heartbeat for 3 s" in err
    assert json.loads((path / "training_summary.json").read_text())["total_timesteps"] == 20480
    assert_gone(workers)


def test_a_worker_that_aborts_is_named_with_its_signal(start: Start, tmp_path: Path) -> None:
    process = start(*CARTPOLE, "--total-timesteps", "20480", "--output-dir", tmp_path / "run")
    wait_for_line(process, "Update 5 |")
    workers_of(process)[0].send_signal(signal.SIGABRT)
    _, err = process.communicate(timeout=200)
    assert process.returncode == 0, err
    assert "worker 0 was lost (killed by SIGABRT)" in err


def test_too_many_losses_end_the_run_with_a_checkpoint_and_4(start: Start, tmp_path: Path) -> None:
    path = tmp_path / "run"
    process = start(*CARTPOLE, *ENDLESS, "--output-dir", path)
    wait_for_line(process, "Update 3 |")
    for _ in range(4):
        victim = workers_of(process)[-1]
        known = {worker.pid for worker in workers_of(process)}
        victim.kill()
        deadline = time.monotonic() + 60
        while process.poll() is None and time.monotonic() < deadline:
            if {worker.pid for worker in workers_of(process)} - known:
                break
            time.sleep(0.05)
    _, err = process.communicate(timeout=100)
    assert process.returncode == 4, err
    last = err.strip().splitlines()[-1]
    for word in ("was lost", "times", "killed by SIGKILL", "--resume"):
        assert word in last
    assert "Traceback" not in err
    content = load_newest(path / "checkpoints", "ppo", pytest.fail)[1]
    more = content["meta"]["env_steps"] + 512
    assert rlcb("train", "--resume", path, "--total-timesteps", str(more)).returncode == 0


def test_the_loss_of_all_workers_at_once_is_4(start: Start, tmp_path: Path) -> None:
    process = start(*CARTPOLE, *ENDLESS, "--output-dir", tmp_path / "run")
    wait_for_line(process, "Update 3 |")
    workers = workers_of(process)
    for worker in workers:
        worker.suspend()
    for worker in workers:
        worker.kill()
    _, err = process.communicate(timeout=100)
    assert process.returncode == 4, err
    assert "all 2 workers are lost" in err
    assert "Traceback" not in err
    load_newest(tmp_path / "run" / "checkpoints", "ppo", pytest.fail)


def test_workers_die_with_the_supervisor_and_the_run_resumes(start: Start, tmp_path: Path) -> None:
    path = tmp_path / "run"
    before = shared_names()
    process = start(*CARTPOLE, *ENDLESS, "--save-interval", "2", "--output-dir", path)
    wait_for_line(process, "Update 6 |")
    workers = workers_of(process)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert_gone(workers)
    assert shared_names() == before
    content = load_newest(path / "checkpoints", "ppo", pytest.fail)[1]
    assert content["meta"]["updates"] >= 4
    more = content["meta"]["env_steps"] + 512
    assert rlcb("train", "--resume", path, "--total-timesteps", str(more)).returncode == 0


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_one_signal_saves_and_says_how_to_resume(start: Start, tmp_path: Path, number: int, code: int) -> None:
    path = tmp_path / "run"
    process = start(*CARTPOLE, *ENDLESS, "--output-dir", path)
    wait_for_line(process, "Update 3 |")
    workers = workers_of(process)
    os.killpg(process.pid, number)
    out, err = process.communicate(timeout=60)
    assert process.returncode == code, err
    assert "Traceback" not in out + err
    assert "Resume with:" in out
    assert_gone(workers)
    summary = json.loads((path / "training_summary.json").read_text())
    assert summary["status"] == "interrupted"
    newest = load_newest(path / "checkpoints", "ppo", pytest.fail)[0]
    assert newest.name == f"ppo_parallel_step_{summary['total_timesteps']}.pt"


def test_a_second_signal_ends_everything_at_once(start: Start, tmp_path: Path) -> None:
    path = tmp_path / "run"
    long_update = ("--num-envs", "32", "--n-steps", "512", "--batch-size", "2048", "--n-epochs", "60")
    process = start(
        "train", "ppo", "--mode", "parallel", "--num-workers", "2", *long_update, *ENDLESS, "--output-dir", path
    )
    wait_for_line(process, "Worker 1 started")
    first = path / "checkpoints" / "ppo_parallel_step_0.pt"
    wait_for_file(first)
    workers = workers_of(process)
    os.kill(process.pid, signal.SIGINT)
    time.sleep(0.5)
    assert process.poll() is None
    os.kill(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "Traceback" not in out + err
    assert_gone(workers)


def test_divergence_in_the_workers_is_3(tmp_path: Path) -> None:
    small = ("--num-workers", "2", "--num-envs", "4", "--n-steps", "32", "--batch-size", "128", "--n-epochs", "1")
    arguments = (*small, "--learning-rate", "1e6", *ENDLESS, "--output-dir", tmp_path / "run")
    rlcb("train", "ppo", "--mode", "parallel", *arguments).assert_one_line_error(3, "diverged", "learning rate")
    assert json.loads((tmp_path / "run" / "training_summary.json").read_text())["status"] == "diverged"


def test_workers_are_started_afresh_never_forked(start: Start, tmp_path: Path) -> None:
    """A forked Procgen hangs: workers must be new programs, with the settings in place before torch loads."""
    process = start(*CARTPOLE, *ENDLESS, "--output-dir", tmp_path / "run", fresh=True)
    wait_for_line(process, "Update 1 |")
    for worker in workers_of(process):
        assert worker.cmdline()[1:4] == ["-m", "rlcb.execution.entry", "worker"]


def test_a_timed_run_with_a_killed_worker_ends_on_time(start: Start, tmp_path: Path) -> None:
    path, seconds = tmp_path / "run", 15
    before = shared_names()
    process = start(*CARTPOLE, "--duration", str(seconds / 3600), "--output-dir", path)
    wait_for_line(process, "Update 5 |")
    workers = workers_of(process)
    workers[1].kill()
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    assert "Worker Restarts: 1" in out
    summary = json.loads((path / "training_summary.json").read_text())
    assert summary["worker_restarts"] == 1
    lines = (path / "logs" / "PPO_Parallel" / "metrics.jsonl").read_text().splitlines()
    times = [0.0, *(json.loads(line)["time"] for line in lines)]
    longest = max(later - earlier for earlier, later in pairwise(times))
    assert abs(times[-1] - seconds) <= longest + 0.01  # it ends with the update that is nearest to its time
    assert_gone(workers)
    assert shared_names() == before
