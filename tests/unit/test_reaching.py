"""The time to several levels of reward: which levels there are, when each run reached them, and how that is shown."""

import csv
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.comparisons import disturb
from helpers.run_directories import change, log_of, write_run
from rlcb.analysis.comparison import compare
from rlcb.analysis.history import History, as_history
from rlcb.analysis.load import load_runs
from rlcb.analysis.reaching import Reached, RewardLevel, reach, wanted_levels
from rlcb.analysis.records import Comparison
from rlcb.commands.other import compare_parser
from rlcb.errors import UsageError
from rlcb.report.compare import Question, compare_runs, comparison_text
from rlcb.words import span_text

COINRUN = {5.93: 250_000, 6.79: 500_000, 7.85: 1_000_000, 8.45: 2_000_000, 8.77: 5_000_000}


def compared(path: Path, *levels: float | str) -> Comparison:
    return compare(load_runs([path], lambda _: None), threshold=levels)


def three_seeds(folder: Path) -> Path:
    """Two seeds that reach 7 and one that does not."""
    for seed, end in ((1, 9.0), (2, 8.0), (3, 6.0)):
        write_run(folder / f"seed{seed}", seed=seed, updates=120, rewards=(3.0, end), noise=0.0)
    return folder


def written(runs: Path, out: Path, *levels: float | str) -> tuple[str, str, str, list[dict[str, str]]]:
    """Text, page and Markdown of a comparison, and the rows of time_to_reward.csv."""
    compare_runs(Question([runs], levels), out, lambda _: None)
    texts = [(out / name).read_text() for name in ("comparison_report.txt", "report.html", "report.md")]
    with (out / "time_to_reward.csv").open(newline="") as file:
        return (*texts, list(csv.DictReader(file)))  # type: ignore[return-value]


def slow_mean(lines: list[dict[str, Any]]) -> float | None:
    """The mean over 500 episodes at the last of these lines of a log, no episode counted twice; None: too few."""
    counted: set[int] = set()
    total = 0.0
    for line in reversed(lines):
        last = line["rollout/episodes"]
        covered = set(range(max(last - 100, 0), last))
        if len(covered) == 100 and not covered & counted:
            counted |= covered
            total += 100 * line["rollout/ep_reward_mean"]
        if len(counted) == 500:
            return total / 500
    return None


def log_of_episodes(rewards: np.ndarray, ends: Sequence[int]) -> list[dict[str, Any]]:
    """A log of these episodes, whose updates end after so many of them."""
    return [
        {"step": 100 * end, "time": end, "rollout/episodes": end, "rollout/ep_reward_mean": rewards[:end][-100:].mean()}
        for end in ends
    ]


def history_of(lines: list[dict[str, Any]]) -> History:
    columns = {name: np.array([line[name] for line in lines], float) for name in lines[0]}
    return as_history(columns, [])[0]


def slowly_reached(path: Path, reward: float) -> tuple[float, float]:
    """Steps and hours of the first line of a log at which the mean of the last 500 episodes is at least this."""
    lines = [json.loads(line) for line in log_of(path).read_text().splitlines()]
    for count, line in enumerate(lines, 1):
        mean = slow_mean(lines[:count])
        if mean is not None and mean >= reward:
            return line["step"], line["time"] / 3600
    raise AssertionError("never")


def test_each_level_is_reached_when_the_log_says_so_and_means_need_all_seeds(tmp_path: Path) -> None:
    one = compared(three_seeds(tmp_path), 7.0, 3.1, 5.0).sets[0]
    assert one.reward_levels == (RewardLevel(3.1), RewardLevel(5.0), RewardLevel(7.0))
    low, middle, high = one.groups[0].reached
    # 3.1 is reached at once, but 16 episodes end with each update: every seventh mean has 100 others, and five of them
    # are there after 5 × 7 updates.
    assert low.steps == (35 * 4096.0,) * 3
    steps, hours = zip(*(slowly_reached(tmp_path / f"seed{seed}", 5.0) for seed in (1, 2, 3)), strict=True)
    assert (middle.steps, middle.hours) == (steps, hours)
    assert (middle.mean_steps, middle.mean_hours) == (pytest.approx(sum(steps) / 3), pytest.approx(sum(hours) / 3))
    assert (high.count, high.steps[2], high.hours[2], high.mean_steps, high.mean_hours) == (2, None, None, None, None)
    assert high.steps[:2] == tuple(slowly_reached(tmp_path / f"seed{seed}", 7.0)[0] for seed in (1, 2))


