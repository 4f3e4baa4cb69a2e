"""Signals and exceptions during a call from Python: saved, resumable, and the caller's process goes on as it was."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from helpers.processes import wait_for_file, wait_for_line

SMALL = {"env": "CartPole-v1", "n_steps": 32, "batch_size": 128, "n_epochs": 1, "num_threads": 1, "quiet": True}
DIVISION = {"sequential": {"num_envs": 8}, "parallel": {"num_workers": 2, "num_envs": 4}}
BEGIN = f"""
import os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job's tests inherit that it is ignored
import psutil, rlcb
def children():
    return [child for child in psutil.Process().children(recursive=True) if child.status() != "zombie"]
def tell(metrics):
    print("update", metrics["update"], flush=True)
def train(mode, division, **more):
    return rlcb.train("ppo", mode, total_timesteps=10**9, output_dir="run", **division, **{{**{SMALL!r}, **more}})
"""


@pytest.fixture
def begun(tmp_path: Path) -> Iterator[list[subprocess.Popen[str]]]:
    """Processes that are ended with the test."""
    processes: list[subprocess.Popen[str]] = []
    yield processes
    for process in processes:
        process.kill()
        process.communicate()


def begin(folder: Path, code: str, begun: list[subprocess.Popen[str]]) -> subprocess.Popen[str]:
    """Start a script that begins as BEGIN does, in a folder."""
    (folder / "script.py").write_text(BEGIN + code)
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process: subprocess.Popen[str] = subprocess.Popen([sys.executable, "script.py"], cwd=folder, **pipes)  # type: ignore[call-overload]
    begun.append(process)
    return process


@pytest.mark.parametrize("mode", DIVISION)
def test_ctrl_c_saves_raises_and_the_run_can_be_resumed(
    mode: str, tmp_path: Path, begun: list[subprocess.Popen[str]]
) -> None:
    code = f"""
try:
    train({mode!r}, {DIVISION[mode]!r}, on_update=tell)
except rlcb.Interrupted as stop:
    run = stop.run
    print("stopped", run.status, run.reason)
    print(stop)
assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
assert not children()
steps = int(run.metrics.total_timesteps)
again = rlcb.train(resume=run, total_timesteps=steps + 256, quiet=True)
print("then", again.status, int(again.metrics.total_timesteps) - steps)
"""
    process = begin(tmp_path, code, begun)
    wait_for_line(process, "update 2")
    process.send_signal(signal.SIGINT)
    wait_for_line(process, "stopped unfinished interrupted at step")
    assert wait_for_line(process, "saved in run").endswith("resume with rlcb.train(resume='run')\n")
    assert wait_for_line(process, "then") == "then finished 256\n"
    assert process.wait(60) == 0


@pytest.mark.parametrize("mode", DIVISION)
def test_a_second_ctrl_c_stops_at_once_and_leaves_no_process(
    mode: str, tmp_path: Path, begun: list[subprocess.Popen[str]]
) -> None:
    code = f"""
def twice(metrics):
    if metrics["update"] == 2:
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
try:
    train({mode!r}, {DIVISION[mode]!r}, on_update=twice)
except rlcb.Interrupted:
    print("saved first")
except KeyboardInterrupt:
    print("at once", len(children()), os.path.exists("run/.lock"))
assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
"""
    process = begin(tmp_path, code, begun)
    assert wait_for_line(process, "") == "at once 0 False\n"
    assert process.wait(60) == 0


def test_a_termination_saves_and_then_terminates(tmp_path: Path, begun: list[subprocess.Popen[str]]) -> None:
    process = begin(tmp_path, f"train('parallel', {DIVISION['parallel']!r}, on_update=tell)", begun)
    wait_for_line(process, "update 2")
    workers = psutil.Process(process.pid).children()
    process.terminate()
    assert process.wait(60) == -signal.SIGTERM
    assert list((tmp_path / "run" / "checkpoints").glob("ppo_parallel_step_*.pt"))
    gone, alive = psutil.wait_procs(workers, 60)
    assert (len(gone), alive) == (2, [])


def test_a_handler_of_the_callers_own_is_called_and_the_run_returned(
    tmp_path: Path, begun: list[subprocess.Popen[str]]
) -> None:
    code = f"""
signal.signal(signal.SIGINT, lambda *_: print("mine"))
run = train("sequential", {DIVISION["sequential"]!r}, on_update=tell)
print("returned", run.status)
"""
    process = begin(tmp_path, code, begun)
    wait_for_line(process, "update 2")
    process.send_signal(signal.SIGINT)
    wait_for_line(process, "mine")
    assert wait_for_line(process, "returned") == "returned unfinished\n"


@pytest.mark.parametrize("mode", DIVISION)
def test_the_callback_can_stop_a_run_or_fail(mode: str, tmp_path: Path, begun: list[subprocess.Popen[str]]) -> None:
    code = f"""
run = train({mode!r}, {DIVISION[mode]!r}, on_update=lambda metrics: metrics["update"] < 2)
print(run.status, run.reason.startswith("interrupted at step"), len(children()))
def fail(metrics):
    raise ZeroDivisionError("the caller's own")
try:
    rlcb.train(resume=run, on_update=fail, quiet=True)
except ZeroDivisionError as error:
    print(error, len(children()), os.path.exists("run/.lock"))
"""
    process = begin(tmp_path, code, begun)
    out, err = process.communicate(timeout=200)
    assert out == "unfinished True 0\nthe caller's own 0 False\n", err
    assert process.returncode == 0


def test_ctrl_c_during_an_evaluation_keeps_the_episodes(tmp_path: Path, begun: list[subprocess.Popen[str]]) -> None:
    code = f"""
run = rlcb.train("ppo", total_timesteps=512, output_dir="run", num_envs=8, **{SMALL!r})
print("evaluating", flush=True)
try:
    rlcb.evaluate(run, num_episodes=10**6, num_envs=1)
except rlcb.Interrupted as stop:
    print("stopped", stop, stop.run)
"""
    process = begin(tmp_path, code, begun)
    wait_for_line(process, "evaluating")
    wait_for_file(tmp_path / "run" / "checkpoints" / "ppo_sequential_final_evaluation.json")
    process.send_signal(signal.SIGINT)
    line = wait_for_line(process, "stopped interrupted")
    assert "the episodes that had finished are in run/checkpoints/ppo_sequential_final_evaluation.json None" in line
