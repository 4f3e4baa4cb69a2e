"""What a suite says between the lines of its runs, and how long it thinks that the rest will take."""

from pathlib import Path
from typing import Any

import pytest

from helpers.processes import ROOT
from rlcb.signals import StopRequest
from rlcb.suite import display, work
from rlcb.suite.directory import Result
from rlcb.suite.display import Display
from rlcb.suite.settings import build_suite
from rlcb.suite.work import Work


def suite_of(output: Path, monkeypatch: pytest.MonkeyPatch, cores: int = 1, **given: Any) -> Work:
    """A suite of which nothing is done, one run at a time on a machine with so many cores."""
    monkeypatch.chdir(ROOT)
    shares = [[core] for core in range(cores)]
    monkeypatch.setattr(work, "core_shares", lambda: shares)
    usual = {"modes": ["sequential"], "seeds": [1, 2, 3], "games": ["CartPole-v1"], "eval_episodes": 100}
    values = usual | ({} if "duration_hours" in given else {"total_timesteps": 10**6}) | given
    flags = {key: (f"--{key}", value) for key, value in values.items()}
    return Work(output, build_suite(None, flags), StopRequest(), Display(), 1)


def test_the_time_of_a_run_is_learned_from_those_that_are_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = suite_of(tmp_path, monkeypatch)
    first, second, third = found.runs
    assert found.expected_seconds(third) is None
    found.foreseen = {first: 290.0}
    assert found.expected_seconds(third) == 300.0  # with the start
    assert found.seconds_left([first, second, third], {first: 100.0}) == 100.0 + 2 * 300.0
    found.results[first] = Result(190.0, 1000.0, 5.0)
    assert found.expected_seconds(third) == 200.0
    assert found.seconds_left([second, third]) == 400.0


def test_the_time_of_a_run_by_time_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = suite_of(tmp_path, monkeypatch, duration_hours=0.5)
    assert found.seconds_left(found.runs) == 3 * 1810.0


def test_evaluations_are_part_of_the_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = suite_of(tmp_path, monkeypatch)
    first, *others = found.runs
    assert found.evaluation_seconds(found.runs) is None
    assert found.times(60.0, complete=False).endswith("about 0:01:00 left and the evaluations")
    found.results[first] = Result(190.0, 1000.0, 5.0, episode_length=200.0)
    assert found.evaluation_seconds(found.runs) == 3 * (10 + 100 * 200 / 1000)
    assert found.evaluation_seconds(others) == 2 * (10 + 100 * 200 / 1000)
    assert found.evaluation_seconds([]) == 0.0
    coinrun = suite_of(tmp_path, monkeypatch, cores=2, games=["coinrun"], num_threads=1)
    coinrun.results[coinrun.runs[0]] = Result(190.0, 1000.0, 5.0, episode_length=200.0)
    assert coinrun.evaluation_seconds(coinrun.runs) == 3 * (10 + 2 * 100 * 200 / 1000) / 2  # also on unseen levels
    assert suite_of(tmp_path, monkeypatch, eval_episodes=0).evaluation_seconds(found.runs) == 0.0


def test_a_line_is_due_after_a_minute(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    now = 1000.0
    monkeypatch.setattr(display, "monotonic", lambda: now)
    shown = Display()
    assert not shown.line_due
    now += 60.0
    assert shown.line_due
    shown.say("Training", 0.389, "elapsed 0:01:00, about 0:05:00 left", [f"[{n}/9] run" for n in range(1, 7)])
    assert not shown.line_due
    words = "[1/9] run; [2/9] run; [3/9] run; [4/9] run; 2 more"
    assert capsys.readouterr().out == f"Training: 38 %, elapsed 0:01:00, about 0:05:00 left | {words}\n"
