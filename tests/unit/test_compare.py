"""Comparing runs: what is comparable, what may be concluded, and what people get to see."""

import csv
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from helpers.run_directories import add_event, log_of, write_evaluation, write_run
from rlcb.analysis.comparison import compare
from rlcb.analysis.grouping import setting_text
from rlcb.analysis.load import load_run, load_runs
from rlcb.analysis.metrics import METRICS
from rlcb.analysis.plots import (
    as_image,
    figure_evaluation,
    figure_four_panels,
    figure_fps,
    figure_learning_curves,
    figure_time_shares,
)
from rlcb.analysis.published import PublishedCurve
from rlcb.analysis.records import Comparison, Group
from rlcb.analysis.statistics import summarize
from rlcb.errors import UsageError
from rlcb.report.compare import compare_any, comparison_text
from rlcb.report.two_runs import compare_two, two_run_texts

PARALLEL: dict[str, Any] = {"mode": "parallel", "workers": 4, "threads": 2, "fps": 2100.0, "rewards": (3.0, 9.0)}


def two_groups(folder: Path, seeds: tuple[int, ...] = (1, 2, 3)) -> Path:
    """Sequential and parallel runs of the same seeds; parallel is faster and better by far."""
    for seed in seeds:
        write_run(folder / f"sequential_{seed}", seed=seed, fps=1000 + 5 * seed)
        write_run(folder / f"parallel_{seed}", seed=seed, **{**PARALLEL, "fps": 2100.0 + 7 * seed})
    return folder


def compared(*paths: Path, **options: Any) -> Comparison:
    return compare(load_runs(paths, lambda _: None), **options)


def group_of(comparison: Comparison, mode: str) -> Group:
    return next(group for group in comparison.sets[0].groups if group.mode == mode)


def test_seeds_are_pooled_and_every_metric_is_the_runs_own(tmp_path: Path) -> None:
    comparison = compared(two_groups(tmp_path))
    assert (len(comparison.sets), comparison.excluded) == (1, ())
    assert [group.label for group in comparison.sets[0].groups] == ["PPO Sequential", "PPO Parallel (4 workers)"]
    group = group_of(comparison, "parallel")
    runs = [load_run(tmp_path / f"parallel_{seed}") for seed in (1, 2, 3)]
    assert group.seeds == (1, 2, 3)
    for name, expected in (
        ("final_reward", [one.metrics.final_reward for one in runs]),
        ("average_fps", [one.metrics.average_fps for one in runs]),
        ("peak_memory_gb", [3.2] * 3),
        ("memory_per_worker_gb", [0.8] * 3),
        ("reward_at_equal_steps", [float(one.history.reward[-1]) for one in runs]),
    ):
        assert group.metrics[name] == summarize(expected, 0), name
    assert group.metrics["peak_memory_gb"].interval is None  # no variation: n/a, not ± 0
    hours = comparison.sets[0].equal_hours
    assert hours == pytest.approx(min(float(one.history.time[-1]) for one in runs) / 3600)


def test_winners_where_the_interval_excludes_zero(tmp_path: Path) -> None:
    one = compared(two_groups(tmp_path)).sets[0]
    pairs = {pair.metric: pair for pair in one.pairs}
    for metric in ("final_reward", "average_fps", "reward_at_equal_time"):
        pair = pairs[metric]
        assert pair.interval is not None
        assert pair.interval[1] < 0
        assert (pair.winner, pair.first) == ("PPO Parallel (4 workers)", "PPO Sequential")
    assert "PPO Parallel (4 workers) is ahead" in one.verdict
    assert "fewer than 5 seeds" in " ".join(one.notes)


def test_no_winner_where_it_could_be_chance(tmp_path: Path) -> None:
    for seed in (1, 2, 3):
        write_run(tmp_path / f"a{seed}", seed=seed, noise=1.0)
        write_run(tmp_path / f"b{seed}", seed=seed, noise=1.0, learning_rate=1e-3)
    one = compared(tmp_path).sets[0]
    pair = next(pair for pair in one.pairs if pair.metric == "final_reward")
    assert pair.interval is not None
    assert pair.interval[0] < 0 < pair.interval[1]
    assert (pair.winner, pair.verdict) == (None, "no difference shown")
    assert [group.label for group in one.groups] == [
        "PPO Sequential, learning_rate 0.0003",
        "PPO Sequential, learning_rate 0.001",
    ]
    assert "Final reward: no difference shown" in one.verdict


