"""A run that was stopped goes on as if it never had been."""

import json
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from helpers.equal_runs import FINAL, assert_equal_runs, learned
from helpers.processes import CARTPOLE, TINY, rlcb, weights

Start = Callable[..., subprocess.Popen[str]]


@pytest.mark.parametrize(
    ("env", "precision"),
    [
        ("coinrun", "fp32"),
        ("starpilot", "fp32"),
        ("bigfish", "fp32"),
        ("CartPole-v1", "fp32"),
        ("coinrun", "bf16"),
        ("CartPole-v1", "bf16"),
    ],
)
def test_half_and_half_is_the_whole(env: str, precision: str, tmp_path: Path) -> None:
    arguments = ("train", "ppo", *TINY, "--env", env, "--precision", precision)
    whole, half = tmp_path / "whole", tmp_path / "half"
    assert rlcb(*arguments, "--total-timesteps", "1536", "--output-dir", whole).returncode == 0
    assert rlcb(*arguments, "--total-timesteps", "768", "--output-dir", half).returncode == 0
    done = rlcb("train", "--resume", half, "--total-timesteps", "1536")
    assert done.returncode == 0, done.stderr
    assert_equal_runs(whole, half)


def test_the_falling_learning_rate_of_an_extended_run_ends_with_its_new_length(tmp_path: Path) -> None:
    arguments = ("train", "ppo", *CARTPOLE, "--lr-schedule", "linear", "--learning-rate", "1e-3", "--log-interval", "1")
    done = rlcb(*arguments, "--total-timesteps", "512", "--output-dir", tmp_path / "run")
    assert done.returncode == 0, done.stderr
    said = "note: the linear schedule of the learning rate now ends with the new length of the run"
    assert said not in done.stderr
    done = rlcb("train", "--resume", tmp_path / "run", "--total-timesteps", "1024")
    assert done.returncode == 0, done.stderr
    assert done.stderr.count(said) == 1
    longer = ("--total-timesteps", "1536", "--output-dir", tmp_path / "longer")
    shutil.copytree(tmp_path / "run", tmp_path / "longer")
    done = rlcb(*arguments, *longer, "--resume", "auto")
    assert done.returncode == 0, done.stderr
    assert done.stderr.count(said) == 1
    rates = json.loads((tmp_path / "run" / "metrics.json").read_text())["learning_rate"]
    assert rates == pytest.approx([1e-3, 0.5e-3, 0.5e-3, 0.25e-3])


def test_the_same_seed_gives_the_same_run_and_another_does_not(tmp_path: Path) -> None:
    for name, seed in (("a", "1"), ("b", "1"), ("c", "2")):
        arguments = (*CARTPOLE, "--seed", seed, "--total-timesteps", "512", "--output-dir", tmp_path / name)
        assert rlcb("train", "ppo", *arguments).returncode == 0
    assert_equal_runs(tmp_path / "a", tmp_path / "b")
    assert weights(tmp_path / "a" / FINAL) != weights(tmp_path / "c" / FINAL)


def test_a_finished_run_stays_finished(tmp_path: Path) -> None:
    path = tmp_path / "run"
    assert rlcb("train", "ppo", *CARTPOLE, "--total-timesteps", "512", "--output-dir", path).returncode == 0
    before = weights(path / FINAL)
    done = rlcb("train", "--resume", path)
    assert done.returncode == 0
    assert weights(path / FINAL) == before
    assert [line["update"] for line in learned(path)] == [1, 2]


def test_the_clock_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "run"
    assert rlcb("train", "ppo", *CARTPOLE, "--total-timesteps", "512", "--output-dir", path).returncode == 0
    first = json.loads((path / "benchmark_metrics.json").read_text())
    time.sleep(2)
    assert rlcb("train", "--resume", path, "--total-timesteps", "1024").returncode == 0
    second = json.loads((path / "benchmark_metrics.json").read_text())
    assert second["start_time"] == first["start_time"]
    assert second["duration_hours"] > first["duration_hours"]
    assert second["total_updates"] == 4
    times = [
        line["time"] for line in map(json.loads, (path / "logs/PPO_Sequential/metrics.jsonl").read_text().splitlines())
    ]
    assert times == sorted(times)


@pytest.mark.parametrize("flags", [("--seed", "7"), ("--num-envs", "4"), ("--config", "config/ppo_paper.yaml")])
def test_what_would_make_it_another_run_cannot_change(flags: tuple[str, str], tmp_path: Path) -> None:
    path = tmp_path / "run"
    assert rlcb("train", "ppo", *CARTPOLE, "--total-timesteps", "256", "--output-dir", path).returncode == 0
    rlcb("train", "--resume", path, *flags).assert_one_line_error(2, flags[0], "resume")
