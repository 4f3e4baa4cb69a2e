"""What is said where nothing is established, beside other programs' runs, and in environments without levels."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from helpers.comparisons import PARALLEL, advice_on, compared, disturb, put
from helpers.run_directories import add_event, write_evaluation, write_run
from rlcb.analysis.best import standing
from rlcb.report.compare import compare_any, comparison_text
from rlcb.report.tables import set_table, winner_table

SPREAD = (-0.4, 0.0, 0.4)


def group_of(folder: Path, prefix: str, end: float, speeds: tuple[float, ...] = (990, 1000, 1010), **kind: Any) -> None:
    """Runs of one group, a seed for each speed, whose rewards are around `end`."""
    for seed, fps in enumerate(speeds, 1):
        ends = (3.0, end + SPREAD[seed - 1])
        write_run(folder / f"{prefix}{seed}", seed=seed, fps=fps, rewards=ends, noise=0.0, **kind)


def external(folder: Path, reward: float, seeds: int = 3) -> None:
    """Logs of Stable-Baselines3 on CartPole: 500 episodes of 500 steps."""
    for seed in range(1, seeds + 1):
        path = folder / f"ppo_CartPole-v1_seed{seed}"
        path.mkdir(parents=True)
        rows = [f"{reward + SPREAD[seed - 1]},500,{episode}" for episode in range(1, 501)]
        head = json.dumps({"t_start": 1.0, "env_id": "CartPole-v1"})
        (path / "monitor.csv").write_text("\n".join([f"#{head}", "r,l,t", *rows, ""]))


def test_nothing_is_recommended_where_nothing_is_established(tmp_path: Path) -> None:
    group_of(tmp_path, "s", 8.6)
    group_of(tmp_path, "p", 8.0, speeds=(1020, 1000, 980), **PARALLEL)
    advice = advice_on(tmp_path)
    assert advice.group == ""
    assert re.fullmatch(
        r"No difference established between PPO \w+.* and PPO \w+.*: reward at equal time [\d.]+ and [\d.]+, "
        r"speed [\d.]+ × .* \[[\d.]+, [\d.]+\]; an estimated \d+ more seeds each would settle it\.",
        advice.text,
    )


def test_speeds_that_are_not_judged_are_said_with_the_reason(tmp_path: Path) -> None:
    group_of(tmp_path, "s", 8.6)
    group_of(tmp_path, "p", 8.0, speeds=(1110, 1120, 1130), **PARALLEL)
    for path in tmp_path.iterdir():
        disturb(path)
    advice = advice_on(tmp_path)
    assert advice.group == ""
    words = (
        r": final reward [\d.]+ and [\d.]+, speed not judged \(both were disturbed\); an estimated \d+ more seeds each "
    )
    assert re.search(words, advice.text)


def test_one_seed_of_different_algorithms_establishes_nothing(tmp_path: Path) -> None:
    group_of(tmp_path, "s", 8.4, speeds=(1000,))
    group_of(tmp_path, "a", 8.0, speeds=(2000,), algorithm="a2c")
    advice = advice_on(tmp_path)
    assert advice.group == ""
    assert advice.text.startswith("No difference established between ")
    assert advice.text.endswith("one seed gives no estimate of the spread; start with three seeds each.")


def test_a_set_in_which_nothing_can_be_ranked(tmp_path: Path) -> None:
    group_of(tmp_path, "s", 8.0)
    for seed in (1, 2):
        add_event(tmp_path / f"s{seed}", "failed", reason="out of memory")
        put(tmp_path / f"s{seed}", status="running")
    advice = advice_on(tmp_path)
    assert advice.group == ""
    why = "PPO Sequential (2 seeds failed)"
    assert advice.text == f"No group can be ranked: reward: {why}; speed: {why}."


@pytest.mark.parametrize(("reward", "words"), [(12.0, "behind"), (4.0, "ahead of")])
def test_other_programs_runs_beside_ours(tmp_path: Path, reward: float, words: str) -> None:
    group_of(tmp_path / "own", "s", 8.2, name="CartPole-v1")
    group_of(tmp_path / "own", "p", 8.0, speeds=(1110, 1120, 1130), name="CartPole-v1", **PARALLEL)
    external(tmp_path / "sb3", reward)
    advice = advice_on(tmp_path / "own", tmp_path / "sb3")
    assert advice.group == "PPO Parallel (2 workers)"
    assert "; sure of speed, not of reward: " in advice.text
    assert advice.text.endswith(f"; at equal steps PPO parallel with 2 workers is {words} SB3 PPO (external).")


def test_one_group_of_ours_is_judged_against_other_programs_runs(tmp_path: Path) -> None:
    group_of(tmp_path / "own", "s", 8.2, name="CartPole-v1")
    external(tmp_path / "worse", 4.0)
    better = advice_on(tmp_path / "own", tmp_path / "worse")
    assert better.group == "PPO Sequential"
    assert better.text.endswith("; sure of reward at equal steps.")
    external(tmp_path / "better", 12.0)
    behind = advice_on(tmp_path / "own", tmp_path / "better")
    assert behind.group == ""
    assert behind.text.startswith("SB3 PPO (external) is ahead of PPO sequential: reward at equal steps 12.00 and 8.")
    external(tmp_path / "single", 12.0, seeds=1)
    open_ = advice_on(tmp_path / "own", tmp_path / "single")
    assert open_.group == ""
    assert open_.text.startswith("No difference established between PPO sequential and SB3 PPO (external): ")


def test_cards_and_table_name_the_same_best(tmp_path: Path) -> None:
    """Also beside other programs' runs, disturbed ones, and groups with failed seeds."""
    group_of(tmp_path / "own", "s", 8.2, name="CartPole-v1")
    group_of(tmp_path / "own", "p", 9.0, speeds=(1110, 1120, 1130), name="CartPole-v1", **PARALLEL)
    group_of(tmp_path / "own", "a", 9.5, speeds=(3000, 3010, 3020), name="CartPole-v1", algorithm="a2c")
    external(tmp_path / "sb3", 12.0)

    def agree() -> dict[str, str]:
        one = compared(tmp_path / "own", tmp_path / "sb3").sets[0]
        assert one.advice
        table = {row[0].text: row[1].text for row in winner_table(one).rows}
        titles = {"average_fps": "Average FPS", "reward_at_equal_time": "Reward at equal time"}
        titles |= {"reward_at_equal_steps": "Reward at equal steps"}
        cards = {titles[card.metric]: card.group for card in one.advice.cards if card.metric in titles}
        assert cards
        assert {title: table[title] for title in cards} == cards
        return cards

    assert agree()["Reward at equal steps"] == "SB3 PPO (external)"
    assert agree()["Average FPS"] == "A2C Sequential"
    for seed in (1, 2, 3):
        disturb(tmp_path / "own" / f"a{seed}")
    assert agree()["Average FPS"] == "PPO Parallel (2 workers)"
    for seed in (1, 2):
        add_event(tmp_path / "own" / f"p{seed}", "failed", reason="out of memory")
        put(tmp_path / "own" / f"p{seed}", status="running")
    assert agree()["Average FPS"] == "PPO Sequential"


