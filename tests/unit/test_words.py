"""Counts with their nouns, times in units that fit and commands to copy: one function each, in every message."""

import csv
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.comparisons import put
from helpers.in_process import rlcb_here
from helpers.processes import ROOT, run
from helpers.run_directories import change, write_run
from rlcb.analysis.load import load_run
from rlcb.commands.overview import VERBS
from rlcb.console import filled
from rlcb.report.compare import Question, compare_runs
from rlcb.report.two_runs import two_run_texts
from rlcb.run.lines import timed_lines, update_line
from rlcb.suite.directory import store
from rlcb.suite.settings import build_suite
from rlcb.words import counted, exact_time, few_hours, reward_text, span_text, typed, with_deviation


@pytest.mark.parametrize(
    ("count", "noun", "text"),
    [(1, "worker", "1 worker"), (2, "worker", "2 workers"), (0, "run", "0 runs"), (1, "process", "1 process"),
     (2, "process", "2 processes"), (1.0, "hour", "1 hour"), (0.5, "hour", "0.5 hours"), (12000, "run", "12,000 runs"),
     (2_000_000, "step", "2,000,000 steps")],
)  # fmt: skip
def test_counts(count: float, noun: str, text: str) -> None:
    assert counted(count, noun) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.25, "0.25 s"), (1.94, "1.9 s"), (9.96, "10 s"), (42, "42 s"), (60, "1 min"), (100, "1 min 40 s"),
     (621, "10 min"), (3599, "60 min"), (3600, "1 h"), (4830, "1 h 20 min"), (90_000, "25 h")],
)  # fmt: skip
def test_times(seconds: float, text: str) -> None:
    assert span_text(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "width", "text"),
    [(20.0031, 0.0016, "20.0031 s"), (0.00081, 0.0016, "0.0008 s"), (20.0, 0.0016, "20.0000 s"), (42, 3.0, "42.0 s"),
     (42, 30.0, "42 s"), (4812, 24.0, "1 h 20 min 12 s"), (4812, 900.0, "1 h 20 min"), (90_060, 360.0, "25 h 1 min"),
     (119.999, 0.5, "2 min"), (100.04, 0.2, "1 min 40.04 s"), (0.25, 0.2, "0.25 s"), (3.6, 2.2, "3.6 s"),
     (42, 0.0, "42 s"), (42, float("inf"), "42 s")],
)  # fmt: skip
def test_times_as_fine_as_their_interval(seconds: float, width: float, text: str) -> None:
    assert span_text(seconds, width) == text


@pytest.mark.parametrize(
    ("hours", "text"),
    [(1, "1 hour"), (1.5, "1.5 hours"), (8, "8 hours"), (0.25, "15 minutes"), (90 / 3600, "1.5 minutes"),
     (100 / 60, "100 minutes"), (20 / 3600, "20 seconds"), (100 / 3600, "100 seconds"), (0.5 / 3600, "0.5 seconds")],
)  # fmt: skip
def test_lengths_of_runs(hours: float, text: str) -> None:
    assert exact_time(hours) == text


@pytest.mark.parametrize(
    ("value", "width", "text"),
    [(8.5512, 0.3, "8.55"), (8.5512, 0.05, "8.55"), (-6.7, 13.5, "-6.70"), (483.5512, 60.0, "483.55"),  # as ever
     (0.91234, 0.04, "0.912"), (0.91234, 0.004, "0.9123"), (0.91234, 0.0004, "0.91234"), (0.91, 0.004, "0.9100"),
     (0.0000123, 0.000004, "0.0000123"), (8.5512, 0.01, "8.551"),
     (8.5512, None, "8.55"), (483.5512, None, "483.55"), (0.91234, None, "0.912"), (0.9, None, "0.90"),
     (0.00512, None, "0.00512"), (0.0, None, "0.00"), (-0.0, None, "0.00"), (0.99999, None, "1.00"),
     (0.53, None, "0.53"), (0.91234, 0.0, "0.912"), (1e-30, None, "0.00"), (None, None, "n/a"),
     (float("nan"), None, "nan"),
     (0.91234, float("nan"), "0.912"), (-0.0004, 0.5, "0.00")],
)  # fmt: skip
def test_rewards_have_the_digits_that_their_interval_deserves(
    value: float | None, width: float | None, text: str
) -> None:
    assert reward_text(value, width) == text


