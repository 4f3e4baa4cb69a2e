"""Runs that shared their machine: speeds are shown with a mark and never judged, rewards are."""

import json
from pathlib import Path

from helpers.run_directories import write_run
from rlcb.analysis.comparison import compare
from rlcb.analysis.load import load_runs
from rlcb.analysis.records import ComparableSet
from rlcb.report.compare import compare_any, comparison_text
from rlcb.report.two_runs import compare_two

SHARED = {"jobs_beside": 3}
SENTENCE = "so its speed is not judged; to measure it, run rlcb benchmark --jobs 1 in another directory."


def write_runs(folder: Path, mode: str, fps: float, reward: float, shared: bool, seeds: int = 4) -> None:
    for seed in range(1, seeds + 1):
        write_run(
            folder / mode / f"{'shared' if shared else 'alone'}_{seed}",
            mode=mode, seed=seed, fps=fps + seed, rewards=(3.0, reward + 0.01 * seed), workers=4, threads=1,
            machine=SHARED if shared else {},
        )  # fmt: skip


def only_set(folder: Path) -> ComparableSet:
    (one,) = compare(load_runs([folder], lambda _: None)).sets
    return one


def test_speed_is_not_judged_and_reward_is(tmp_path: Path) -> None:
    write_runs(tmp_path, "sequential", 1000, 8.0, shared=True)
    write_runs(tmp_path, "parallel", 3000, 6.0, shared=False)
    one = only_set(tmp_path)
    by_metric = {pair.metric: pair for pair in one.pairs}
    for metric in ("average_fps", "reward_at_equal_time"):
        assert by_metric[metric].verdict == "n/a (PPO Sequential shared the machine)"
        assert by_metric[metric].winner is None
        assert by_metric[metric].p is None
        assert by_metric[metric].difference is not None
    assert by_metric["final_reward"].winner == "PPO Sequential"
    assert all(group.speedup is None for group in one.groups)
    assert f"Average FPS: PPO Sequential shared the machine with other runs, {SENTENCE}" in one.verdict
    assert "Final reward: PPO Sequential is ahead" in one.verdict
    assert any("up to 3 beside PPO Sequential" in note and "--jobs 1" in note for note in one.notes)


def test_the_mark_is_in_every_output(tmp_path: Path) -> None:
    write_runs(tmp_path / "runs", "sequential", 1000, 8.0, shared=True)
    write_runs(tmp_path / "runs", "parallel", 3000, 6.0, shared=False)
    text = comparison_text(compare(load_runs([tmp_path / "runs"], lambda _: None)))
    line = next(line for line in text.splitlines() if line.startswith("Average FPS"))
    assert line.count("(shared)") == 1
    assert "(shared)" not in next(line for line in text.splitlines() if line.startswith("Final reward"))
    assert compare_any([tmp_path / "runs"], tmp_path / "out", None, 0) == 0
    page = (tmp_path / "out" / "report.html").read_text()
    for words in (
        "shared the machine with up to 3 other runs",
        "not judged",
        "--jobs 1",
        "used the machine at the same time",
    ):
        assert words in page, words
    runs = json.loads((tmp_path / "out" / "comparison.json").read_text())["sets"][0]["groups"]
    assert [run["jobs_beside"] for group in runs for run in group["runs"]] == [3] * 4 + [0] * 4
    heads, *rows = (tmp_path / "out" / "runs.csv").read_text().splitlines()
    assert "jobs_beside" in heads
    assert len(rows) == 8


def test_groups_that_had_the_machine_to_themselves_are_judged_among_themselves(tmp_path: Path) -> None:
    write_runs(tmp_path, "sequential", 1000, 8.0, shared=False)
    write_runs(tmp_path, "parallel", 3000, 6.0, shared=False)
    for seed in range(1, 5):
        write_run(tmp_path / f"other_{seed}", seed=seed, algorithm="a2c", fps=9000 + seed, machine=SHARED)
    one = only_set(tmp_path)
    fps = {frozenset((pair.first, pair.second)): pair for pair in one.pairs if pair.metric == "average_fps"}
    assert fps[frozenset(("PPO Sequential", "PPO Parallel (4 workers)"))].winner == "PPO Parallel (4 workers)"
    assert sum(pair.winner is None for pair in fps.values()) == 2
    assert "Average FPS: PPO Parallel (4 workers) is ahead" in one.verdict
    assert f"A2C Sequential shared the machine with other runs, {SENTENCE}" in one.verdict
    parallel = next(group for group in one.groups if group.mode == "parallel")
    assert parallel.speedup
    assert parallel.speedup.baseline == "PPO Sequential"


def test_of_two_runs_with_the_same_seed_the_one_that_was_alone_counts(tmp_path: Path) -> None:
    write_runs(tmp_path, "sequential", 1000, 8.0, shared=False, seeds=2)
    write_runs(tmp_path, "sequential", 500, 8.0, shared=True, seeds=3)
    (group,) = only_set(tmp_path).groups
    assert [run.path.name for run in group.runs] == ["alone_1", "alone_2", "shared_3"]
    assert group.jobs_beside == 3


def test_two_runs_have_no_speedup_where_one_was_not_alone(tmp_path: Path) -> None:
    write_runs(tmp_path, "sequential", 1000, 8.0, shared=True, seeds=1)
    write_runs(tmp_path, "parallel", 3000, 6.0, shared=False, seeds=1)
    runs = (str(tmp_path / "sequential" / "shared_1"), str(tmp_path / "parallel" / "alone_1"))
    assert compare_two(*runs, None, tmp_path / "out" / "both.png") == 0
    text = (tmp_path / "out" / "comparison_report.txt").read_text()
    assert "Speedup (FPS): n/a" in text
    assert "PPO Sequential shared the machine with up to 3 other runs: its speed is not compared" in text
