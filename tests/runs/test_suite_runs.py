"""Whole suites: every run once, evaluated and reported once."""

import csv
import dataclasses
import hashlib
import json
from pathlib import Path

import pytest

from helpers.equal_runs import assert_equal_runs
from helpers.processes import ROOT, TINY, rlcb
from rlcb.config.registry import Kind
from rlcb.suite.directory import result_of, runs_of, stored
from rlcb.suite.evaluation import is_evaluated

# One worker: what is tested here is the suite, and each more would have to load torch too.
CARTPOLE = ("--games", "CartPole-v1", *TINY, "--num-workers", "1", "--tensorboard", "false")


@pytest.fixture(autouse=True)
def _in_the_repository(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the usual config files are."""
    monkeypatch.chdir(ROOT)


def fingerprints(folder: Path) -> dict[str, tuple[int, str]]:
    """Time of change and content of every file in a run directory."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path): (path.stat().st_mtime_ns, hashlib.sha256(path.read_bytes()).hexdigest()) for path in files}


def test_finished_runs_are_evaluated_and_reported_once_although_another_failed(tmp_path: Path) -> None:
    output = tmp_path / "out"
    obstacle = output / "CartPole-v1" / "ppo_sequential" / "seed_2"
    obstacle.parent.mkdir(parents=True)
    obstacle.touch()
    settings = ("--modes", "sequential", "--seeds", "2", "1", "--total-timesteps", "512", "--eval-episodes", "3")
    done = rlcb("benchmark", *CARTPOLE, *settings, "--output-dir", output)
    done.assert_one_line_error(1, "1 failed", "seed 2: exit code 2", "is a file", f"benchmark --output-dir {output}")
    assert "[1/1] evaluation of ppo sequential CartPole-v1 seed 1: finished" in done.stdout
    report = next(line for line in done.stdout.splitlines() if line.startswith("Report: "))
    assert Path(report.removeprefix("Report: ")).is_file()
    suite = stored(output)
    run, config = runs_of(suite.settings, output)[1], suite.configs[Kind("ppo", "sequential")]
    assert is_evaluated(run, config, 3)
    assert not is_evaluated(run, config, 4)
    before = fingerprints(run.path)
    again = rlcb("benchmark", "--output-dir", output)
    again.assert_one_line_error(1, "1 failed", "seed 2")
    assert "Already evaluated: 1 of 1 run" in again.stdout
    assert fingerprints(run.path) == before
    for name, damage in (("training_summary.json", b"{"), ("benchmark_metrics.json", b"[]")):
        whole = (run.path / name).read_bytes()
        (run.path / name).write_bytes(damage)
        assert result_of(run) is None
        (run.path / name).write_bytes(whole)
    assert result_of(run)
    assert result_of(dataclasses.replace(run, seed=3)) is None
    run.final_checkpoint.write_bytes(b"something else")
    assert not is_evaluated(run, config, 3)
    run.final_checkpoint.unlink()
    assert result_of(run) is None


def test_more_seeds_are_added_in_place_and_nothing_is_repeated(tmp_path: Path) -> None:
    """By the whole command, then by the seeds alone; the added runs are what they are in a suite of their own."""
    output, alone = tmp_path / "out", tmp_path / "alone"
    suite = ("benchmark", *CARTPOLE, "--modes", "sequential", "--total-timesteps", "512", "--eval-episodes", "3")
    assert rlcb(*suite, "--seeds", "1", "--output-dir", output).returncode == 0
    first = output / "CartPole-v1" / "ppo_sequential" / "seed_1"
    before = fingerprints(first)
    for command, seed in ((suite, 2), (("benchmark",), 3)):
        done = rlcb(*command, "--seeds", *map(str, range(1, seed + 1)), "--output-dir", output)
        assert done.returncode == 0, done.stderr
        assert f"Added to the suite in {output}: seed {seed} (1 run)\n" in done.stdout
        assert f"Already evaluated: {seed - 1} of {seed} runs" in done.stdout
        assert f"[1/1] evaluation of ppo sequential CartPole-v1 seed {seed}: finished" in done.stdout
        assert fingerprints(first) == before
    events = [json.loads(line) for line in (output / "suite_events.jsonl").read_text().splitlines()]
    added = [event["added"] for event in events if event["event"] == "suite_extended"]
    assert added == [{"seeds": [2]}, {"seeds": [3]}]
    assert [event["run"] for event in events if event["event"] == "run_started"] == [
        f"ppo sequential CartPole-v1 seed {seed}" for seed in (1, 2, 3)
    ]
    assert "3 (1, 2, 3)" in (output / "report" / "comparison_report.txt").read_text()
    assert rlcb(*suite, "--seeds", "3", "--output-dir", alone).returncode == 0
    where = Path("CartPole-v1") / "ppo_sequential" / "seed_3"
    assert_equal_runs(output / where, alone / where)


def test_a_suite_of_two_games_ends_with_scores_over_both(tmp_path: Path) -> None:
    small = ("--num-envs", "8", "--n-steps", "64", "--batch-size", "256", "--network", "nature", "--device", "cpu")
    settings = (
        "--games",
        "coinrun",
        "jumper",
        "--seeds",
        "1",
        "2",
        "--total-timesteps",
        "2048",
        "--eval-episodes",
        "4",
    )
    suite = ("--suite", "config/suites/procgen16.yaml", "--tensorboard", "false")
    done = rlcb("benchmark", *suite, *settings, *small, "--output-dir", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    report = tmp_path / "out" / "report"
    assert "2 games, 200 easy levels, 2,048 steps" in (report / "comparison_report.txt").read_text()
    values = list(csv.DictReader((report / "games.csv").open()))
    played = [(row["game"], row["n"]) for row in values if row["metric"] == "evaluation_unseen"]
    assert played == [("coinrun", "2"), ("jumper", "2")]
    statistics = [row["statistic"] for row in csv.DictReader((report / "scores.csv").open())]
    assert statistics[-4:] == ["mean", "median", "iqm", "optimality_gap"]
    assert all((report / name).stat().st_size > 10_000 for name in ("games.png", "profiles.png", "report.html"))