def end_with(path: Path, reward: float) -> None:
    """Give a run another final reward."""
    benchmark = json.loads((path / "benchmark_metrics.json").read_text())
    benchmark["performance"]["final_reward"] = reward
    (path / "benchmark_metrics.json").write_text(json.dumps(benchmark))


def test_of_several_pairs_one_narrow_interval_is_not_enough(tmp_path: Path) -> None:
    # Three groups with a deviation of 0.2, centred 0.25 apart: the outer two differ with t = 3.06 at 4 degrees.
    for number, centre in enumerate((5.2, 5.45, 5.7)):
        for seed in (1, 2, 3):
            path = write_run(tmp_path / f"{number}_{seed}", seed=seed, n_epochs=number + 1)
            end_with(path, centre + 0.2 * (seed - 2))
    everything = compared(tmp_path).sets[0]
    outer = everything.pair("final_reward", "PPO Sequential, n_epochs 1", "PPO Sequential, n_epochs 3")
    assert outer is not None
    assert outer.interval is not None
    assert outer.interval[1] < 0
    assert outer.p == pytest.approx(0.0376, abs=1e-4)
    assert outer.holm_p == pytest.approx(3 * 0.0376, abs=3e-4)
    assert (outer.winner, outer.verdict) == (None, "no difference shown (after correction)")
    for seed in (1, 2, 3):
        shutil.rmtree(tmp_path / f"1_{seed}")
    (alone,) = [pair for pair in compared(tmp_path).sets[0].pairs if pair.metric == "final_reward"]
    assert alone.holm_p == alone.p
    assert alone.winner == "PPO Sequential, n_epochs 3"


def test_the_verdict_says_over_which_groups_a_lead_is_established(tmp_path: Path) -> None:
    for number in range(6):
        for seed in (1, 2, 3):
            path = write_run(tmp_path / f"{number}_{seed}", seed=seed, n_epochs=number + 1)
            end_with(path, 5.0 + 0.01 * number + 0.1 * (seed - 2))
    assert "; its lead over the other five is not statistically established." in compared(tmp_path).verdict
    for seed in (1, 2, 3):
        end_with(tmp_path / f"0_{seed}", 1.0 + 0.1 * (seed - 2))
    found = compared(tmp_path).verdict
    assert "; its lead over one of the other five is statistically established; " in found
    assert "; its lead over four of the other five is not statistically established." in found


def test_one_seed_of_one_group_says_whose(tmp_path: Path) -> None:
    two_groups(tmp_path)
    for seed in (2, 3):
        shutil.rmtree(tmp_path / f"parallel_{seed}")
    verdict = compared(tmp_path).verdict
    assert "; one seed of PPO Parallel (4 workers): not enough to tell." in verdict


def test_one_seed_each_answers_speed_and_nothing_else(tmp_path: Path) -> None:
    comparison = compared(two_groups(tmp_path, seeds=(1,)))
    one = comparison.sets[0]
    pairs = {pair.metric: pair for pair in one.pairs}
    speed = pairs.pop("average_fps")
    assert (speed.winner, speed.interval_over) == ("PPO Parallel (4 workers)", "blocks")
    assert {pair.verdict for pair in pairs.values()} == {"n/a (one seed)"}
    assert all(pair.interval is pair.p is pair.winner is None for pair in pairs.values())
    known = {metric.name for group in one.groups for metric in METRICS if group.metrics[metric.name].interval}
    assert known == {"average_fps"}
    assert "With one seed each" in comparison.verdict
    assert "; one seed each: not enough to tell." in comparison.verdict
    assert any("judged within each run, from blocks of updates" in note for note in one.notes)
    text = comparison_text(comparison)
    assert "95 % interval             n/a" in text
    assert "Final reward: not tested (one seed)" in text
    assert "PPO Sequential − PPO Parallel (4 workers): +" not in text  # no line for a pair that was not tested