def test_a_level_that_single_windows_reach_by_chance_is_not_reached(tmp_path: Path) -> None:
    path = write_run(tmp_path / "a", updates=200, rewards=(6.0, 6.0), noise=0.0)
    lines = [json.loads(line) for line in log_of(path).read_text().splitlines()]
    for number, line in enumerate(lines):  # as 100 episodes of 0 or 10 with a mean of 6 are: 1.0 above, 1.0 below
        line["rollout/ep_reward_mean"] += 1.0 if number // 7 % 2 else -1.0
    log_of(path).write_text("".join(json.dumps(line) + "\n" for line in lines))
    (path / "metrics.json").unlink()
    run = load_runs([path], lambda _: None)[0]
    assert run.history.settled_reward[10:].max() == pytest.approx(7.0)
    means = [slow_mean(lines[:count]) or np.nan for count in range(1, 201)]
    assert run.history.long_mean_reward == pytest.approx(means, nan_ok=True)
    low, high = reach([run], (RewardLevel(5.5), RewardLevel(6.5)))
    assert (low.count, high.count) == (1, 0)
    uncounted = replace(run.history, episodes=np.full(200, np.nan))
    assert uncounted.long_mean_reward is uncounted.reward  # there is nothing to form windows from


@pytest.mark.parametrize("per_update", [1, 16, 90, 100, 101, 256, 1000])
def test_the_mean_of_500_episodes_counts_each_once_however_many_end_with_an_update(per_update: int) -> None:
    rng = np.random.default_rng(per_update)
    rewards = rng.choice([0.0, 10.0], 30_000)
    ends = np.arange(per_update, min(len(rewards), 3000 * per_update), per_update)
    lines = log_of_episodes(rewards, [int(end) for end in ends])
    found = history_of(lines).long_mean_reward
    checked = range(0, len(lines), max(len(lines) // 100, 1))
    expected = [slow_mean(lines[: index + 1]) for index in checked]
    assert found[[*checked]] == pytest.approx([np.nan if mean is None else mean for mean in expected], nan_ok=True)
    if per_update in (1, 100):  # then they are the last 500 there are
        assert found[-1] == pytest.approx(rewards[: ends[-1]][-500:].mean())
    first = int(np.flatnonzero(np.isfinite(found))[0])
    assert first == (499 if per_update == 1 else int(5 * np.ceil(100 / per_update)) - 1)


@pytest.mark.parametrize("most", [20, 90, 300, 2000])
def test_the_same_where_updates_end_different_numbers_of_episodes_or_none(most: int) -> None:
    rng = np.random.default_rng(most)
    ends = np.cumsum(rng.integers(0, most, 200))
    lines = log_of_episodes(rng.choice([0.0, 10.0], ends[-1] + 1), [int(max(end, 1)) for end in ends])
    for number, line in enumerate(lines):
        line["step"] = number  # updates without an episode repeat a count
    means = [slow_mean(lines[: count + 1]) for count in range(len(lines))]
    expected = [np.nan if mean is None else mean for mean in means]
    assert history_of(lines).long_mean_reward == pytest.approx(expected, nan_ok=True)


@pytest.mark.parametrize("per_update", [16, 256, 1000])
def test_a_mean_of_500_is_as_noisy_as_500_episodes(per_update: int) -> None:
    """Of rewards of 0 and 10 that is 5 / √500 = 0.22; a mean of fewer reaches levels by chance."""
    rng = np.random.default_rng(7)
    updates = 2000
    rewards = rng.choice([0.0, 10.0], updates * per_update)
    lines = log_of_episodes(rewards, [per_update * (update + 1) for update in range(updates)])
    found = history_of(lines).long_mean_reward
    assert np.nanstd(found) == pytest.approx(5 / np.sqrt(500), abs=0.03)


def test_one_threshold_is_what_it_was_and_several_leave_it_to_its_default(tmp_path: Path) -> None:
    three_seeds(tmp_path)
    default = compare(load_runs([tmp_path], lambda _: None)).sets[0]
    assert (default.reward_levels, default.groups[0].reached) == ((), ())
    for given in (5.0, [5.0], (5.0, 5.0)):
        single = compare(load_runs([tmp_path], lambda _: None), threshold=given).sets[0]
        assert (single.threshold, single.reward_levels) == (5.0, ())
    assert compared(tmp_path, 5.0, 6.0).sets[0].threshold == default.threshold


def test_published_levels_are_those_of_each_game(tmp_path: Path) -> None:
    for name in ("coinrun", "maze"):
        write_run(tmp_path / name, name=f"procgen-{name}-v0")
    found = {one.env: one.reward_levels for one in compared(tmp_path, "published").sets}
    assert found["coinrun"] == tuple(RewardLevel(reward, (steps,)) for reward, steps in COINRUN.items())
    # The published curve of maze falls between 1 and 2 M steps; levels are in the order of their rewards.
    assert [level.published_steps[0] for level in found["maze"]] == [250_000, 500_000, 2_000_000, 1_000_000, 5_000_000]


def test_published_levels_begin_where_the_curve_begins_and_numbers_may_be_added(tmp_path: Path) -> None:
    write_run(tmp_path / "hard", distribution_mode="hard", num_levels=500)
    levels = compared(tmp_path, "published", 9.5).sets[0].reward_levels
    assert [level.published_steps for level in levels if level.published_steps] == [
        (1_000_000,),
        (2_000_000,),
        (5_000_000,),
    ]
    assert RewardLevel(9.5) in levels


@pytest.mark.parametrize(
    ("settings", "words"),
    [({"name": "CartPole-v1"}, "CartPole-v1"), ({"num_levels": 100}, "coinrun, 100 easy levels")],
)
def test_a_task_without_a_published_curve_gets_one_line(tmp_path: Path, settings: dict[str, Any], words: str) -> None:
    write_run(tmp_path / "runs" / "a", **settings)
    line = f"there is no published PPO curve for {words}, so no published levels"
    text, page, markdown, rows = written(tmp_path / "runs", tmp_path / "out", "published", 5.0)
    assert text.count(f"Time to reward: {line}") == 1
    assert line[1:] in page
    assert line[1:] in markdown
    assert [row["reward"] for row in rows] == ["5.0"]  # what was given as a number is still shown
    alone = compared(tmp_path / "runs", "published")
    assert alone.sets[0].reward_levels == ()
    assert line in comparison_text(alone)


def test_the_report_shows_time_steps_and_how_many_seeds(tmp_path: Path) -> None:
    text, page, markdown, rows = written(three_seeds(tmp_path / "runs"), tmp_path / "out", 5.0, 7.0, 9.5)
    first, second, third = compared(tmp_path / "runs", 5.0, 7.0, 9.5).sets[0].groups[0].reached
    assert first.mean_steps is not None
    assert first.mean_hours is not None
    for shown in (text, page, markdown):
        assert f"{first.mean_steps:,.0f} steps" in shown
        assert "2 of 3 seeds" in shown
        assert "0 of 3 seeds" in shown
        assert f"2: {span_text(3600 * (second.hours[1] or 0.0))}, {second.steps[1]:,.0f}" in shown
        assert "3: not reached" in shown
    assert [(row["reward"], row["runs"], row["reached"]) for row in rows] == [
        ("5.0", "3", "3"), ("7.0", "3", "2"), ("9.5", "3", "0"),
    ]  # fmt: skip
    assert float(rows[0]["mean_steps"]) == pytest.approx(first.mean_steps)
    assert float(rows[0]["mean_hours"]) == pytest.approx(first.mean_hours)
    assert (rows[1]["mean_steps"], rows[1]["mean_hours"], rows[1]["seeds"]) == ("", "", "1 2 3")
    assert [float(one) for one in rows[1]["steps"].split()[:2]] == [*second.steps[:2]]
    assert (rows[1]["steps"].split()[2], rows[2]["hours"]) == ("n/a", "n/a n/a n/a")
    assert third.count == 0


def test_comparison_json_has_the_levels_and_one_threshold_adds_no_file(tmp_path: Path) -> None:
    three_seeds(tmp_path / "runs")
    written(tmp_path / "runs", tmp_path / "several", "published")
    one = json.loads((tmp_path / "several" / "comparison.json").read_text())["sets"][0]
    assert one["reward_levels"][0] == {"reward": 5.93, "published_steps": [250_000]}
    group = one["groups"][0]["reached"]
    assert [found["level"]["reward"] for found in group] == [*COINRUN]
    assert group[-1]["steps"][2] is None
    compare_runs(Question([tmp_path / "runs"], 5.0), tmp_path / "single", lambda _: None)
    assert not (tmp_path / "single" / "time_to_reward.csv").exists()
    assert "Time to mean reward of 5.00" in (tmp_path / "single" / "report.md").read_text()


def test_disturbed_runs_are_not_part_of_the_mean_time_and_are_marked(tmp_path: Path) -> None:
    for seed, fps in ((1, 1000.0), (2, 100.0), (3, 1000.0)):
        write_run(tmp_path / f"seed{seed}", seed=seed, updates=120, fps=fps, noise=0.0)
    disturb(tmp_path / "seed2")

    def found() -> Reached:
        return compared(tmp_path, 5.0, 6.0).sets[0].groups[0].reached[0]

    hours = [slowly_reached(tmp_path / f"seed{seed}", 5.0)[1] for seed in (1, 2, 3)]
    assert found().mean_hours == pytest.approx((hours[0] + hours[2]) / 2)
    assert found().mean_steps == slowly_reached(tmp_path / "seed1", 5.0)[0]
    text = comparison_text(compared(tmp_path, 5.0, 6.0))
    assert text.split("Time to reward")[1].split("* ")[0].count(" (disturbed)") == 2  # seed 2 at both levels
    for seed in (1, 3):
        disturb(tmp_path / f"seed{seed}")
    assert found().mean_hours == pytest.approx(sum(hours) / 3)
    lines = comparison_text(compared(tmp_path, 5.0, 6.0)).split("Time to reward")[1].splitlines()
    assert lines[3].count("(disturbed)") == 2  # beside the means
    assert "(disturbed)" not in "".join(lines[4:8])


def test_shared_machines_are_marked(tmp_path: Path) -> None:
    change(write_run(tmp_path / "a"), hardware={"jobs_beside": 1})
    lines = comparison_text(compared(tmp_path, 5.0, 6.0)).split("Time to reward")[1].splitlines()
    assert lines[3].count("(shared)") == 2


def test_the_flag_takes_rewards_and_one_word(capsys: pytest.CaptureFixture[str]) -> None:
    parser = compare_parser()
    assert parser.parse(["runs", "--reward-threshold", "5"]).threshold == [5.0]
    assert parser.parse(["runs", "--reward-threshold", "5", "published", "--seed", "1"]).threshold == [5.0, "published"]
    assert parser.parse(["runs"]).threshold is None
    with pytest.raises(SystemExit):
        parser.parse(["--reward-threshold", "5", "runs"])
    assert "'runs' is not a number, nor 'published'; give RUN … before the levels" in capsys.readouterr().err
    assert compare_parser().take({"reward_threshold": 5}).threshold == [5.0]
    assert compare_parser().take({"reward_threshold": "published"}).threshold == ["published"]
    assert compare_parser().take({"reward_threshold": [5, "published"]}).threshold == [5.0, "published"]
    with pytest.raises(UsageError, match="reward_threshold: 'best' is not a number"):
        compare_parser().take({"reward_threshold": "best"})


def test_the_command_in_the_report_asks_the_same(tmp_path: Path) -> None:
    command = Question([Path("runs")], [5.93, "published"], 3).command(Path("out"))
    assert command == "rlcb compare runs --output out --seed 3 --reward-threshold 5.93 published"
    parsed = compare_parser().parse(command.split()[2:])
    assert wanted_levels(parsed.threshold) == (5.93, "published")
