"""The advice of a comparison: what to use, how sure that is, and what is never said."""

import re
from pathlib import Path
from typing import Any

from helpers.comparisons import PARALLEL, advice_on, compared, disturb, put
from helpers.run_directories import add_event, change, write_evaluation, write_run
from rlcb.analysis.power import seeds_needed
from rlcb.analysis.records import Advice, Card, Comparison
from rlcb.report.compare import compare_any, comparison_text


def study(folder: Path, seeds: tuple[int, ...], rewards: tuple[float, float] = (8.0, 8.0), spread: float = 0.3) -> Path:
    """Sequential and parallel runs; parallel is faster by a tenth, `rewards` are what they end with."""
    for seed in seeds:
        ends = [end + spread * (seed - 2) for end in rewards]
        write_run(folder / f"s{seed}", seed=seed, fps=1000 + 20 * seed, rewards=(3.0, ends[0]), noise=0.0)
        fps = 1110 + 21 * seed
        write_run(folder / f"p{seed}", seed=seed, fps=fps, rewards=(3.0, ends[1]), noise=0.0, **PARALLEL)
    return folder


def card(advice: Advice, title: str) -> Card:
    return next(card for card in advice.cards if card.title == title)


def test_sure_of_speed_and_not_of_reward(tmp_path: Path) -> None:
    comparison = compared(study(tmp_path, (1, 2, 3), rewards=(8.3, 8.0)))
    advice, one = comparison.advice, comparison.sets[0]
    assert advice is not None
    assert advice.group == "PPO Parallel (2 workers)"
    start, gain, certainty = advice.text.split("; ")
    assert start.startswith("Use PPO parallel with 2 workers: 1,1")
    assert " steps/s, 1 M steps in 1" in start
    assert f", reward {one.threshold:.3g} after " in start
    speedup = one.groups[1].speedup
    assert speedup
    assert speedup.interval
    assert gain == f"{speedup.value:.2f} × sequential [{speedup.interval[0]:.2f}, {speedup.interval[1]:.2f}]"
    values = [group.metrics["reward_at_equal_time"].values for group in one.groups]
    needed = seeds_needed(*values)
    assert needed
    assert certainty == f"sure of speed, not of reward: an estimated {needed - 3} more seeds each would settle it."
    assert [found.title for found in advice.cards] == [
        "Fastest", "Best at equal time", "Best at equal steps", "Cheapest per million steps",
    ]  # fmt: skip
    assert card(advice, "Fastest").group == "PPO Parallel (2 workers)"
    assert card(advice, "Fastest").certainty == "its lead over PPO Sequential is statistically established"
    assert card(advice, "Best at equal steps").group == "PPO Sequential"
    assert "is not statistically established" in card(advice, "Best at equal steps").certainty
    assert "s of CPU time" in card(advice, "Cheapest per million steps").value


def test_the_advice_is_the_first_thing_to_be_read(tmp_path: Path) -> None:
    study(tmp_path / "runs", (1, 2, 3))
    advice = advice_on(tmp_path / "runs")
    lines = comparison_text(compared(tmp_path / "runs")).splitlines()
    assert " ".join(lines[3:7]).startswith(advice.text[:100])
    compare_any([tmp_path / "runs"], tmp_path / "out", None, 0)
    page = (tmp_path / "out" / "report.html").read_text()
    assert f'<p class="lead">{advice.text}</p>' in page
    assert page.count('<li class="card">') == len(advice.cards) == 4
    text = (tmp_path / "out" / "report.md").read_text()
    assert text.index("Use PPO parallel with 2 workers") < text.index("- Fastest: **PPO Parallel (2 workers)**")


def test_sure_of_both(tmp_path: Path) -> None:
    assert advice_on(study(tmp_path, (1, 2, 3), rewards=(5.0, 9.0))).text.endswith("; sure of speed and of reward.")


def test_a_slower_group_that_learns_more_is_advised(tmp_path: Path) -> None:
    advice = advice_on(study(tmp_path, (1, 2, 3), rewards=(9.0, 5.0)))
    assert advice.text.startswith("Use PPO sequential: ")
    assert " × PPO parallel with 2 workers [" in advice.text
    assert advice.text.endswith("; sure of reward, not of speed.")


def add_runs(folder: Path, name: str, ends: tuple[float, float, float], fps: float, **kind: Any) -> None:
    """Three seeds of one group that end with these rewards."""
    for seed, end in enumerate(ends, start=1):
        path = folder / f"{name}{seed}"
        write_run(path, seed=seed, fps=fps + 2 * seed, rewards=(3.0, end), noise=0.0, **kind)


def rewards_won(comparison: Comparison) -> dict[tuple[str, str], str | None]:
    pairs = [pair for pair in comparison.sets[0].pairs if pair.metric == "reward_at_equal_time"]
    return {(pair.first, pair.second): pair.winner for pair in pairs}


