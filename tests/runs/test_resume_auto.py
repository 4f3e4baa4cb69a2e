"""`--resume auto`: one command that starts a run, goes on with it, and says that it is finished."""

import json
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from helpers.equal_runs import assert_equal_runs
from helpers.in_process import rlcb_here
from helpers.processes import CARTPOLE, EVERY_LINE, ROOT, TINY_ROLLOUT, Finished, python, rlcb, wait_for_line

QUIET = ("--tensorboard", "false")
LONG = 100_000  # updates
Start = Callable[..., subprocess.Popen[str]]


def auto(path: Path, *more: str, updates: int = 4) -> Finished:
    """The command of a restart loop, in this process."""
    total = ("--total-timesteps", str(updates * TINY_ROLLOUT))
    return rlcb_here("train", "ppo", *CARTPOLE, *QUIET, *total, *more, "--resume", "auto", "--output-dir", path)


def interrupted(start: Start, path: Path) -> None:
    """Starts a run that would take long, and stops it after some updates."""
    total = ("--total-timesteps", str(LONG * TINY_ROLLOUT))
    process = start("train", "ppo", *CARTPOLE, *QUIET, *total, "--resume", "auto", "--output-dir", path)
    wait_for_line(process, "Update 3 |")
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 143, err


def summary(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((path / "training_summary.json").read_text())
    return content


def names(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir())


def test_the_same_command_starts_goes_on_and_says_that_it_is_finished(start: Start, tmp_path: Path) -> None:
    whole, path = tmp_path / "whole", tmp_path / "run"
    interrupted(start, path)
    assert summary(path)["status"] == "interrupted"
    steps = summary(path)["total_timesteps"] + 10 * TINY_ROLLOUT
    words = ("train", "ppo", *CARTPOLE, *QUIET, "--total-timesteps", str(steps))
    place = ("--resume", "auto", "--output-dir", path)
    done = rlcb(*words, *place)
    assert done.returncode == 0, done.stderr
    assert "note: resuming from " in done.stderr
    assert summary(path)["total_timesteps"] == steps
    again = rlcb(*words, *place)
    assert again.returncode == 0, again.stderr
    assert again.stdout.startswith(f"Already finished: the run in {path} has {steps:,} steps in ")
    assert "TRAINING SUMMARY" not in again.stdout
    assert names(tmp_path) == ["run"]  # nothing was moved aside
    assert rlcb(*words, "--output-dir", whole).returncode == 0
    assert_equal_runs(whole, path)


def test_a_run_that_is_not_there_is_started(tmp_path: Path) -> None:
    done = auto(tmp_path / "run")
    assert done.returncode == 0, done.stderr
    assert f"note: --resume auto: there is no run in {tmp_path / 'run'}; starting a new one" in done.stderr
    assert summary(tmp_path / "run")["status"] == "finished"
    (tmp_path / "empty").mkdir()
    assert auto(tmp_path / "empty").returncode == 0


def test_a_run_without_a_checkpoint_is_started_anew(tmp_path: Path) -> None:
    path = tmp_path / "run"
    assert auto(path).returncode == 0
    shutil.rmtree(path / "checkpoints")
    done = auto(path)
    assert done.returncode == 0, done.stderr
    assert f"the run in {path} has no checkpoint yet; starting from the beginning" in done.stderr
    assert f"note: the earlier run in {path} was moved to {path}.1\n" in done.stderr
    (path / "config.yaml").unlink()
    shutil.rmtree(path / "checkpoints")
    assert auto(path).returncode == 0
    assert names(tmp_path) == ["run", "run.1", "run.2"]


def test_more_steps_go_on_with_a_finished_run(tmp_path: Path) -> None:
    path = tmp_path / "run"
    assert auto(path).returncode == 0
    done = auto(path, updates=6)
    assert done.returncode == 0, done.stderr
    assert summary(path)["total_updates"] == 6
    assert "Already finished" in auto(path, updates=5).stdout


def test_more_time_goes_on_with_a_finished_run(tmp_path: Path) -> None:
    path = tmp_path / "run"
    words = ("train", "a2c", *QUIET, "--env", "CartPole-v1", "--resume", "auto", "--output-dir", path, "--duration")
    for hours, finished in (("0.0003", False), ("0.0003", True), ("0.0005", False), ("0.0005", True)):
        done = rlcb_here(*words, hours)
        assert done.returncode == 0, done.stderr
        assert ("Already finished" in done.stdout) == finished
    # Killed when more time was given, before anything was saved: what counts is the time that its summary knows.
    config = (path / "config.yaml").read_text()
    (path / "config.yaml").write_text(config.replace("duration_hours: 0.0005", "duration_hours: 0.0007"))
    assert "Already finished" not in rlcb_here(*words, "0.0007").stdout


def test_settings_that_differ_are_refused_and_those_that_do_not_are_taken(tmp_path: Path) -> None:
    path, file = tmp_path / "run", tmp_path / "file.yaml"
    assert auto(path).returncode == 0
    before = (path / "config.yaml").read_bytes()
    other = ("--seed", "7"), ("--num-envs", "16"), ("--learning-rate", "0.5"), ("--network", "mlp")
    for flag, value in other:
        auto(path, flag, value, updates=8).assert_one_line_error(2, f"{flag} {value}: the run in {path} has ")
    stored = before.decode()
    file.write_text(stored.replace("seed: 42", "seed: 43"))
    auto(path, "--config", str(file)).assert_one_line_error(2, f"{file}: env.seed 43: the run in {path} has 42")
    rlcb_here("train", "a2c", "--resume", "auto", "--output-dir", path).assert_one_line_error(
        2, "contains a run of ppo, not of a2c"
    )
    assert (path / "config.yaml").read_bytes() == before
    file.write_text(stored.replace("save_interval: 100", "save_interval: 2"))
    done = auto(path, "--config", str(file), "--precision", "auto", "--seed", "42", updates=6)
    assert done.returncode == 0, done.stderr
    assert "save_interval: 2" in (path / "config.yaml").read_text()


def test_the_number_of_workers_may_change(tmp_path: Path) -> None:
    path = tmp_path / "run"
    size = ("--env", "CartPole-v1", "--n-steps", "32", "--batch-size", "128", "--n-epochs", "1", *QUIET)
    place = ("--mode", "parallel", "--resume", "auto", "--output-dir", path)
    words = ("train", "ppo", *size, *place, "--num-workers", "1", "--num-envs", "8")  # for each worker
    assert rlcb(*words, "--total-timesteps", "512").returncode == 0
    assert "Already finished" in rlcb(*words, "--total-timesteps", "512").stdout
    rlcb(*words[:-1], "16", "--total-timesteps", "512").assert_one_line_error(
        2, "--num-envs 16: 16 environments in total; "
    )
    words = (*words[:-4], "--num-workers", "2", "--num-envs", "4")
    done = rlcb(*words, "--total-timesteps", "1024")
    assert done.returncode == 0, done.stderr
    assert "Worker 1 started with 4 environments" in done.stdout
    assert summary(path)["total_timesteps"] == 1024


def test_a_run_in_use_is_left_alone(start: Start, tmp_path: Path) -> None:
    path = tmp_path / "run"
    words = ("train", "ppo", *CARTPOLE, *QUIET, "--total-timesteps", "1000000000", "--resume", "auto")
    process = start(*words, "--output-dir", path)
    wait_for_line(process, "Update 2 |")
    for dry in ((), ("--dry-run",)):
        done = rlcb(*words, "--output-dir", path, *dry)
        done.assert_one_line_error(2, f"{path}: in use by another run (")
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=120)
    assert names(tmp_path) == ["run"]


