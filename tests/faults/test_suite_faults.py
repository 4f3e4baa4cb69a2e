"""Suites that are killed, interrupted, begun twice: they go on and repeat nothing."""

import hashlib
import json
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from helpers.processes import ROOT, TINY, rlcb, wait_for_file, wait_for_line
from rlcb.suite.directory import result_of, resumable, runs_of, stored
from rlcb.suite.schema import SuiteConfig

Start = Callable[..., subprocess.Popen[str]]
# One worker: what is tested here is the suite, and each more would have to load torch too.
CARTPOLE = ("--games", "CartPole-v1", *TINY, "--num-workers", "1", "--tensorboard", "false")
ENDLESS = ("--total-timesteps", "1000000000")


@pytest.fixture(autouse=True)
def _in_the_repository(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the usual config files are."""
    monkeypatch.chdir(ROOT)


def suite_events(output: Path) -> list[tuple[str, str | None]]:
    lines = [json.loads(line) for line in (output / "suite_events.jsonl").read_text().splitlines()]
    return [(line["event"], line.get("run")) for line in lines]


def fingerprints(folder: Path) -> dict[str, tuple[int, str]]:
    """Time of change and content of every file in a run directory."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path): (path.stat().st_mtime_ns, hashlib.sha256(path.read_bytes()).hexdigest()) for path in files}


def test_a_killed_suite_with_a_failing_run_is_continued_and_repeats_nothing(start: Start, tmp_path: Path) -> None:
    """Two modes and three seeds, one run after the other: a run that is killed before its first checkpoint begins anew.

    A file stands where the second run should go; SIGKILL comes during the third.
    """
    output = tmp_path / "out"
    folder = output / "CartPole-v1"
    obstacle = folder / "ppo_parallel" / "seed_1"
    obstacle.parent.mkdir(parents=True)
    obstacle.touch()
    settings = ("--seeds", "1", "2", "3", "--total-timesteps", "5120", "--eval-episodes", "0", "--cool-down", "0.1")
    process = start("benchmark", *CARTPOLE, *settings, "--save-interval", "5", "--jobs", "1", "--output-dir", output)
    failed = wait_for_line(process, "FAILED")
    assert "[2/6] ppo parallel CartPole-v1 seed 1" in failed
    assert "exit code 2" in failed
    assert "is a file" in failed
    wait_for_file(folder / "ppo_sequential" / "seed_2" / "checkpoints" / "ppo_sequential_step_0.pt")
    family = psutil.Process(process.pid).children(recursive=True)
    process.kill()
    process.wait()  # it has the lock until then
    assert psutil.wait_procs(family, timeout=30)[1] == []

    runs = runs_of(stored(output).settings, output)
    finished = {run: fingerprints(run.path) for run in runs if result_of(run)}
    begun = [run for run in runs if run not in finished and resumable(run)]
    assert runs[0] in finished
    assert len(finished) < 5
    obstacle.unlink()
    done = rlcb("benchmark", "--jobs", "1", "--output-dir", output)
    assert "[1/6] ppo sequential CartPole-v1 seed 1: already finished" in done.stdout
    assert done.returncode == 0, done.stdout + done.stderr
    for run in runs:
        assert result_of(run), run.name
        assert json.loads((run.path / "training_summary.json").read_text())["total_timesteps"] == 5120
        assert not run.path.with_name(f"{run.path.name}.1").exists()
    for run, before in finished.items():
        assert fingerprints(run.path) == before
    events = suite_events(output)
    again = events[events.index(("suite_started", None), 1) :]
    assert [name for event, name in again if event in ("run_started", "run_resumed")] == [
        run.name for run in runs if run not in finished
    ]
    for run in begun:
        assert ("run_resumed", run.name) in again
        assert "resumed" in (run.path / "events.jsonl").read_text()


def test_ctrl_c_saves_and_says_how_to_continue_and_a_second_suite_waits_outside(start: Start, tmp_path: Path) -> None:
    output = tmp_path / "out"
    settings = (*CARTPOLE, "--modes", "sequential", "--seeds", "1", "2", *ENDLESS)
    process = start("benchmark", *settings, "--jobs", "1", "--output-dir", output)
    run = runs_of(SuiteConfig(modes=["sequential"], seeds=[1], games=["CartPole-v1"]), output)[0]
    wait_for_file(run.path / "checkpoints" / "ppo_sequential_step_0.pt")
    for more in ((), ("--seeds", "1", "2", "3")):
        outside = rlcb("benchmark", *more, "--output-dir", output)
        outside.assert_one_line_error(2, "a suite is running there", f"pid {process.pid}", "wait until it ends")
    assert stored(output).settings.seeds == [1, 2]
    family = psutil.Process(process.pid).children(recursive=True)
    os.kill(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, out + err
    assert "[1/2] ppo sequential CartPole-v1 seed 1: interrupted, saved at step " in out
    assert f"Resume with: rlcb benchmark --output-dir {output} --jobs 1" in out
    assert "Traceback" not in out + err
    assert psutil.wait_procs(family, timeout=30)[1] == []
    assert json.loads((run.path / "training_summary.json").read_text())["status"] == "interrupted"
    assert resumable(run)
    assert result_of(run) is None
    assert ("run_interrupted", run.name) in suite_events(output)
    assert not run.path.with_name("seed_2").exists()
    other = rlcb("benchmark", *settings, "--gamma", "0.5", "--output-dir", output)
    other.assert_one_line_error(2, "gamma not set there and 0.5 here")


def test_a_second_signal_ends_everything_at_once(start: Start, tmp_path: Path) -> None:
    process = start("benchmark", *CARTPOLE, *ENDLESS, "--output-dir", tmp_path / "out")
    wait_for_line(process, "started")
    suite = psutil.Process(process.pid)
    while not (family := [child for child in suite.children() if child.cmdline()[2:4] == ["rlcb", "train"]]):
        assert process.poll() is None
    family[0].suspend()  # so that it cannot end of its own accord
    os.kill(process.pid, signal.SIGTERM)
    assert process.stderr is not None
    assert any("again to stop at once" in line for line in process.stderr)
    os.kill(process.pid, signal.SIGTERM)
    assert process.wait(60) == 143
    assert psutil.wait_procs(family, timeout=30)[1] == []