def test_rounding_moves_no_reward_by_more_than_a_tenth_of_its_interval() -> None:
    rng = np.random.default_rng(3)
    for width in 10 ** rng.uniform(-6, 2, 500):
        value = float(rng.normal(0, 10))
        assert abs(float(reward_text(value, width)) - value) <= width / 10 + 1e-12


def test_a_reward_beside_its_deviation() -> None:
    assert with_deviation(8.5512, 0.25) == ("8.55", "± 0.25")
    assert with_deviation(0.91234, 0.0123) == ("0.912", "± 0.012")
    assert with_deviation(0.91234, 0.0) == ("0.912", "± 0.00")
    assert with_deviation(0.91234, None) == ("0.912", "")
    assert with_deviation(0.93, 0.25, 0.01) == ("0.930", "± 0.250")


def test_results_on_a_scale_of_one_are_told_apart_wherever_they_are_shown(tmp_path: Path) -> None:
    ends = {"sequential": (0.9121, 0.9134, 0.9128), "parallel": (0.9162, 0.9171, 0.9175)}
    for mode, rewards in ends.items():
        for seed, reward in enumerate(rewards, 1):
            path = write_run(tmp_path / "runs" / f"{mode}{seed}", mode=mode, seed=seed, rewards=(0.1, 0.9), noise=0.001)
            change(path, performance={"final_reward": reward, "initial_reward": 0.10432, "best_reward": 0.95})
            put(path, duration_hours=(20 + seed / 1000) / 3600)
    found = compare_runs(Question([tmp_path / "runs"]), tmp_path / "out", lambda _: None)
    page, markdown, text = (
        (tmp_path / "out" / name).read_text() for name in ("report.html", "report.md", "comparison_report.txt")
    )
    assert "Final reward                0.9128 ± 0.0007" in text
    assert "95 % interval             [0.9121, 0.9134]" in text
    assert "20.0020 s ± 0.0010 s" in text
    assert "difference 0.0042, 95 % interval 0.0027 to 0.0057" in found.verdict
    for shown in (page, markdown, text):
        assert "0.9128" in shown
        assert "0.9169" in shown
        assert "0.91 " not in shown
    with (tmp_path / "out" / "runs.csv").open(newline="") as file:
        assert {float(row["final_reward"]) for row in csv.DictReader(file)} == {*ends["sequential"], *ends["parallel"]}
    runs = {mode: load_run(tmp_path / "runs" / f"{mode}1") for mode in ends}
    table, _ = two_run_texts(runs, {mode: mode for mode in runs})
    assert re.search(r"Initial Reward +0\.104 +0\.104 +\n", table)
    assert re.search(r"Final Reward +0\.912 +0\.916 +\n", table)
    assert re.search(r"Best Reward +0\.95 +0\.95 +\n", table)
    assert "reward 0.912>" in repr(runs["sequential"])


def test_lines_of_a_run_and_of_an_evaluation_show_small_rewards() -> None:
    metrics = {"update": 1, "step": 4096, "time": 4.0, "time/fps": 1000.0, "loss/total": 0.1}
    metrics |= {"rollout/ep_reward_mean": 0.91234, "rollout/ep_reward_std": 0.0123}
    assert update_line(metrics).endswith("Reward: 0.912 ± 0.012")
    assert timed_lines(metrics, 1.0)[1] == "  Mean Reward (last 100): 0.912"
    values = {"title": "x", "complete": True, "episodes": 100, "planned": 100, "num_levels": None, "fps": 1.0}
    values |= {"mean_reward": 0.91234, "std_reward": 0.02, "min_reward": 0.0, "max_reward": 0.9312, "seconds": 1.0}
    values |= {"mean_length": 20.0, "std_length": 4.0, "ci95": [0.9084, 0.9163], "normalized_score": None}
    text = filled("evaluation.txt", **values, success_rate=None, success_ci95=None, levels="train", start_level=0)
    assert "Mean Reward: 0.912 ± 0.020\nMin/Max Reward: 0.00 / 0.931\n" in text
    assert "95% Interval of the Mean: 0.908 to 0.916" in text
    large = filled("evaluation.txt", **{**values, "mean_reward": 8.5512, "std_reward": 3.5, "ci95": [7.86, 9.24]},
                   success_rate=None, success_ci95=None, levels="train", start_level=0)  # fmt: skip
    assert "Mean Reward: 8.55 ± 3.50\n" in large
    assert "95% Interval of the Mean: 7.86 to 9.24" in large