def test_a_damaged_run_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "run"
    assert auto(path).returncode == 0
    identity = (path / "run.json").read_bytes()
    (path / "run.json").write_text("{")
    auto(path).assert_one_line_error(
        5, f"{path / 'run.json'}: damaged; nothing was changed", "start from scratch", "move"
    )
    (path / "run.json").unlink()
    auto(path).assert_one_line_error(5, "contains no run to resume (no run.json and config.yaml); nothing was changed")
    (path / "run.json").write_bytes(identity)
    for file in (path / "checkpoints").iterdir():
        file.write_bytes(b"damaged")
    auto(path, updates=8).assert_one_line_error(5, "is usable", "nothing was changed")
    assert names(tmp_path) == ["run"]


def test_a_dry_run_says_what_would_happen(start: Start, tmp_path: Path) -> None:
    path = tmp_path / "run"
    done = auto(path, "--dry-run")
    assert done.returncode == 0, done.stderr
    assert "starting a new one" in done.stderr
    assert not path.exists()
    interrupted(start, path)
    before = names(path)
    done = auto(path, "--dry-run", updates=LONG)
    assert done.returncode == 0, done.stderr
    assert "Resume" in done.stdout
    assert names(path) == before


def test_an_unfinished_run_that_is_moved_aside_says_how_to_go_on(start: Start, tmp_path: Path) -> None:
    path = tmp_path / "run"
    interrupted(start, path)
    new = ("train", "ppo", *CARTPOLE, *QUIET, "--total-timesteps", "256", "--output-dir", path)
    done = rlcb_here(*new)
    assert done.returncode == 0, done.stderr
    said = f"the earlier run in {path} was moved to {path}.1; it is unfinished: resume it with --resume {path}.1 "
    assert said in done.stderr
    assert rlcb("train", "--resume", f"{path}.1", "--total-timesteps", "256").returncode == 0
    assert f"note: the earlier run in {path} was moved to {path}.2\n" in rlcb_here(*new).stderr  # finished


