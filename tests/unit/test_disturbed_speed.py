"""Runs that other programs disturbed: left out of speeds with the figures and the command that repeats them."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from helpers.run_directories import change, write_run
from rlcb.analysis.comparison import compare
from rlcb.analysis.load import load_run, load_runs
from rlcb.analysis.records import ComparableSet
from rlcb.analysis.unjudged import repeat_command
from rlcb.report.compare import compare_any, comparison_text
from rlcb.report.two_runs import compare_two

FIGURES: dict[str, Any] = {
    "disturbed": True, "lost_percent": 35.2, "others_percent": 48.4, "idle_percent": 1.0, "waited_percent": 33.0,
    "stolen_percent": 3.1, "throttled_percent": 0.0, "load_average": 3.9, "clock_mhz": 2596.1, "measured_seconds": 60.0,
}  # fmt: skip
WORDS = "other programs used 48 % of the cores (35 % of its CPU time lost), stolen 3 %, throttled 0 %"
QUIET = {**FIGURES, "disturbed": False, "lost_percent": 0.4, "others_percent": 1.0}


def write_runs(folder: Path, mode: str, fps: float, disturbed: tuple[int, ...], seeds: int = 4) -> None:
    for seed in range(1, seeds + 1):
        speed = fps / 4 if seed in disturbed else fps + seed
        run = write_run(folder / mode / f"seed_{seed}", mode=mode, seed=seed, fps=speed, workers=2, threads=1)
        record(run, FIGURES if seed in disturbed else QUIET)


def record(run: Path, figures: dict[str, Any]) -> Path:
    path = run / "benchmark_metrics.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "disturbance": figures}))
    return run


def only_set(folder: Path) -> ComparableSet:
    (one,) = compare(load_runs([folder], lambda _: None)).sets
    return one


def test_a_disturbed_run_is_left_out_of_speeds_and_not_of_rewards(tmp_path: Path) -> None:
    write_runs(tmp_path, "sequential", 1000, disturbed=(2,))
    write_runs(tmp_path, "parallel", 1900, disturbed=())
    one = only_set(tmp_path)
    slow, fast = one.groups
    assert slow.metrics["average_fps"].n == 3
    assert slow.metrics["final_reward"].n == 4
    assert slow.metrics["average_fps"].mean == pytest.approx(1002.7, rel=0.05)
    assert fast.speedup
    assert fast.speedup.value == pytest.approx(1.9, rel=0.05)  # and not 2.3
    assert next(pair for pair in one.pairs if pair.metric == "average_fps").winner == fast.label
    (note,) = (note for note in one.notes if note.startswith("(disturbed)"))
    assert f"PPO Sequential, 1 of 4 runs disturbed by other programs (seed 2: {WORDS}): excluded from speed" in note
    run = tmp_path / "sequential" / "seed_2"
    assert note.endswith(f"rlcb train ppo --mode sequential --config {run}/config.yaml --output-dir {run}")
    assert "(3 of 4)" in comparison_text(compare(load_runs([tmp_path], lambda _: None)))


def test_a_group_whose_runs_were_all_disturbed_is_not_judged(tmp_path: Path) -> None:
    write_runs(tmp_path / "runs", "sequential", 1000, disturbed=(1, 2, 3, 4))
    write_runs(tmp_path / "runs", "parallel", 1900, disturbed=())
    one = only_set(tmp_path / "runs")
    by_metric = {pair.metric: pair for pair in one.pairs}
    for metric in ("average_fps", "reward_at_equal_time"):
        assert by_metric[metric].verdict == "n/a (PPO Sequential was disturbed)"
        assert by_metric[metric].winner is None
    assert by_metric["final_reward"].p is not None
    assert all(group.speedup is None for group in one.groups)
    said = "Average FPS: PPO Sequential was disturbed by other programs, so its speed is not judged; see the notes"
    assert said in one.verdict
    text = comparison_text(compare(load_runs([tmp_path / "runs"], lambda _: None)))
    line = next(line for line in text.splitlines() if line.startswith("Average FPS"))
    assert line.count("(disturbed)") == 1
    assert "Speed-up" not in text
    assert "(disturbed)" not in next(line for line in text.splitlines() if line.startswith("Final reward"))
    assert compare_any([tmp_path / "runs"], tmp_path / "out", None, 0) == 0
    page = (tmp_path / "out" / "report.html").read_text()
    for words in (f"disturbed: {WORDS}", "not judged", "Disturbed: other programs used the cores"):
        assert words in page, words
    groups = json.loads((tmp_path / "out" / "comparison.json").read_text())["sets"][0]["groups"]
    assert [run["disturbance"]["disturbed"] for run in groups[0]["runs"]] == [True] * 4
    heads, *rows = (tmp_path / "out" / "runs.csv").read_text().splitlines()
    assert "disturbed,lost_percent,others_percent" in heads
    assert len(rows) == 8


def test_of_two_runs_with_the_same_seed_the_undisturbed_one_counts(tmp_path: Path) -> None:
    record(write_run(tmp_path / "first", seed=1), QUIET)
    record(write_run(tmp_path / "second", seed=1), FIGURES)
    (group,) = only_set(tmp_path).groups
    assert [run.path.name for run in group.runs] == ["first"]


def test_a_run_of_a_suite_is_repeated_by_the_suite(tmp_path: Path) -> None:
    (tmp_path / "suite" / "configs").mkdir(parents=True)
    (tmp_path / "suite" / "suite.yaml").write_text("seeds: [1]\n")
    run = record(write_run(tmp_path / "suite" / "coinrun" / "ppo_sequential" / "seed_1"), FIGURES)
    one = only_set(tmp_path)
    assert f"rlcb benchmark --output-dir {tmp_path / 'suite'} --repeat-disturbed" in " ".join(one.notes)
    assert load_run(run).disturbed


def test_the_command_that_repeats_a_run_permits_the_modules_it_needs(tmp_path: Path) -> None:
    run = load_run(write_run(tmp_path / "run"))
    env = {**run.config["env"], "imports": ["my_envs", "x; reboot", ["y"], 3]}
    training = {**run.config["training"], "network": "nets.wide:Wide"}
    own = replace(run, config={**run.config, "env": env, "training": training})
    assert repeat_command([own]) == f"{repeat_command([run])} --import my_envs --import nets.wide"


def test_two_runs_have_no_speedup_where_one_was_disturbed(tmp_path: Path) -> None:
    write_runs(tmp_path, "sequential", 1000, disturbed=(1,), seeds=1)
    write_runs(tmp_path, "parallel", 1900, disturbed=(), seeds=1)
    runs = (str(tmp_path / "sequential" / "seed_1"), str(tmp_path / "parallel" / "seed_1"))
    assert compare_two(*runs, None, tmp_path / "out" / "both.png") == 0
    text = (tmp_path / "out" / "comparison_report.txt").read_text()
    assert "Speedup (FPS): n/a" in text
    assert f"PPO Sequential disturbed: {WORDS}: its speed is not compared" in text


@pytest.mark.parametrize("known", [True, False])
def test_an_efficiency_that_the_cores_do_not_explain_is_never_without_a_word(tmp_path: Path, known: bool) -> None:
    for mode, fps, threads in (("sequential", 1000.0, 2), ("parallel", 7680.0, 1)):
        run = write_run(tmp_path / mode, mode=mode, fps=fps, workers=2, threads=threads)
        if known:
            record(run, QUIET)
    one = only_set(tmp_path)
    (note,) = (note for note in one.notes if "more than its cores explain" in note)
    assert ("was not disturbed, so it uses its 2 cores poorly" in note) == known
    assert ("an unrecorded disturbance" in note) == (not known)
    text = comparison_text(compare(load_runs([tmp_path], lambda _: None)))
    assert "% (2 against 2; more than the cores explain)" in text


@pytest.mark.parametrize("damage", [None, "yes", 1, {}, [], {"disturbed": "yes", "others_percent": "much"}])
def test_a_damaged_record_is_unknown(tmp_path: Path, damage: Any) -> None:
    run = write_run(tmp_path / "run")
    change(run, hardware={})
    path = run / "benchmark_metrics.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "disturbance": damage}))
    found = load_run(run)
    assert not found.disturbed
    assert found.disturbance.disturbed is None
    assert found.disturbance.others_percent is None