def test_the_banner_of_a_suite_says_how_long_each_run_is(tmp_path: Path) -> None:
    flags = ("--games", "CartPole-v1", "--algorithms", "a2c", "--modes", "sequential", "--duration", "20s")
    done = rlcb_here("benchmark", *flags, "--dry-run", "--output-dir", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert "Each run: 20 seconds\n" in done.stdout


def test_few_hours_have_a_better_unit_beside_them() -> None:
    assert few_hours(30 / 3600) == " (30 s)"
    assert few_hours(0.5) == " (30 min)"
    assert few_hours(1.0) == few_hours(None) == ""


def test_no_message_makes_its_own_plural() -> None:
    """An s behind a condition on a number is what `counted` is for."""
    own = re.compile(r"""[a-z]\{\{?\s*['"]s?['"] (if|\*) [^}]*(== 1|> 1)""")
    files = [*ROOT.glob("src/rlcb/**/*.py"), *ROOT.glob("src/rlcb/**/*.txt")]
    assert len(files) > 200
    found = [
        f"{path.name}: {line.strip()}"
        for path in files
        if path.name != "words.py"
        for line in path.read_text(encoding="utf-8").splitlines()
        if own.search(line)
    ]
    allowed = ("algorithm{", "set{'s' if len(setting) == 1")  # a noun before a list, and a verb
    assert [line for line in found if not any(part in line for part in allowed)] == []


# Commands that are printed


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A virtual environment's folder of programs in the current folder, which is not active."""
    programs = tmp_path / "my env" / "bin"
    programs.mkdir(parents=True)
    for name in ("python", "rlcb"):
        (programs / name).write_text("#!/bin/sh\n")
        (programs / name).chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "executable", str(programs / "python"))
    monkeypatch.setattr(sys, "argv", ["elsewhere.py"])
    monkeypatch.setenv("PATH", str(tmp_path / "none"))
    return programs


def test_a_command_names_this_program_where_the_shell_finds_it(
    environment: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert typed("rlcb train --resume run") == "'my env/bin/rlcb' train --resume run"
    assert typed("train_timed.py --resume run") == "'my env/bin/python' train_timed.py --resume run"
    monkeypatch.chdir("/")
    assert typed("rlcb status") == f"'{str(environment).lstrip('/')}/rlcb' status"
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert typed("rlcb status") == f"'{environment}/rlcb' status"
    (tmp_path / "none").mkdir()
    (tmp_path / "none" / "rlcb").symlink_to("/bin/sh")  # another program of this name
    assert typed("rlcb status") == f"'{environment}/rlcb' status"
    monkeypatch.setenv("PATH", str(environment))  # it is active
    assert typed("rlcb status") == "rlcb status"
    assert typed("train_timed.py --resume run") == "python train_timed.py --resume run"
    (tmp_path / "none" / "rlcb").unlink()
    (tmp_path / "none" / "rlcb").symlink_to(environment / "rlcb")
    monkeypatch.setenv("PATH", str(tmp_path / "none"))
    assert typed("rlcb status") == "rlcb status"
    (environment / "rlcb").unlink()
    assert typed("rlcb status") == f"'{environment}/python' -m rlcb status"


def test_a_printed_command_works_where_no_environment_is_active(tmp_path: Path) -> None:
    values: dict[str, Any] = {"games": ["CartPole-v1"], "modes": ["sequential"], "seeds": [1], "total_timesteps": 8192}
    store(tmp_path / "suite", build_suite(None, {key: (key, value) for key, value in values.items()}))
    bare = {"PATH": "/usr/bin:/bin"}
    shown = run([sys.executable, "-m", "rlcb", "status", "."], env=bare, cwd=tmp_path).stdout
    command = next(line for line in shown.splitlines() if "resume with: " in line).partition("resume with: ")[2]
    assert not command.startswith("rlcb ")
    planned = run(["sh", "-c", f"{command} --dry-run"], env=bare, cwd=tmp_path).stdout
    assert "ppo sequential CartPole-v1 seed 1" in planned


def test_no_message_makes_its_own_command() -> None:
    """A command with values in it is to be copied, and `typed` knows how it begins."""
    verbs = "|".join(VERBS)
    own = re.compile(rf"""(: |f")rlcb ({verbs})\b[^"]*\{{""")
    found = [
        f"{path.name}: {line.strip()}"
        for path in ROOT.glob("src/rlcb/**/*.py")
        for line in path.read_text(encoding="utf-8").splitlines()
        if own.search(line) and "typed(" not in line and "usage" not in line
    ]
    assert not found