def test_seeds_without_variation_have_no_interval(tmp_path: Path) -> None:
    for seed in (1, 2, 3):
        for mode in ("sequential", "parallel"):
            workers = 4 if mode == "parallel" else 1
            path = write_run(tmp_path / f"{mode}_{seed}", seed=seed, mode=mode, workers=workers, threads=8 // workers)
            end_with(path, 10.0)
    comparison = compared(tmp_path)
    summary = group_of(comparison, "sequential").metrics["final_reward"]
    assert (summary.n, summary.mean, summary.interval) == (3, 10.0, None)
    pair = next(pair for pair in comparison.sets[0].pairs if pair.metric == "final_reward")
    assert (pair.interval, pair.winner, pair.verdict) == (None, None, "n/a (no variation between seeds)")


def fail(path: Path) -> None:
    benchmark = json.loads((path / "benchmark_metrics.json").read_text())
    (path / "benchmark_metrics.json").write_text(json.dumps({**benchmark, "status": "diverged"}))
    add_event(path, "failed", reason="diverged: gradients were not finite", exit_code=3)


def test_a_failed_seed_is_disclosed_and_two_make_the_group_invalid(tmp_path: Path) -> None:
    two_groups(tmp_path, seeds=(1, 2, 3, 4))
    fail(tmp_path / "parallel_4")
    comparison = compared(tmp_path)
    group = group_of(comparison, "parallel")
    assert (len(group.runs), len(group.failed), group.valid) == (3, 1, True)
    assert group.failed[0].seed == 4
    assert "gradients were not finite" in comparison.excluded[0].reason
    assert "A seed failed in PPO Parallel (4 workers)" in comparison.verdict
    assert "3 (1, 2, 3), 1 failed" in comparison_text(comparison)
    fail(tmp_path / "parallel_3")
    comparison = compared(tmp_path)
    group = group_of(comparison, "parallel")
    assert (len(group.runs), group.valid) == (2, False)
    assert all(pair.winner is None and "invalid" in pair.verdict for pair in comparison.sets[0].pairs)
    assert "INVALID" in comparison_text(comparison)
    assert "invalid, more than one seed failed" in comparison.verdict


def test_a_seed_that_failed_before_it_knew_its_machine_counts_in_its_group(tmp_path: Path) -> None:
    two_groups(tmp_path)
    path = write_run(tmp_path / "early", seed=4, **PARALLEL)
    for name in ("benchmark_metrics.json", "training_summary.json", "metrics.json"):
        (path / name).unlink()
    log_of(path).write_bytes(b"")
    add_event(path, "failed", reason="no worker started", exit_code=4)
    comparison = compared(tmp_path)
    assert len(comparison.sets) == 1
    assert [failure.seed for failure in group_of(comparison, "parallel").failed] == [4]


def test_a_seed_that_stands_twice_counts_once(tmp_path: Path) -> None:
    two_groups(tmp_path)
    shutil.copytree(tmp_path / "sequential_1", tmp_path / "again")
    comparison = compared(tmp_path)
    assert len(group_of(comparison, "sequential").runs) == 3
    assert "repeats seed 1" in comparison.excluded[0].reason


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (
            {"name": "procgen-starpilot-v0", "updates": 30},
            "different environment: starpilot instead of coinrun; different budget",
        ),
        ({"name": "CartPole-v1"}, "different environment: CartPole-v1 instead of coinrun"),
        ({"num_levels": 0}, "different levels: all easy levels instead of 200 easy levels"),
        ({"start_level": 500}, "different levels: 200 easy levels from 500"),
        ({"distribution_mode": "hard"}, "different levels: 200 hard levels"),
        ({"updates": 30}, "different budget: 122,880 steps instead of 245,760 steps"),
        ({"duration_hours": 1.0}, "different budget: 1 hour instead of 245,760 steps"),
        ({"machine": {"cpu": "Another CPU"}}, "different hardware: Another CPU, 8 cores instead of Test CPU, 8 cores"),
        ({"machine": {"usable_cores": 2}}, "different hardware: Test CPU, 2 cores"),
    ],
)
def test_what_is_not_comparable_is_named_and_never_pooled(tmp_path: Path, other: dict[str, Any], words: str) -> None:
    two_groups(tmp_path / "main", seeds=(1, 2))
    write_run(tmp_path / "other", **{"seed": 3, **other})
    comparison = compared(tmp_path)
    assert [len(one.groups) for one in comparison.sets] == [2, 1]
    assert group_of(comparison, "sequential").seeds == (1, 2)
    (excluded,) = comparison.excluded
    assert excluded.run == str(tmp_path / "other")
    assert words in excluded.reason
    text = comparison_text(comparison)
    assert "NOT COMPARABLE" in text
    assert words in text
    assert "1 run is not part of this comparison" in comparison.verdict


