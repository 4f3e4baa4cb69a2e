"""Faults, injected for real: signals, full and read-only disks, numbers that are not numbers, missing packages."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from helpers.equal_runs import assert_equal_runs
from helpers.processes import CARTPOLE, EVERY_LINE, ROOT, TINY, descendants, python, rlcb, wait_for_file, wait_for_line
from rlcb.run.checkpoint import load_checkpoint, load_newest

Start = Callable[..., subprocess.Popen[str]]
ENDLESS = ("--total-timesteps", "1000000000")


def events(path: Path) -> list[str]:
    return [json.loads(line)["event"] for line in (path / "events.jsonl").read_text().splitlines()]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize("env", ["CartPole-v1", "coinrun"])
def test_one_signal_saves_and_says_how_to_resume(
    start: Start, tmp_path: Path, number: int, code: int, env: str
) -> None:
    path = tmp_path / "run"
    process = start("train", "ppo", *TINY, "--env", env, *ENDLESS, "--output-dir", path)
    wait_for_line(process, "Update 3 |")
    os.kill(process.pid, number)
    out, err = process.communicate(timeout=60)
    assert process.returncode == code
    assert "Traceback" not in out + err
    assert f"Resume with: rlcb train --resume {path}" in out
    assert "TRAINING SUMMARY" in out
    assert descendants(process.pid) == []
    assert "interrupted" in events(path)
    summary = json.loads((path / "training_summary.json").read_text())
    assert summary["status"] == "interrupted"
    newest, content = load_newest(path / "checkpoints", "ppo", pytest.fail)
    assert newest.name == f"ppo_sequential_step_{summary['total_timesteps']}.pt"
    more = content["meta"]["env_steps"] + 256
    done = rlcb("train", "--resume", path, "--total-timesteps", str(more))
    assert done.returncode == 0, done.stderr
    assert json.loads((path / "training_summary.json").read_text())["total_timesteps"] == more


def test_ctrl_c_before_the_first_update_leaves_something_to_resume(start: Start, tmp_path: Path) -> None:
    path = tmp_path / "run"
    process = start("train", "ppo", *CARTPOLE, *ENDLESS, "--output-dir", path)
    wait_for_line(process, "Output:")  # torch is loading or the first rollout is under way
    os.kill(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in out + err
    assert "Resume with:" in out
    content = load_newest(path / "checkpoints", "ppo", pytest.fail)[1]
    more = content["meta"]["env_steps"] + 256
    assert rlcb("train", "--resume", path, "--total-timesteps", str(more)).returncode == 0


def test_a_second_signal_ends_the_process_at_once(start: Start, tmp_path: Path) -> None:
    path = tmp_path / "run"
    # An update of several minutes: ending soon can only mean that it was not waited for.
    long_update = ("--num-envs", "64", "--n-steps", "512", "--batch-size", "2048", "--n-epochs", "60")
    process = start("train", "ppo", *long_update, *ENDLESS, "--output-dir", path)
    first = path / "checkpoints" / "ppo_sequential_step_0.pt"
    wait_for_file(first)
    time.sleep(3)
    os.kill(process.pid, signal.SIGINT)
    time.sleep(0.5)
    assert process.poll() is None
    os.kill(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "Traceback" not in out + err
    assert load_checkpoint(first)["meta"]["env_steps"] == 0
    assert descendants(process.pid) == []


def test_a_disk_that_fills_up_ends_with_6_and_keeps_the_last_checkpoint(tmp_path: Path) -> None:
    """A limit on file sizes that a run meets when it is resumed."""
    path = tmp_path / "run"
    assert (
        rlcb("train", "ppo", *TINY, "--save-interval", "2", "--total-timesteps", "256", "--output-dir", path).returncode
        == 0
    )
    limited = "import resource, runpy, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (6000 * 1024,) * 2)"
    limited += "; sys.argv[0] = 'rlcb'; runpy.run_module('rlcb', run_name='__main__')"
    done = python("-c", limited, "train", "--resume", str(path), *ENDLESS)
    done.assert_one_line_error(6, "ppo_sequential_step_512.pt", "MB")
    newest, content = load_newest(path / "checkpoints", "ppo", pytest.fail)
    assert content["meta"]["env_steps"] == 256
    assert newest.name == "ppo_sequential_final.pt"
    assert not list((path / "checkpoints").glob(".*"))
    lines = (path / "logs" / "PPO_Sequential" / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["update"] for line in lines] == [1, 2]
    assert rlcb("train", "--resume", path, "--total-timesteps", "512").returncode == 0


def test_a_nearly_full_disk_is_refused_at_the_start(tmpfs: Callable[[str], Path]) -> None:
    path = tmpfs("size=5m") / "run"
    rlcb("train", "ppo", "--output-dir", path).assert_one_line_error(6, "MB needed", "5 MB free")
    assert not list((path / "checkpoints").iterdir())


def test_a_disk_that_is_really_full_during_training(tmpfs: Callable[[str], Path]) -> None:
    disk = tmpfs("size=400m")
    path = disk / "run"
    process = subprocess.Popen(
        [sys.executable, "-m", "rlcb", "train", "ppo", *TINY, *EVERY_LINE, "--save-interval", "5", *ENDLESS,
         "--output-dir", path],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    wait_for_line(process, "Update 6 |")
    with (disk / "ballast").open("wb") as ballast:
        try:
            while True:
                ballast.write(b"\0" * 65536)
                ballast.flush()
        except OSError:
            pass
    _, err = process.communicate(timeout=120)
    assert process.returncode == 6, err
    assert "Traceback" not in err
    assert "No space left" in err
    _, content = load_newest(path / "checkpoints", "ppo", pytest.fail)
    assert content["meta"]["env_steps"] >= 5 * 256
    (disk / "ballast").unlink()
    more = content["meta"]["env_steps"] + 256
    assert rlcb("train", "--resume", path, "--total-timesteps", str(more)).returncode == 0


def test_a_read_only_directory_is_refused_before_any_training(tmpfs: Callable[[str], Path]) -> None:
    disk = tmpfs("size=5m,ro")
    rlcb("train", "ppo", "--output-dir", disk / "run").assert_one_line_error(6, "Read-only")
    rlcb("train", "ppo", "--output-dir", "/proc/rlcb").assert_one_line_error(6, "/proc/rlcb")


def test_one_update_that_is_not_finite_is_left_out_and_counted(tmp_path: Path) -> None:
    arguments = ["train", "ppo", *CARTPOLE, "--total-timesteps", "1280", "--output-dir", str(tmp_path / "run")]
    done = python("-c", textwrap.dedent(f"""
        import sys
        from dataclasses import replace
        from rlcb.algorithms import ppo
        from rlcb.cli import main
        real, calls = ppo.ALGORITHM, 0
        def sometimes(*arguments):
            global calls
            calls += 1
            loss, figures = real.loss(*arguments)
            return (loss * float("nan") if calls == 3 else loss), figures
        ppo.ALGORITHM = replace(real, loss=sometimes)
        sys.exit(main({arguments!r}))
    """))  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "1 optimizer step skipped" in done.stderr
    assert "Skipped Optimizer Steps (not finite): 1" in done.stdout
    metrics = json.loads((tmp_path / "run" / "benchmark_metrics.json").read_text())
    assert metrics["skipped_optimizer_steps"] == 1
    assert metrics["total_updates"] == 5
    assert "not_finite" in events(tmp_path / "run")
    load_checkpoint(tmp_path / "run" / "checkpoints" / "ppo_sequential_final.pt")


def test_divergence_ends_with_3_and_the_last_checkpoint_is_finite(tmp_path: Path) -> None:
    path = tmp_path / "run"
    arguments = (*TINY, "--learning-rate", "1e6", "--save-interval", "1", *ENDLESS, "--output-dir", path)
    done = rlcb("train", "ppo", *arguments)
    done.assert_one_line_error(3, "diverged", "learning rate")
    import torch

    _, content = load_newest(path / "checkpoints", "ppo", pytest.fail)
    assert all(bool(torch.isfinite(tensor).all()) for tensor in content["policy"].values())
    assert content["meta"]["updates"] <= 5
    assert list(path.glob("diverged_update_*.pt"))
    assert "failed" in events(path)
    assert json.loads((path / "training_summary.json").read_text())["status"] == "diverged"


@pytest.mark.parametrize("what", ["reward", "observation"])
def test_garbage_from_an_environment_never_reaches_the_weights(what: str, tmp_path: Path) -> None:
    path = tmp_path / "run"
    arguments = ["train", "ppo", *TINY, "--env", "Garbage-v0", *ENDLESS, "--output-dir", str(path)]
    done = python("-c", textwrap.dedent(f"""
        import pathlib, sys, gymnasium, numpy
        from rlcb.cli import main
        from rlcb.run.checkpoint import load_newest
        class Garbage(gymnasium.Env):
            observation_space = gymnasium.spaces.Box(-1, 1, (3,), numpy.float32)
            action_space = gymnasium.spaces.Discrete(2)
            steps = 0
            def reset(self, seed=None, options=None):
                super().reset(seed=seed)
                return numpy.zeros(3, numpy.float32), {{}}
            def step(self, action):
                self.steps += 1
                bad = float("nan") if self.steps > 70 else 0.0
                observation = numpy.full(3, bad if {what!r} == "observation" else 0.0, numpy.float32)
                return observation, bad if {what!r} == "reward" else 1.0, False, False, {{}}
        gymnasium.register("Garbage-v0", Garbage, disable_env_checker=True)
        code = main({arguments!r})
        load_newest(pathlib.Path({str(path)!r}) / "checkpoints", "ppo", sys.exit)  # only here the environment is known
        sys.exit(code)
    """))  # fmt: skip
    named = "an observation" if what == "observation" else "a reward"
    done.assert_one_line_error(3, f"environment Garbage-v0 returned {named} that is not finite (nan)")
    assert "failed" in events(path)


def test_without_tensorboard_training_works_and_asking_for_it_names_the_remedy(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import importlib.util as u\nfind = u.find_spec\n"
        "u.find_spec = lambda name, *rest: None if name == 'tensorboard' else find(name, *rest)\n"
    )
    hidden = {"PYTHONPATH": str(tmp_path)}
    arguments = ("train", "ppo", *CARTPOLE, "--total-timesteps", "256", "--output-dir", tmp_path / "run")
    remedy = "pip install 'rl-cluster-benchmark[tensorboard]'"
    rlcb(*arguments, "--tensorboard", "true", env=hidden).assert_one_line_error(2, remedy)
    done = rlcb(*arguments, env=hidden)
    assert done.returncode == 0
    assert remedy in done.stderr
    assert not list((tmp_path / "run").rglob("*tfevents*"))
    assert rlcb(*arguments, "--tensorboard", "false").returncode == 0
    assert not list((tmp_path / "run").rglob("*tfevents*"))


def test_killed_without_warning_loses_at_most_the_work_since_the_last_checkpoint(start: Start, tmp_path: Path) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    arguments = ("train", "ppo", *CARTPOLE, "--save-interval", "3")
    assert rlcb(*arguments, "--total-timesteps", "5120", "--output-dir", whole).returncode == 0
    process = start(*arguments, "--total-timesteps", "2560000", "--output-dir", killed)
    wait_for_line(process, "Update 8 |")
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    with (killed / "logs" / "PPO_Sequential" / "metrics.jsonl").open("a") as file:
        file.write('{"update": 9999, "step"')  # and its last line was cut off
    done = rlcb("train", "--resume", killed, "--total-timesteps", "5120")
    assert done.returncode == 0, done.stderr
    assert "took over the lock" in done.stderr
    at = int(done.stderr.rsplit("at step ", 1)[1].split()[0].replace(",", ""))
    assert at >= 6 * 256
    if at <= 5120:  # a quick machine may have been further when the signal came
        assert_equal_runs(whole, killed)


def test_a_directory_is_used_by_one_run_at_a_time(start: Start, tmp_path: Path) -> None:
    path = tmp_path / "run"
    process = start("train", "ppo", *CARTPOLE, "--total-timesteps", "100000000", "--output-dir", path)
    wait_for_line(process, "Update 2 |")
    for arguments in (("train", "ppo", *CARTPOLE, "--output-dir", path), ("train", "--resume", path)):
        rlcb(*arguments).assert_one_line_error(2, "in use by another run", f"pid {process.pid}")
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    done = rlcb("train", "ppo", *CARTPOLE, "--total-timesteps", "256", "--output-dir", path)
    assert done.returncode == 0
    assert "took over the lock" in done.stderr
    assert "moved to" in done.stderr