def test_a_settled_pair_of_others_makes_the_advice_no_surer(tmp_path: Path) -> None:
    """PPO sequential is shown to be better than A2C; the group that is advised is not told from either of them."""
    add_runs(tmp_path, "s", (8.0, 8.1, 8.2), 1000)
    add_runs(tmp_path, "a", (6.9, 7.0, 7.1), 1000, algorithm="a2c")
    add_runs(tmp_path, "p", (7.5, 9.5, 11.5), 1110, **PARALLEL)
    comparison = compared(tmp_path)
    won = rewards_won(comparison)
    assert sorted(filter(None, won.values())) == ["PPO Sequential"]
    assert comparison.advice
    assert comparison.advice.group == "PPO Parallel (2 workers)"
    assert "; sure of speed (over PPO sequential), not of reward: an estimated " in comparison.advice.text
    assert "each would separate it from PPO sequential." in comparison.advice.text


def test_open_pairs_of_others_make_the_advice_no_less_sure(tmp_path: Path) -> None:
    add_runs(tmp_path, "s", (4.0, 4.1, 4.2), 1000)
    add_runs(tmp_path, "a", (4.1, 4.0, 4.1), 1000, algorithm="a2c")
    add_runs(tmp_path, "p", (9.0, 9.1, 9.2), 1110, **PARALLEL)
    comparison = compared(tmp_path)
    assert list(rewards_won(comparison).values()).count(None) == 1
    assert comparison.advice
    assert comparison.advice.text.endswith("; sure of speed and of reward.")


def test_what_another_group_is_shown_to_beat_is_not_advised(tmp_path: Path) -> None:
    """The best mean has too wide a spread to beat the fastest group of its kind, but A2C does beat that one."""
    add_runs(tmp_path, "s", (5.5, 9.0, 12.5), 1000)
    add_runs(tmp_path, "a", (7.9, 8.0, 8.1), 1000, algorithm="a2c")
    add_runs(tmp_path, "p", (5.9, 6.0, 6.1), 1110, **PARALLEL)
    comparison = compared(tmp_path)
    assert list(filter(None, rewards_won(comparison).values())) == ["A2C Sequential"]
    assert comparison.advice
    assert comparison.advice.group == ""
    start, behind, faster, more = comparison.advice.text.split("; ")
    assert start.startswith(
        "No difference established between PPO sequential and A2C sequential: reward at equal time "
    )
    assert behind == "PPO parallel with 2 workers is behind in reward"
    assert faster == "PPO parallel with 2 workers is faster than PPO sequential"
    assert "seeds each would" in more


def test_a_group_whose_reward_is_not_known_is_not_advised_for_its_speed(tmp_path: Path) -> None:
    study(tmp_path, (1, 2, 3))
    add_event(tmp_path / "p2", "failed", reason="out of memory")
    put(tmp_path / "p2", status="running")
    advice = advice_on(tmp_path)
    assert advice.group == ""
    assert advice.text == (
        "No group is recommended: PPO parallel with 2 workers is faster than PPO sequential; "
        "not ranked by reward: PPO Parallel (2 workers) (1 of 3 seeds failed)."
    )
    assert card(advice, "Fastest").group == "PPO Parallel (2 workers)"


def test_one_seed_is_sure_of_speed_and_invents_no_number_of_seeds(tmp_path: Path) -> None:
    text = advice_on(study(tmp_path, (1,), rewards=(8.3, 8.0))).text
    assert text.startswith("Use PPO parallel with 2 workers: ")
    assert re.search(r"; 1\.11 × sequential \[1\.\d\d, 1\.\d\d\]; ", text)
    assert "sure of speed, not of reward: one seed gives no estimate of the spread" in text
    assert "estimated" not in text


def test_equal_rewards_and_no_variation(tmp_path: Path) -> None:
    text = advice_on(study(tmp_path, (1, 2, 3), spread=0.0)).text
    assert "estimated" not in text
    same = tmp_path / "same"
    for seed in (1, 2, 3):
        for name, kind in (("s", {}), ("p", PARALLEL)):
            path = write_run(same / f"{name}{seed}", seed=seed, duration_hours=1.0, noise=0.0, **kind)
            change(path, performance={"final_reward": 10.0})
    advice = advice_on(same)
    assert advice.group == ""
    assert re.fullmatch(
        r"No difference established between PPO .* and PPO .*: final reward 10\.00 each, "
        r"speed 1\.00 × .* \[0\.99, 1\.01\]\.",
        advice.text,
    )


def test_a_tiny_difference_is_not_worth_a_number(tmp_path: Path) -> None:
    text = advice_on(study(tmp_path, (1, 2, 3), rewards=(8.01, 8.0), spread=0.1)).text
    assert "not of reward: the difference from PPO sequential is small: more than 50 seeds each" in text