def test_modules_are_named_without_brackets() -> None:
    assert setting_text(["my_envs", "my_networks"]) == "my_envs my_networks"
    assert setting_text([]) == "none"


def test_failed_runs_do_not_make_a_task_the_main_one(tmp_path: Path) -> None:
    command = "rlcb train --resume runs/cart --import my_envs"
    for seed in (1, 2, 3):
        write_run(tmp_path / f"a_{seed}", seed=seed, updates=30)
        fail(tmp_path / f"a_{seed}")
        add_event(tmp_path / f"a_{seed}", "failed", reason=f"{'long ' * 100}reason; {command}", exit_code=7)
    write_run(tmp_path / "b_1", seed=1)
    comparison = compared(tmp_path)
    assert [run.seed for group in comparison.sets[0].groups for run in group.runs] == [1]
    assert comparison.sets[0].budget == "245,760 steps"
    assert all(f"reason; {command}" in excluded.reason for excluded in comparison.excluded)  # not cut


def test_unfinished_runs_are_shown_but_nothing_is_concluded(tmp_path: Path) -> None:
    two_groups(tmp_path)
    write_run(tmp_path / "killed", seed=9, status="running")
    comparison = compared(tmp_path)
    assert [one.finished for one in comparison.sets] == [True, False]
    assert "without recording a reason" in comparison.excluded[0].reason
    alone = compared(tmp_path / "killed")
    assert alone.sets[0].pairs == ()
    assert "no conclusion is drawn" in alone.verdict
    assert alone.sets[0].groups[0].metrics["average_fps"].n == 1


def test_the_threshold_and_who_reached_it(tmp_path: Path) -> None:
    for seed in (1, 2):
        write_run(tmp_path / f"good{seed}", seed=seed, noise=0.0, rewards=(3.0, 8.0))
        write_run(tmp_path / f"weak{seed}", seed=seed, noise=0.0, rewards=(3.0, 5.0), n_epochs=2)
    one = compared(tmp_path).sets[0]
    starts = [group.metrics["initial_reward"].mean for group in one.groups]
    best = max(group.metrics["final_reward"].mean or 0.0 for group in one.groups)
    start = sum(start or 0.0 for start in starts) / 2
    assert one.threshold == pytest.approx(start + 0.8 * (best - start))
    weak, good = sorted(one.groups, key=lambda group: group.metrics["final_reward"].mean or 0.0)
    assert (weak.metrics["steps_to_reward"].n, weak.metrics["steps_to_reward"].mean) == (0, None)
    history = good.runs[0].history
    first = next(n for n in range(60) if history.reward[n] >= one.threshold)
    assert good.metrics["steps_to_reward"].values[0] == history.step[first]
    assert good.metrics["hours_to_reward"].values[0] == history.time[first] / 3600
    low = compared(tmp_path, threshold=3.1).sets[0]
    # 3.1 is reached at once, but 16 episodes end with each update and the mean counts from 100 on.
    assert {value for group in low.groups for value in group.metrics["steps_to_reward"].values} == {7 * 4096.0}