def test_the_overview_says_what_is_compared_and_why_speed_is_not_judged(tmp_path: Path) -> None:
    group_of(tmp_path, "s", 8.2)
    group_of(tmp_path, "p", 8.0, **PARALLEL)
    for path in tmp_path.iterdir():
        disturb(path)
    one = compared(tmp_path).sets[0]
    table = set_table([one, replace(one, finished=False), replace(one, groups=one.groups[:1], pairs=())])
    assert "Groups" in table.head
    judged, unfinished, alone = (dict(zip(table.head, (cell.text for cell in row), strict=True)) for row in table.rows)
    assert judged["Groups"] == "PPO Sequential,\nPPO Parallel (2 workers)"
    why = "not judged: PPO Sequential and PPO Parallel (2 workers) (were disturbed)"
    assert (judged["Winner in speed"], judged["Winner in reward"]) == (why, "no difference shown")
    assert unfinished["Winner in speed"] == "n/a (unfinished)"
    assert alone["Winner in speed"] == "n/a (only one group)"
    rows = {row[0].text: [cell.text for cell in row] for row in winner_table(one).rows}
    assert rows["Average FPS"] == ["Average FPS", "–", "–", why]
    assert standing(one, "average_fps").best is None


def test_environments_without_levels_are_described_without_them(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    group_of(runs, "s", 8.2, name="CartPole-v1")
    group_of(runs, "p", 8.0, name="CartPole-v1", **PARALLEL)
    for path in runs.iterdir():
        file = write_evaluation(path, 8.0, 7.0)
        content = json.loads(file.read_text())
        played = {**content["evaluations"][0], "num_levels": None, "start_level": None, "distribution_mode": None}
        file.write_text(json.dumps({**content, "evaluations": [played], "generalization_gap": []}))
    compare_any([runs], tmp_path / "out", None, 0)
    console = comparison_text(compared(runs))
    assert re.search(r"^Evaluation +8\.00", console, re.MULTILINE)
    for text in (console, *((tmp_path / "out" / name).read_text() for name in ("report.html", "report.md"))):
        seen = re.sub(r"(?s)<(style|script)\b.*?</\1>", "", text)
        assert not re.search(r"\blevels?\b|\bunseen\b|generali[sz]ation", seen, re.IGNORECASE)


def test_short_runs_are_not_shown_in_hours(tmp_path: Path) -> None:
    group_of(tmp_path, "s", 8.2, speeds=(40_000, 41_000, 42_000))
    group_of(tmp_path, "p", 8.0, speeds=(50_000, 51_000, 52_000), **PARALLEL)
    text = comparison_text(compared(tmp_path))
    assert re.search(r"^Duration +[\d.]+ s ± 0\.\d+ s +[\d.]+ s ± 0\.\d+ s$", text, re.MULTILINE)
    assert re.search(r"^Time to threshold +\d", text, re.MULTILINE)
    assert "hours" not in text


def test_an_external_run_changes_nothing_about_how_ours_are_judged(tmp_path: Path) -> None:
    """The reward that ours are judged by, and the number of seeds that would settle it."""
    group_of(tmp_path / "own", "s", 8.6)
    group_of(tmp_path / "own", "p", 8.0, speeds=(1020, 1000, 980), **PARALLEL)
    for path in (tmp_path / "own").iterdir():
        write_evaluation(path, 8.0, 7.0)
    alone = compared(tmp_path / "own").sets[0]
    rows = [f"{8 + 0.01 * (episode % 7)},500,{episode}" for episode in range(1, 501)]
    log = tmp_path / "sb3" / "ppo_coinrun_seed1"
    log.mkdir(parents=True)
    (log / "monitor.csv").write_text("\n".join(['#{"t_start": 1.0, "env_id": "None"}', "r,l,t", *rows, ""]))
    both = compared(tmp_path / "own", tmp_path / "sb3").sets[0]
    assert len(both.measured) == len(alone.measured) + 1
    assert both.reward_metric == alone.reward_metric == "evaluation_unseen"
    assert both.advice
    assert alone.advice
    assert both.advice.text == alone.advice.text
    assert "seeds each would" in alone.advice.text