def test_the_documented_scripts_take_it(tmp_path: Path) -> None:
    flags = dict(zip(CARTPOLE[::2], CARTPOLE[1::2], strict=True))
    flags.pop("--lr-schedule")  # no flag of the scripts
    small = [word for flag in flags.items() for word in flag]
    size = (*small, *EVERY_LINE, "--resume", "auto", "--output-dir", str(tmp_path / "run"))
    words = (str(ROOT / "train_ppo_sequential.py"), *size, "--total-timesteps", "512")
    for finished in (False, True):
        done = python(*words)
        assert done.returncode == 0, done.stderr
        assert ("Already finished" in done.stdout) == finished
    python(str(ROOT / "train_timed.py"), *size[-4:]).assert_one_line_error(2, "--duration HOURS is required")


def test_the_algorithm_must_be_known(tmp_path: Path) -> None:
    rlcb_here("train", "--resume", "auto", "--output-dir", tmp_path).assert_one_line_error(2, "no algorithm given")


def test_a_run_goes_on_in_its_own_mode(tmp_path: Path) -> None:
    path = tmp_path / "run"
    size = ("--env", "CartPole-v1", "--n-steps", "32", *QUIET)
    place = ("--resume", "auto", "--output-dir", path)
    two = ("--mode", "parallel", "--num-workers", "2", "--num-envs", "4")
    assert rlcb("train", "a2c", *size, *place, *two, "--total-timesteps", "512").returncode == 0
    done = rlcb("train", "a2c", *place, "--total-timesteps", "1024")
    assert done.returncode == 0, done.stderr
    assert "A2C Parallel Training" in done.stdout
    done = rlcb("train", "a2c", *place, "--mode", "sequential", "--total-timesteps", "1536")
    assert "A2C Sequential Training" in done.stdout


@pytest.mark.parametrize("flag", ["--num-workers", "--num-actors", "--num-envs-per-worker", "--num-learners"])
def test_a_sequential_run_has_no_workers(flag: str, tmp_path: Path) -> None:
    words = (flag, "4", "--output-dir", tmp_path / "run")
    done = rlcb_here("train", "impala", "--mode", "sequential", *words)
    done.assert_one_line_error(2, f"{flag} 4: a sequential run has one process; omit it or use --mode parallel")
    assert not (tmp_path / "run").exists()
    rlcb_here("limits", "impala", "--mode", "sequential", flag, "4").assert_one_line_error(2, "one process")


def test_a_folder_named_auto_is_not_the_word(tmp_path: Path) -> None:
    """`--resume ./auto` resumes what is in that folder; `--resume auto` looks at the output directory."""

    def here(*words: str) -> Finished:
        return rlcb_here("train", *words, folder=tmp_path)

    def steps(name: str) -> Any:
        return summary(tmp_path / name)["total_timesteps"] // TINY_ROLLOUT

    def length(updates: int) -> tuple[str, str]:
        return "--total-timesteps", str(updates * TINY_ROLLOUT)

    words = ("ppo", *CARTPOLE, *QUIET, *length(2))
    assert here(*words, "--output-dir", "./auto").returncode == 0
    assert here(*words, "--resume", "auto", "--output-dir", "other").returncode == 0
    assert (steps("auto"), steps("other")) == (2, 2)
    assert here("--resume", "./auto", *length(4)).returncode == 0
    assert (steps("auto"), steps("other")) == (4, 2)
    assert here("--resume", str(tmp_path / "auto"), *length(5)).returncode == 0
    assert steps("auto") == 5
    refused = here("a2c", "--resume", "./auto")
    refused.assert_one_line_error(
        2, "--resume ./auto: contains a run of ppo", "resume with: rlcb train --resume ./auto"
    )
    here("--resume", "auto").assert_one_line_error(2, "no algorithm given")


def test_a_path_named_auto_in_a_call_is_not_the_word(tmp_path: Path) -> None:
    from rlcb.api import functions
    from rlcb.commands.training import train_parser

    def meant(resume: Any) -> Any:
        return train_parser([]).take({"resume": functions._run_or_auto(resume)}).resume

    assert meant("auto") == "auto"
    for given in (Path("auto"), "./auto", Path("./auto"), Path("auto/")):
        assert meant(given) == Path("auto")
    assert meant(tmp_path / "auto") == tmp_path / "auto"
    assert meant(None) is None