def test_a_mean_time_to_a_threshold_needs_all_seeds(tmp_path: Path) -> None:
    for seed, end in ((1, 8.0), (2, 8.0), (3, 4.0)):
        write_run(tmp_path / str(seed), seed=seed, rewards=(3.0, end))
    group = compared(tmp_path, threshold=6.0).sets[0].groups[0]
    summary = group.metrics["steps_to_reward"]
    assert (summary.n, summary.missing, summary.mean) == (2, 1, None)


def test_speedup_and_efficiency_per_core(tmp_path: Path) -> None:
    for seed in (1, 2):
        write_run(tmp_path / f"one_thread{seed}", seed=seed, threads=1, fps=500 + seed)
        write_run(tmp_path / f"sequential{seed}", seed=seed, threads=8, fps=1000 + seed)
        write_run(tmp_path / f"parallel{seed}", seed=seed, mode="parallel", workers=2, threads=2, fps=1500 + seed)
    group = group_of(compared(tmp_path), "parallel")
    speedup = group.speedup
    assert speedup is not None
    assert speedup.baseline == "PPO Sequential, num_threads 8"  # the fastest one, not the one that flatters
    assert speedup.value == pytest.approx(1.5, rel=0.01)
    assert (speedup.cores, speedup.baseline_cores) == (4, 8)
    assert speedup.efficiency == pytest.approx(2 * speedup.value)
    assert speedup.interval is not None
    assert speedup.interval[0] < speedup.value < speedup.interval[1]


def test_evaluations_and_the_gap(tmp_path: Path) -> None:
    two_groups(tmp_path)
    for seed in (1, 2, 3):
        write_evaluation(tmp_path / f"sequential_{seed}", 7.0 + 0.1 * seed, 6.0 + 0.2 * seed)
        write_evaluation(tmp_path / f"parallel_{seed}", 9.0 + 0.1 * seed, 8.5 + 0.1 * seed)
    comparison = compared(tmp_path)
    group = group_of(comparison, "sequential")
    assert group.metrics["evaluation_unseen"].mean == pytest.approx(6.4)
    assert group.metrics["generalization_gap"].values == pytest.approx((0.9, 0.8, 0.7))
    assert "Evaluation, unseen levels: PPO Parallel (4 workers) is ahead" in comparison.verdict
    assert comparison.sets[0].evaluation_policy == "sampled"


def test_intervals_repeat_with_their_seed(tmp_path: Path) -> None:
    two_groups(tmp_path)
    first, again, other = (json.dumps(compared(tmp_path, seed=seed).to_dict(), allow_nan=False) for seed in (5, 5, 6))
    assert first == again
    assert first != other


def test_nothing_to_compare() -> None:
    with pytest.raises(UsageError, match="no run"):
        compare([])


