"""Suites with several runs at a time, in real processes: the same results as one after the other, faults, marks."""

import json
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from helpers.equal_runs import assert_equal_runs
from helpers.in_process import rlcb_here
from helpers.processes import ROOT, rlcb, wait_for_file, weights
from helpers.suite_directories import suite_runs
from rlcb.analysis.suites import SuiteRun
from rlcb.hardware import usable_cpus
from rlcb.suite.directory import result_of, resumable

Start = Callable[..., subprocess.Popen[str]]
SMALL = ("--num-envs", "8", "--n-steps", "32", "--batch-size", "128", "--n-epochs", "1", "--tensorboard", "false")
CARTPOLE = ("benchmark", "--games", "CartPole-v1", *SMALL)
SEQUENTIAL = (*CARTPOLE, "--modes", "sequential", "--eval-episodes", "0")
FOUR = (*SEQUENTIAL, "--seeds", "1", "2", "3", "4")

pytestmark = pytest.mark.skipif(usable_cpus() < 2, reason="one core: runs are never side by side")


@pytest.fixture(autouse=True)
def _in_the_repository(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the usual config files are."""
    monkeypatch.chdir(ROOT)


def hardware(run: SuiteRun) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((run.path / "benchmark_metrics.json").read_text())["hardware"]
    return found


def trainings(pid: int) -> list[psutil.Process]:
    """The training processes of a suite, once they are more than their starters."""
    return [child for child in psutil.Process(pid).children() if child.cmdline()[2:4] == ["rlcb", "train"]]


def test_eight_runs_give_the_same_weights_side_by_side_and_one_after_the_other(tmp_path: Path) -> None:
    """Both modes: a sequential run has a core, a parallel one as many as workers."""
    settings = (*CARTPOLE, "--seeds", "1", "2", "3", "4", "--num-workers", "2", "--total-timesteps", "2560")
    together, alone = tmp_path / "together", tmp_path / "alone"
    for output, jobs in ((together, ("--jobs", "auto")), (alone, ("--jobs", "1"))):
        done = rlcb(*settings, "--eval-episodes", "0", *jobs, "--output-dir", output)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "[8 of 8 done, 0 running]" in done.stdout
        assert "\n8 runs, 20,480 steps in " in done.stdout
        assert ("[0 of 8 done, 2 running]" in done.stdout) == (output == together)
        assert ("(shared): other runs trained" in " ".join(done.stdout.split())) == (output == together)
    for one, two in zip(suite_runs(together), suite_runs(alone), strict=True):
        assert weights(one.final_checkpoint) == weights(two.final_checkpoint), one.name
        assert hardware(one)["num_threads"] == hardware(two)["num_threads"]
        assert hardware(one)["usable_cores"] == hardware(two)["usable_cores"] == usable_cpus()
        assert "jobs_beside" not in hardware(two)
    assert hardware(suite_runs(together)[0])["jobs_beside"] >= 1


def test_evaluations_run_side_by_side_and_give_what_they_give_one_after_the_other(tmp_path: Path) -> None:
    settings = (*CARTPOLE, "--modes", "sequential", "--seeds", "1", "2", "3", "--total-timesteps", "1024")
    found = []
    for name, jobs in (("together", ()), ("alone", ("--jobs", "1"))):
        output = tmp_path / name
        done = rlcb(*settings, "--eval-episodes", "5", *jobs, "--output-dir", output)
        assert done.returncode == 0, done.stdout + done.stderr
        assert sum("evaluation of" in line and ": finished (" in line for line in done.stdout.splitlines()) == 3
        files = [run.path / "checkpoints" / "ppo_sequential_final_evaluation.json" for run in suite_runs(output)]
        evaluated = [json.loads(file.read_text()) for file in files]
        found.append([[entry["rewards"] for entry in one["evaluations"]] for one in evaluated])
        for run in suite_runs(output):  # again with three left to do
            (run.path / "checkpoints" / "ppo_sequential_final_evaluation.json").unlink()
        again = rlcb("benchmark", "--output-dir", output, *jobs)
        assert again.returncode == 0, again.stdout + again.stderr
        assert all(file.is_file() for file in files)
    assert found[0] == found[1]


def test_a_killed_suite_goes_on_and_what_shared_the_machine_stays_marked(start: Start, tmp_path: Path) -> None:
    output = tmp_path / "out"
    settings = (*FOUR, "--total-timesteps", "20480", "--save-interval", "5", "--output-dir", output)
    process = start(*settings, "--jobs", "2")
    folder = output / "CartPole-v1" / "ppo_sequential"
    for seed in (1, 2):
        wait_for_file(folder / f"seed_{seed}" / "checkpoints" / "ppo_sequential_step_0.pt")
    family = psutil.Process(process.pid).children(recursive=True)
    process.kill()
    assert psutil.wait_procs(family, timeout=30)[1] == []
    # As if the first run had been killed between its checkpoint and its summary.
    (folder / "seed_1" / "benchmark_metrics.json").unlink(missing_ok=True)
    untouched = [run for run in suite_runs(output) if not run.path.exists()]
    assert any(result_of(run) is None for run in suite_runs(output))
    done = rlcb(*settings, "--jobs", "1")
    assert done.returncode == 0, done.stdout + done.stderr
    first = suite_runs(output)[0]
    assert all(result_of(run) for run in suite_runs(output))
    assert hardware(first)["jobs_beside"] == 1
    assert not any("jobs_beside" in hardware(run) for run in untouched)
    whole = ("--config", output / "configs" / "ppo_sequential.yaml", "--env", "CartPole-v1", "--seed", "1")
    assert rlcb("train", "ppo", *whole, "--output-dir", tmp_path / "whole").returncode == 0
    assert_equal_runs(first.path, tmp_path / "whole")


def test_a_signal_saves_every_run_under_way_and_starts_no_other(start: Start, tmp_path: Path) -> None:
    output = tmp_path / "out"
    process = start(*FOUR, "--total-timesteps", "1000000000", "--jobs", "2", "--output-dir", output)
    folder = output / "CartPole-v1" / "ppo_sequential"
    for seed in (1, 2):
        wait_for_file(folder / f"seed_{seed}" / "checkpoints" / "ppo_sequential_step_0.pt")
    one, two = trainings(process.pid)
    assert not set(one.cpu_affinity()) & set(two.cpu_affinity())
    os.kill(process.pid, signal.SIGTERM)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 143, out + err
    assert f"Resume with: rlcb benchmark --output-dir {output} --jobs 2" in out
    assert "Traceback" not in out + err
    assert psutil.wait_procs([one, two], timeout=30)[1] == []
    runs = suite_runs(output)
    for run in runs[:2]:
        assert json.loads((run.path / "training_summary.json").read_text())["status"] == "interrupted"
        assert resumable(run)
    assert not any(run.path.exists() for run in runs[2:])


def test_one_failing_run_among_four_does_not_stop_the_others(tmp_path: Path) -> None:
    output = tmp_path / "out"
    obstacle = output / "CartPole-v1" / "ppo_sequential" / "seed_2"
    obstacle.parent.mkdir(parents=True)
    obstacle.touch()
    done = rlcb(*FOUR, "--total-timesteps", "512", "--jobs", "2", "--output-dir", output)
    again = f"rlcb benchmark --output-dir {output} --jobs 2"
    done.assert_one_line_error(1, "1 failed", "seed 2: exit code 2", "is a file", again)
    lines = done.stdout.splitlines()
    failed = next(number for number, line in enumerate(lines) if "FAILED" in line)
    assert lines[failed].startswith("[2/4] ppo sequential CartPole-v1 seed 2: FAILED, exit code 2")
    assert lines[failed + 1].startswith("    rlcb train: error: ")  # the end of its log
    assert "\n3 runs, 1,536 steps in " in done.stdout
    assert [bool(result_of(run)) for run in suite_runs(output)] == [True, False, True, True]


def test_runs_by_time_share_the_cores_only_if_that_is_asked_for(tmp_path: Path) -> None:
    settings = (*SEQUENTIAL, "--seeds", "1", "2", "--duration", "0.0003", "--output-dir", tmp_path / "out")
    assert "Concurrency" not in rlcb_here(*settings, "--dry-run").stdout
    done = rlcb(*settings, "--jobs", "2")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "note: several timed runs share the cores" in done.stderr
    for run in suite_runs(tmp_path / "out"):
        assert hardware(run)["num_threads"] == usable_cpus() // 2
    assert hardware(suite_runs(tmp_path / "out")[0])["jobs_beside"] == 1


def test_a_dry_run_shows_what_runs_beside_what(tmp_path: Path) -> None:
    settings = (*FOUR, "--total-timesteps", "512", "--num-threads", "1", "--output-dir", tmp_path / "out")
    done = rlcb_here(*settings, "--jobs", "2", "--dry-run")
    assert done.returncode == 0, done.stderr
    cores = usable_cpus() // 2
    each = f"{cores} core{'' if cores == 1 else 's'}"
    assert f"Concurrency: up to 2 runs on {usable_cpus()} cores; cores per run: ppo_sequential {cores}\n" in done.stdout
    assert f"  [1/4] on {each}, [2/4] on {each}\n  [3/4] on {each}, [4/4] on {each}\n" in done.stdout
    assert not (tmp_path / "out").exists()
    one = rlcb_here(*settings, "--jobs", "1", "--dry-run")
    assert "side by side" not in one.stdout
