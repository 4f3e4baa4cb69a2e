"""`--dry-run` checks what a real run checks, prints the plan, and leaves nothing behind."""

import os
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from helpers.in_process import rlcb_here
from helpers.processes import ROOT, Finished, run
from rlcb.config.plan import computed_division
from rlcb.config.registry import ALGORITHMS
from rlcb.files import take_lock
from rlcb.hardware import usable_cpus
from rlcb.run.request import new_config

PAIRS = [(algorithm, mode) for algorithm, entry in ALGORITHMS.items() for mode in entry.modes]
ITEMS = ("Environment:", "Levels:", "Algorithm:", "Threads:", "Device: cpu", "Rollout:", "Minibatch:", "Output:",
         "checkpoints:", "metrics.jsonl", "MB per checkpoint", "Expected memory:", "an estimate")  # fmt: skip
SMALL = ("--env", "CartPole-v1", "--num-envs", "8", "--n-steps", "32", "--total-timesteps", "512")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An empty folder with the shipped configurations."""
    (tmp_path / "config").symlink_to(ROOT / "config")
    return tmp_path


def listing(folder: Path) -> list[tuple[str, int, int]]:
    """Every path below a folder with its size and the time of its last change."""
    paths = sorted(path for path in folder.rglob("*") if "config" not in path.parts)
    return [(str(path), path.lstat().st_size, path.lstat().st_mtime_ns) for path in paths]


def dry(folder: Path, *arguments: str | Path) -> Finished:
    """A command with --dry-run in a folder, in which nothing changes by it."""
    before, runs = listing(folder), (ROOT / "benchmarks").exists()
    done = rlcb_here(*arguments, "--dry-run", folder=folder)
    assert listing(folder) == before
    assert (ROOT / "benchmarks").exists() == runs
    return done


def planned(folder: Path, *arguments: str | Path) -> str:
    """The plan that a command prints."""
    done = dry(folder, *arguments)
    assert done.returncode == 0, done.stderr
    assert "Dry run: nothing was started or written." in done.stdout
    return done.stdout


@pytest.mark.parametrize(("algorithm", "mode"), PAIRS)
def test_the_plan_names_everything(algorithm: str, mode: str, folder: Path) -> None:
    workers = ("--num-workers", "4", "--num-envs", "8") if mode == "parallel" else ("--num-envs", "32")
    plan = planned(folder, "train", algorithm, "--mode", mode, *workers, "--duration", "0.5")
    for item in (*ITEMS, "Duration: 0.5 hours"):
        assert item in plan
    assert f"{algorithm.upper()} {mode.capitalize()} Training - Plan" in plan
    if mode == "parallel":
        assert re.search(rf"{ALGORITHMS[algorithm].worker.capitalize()}s: \d+ × \d+ environments = 32", plan)
        assert ("Learners: " in plan) == (algorithm == "impala")
    assert f"checkpoints: {algorithm}_{mode}_step_<N>.pt" in plan


def test_steps_are_counted_in_updates(folder: Path) -> None:
    plan = planned(folder, "train", "ppo", "--total-timesteps", "10000")
    assert "Total timesteps: 10,000, 3 updates" in plan
    assert "Rollout: 128 steps × 32 environments = 4,096 steps" in plan
    assert "Minibatch: 1,024, 4 epochs: 16 optimizer steps per update" in plan


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_what_auto_comes_to_is_shown(algorithm: str, folder: Path) -> None:
    plan = planned(folder, "train", algorithm, "--mode", "parallel", "--num-workers", "auto")
    changes = {"num_workers": ("--num-workers", "auto")}
    config = new_config(algorithm, "parallel", ROOT / "config" / f"{algorithm}_parallel.yaml", changes)
    division = computed_division(config, usable_cpus())
    assert f"{ALGORITHMS[algorithm].worker.capitalize()}s: {division.workers} × " in plan
    assert "Chosen for " in plan
    assert "FPS" not in plan


def test_a_cluster_is_not_asked(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_AUTH_TOKEN", "a" * 32)
    with socket.create_server(("127.0.0.1", 0)) as head:
        head.settimeout(0.1)
        address = f"127.0.0.1:{head.getsockname()[1]}"
        plan = planned(folder, "train", "ppo", "--mode", "parallel", "--cluster", address)
        with pytest.raises(TimeoutError):
            head.accept()
    assert f"Cluster: {address} (not contacted" in plan
    elsewhere = ("--mode", "parallel", "--cluster", "10.0.0.1:6379")
    for algorithm, entry in ALGORITHMS.items():
        assert "excluding Ray" in planned(folder, "train", algorithm, *elsewhere, "--num-workers", "2")
        plan = planned(folder, "train", algorithm, *elsewhere, "--num-workers", "auto")
        assert f"{entry.worker.capitalize()}s: auto, one for each core of the cluster" in plan
        assert f"depends on the number of {entry.worker}s" in plan
    assert "Workers: " in planned(folder, "train", "a3c", "--cluster", "local", "--num-workers", "auto")


def test_what_a_real_run_refuses_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH", "RAY_ADDRESS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(folder))
    (folder / "file").touch()
    (folder / "foreign" / "logs").mkdir(parents=True)
    (folder / "foreign" / "logs" / "diary.txt").touch()
    refusals: list[tuple[int, tuple[str, ...], str]] = [
        (2, ("ppo", "--num-envs", "0"), "--num-envs"),
        (2, ("ppo", "--bogus", "1"), "--bogus"),
        (2, ("ppo", "--env", "NoSuch-v7"), "NoSuch-v7"),
        (2, ("ppo", "--env", "CartPole-v1", "--network", "nature"), "does not fit"),
        (2, ("ppo", "--mode", "parallel", "--device", "cuda"), "cuda"),
        (2, ("ppo", "--cluster", "local"), "sequential"),
        (2, ("ppo", "--mode", "parallel", "--cluster", "10.0.0.1:6379"), "token"),
        (2, ("ppo", "--output-dir", "file"), "is a file"),
        (2, ("ppo", "--output-dir", "foreign"), "do not belong to a run"),
        (6, ("ppo", "--output-dir", "file/below"), "Not a directory"),
        (5, ("ppo", "--resume", "nothing"), "no run to resume"),
    ]
    for code, arguments, words in refusals:
        dry(folder, "train", *arguments).assert_one_line_error(code, words)


def test_an_earlier_run_would_be_moved_and_one_under_way_is_refused(copy: Path) -> None:
    (copy.parent / "run.1").mkdir()
    plan = planned(copy.parent, "train", "ppo", *SMALL, "--output-dir", copy)
    assert f"the earlier run in {copy} would be moved to {copy}.2" in plan
    dry(copy.parent, "train", "ppo", *SMALL, "--output-dir", copy / "x").assert_one_line_error(2, "inside the run")
    descriptor, _ = take_lock(copy / ".lock")
    assert descriptor is not None
    try:
        dry(copy.parent, "train", "ppo", *SMALL, "--output-dir", copy).assert_one_line_error(
            2, "in use", str(os.getpid())
        )
        dry(copy.parent, "train", "--resume", copy).assert_one_line_error(2, "in use")
    finally:
        os.close(descriptor)


def test_a_resumed_run_would_go_on_where_it_was(copy: Path) -> None:
    plan = planned(copy.parent, "train", "--resume", copy, "--total-timesteps", "1024")
    assert f"Resume: from {copy}/checkpoints/ppo_sequential_final.pt, at step 512, update 2" in plan
    assert "would be moved" not in plan
    shutil.rmtree(copy / "checkpoints")
    dry(copy.parent, "train", "--resume", copy).assert_one_line_error(5, "no checkpoint")


def test_a_suite_lists_its_runs(cartpole: Path, folder: Path) -> None:
    suite = ("benchmark", "--games", "CartPole-v1", "--algorithms", "ppo", "a3c", "--seeds", "42", "7")
    suite = (*suite, "--total-timesteps", "512", "--num-envs", "8", "--n-steps", "32", "--num-workers", "auto")
    done = folder / "benchmarks" / "suite" / "CartPole-v1" / "ppo_sequential" / "seed_42"
    shutil.copytree(cartpole, done)
    plan = planned(folder, *suite)
    path = "benchmarks/suite/CartPole-v1"
    assert f"[1/6] ppo sequential CartPole-v1 seed 42: already finished, {path}/ppo_sequential/seed_42" in plan
    assert f"[2/6] ppo parallel CartPole-v1 seed 42: would be started, {path}/ppo_parallel/seed_42" in plan
    assert f"[6/6] a3c parallel CartPole-v1 seed 7: would be started, {path}/a3c_parallel/seed_7" in plan
    (done / "training_summary.json").unlink()
    assert "[1/6] ppo sequential CartPole-v1 seed 42: would be resumed" in planned(folder, *suite)
    dry(folder, "benchmark").assert_one_line_error(2, "contains no suite")
    dry(folder, *suite, "--output-dir", done / "x").assert_one_line_error(2, "inside the run")


def test_a_script_has_it_and_torch_is_not_loaded(folder: Path) -> None:
    script = "import sys, runpy; sys.argv = sys.argv[1:]; sys.path.insert(0, sys.argv[0].rpartition('/')[0])\n"
    script += "try:\n    runpy.run_path(sys.argv[0], run_name='__main__')\n"
    script += "finally:\n    assert 'torch' not in sys.modules and 'procgen' not in sys.modules"
    before = listing(folder)
    command = [
        sys.executable,
        "-c",
        script,
        str(ROOT / "train_parallel_timed.py"),
        "--duration",
        "0.5",
        "--num-workers",
        "2",
    ]
    done = run([*command, "--num-envs", "16", "--dry-run"], cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "Workers: 2 × 16 environments = 32" in done.stdout
    assert listing(folder) == before


def test_a_plan_that_nobody_can_read_is_a_failure(folder: Path) -> None:
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "rlcb", "train", "ppo", "--dry-run"]
        assert subprocess.run(command, cwd=folder, stdout=full, stderr=subprocess.DEVNULL, check=False).returncode == 6