def test_the_files_of_a_comparison(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    two_groups(tmp_path / "runs")
    write_run(tmp_path / "runs" / "star", name="procgen-starpilot-v0", updates=30)
    (tmp_path / "runs" / "empty").mkdir()
    assert compare_any([tmp_path / "runs", tmp_path / "gone"], tmp_path / "out", None, 0) == 0
    printed = capsys.readouterr()
    assert "left out" in printed.err
    report = (tmp_path / "out" / "comparison_report.txt").read_text()
    assert report in printed.out
    content = json.loads((tmp_path / "out" / "comparison.json").read_text(), parse_constant=pytest.fail)
    assert [len(one["groups"]) for one in content["sets"]] == [2, 1]
    assert content["sets"][0]["groups"][0]["metrics"]["average_fps"]["mean"] == pytest.approx(1010, rel=0.02)
    assert content["excluded"][0]["reason"].startswith("different environment: starpilot")
    rows = list(csv.DictReader((tmp_path / "out" / "comparison.csv").open()))
    assert len(rows) == 3 * len(METRICS)
    reward = next(row for row in rows if row["metric"] == "final_reward")
    assert float(reward["low95"]) < float(reward["mean"]) < float(reward["high95"])
    for name in ("comparison.png", "comparison_2.png"):
        with Image.open(tmp_path / "out" / name) as picture:
            assert picture.size[0] > 1200
            assert len(picture.convert("RGB").getcolors(10**7) or []) > 100


def test_every_figure_can_be_drawn_whatever_is_missing(tmp_path: Path) -> None:
    write_run(tmp_path / "whole", seed=1)
    path = write_run(tmp_path / "odd$_{label", seed=2, **PARALLEL)
    (path / "metrics.json").unlink()
    log_of(path).unlink()
    write_evaluation(tmp_path / "whole", 7.0, 6.0)
    for groups in (compared(tmp_path).sets[0].groups, compared(tmp_path / "whole").sets[0].groups):
        curve = groups[0].curves["reward_steps"]
        published = PublishedCurve("easy-200-train", "coinrun", curve.x, curve.mean, curve.low)
        for figure in (
            figure_four_panels(groups, "odd $title_{"),
            figure_learning_curves(groups, "steps", published=published),
            figure_learning_curves(groups, "time", over="time"),
            figure_fps(groups, "speed"),
            figure_time_shares(groups, "time"),
            figure_evaluation(groups, "evaluation"),
        ):
            assert as_image(figure).startswith(b"\x89PNG")


GUIDE_TABLE = """\
================================================================================
TRAINING COMPARISON
================================================================================
Metric                                   Sequential           Parallel            
--------------------------------------------------------------------------------
Duration (hours)                         1.00                 1.00                
Total Timesteps                          5,471,232            11,536,384          
Total Updates                            1,342                2,832               

Performance Metrics
--------------------------------------------------------------------------------
Average FPS                              1,520                3,204               
Speedup (Parallel/Sequential)            -                    2.11x               
Final FPS                                1,518                3,198               

Reward Metrics
--------------------------------------------------------------------------------
Initial Reward                           2.45                 2.38                
Final Reward                             7.23                 8.45                
Best Reward                              8.91                 9.67                

Resource Usage
--------------------------------------------------------------------------------
Peak Memory (GB)                         2.34                 6.12                

Efficiency Metrics
--------------------------------------------------------------------------------
Timesteps/Hour                           5,471,232            11,536,384          
Efficiency Gain (%)                      -                    110.9%              
================================================================================"""  # noqa: W291

GUIDE_REPORT = """\
================================================================================
SEQUENTIAL VS PARALLEL TRAINING COMPARISON REPORT
================================================================================

Sequential Directory: ./benchmarks/sequential_1h
Parallel Directory: ./benchmarks/parallel_1h

SEQUENTIAL TRAINING
--------------------------------------------------------------------------------
Duration: 1.00 hours
Total Timesteps: 5,471,232
Average FPS: 1,520
Peak Memory: 2.34 GB

PARALLEL TRAINING
--------------------------------------------------------------------------------
Duration: 1.00 hours
Total Timesteps: 11,536,384
Average FPS: 3,204
Peak Memory: 6.12 GB

COMPARISON
--------------------------------------------------------------------------------
Speedup (FPS): 2.11x
Efficiency Gain: 110.9%
"""


def documented_run(path: Path, mode: str, figures: tuple[float, ...]) -> Path:
    steps, updates, average, final, initial, last, best, memory = figures
    workers = 4 if mode == "parallel" else 1
    write_run(path, mode=mode, workers=workers, threads=8 // workers, duration_hours=1.0)
    content = json.loads((path / "benchmark_metrics.json").read_text())
    content |= {"duration_hours": 1.0, "total_timesteps": steps, "total_updates": updates}
    content |= {"average_fps": average, "final_fps": final}
    content["performance"] |= {"initial_reward": initial, "final_reward": last, "best_reward": best}
    content["resource_usage"]["peak_memory_gb"] = memory
    content["efficiency"]["timesteps_per_hour"] = steps
    (path / "benchmark_metrics.json").write_text(json.dumps(content))
    return path


def test_two_runs_in_the_documented_form(tmp_path: Path) -> None:
    sequential = documented_run(tmp_path / "s", "sequential", (5471232, 1342, 1520, 1518, 2.45, 7.23, 8.91, 2.34))
    parallel = documented_run(tmp_path / "p", "parallel", (11536384, 2832, 3204, 3198, 2.38, 8.45, 9.67, 6.12))
    runs = {"sequential": load_run(sequential), "parallel": load_run(parallel)}
    names = {"sequential": "./benchmarks/sequential_1h", "parallel": "./benchmarks/parallel_1h"}
    table, report = two_run_texts(runs, names)
    assert table == GUIDE_TABLE
    assert report.startswith(GUIDE_REPORT)  # what else there is to say follows
    alone, _ = two_run_texts({"sequential": runs["sequential"]}, names)
    assert "Final Reward                             7.23                \n" in alone
    assert "Speedup" not in alone


def test_two_runs_that_are_not_comparable_get_no_speedup(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_run(tmp_path / "s")
    write_run(tmp_path / "p", name="procgen-starpilot-v0", **PARALLEL)
    assert compare_two(str(tmp_path / "s"), str(tmp_path / "p"), None, tmp_path / "out" / "x.png") == 0
    printed = capsys.readouterr().out
    assert "Speedup (Parallel/Sequential)            -                    n/a" in printed
    assert "Not comparable: different environment: starpilot instead of coinrun" in printed
    report = (tmp_path / "out" / "comparison_report.txt").read_text()
    assert "Speedup (FPS): n/a" in report
    assert "Not comparable: different environment" in report


def test_the_newest_runs_below_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def at(path: Path, hour: int) -> Path:
        content = json.loads((path / "benchmark_metrics.json").read_text())
        (path / "benchmark_metrics.json").write_text(json.dumps({**content, "end_time": f"2026-05-04T{hour}:00:00"}))
        return path

    at(write_run(tmp_path / "b" / "old", seed=1), 10)
    at(write_run(tmp_path / "b" / "new", seed=2, status="interrupted"), 15)
    at(write_run(tmp_path / "b" / "newer", seed=3), 12)
    assert compare_two(None, None, tmp_path / "b", tmp_path / "x.svg") == 0
    printed = capsys.readouterr()
    assert "no parallel PPO run in" in printed.err
    assert "rlcb train ppo --mode parallel" in printed.err
    assert f"Sequential Directory: {tmp_path / 'b' / 'newer'}\n" in (tmp_path / "comparison_report.txt").read_text()
    at(write_run(tmp_path / "b" / "other", algorithm="impala", **PARALLEL), 11)
    at(write_run(tmp_path / "b" / "parallel", **PARALLEL), 9)
    assert compare_two(None, None, tmp_path / "b", tmp_path / "x.svg") == 0
    assert f"Parallel Directory: {tmp_path / 'b' / 'parallel'}\n" in (tmp_path / "comparison_report.txt").read_text()
    at(write_run(tmp_path / "b" / "a3c", algorithm="a3c", **PARALLEL), 18)  # it has no sequential mode
    assert compare_two(None, None, tmp_path / "b", tmp_path / "x.svg") == 0
    assert f"Parallel Directory: {tmp_path / 'b' / 'parallel'}\n" in (tmp_path / "comparison_report.txt").read_text()
    capsys.readouterr()
    assert compare_two(None, None, tmp_path / "b" / "a3c", tmp_path / "x.svg") == 0
    assert "A3C has no sequential mode" in capsys.readouterr().err


def test_wrong_input_of_the_script(tmp_path: Path) -> None:
    path, output = write_run(tmp_path / "runs" / "s"), tmp_path / "x.png"
    for arguments, words in (
        ((None, None, None, output), "no runs given"),
        ((str(path), None, None, tmp_path / "x.txt"), "must end in .png"),
        ((None, str(path), None, output), "is a sequential run"),
        ((str(tmp_path / "runs"), None, None, output), "contains 1 run; give the directory of one"),
        ((str(tmp_path / "gone"), None, None, output), "no such directory"),
        ((None, None, tmp_path / "gone", output), "there are no runs to compare"),
    ):
        with pytest.raises(UsageError, match=words):
            compare_two(*arguments)
    assert list(tmp_path.iterdir()) == [tmp_path / "runs"]