def test_a_difference_that_may_be_large_is_not_called_small(tmp_path: Path) -> None:
    text = advice_on(study(tmp_path, (1, 2, 3), rewards=(6.51, 6.5), spread=3.0)).text
    assert "is small" not in text
    assert re.search(
        r"not of reward: the seeds differ too much to tell \(difference from PPO sequential "
        r"0\.02 \[-6\.\d\d, 6\.\d\d\]\): more than 50 seeds each",
        text,
    )


def test_without_a_range_of_scores_a_difference_is_judged_by_what_was_learned(tmp_path: Path) -> None:
    for learned, words in ((400.0, "is small"), (4.0, "the seeds differ too much to tell")):
        folder = tmp_path / words
        for mode, more in (("sequential", 0.1), ("parallel", 0.0)):
            for seed in (1, 2, 3):
                path = write_run(folder / f"{mode}{seed}", name="CartPole-v1", mode=mode, seed=seed, noise=0.0,
                                 rewards=(20.0, 20 + learned + more + seed))  # fmt: skip
                change(path, performance={"initial_reward": 20.0})
        assert words in advice_on(folder).text


def test_a_mean_without_all_seeds_is_never_the_best(tmp_path: Path) -> None:
    study(tmp_path, (1, 2, 3), rewards=(5.0, 9.0))
    change(tmp_path / "p2", performance={"num_episodes": 50})
    one = compared(tmp_path).sets[0]
    assert one.groups[1].metrics["final_reward"].missing == 1
    assert "Not ranked: PPO Parallel (2 workers) (2 of 3 seeds have a value)." in one.verdict
    change(tmp_path / "p2", performance={"num_episodes": 960})
    add_event(tmp_path / "p2", "failed", reason="out of memory")
    put(tmp_path / "p2", status="running")
    found = compared(tmp_path)
    assert found.advice
    assert card(found.advice, "Best at equal steps").group == "PPO Sequential"
    assert "PPO Parallel (2 workers) (1 of 3 seeds failed)" in card(found.advice, "Best at equal steps").certainty
    assert card(found.advice, "Fastest").group == "PPO Parallel (2 workers)"  # a failure says nothing about speed


def test_disturbed_speeds_are_not_advised(tmp_path: Path) -> None:
    study(tmp_path, (1, 2, 3), rewards=(5.0, 9.0))
    for seed in (1, 2, 3):
        disturb(tmp_path / f"p{seed}")
    advice = advice_on(tmp_path)
    assert "its speed is not judged (it was disturbed)" in advice.text
    assert "steps/s" not in advice.text
    assert card(advice, "Fastest").group == "PPO Sequential"
    assert "not ranked: PPO Parallel (2 workers) (was disturbed)" in card(advice, "Fastest").certainty
    for seed in (1, 2, 3):
        disturb(tmp_path / f"s{seed}")
    cards = advice_on(tmp_path).cards
    assert [found.title for found in cards] == ["Best at equal steps", "Not judged"]
    assert cards[-1].value == "fastest, best at equal time and cheapest per million steps"


def test_one_group_alone_and_unfinished_runs(tmp_path: Path) -> None:
    write_run(tmp_path / "a" / "s1")
    alone = advice_on(tmp_path / "a")
    assert alone.text.startswith("PPO sequential: ")
    assert alone.text.endswith("; only one group, so there is nothing to compare it with.")
    assert (alone.group, alone.cards) == ("", ())
    write_run(tmp_path / "b" / "s1", status="running")
    assert compared(tmp_path / "b").advice is None


def test_rewards_count_from_a_hundred_episodes_on(tmp_path: Path) -> None:
    """16 episodes an update: the first six updates are not drawn, compared or searched for a threshold."""
    study(tmp_path, (1, 2, 3))
    group = compared(tmp_path).sets[0].groups[0]
    run = group.runs[0]
    assert group.curves["reward_steps"].x[0] == run.history.step[6]
    assert run.history.episodes[6] == 112
    short = tmp_path / "short"
    for seed in (1, 2):
        change(write_run(short / f"s{seed}", seed=seed, updates=6), performance={"num_episodes": 96})
    few = compared(short).sets[0]
    names = ("final_reward", "reward_at_equal_steps", "reward_at_equal_time")
    assert all(few.groups[0].metrics[name].n == 0 for name in names)
    assert "reward_steps" not in few.groups[0].curves
    assert any("2 of 2 runs finished fewer than 100 episodes" in note for note in few.notes)


def test_an_evaluation_of_one_seed_has_the_interval_of_its_episodes(tmp_path: Path) -> None:
    study(tmp_path, (1,))
    for name in ("s1", "p1"):
        write_evaluation(tmp_path / name, 6.0, 5.0)
    summary = compared(tmp_path).sets[0].groups[0].metrics["evaluation_unseen"]
    assert summary.interval is not None
    assert summary.interval[0] < 5.0 < summary.interval[1]
    assert summary.interval_over == "episodes"
