"""Comparisons over several games: normalised scores, published values, what is left out, and every form of output."""

import csv
import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from helpers.run_directories import write_evaluation, write_games, write_run
from rlcb.analysis.aggregates import Estimate, aggregate, normalized, probability_of_improvement
from rlcb.analysis.comparison import compare
from rlcb.analysis.game_plots import figure_games, figure_profiles
from rlcb.analysis.game_records import GameScores, Improvement
from rlcb.analysis.load import load_runs
from rlcb.analysis.plots import as_image
from rlcb.analysis.published import published_curve
from rlcb.analysis.records import Comparison
from rlcb.envs.families import GAMES, score_range
from rlcb.report.compare import compare_any, comparison_text, write_report
from rlcb.report.games import (
    aggregate_table,
    games_csv,
    improvement_table,
    score_notes,
    scores_csv,
    shown_pairs,
    values_table,
)
from rlcb.report.sections import Origin

pytestmark = pytest.mark.xdist_group("games")

SEQUENTIAL, PARALLEL = "PPO Sequential", "PPO Parallel (4 workers)"
STEPS = 150 * 4096


def compared(folder: Path) -> Comparison:
    return compare(load_runs([folder], lambda _: None))


@pytest.fixture(scope="module")
def all_games(tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    """16 games, 2 groups, 3 seeds."""
    folder = tmp_path_factory.mktemp("games")
    write_games(folder, GAMES, (1, 2, 3))
    return compared(folder)


# --- the published data


def test_the_published_scores_over_all_games() -> None:
    found = [(game, published_curve(game, "easy", 200, 0), score_range(game, "easy")) for game in GAMES]
    ends = {game: (curve.at(25e6), limits) for game, curve, limits in found if curve and limits}
    assert len(ends) == 16
    rewards = {game: end[0] for game, (end, _) in ends.items() if end}
    scores = [normalized(np.array([rewards[game]]), limits) for game, (_, limits) in ends.items()]
    assert aggregate(scores, 0).mean.value == pytest.approx(0.5913, abs=1e-4)
    # With the limits in the authors' code the mean is the 0.600 that their curves show.
    in_code = {**{game: limits for game, (_, limits) in ends.items()}, "jumper": (1.0, 10.0), "leaper": (1.5, 10.0)}
    scores = [normalized(np.array([rewards[game]]), limits) for game, limits in in_code.items()]
    found_in_code = aggregate(scores, 0)
    assert found_in_code.mean.value == pytest.approx(0.6000298, abs=1e-7)
    # Worked out in fractions: the mean of the fifth to the twelfth of the sixteen in order.
    assert found_in_code.iqm.value == pytest.approx(0.6180158, abs=1e-7)


def test_the_limits_of_every_game() -> None:
    easy, hard = ({game: score_range(game, mode) for game in GAMES} for mode in ("easy", "hard"))
    assert (easy["jumper"], easy["leaper"]) == ((3.0, 10.0), (3.0, 10.0))
    assert (hard["jumper"], hard["leaper"]) == ((1.0, 10.0), (1.5, 10.0))
    assert all(limits and limits[0] < limits[1] for limits in (*easy.values(), *hard.values()))
    assert score_range("jumper", "memory") is None


# --- 16 games, 2 groups, 3 seeds


def test_values_stand_beside_the_published_ones(all_games: Comparison) -> None:
    (scores,) = all_games.game_scores
    assert scores.games == tuple(sorted(GAMES))
    assert len(scores.values) == 16 * 2 * 4
    for one in all_games.sets:
        for group in one.groups:
            rewards = [run.metrics.final_reward or 0.0 for run in group.runs]
            found = scores.value("final_reward", one.env, group.label)
            curve = published_curve(one.env, "easy", 200, 0)
            assert found
            assert curve
            assert (found.n, found.steps) == (3, STEPS)
            assert (found.mean, found.std) == pytest.approx((np.mean(rewards), np.std(rewards, ddof=1)))
            # Between the points at 500,000 and at a million steps.
            part = (STEPS - 500_000) / 500_000
            before, after = (float(curve.mean[list(curve.steps).index(at)]) for at in (500_000, 1_000_000))
            assert found.published_mean == pytest.approx(before + part * (after - before))
            assert found.difference == pytest.approx(found.mean - (found.published_mean or 0.0))
    unseen = scores.value("evaluation_unseen", "coinrun", SEQUENTIAL)
    curve = published_curve("coinrun", "easy", 200, 0, unseen=True)
    assert unseen
    assert curve
    assert (unseen.published_mean, unseen.published_std) == curve.at(STEPS)


def test_the_late_reward_stands_beside_the_middle_of_its_window(all_games: Comparison) -> None:
    (scores,) = all_games.game_scores
    for game in GAMES:
        found, curve = scores.value("late_reward", game, SEQUENTIAL), published_curve(game, "easy", 200, 0)
        assert found
        assert curve
        assert (found.published_mean, found.published_std) == curve.at(STEPS - 125_000)


def test_how_many_games_agree_with_the_published_runs(tmp_path: Path) -> None:
    """By hand: within 3 published deviations, or a tenth of the game's range where that is more."""
    rewards = {"bigfish": 1.5, "coinrun": 9.5, "maze": 5.6, "starpilot": 16.0}
    for game, reward in rewards.items():
        for algorithm in ("ppo", "a2c"):
            name = f"procgen-{game}-v0"
            path = tmp_path / f"{game}_{algorithm}"
            write_run(path, algorithm=algorithm, name=name, updates=150, rewards=(reward, reward), noise=0.0)
    (scores,) = compared(tmp_path).game_scores
    (found,) = scores.agreements  # of PPO: A2C need not reach what PPO did
    assert (found.group, found.games) == (SEQUENTIAL, tuple(rewards))
    # At 489,400 steps; coinrun: 6.75 ± 0.12, range 5; starpilot: 4.65 ± 0.29, range 61.5.
    assert [value.game for value in found.outside] == ["coinrun", "starpilot"]
    (text,) = [note for note in score_notes(scores) if "within the published mean" in note]
    assert "PPO Sequential is within the published mean ± 3 standard deviations (at least ± 10 % of" in text
    assert (
        "in 2 of 4 games, but not in coinrun (9.50, published 6.75 ± 0.12) and starpilot (16.00, published 4.6" in text
    )


def test_aggregates_are_of_the_normalised_rewards(all_games: Comparison) -> None:
    (scores,) = all_games.game_scores
    assert [found.metric for found in scores.metrics] == [
        "final_reward",
        "evaluation_train",
        "evaluation_unseen",
        "late_reward",
    ]
    assert scores.main is scores.metrics[2]
    strata: dict[str, list[np.ndarray[Any, Any]]] = {SEQUENTIAL: [], PARALLEL: []}
    for one in sorted(all_games.sets, key=lambda one: one.env):
        low, high = score_range(one.env, "easy") or (0.0, 0.0)
        for group in one.groups:
            rewards = np.array([run.metrics.final_reward for run in group.runs])
            strata[group.label].append((rewards - low) / (high - low))
    final = scores.metrics[0]
    assert (final.games, final.notes) == (scores.games, ())
    for found in final.groups:
        assert found.aggregates == aggregate(strata[found.group], 0)
        assert found.aggregates.iqm.interval is not None
        assert found.why_no_interval == ""
        assert found.published is not None
        assert found.published.mean.interval is None
        assert found.profile.low is not None
    (pair,) = final.improvements
    assert (pair.first, pair.second) == (SEQUENTIAL, PARALLEL)
    assert pair.probability == probability_of_improvement(strata[SEQUENTIAL], strata[PARALLEL], 0)


def test_all_games_are_one_comparison(all_games: Comparison) -> None:
    assert all_games.excluded == ()
    assert all(all_games.is_main_task(one) for one in all_games.sets)
    assert "16 games, 200 easy levels, 614,400 steps, on Test CPU, 8 cores: 96 runs in 2 groups." in all_games.verdict
    assert "Evaluation on unseen levels, normalised, IQM over 16 games: PPO Sequential 0.0" in all_games.verdict
    assert f"Probability that {SEQUENTIAL} is better than {PARALLEL}: 0.78 [" in all_games.verdict
    text = comparison_text(all_games)
    assert "NOT COMPARABLE" not in text
    assert text.count("Seeds  ") == 16
    brief = comparison_text(all_games, brief=True)
    assert "Seeds  " not in brief
    assert "the tables of each game are in comparison_report.txt" in brief
    rows = [line.split() for line in brief.splitlines() if line.split()[:1] and line.split()[0] in GAMES]
    assert [row[0] for row in rows] == list(GAMES)
    assert max(len(line) for line in brief.splitlines()[:60]) < 200
    assert brief.count("PPO (published)  ") == 4  # once for both groups


def test_tables_and_csv_of_all_games(all_games: Comparison) -> None:
    (scores,) = all_games.game_scores
    table = values_table(scores)
    assert table.head[:6] == ("Game", "Group", "Seeds", "Final reward", "Published", "Difference")
    assert (len(table.rows), "after 614,400 steps" in table.caption) == (32, True)
    assert [len(aggregate_table(found).rows) for found in scores.metrics] == [2, 2, 2, 2]
    assert len(improvement_table(scores).rows) == 4
    values = list(csv.DictReader(games_csv(all_games).splitlines()))
    assert len(values) == 16 * 2 * 4
    assert all(row["published_mean"] for row in values if row["metric"] == "late_reward")
    first = values[0]
    assert (first["game"], first["group"], first["metric"], first["n"]) == ("bigfish", SEQUENTIAL, "final_reward", "3")
    assert float(first["difference"]) == pytest.approx(float(first["mean"]) - float(first["published_mean"]))
    rows = list(csv.DictReader(scores_csv(all_games).splitlines()))
    assert len(rows) == 4 * (2 * 4 + 1)
    assert {row["statistic"] for row in rows} == {
        "mean", "median", "iqm", "optimality_gap", "probability_of_improvement"
    }  # fmt: skip
    assert all(float(row["low95"]) <= float(row["value"]) <= float(row["high95"]) for row in rows)
    (stored,) = json.loads(json.dumps(all_games.to_dict(), allow_nan=False))["game_scores"]
    assert stored["metrics"][0]["groups"][0]["aggregates"]["iqm"]["interval"][0] < 1
    assert stored["values"][0]["difference"] == pytest.approx(float(first["difference"]))


def test_figures_of_all_games(all_games: Comparison, tmp_path: Path) -> None:
    (scores,) = all_games.game_scores
    colours = {SEQUENTIAL: 0, PARALLEL: 1}
    curves = {game: curve for game in GAMES if (curve := published_curve(game, "easy", 200, 0))}
    small = figure_games(all_games.sets, "games", curves, colours)
    assert [axis.get_title() for axis in small.axes] == [one.env for one in all_games.sets]
    for axis in small.axes:
        assert [line.get_label() for line in axis.lines] == [SEQUENTIAL, PARALLEL, "PPO (published)"]
    profiles = figure_profiles(scores, all_games.sets, "profiles", colours)
    assert len(profiles.axes) == 3
    for name, figure in (("games", small), ("profiles", profiles)):
        (tmp_path / f"{name}.png").write_bytes(as_image(figure))
        with Image.open(tmp_path / f"{name}.png") as picture:
            assert picture.size[0] > 1200


# --- what is missing


def test_one_run_per_game_has_no_interval(tmp_path: Path) -> None:
    write_games(tmp_path, ("coinrun", "starpilot", "maze"), (2,))
    comparison = compared(tmp_path)
    (scores,) = comparison.game_scores
    for found in scores.metrics:
        for group in found.groups:
            assert group.why_no_interval == "one run per game: no interval"
            assert group.aggregates.mean.interval is None
            assert group.profile.low is None
        assert found.improvements[0].probability.interval is None
    assert "one run per game: no interval" in comparison.verdict
    text = comparison_text(comparison, brief=True)
    assert f"* one run per game: no interval ({SEQUENTIAL}, {PARALLEL})" in text
    assert "0.000, 0.000" not in text
    assert "n/a (one run per game)" in text
    assert text.count("Seeds  ") == 3  # few games: their tables are shown on the screen too


def test_games_and_seeds_that_not_all_groups_have_are_left_out_and_named(tmp_path: Path) -> None:
    write_games(tmp_path, ("coinrun", "starpilot"), (1, 2, 3))
    write_run(tmp_path / "more", name="procgen-coinrun-v0", seed=4, updates=150, rewards=(5.0, 9.0))
    write_run(tmp_path / "maze", name="procgen-maze-v0", seed=1, updates=150)
    write_run(tmp_path / "cart", name="CartPole-v1", seed=1, updates=150)
    comparison = compared(tmp_path)
    (scores,) = comparison.game_scores
    final = scores.metrics[0]
    assert (scores.games, final.games) == (("coinrun", "maze", "starpilot"), ("coinrun", "starpilot"))
    assert final.notes == (
        "over the 2 games that all groups have; not included: maze",
        "only seeds that all groups have are used; some groups have more in coinrun",
    )
    assert [len(seeds) for seeds in final.groups[0].scores.values()] == [3, 3]
    coinrun = scores.value("final_reward", "coinrun", SEQUENTIAL)
    assert coinrun
    assert coinrun.n == 4  # the table of games has all of them
    assert "not included, because they have no published reward range: CartPole-v1" in score_notes(scores)
    assert [one.reason for one in comparison.excluded] == ["different environment: CartPole-v1 instead of coinrun"]


def test_a_group_with_too_few_games_does_not_take_the_aggregate_from_the_others(tmp_path: Path) -> None:
    write_games(tmp_path, ("coinrun", "starpilot", "maze"), (1, 2))
    for name in ("coinrun", "starpilot"):
        for seed in (1, 2):
            (tmp_path / f"{name}_b{seed}").rename(tmp_path.parent / f"{tmp_path.name}_{name}_b{seed}")
    (scores,) = compared(tmp_path).game_scores
    assert [one.group for one in scores.metrics[0].groups] == [SEQUENTIAL]
    assert scores.metrics[0].notes == (
        f"not included, because fewer than two games are common to all groups: {PARALLEL}",
    )


def test_groups_with_other_settings_are_told_apart_in_every_game(tmp_path: Path) -> None:
    for game in ("coinrun", "maze"):
        for seed in (1, 2):
            write_run(tmp_path / f"{game}_a{seed}", name=f"procgen-{game}-v0", seed=seed)
    for seed in (1, 2):  # coinrun alone has both groups
        write_run(tmp_path / f"b{seed}", name="procgen-coinrun-v0", seed=seed, gamma=0.9)
    comparison = compared(tmp_path)
    (scores,) = comparison.game_scores
    assert {group.label for one in comparison.sets for group in one.groups} == {
        "PPO Sequential, gamma 0.9", "PPO Sequential, gamma 0.99"
    }  # fmt: skip
    (only,) = scores.metrics[0].groups
    assert (only.group, tuple(only.scores)) == ("PPO Sequential, gamma 0.99", ("coinrun", "maze"))


def test_groups_with_other_seeds_keep_their_own(tmp_path: Path) -> None:
    for game in ("coinrun", "maze"):
        env = {"name": f"procgen-{game}-v0"}
        for seed in (1, 2):
            write_run(tmp_path / f"{game}_a{seed}", seed=seed, **env)
            write_run(tmp_path / f"{game}_b{seed}", mode="parallel", workers=4, seed=seed + 10, **env)
    (scores,) = compared(tmp_path).game_scores
    assert [[len(seeds) for seeds in one.scores.values()] for one in scores.metrics[0].groups] == [[2, 2], [2, 2]]
    assert scores.metrics[0].notes == ()


def test_evaluations_of_some_groups_alone(tmp_path: Path) -> None:
    for game in ("coinrun", "maze"):
        for seed in (1, 2):
            path = write_run(tmp_path / f"{game}_a{seed}", name=f"procgen-{game}-v0", seed=seed)
            write_evaluation(path, 7.0 + 0.1 * seed, 6.0)
            write_run(tmp_path / f"{game}_b{seed}", mode="parallel", workers=4, name=f"procgen-{game}-v0", seed=seed)
    (scores,) = compared(tmp_path).game_scores
    assert scores.main is scores.metrics[0]
    unseen = scores.metrics[2]
    assert [one.group for one in unseen.groups] == [SEQUENTIAL]
    assert unseen.groups[0].why_no_interval == "all runs of a game have the same score: no interval"
    assert unseen.notes == (f"no values for {PARALLEL}",)


def test_nothing_is_published_for_other_levels_or_few_steps(tmp_path: Path) -> None:
    for game in ("coinrun", "maze"):
        for seed in (1, 2):
            write_run(tmp_path / f"{game}{seed}", name=f"procgen-{game}-v0", seed=seed, updates=40)
    (scores,) = compared(tmp_path).game_scores
    assert {(one.published_mean, one.difference) for one in scores.values} == {(None, None)}
    assert scores.metrics[0].groups[0].published is None
    assert "as published" not in compared(tmp_path).verdict
    assert "published: no values for these levels and steps" in comparison_text(compared(tmp_path))


def test_timed_runs_are_set_beside_what_is_published_at_their_own_steps(tmp_path: Path) -> None:
    for game in ("coinrun", "maze"):
        for seed in (1, 2):
            env: dict[str, Any] = {"name": f"procgen-{game}-v0", "seed": seed, "duration_hours": 1.0}
            write_run(tmp_path / f"{game}_a{seed}", updates=100, **env)
            write_run(tmp_path / f"{game}_b{seed}", updates=200, mode="parallel", workers=4, **env)
    comparison = compared(tmp_path)
    (scores,) = comparison.game_scores
    curve = published_curve("coinrun", "easy", 200, 0)
    assert curve
    for label, steps in ((SEQUENTIAL, 100 * 4096), (PARALLEL, 200 * 4096)):
        value = scores.value("final_reward", "coinrun", label)
        assert value
        assert (value.published_mean, value.published_std) == curve.at(steps)
    assert "Steps" in values_table(scores).head
    assert f"PPO (published) for {SEQUENTIAL}"[:31] in comparison_text(comparison)


def test_only_sets_that_differ_in_nothing_but_their_game_have_scores_together(tmp_path: Path) -> None:
    write_run(tmp_path / "coinrun")
    write_run(tmp_path / "longer", name="procgen-maze-v0", updates=70)
    write_run(tmp_path / "hard", name="procgen-starpilot-v0", distribution_mode="hard")
    write_run(tmp_path / "other", name="CartPole-v1")
    comparison = compared(tmp_path)
    assert comparison.game_scores == ()
    assert len(comparison.excluded) == 3


def test_of_many_pairs_the_clearest_are_shown(all_games: Comparison) -> None:
    (scores,) = all_games.game_scores
    assert [len(shown_pairs(scores, found)) for found in scores.metrics] == [1, 1, 1, 1]

    def with_pairs(count: int) -> GameScores:
        pairs = tuple(Improvement(f"a{n}", f"b{n}", Estimate(n / count, (0.0, 1.0))) for n in range(count))
        return replace(scores, metrics=tuple(replace(found, improvements=pairs) for found in scores.metrics))

    some, many = with_pairs(21), with_pairs(100)
    assert [len(shown_pairs(some, found)) for found in some.metrics] == [0, 0, 21, 0]
    assert [len(shown_pairs(many, found)) for found in many.metrics] == [0, 0, 30, 0]
    assert all(abs(pair.probability.value - 0.5) > 0.3 for pair in shown_pairs(many, many.metrics[2]))
    assert len(improvement_table(many).rows) == 30
    assert "probabilities of improvement are not corrected" in " ".join(score_notes(many))


# --- files


def test_the_files_of_several_games(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_games(tmp_path / "runs", ("coinrun", "starpilot"), (1, 2))
    assert compare_any([tmp_path / "runs"], tmp_path / "out", None, 0) == 0
    printed = capsys.readouterr().out
    assert (tmp_path / "out" / "comparison_report.txt").read_text() in printed  # few games: all of it
    for name in ("games.csv", "scores.csv", "games.png", "profiles.png"):
        assert f"Written: {tmp_path / 'out' / name}" in printed.splitlines()
    page, markdown = ((tmp_path / "out" / name).read_text() for name in ("report.html", "report.md"))
    for words in ("2 games: 200 easy levels", "normalised scores over 2 games", "Performance profiles"):
        assert words in page
        assert words in markdown
    assert "![" in markdown
    assert "](games.png)" in markdown
    assert "Rewards of different games are not comparable with each other; normalised scores are." in page
    lines = (tmp_path / "out" / "comparison_report.txt").read_text().splitlines()
    assert not [line for line in lines if line.startswith("P(") and "n/a" in line]


def test_a_single_game_has_none_of_it(tmp_path: Path) -> None:
    write_games(tmp_path / "runs", ("coinrun",), (1, 2))
    runs = load_runs([tmp_path / "runs"], lambda _: None)
    comparison = compare(runs)
    (tmp_path / "out").mkdir()
    write_report(comparison, tmp_path / "out", Origin(runs, [], "rlcb compare", datetime(2026, 5, 4, tzinfo=UTC)))
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert not names & {"games.csv", "scores.csv", "games.png", "profiles.png"}
    assert comparison.game_scores == ()
    assert comparison.verdict == comparison.sets[0].verdict
    assert comparison_text(comparison) == comparison_text(comparison, brief=True)


def test_names_from_runs_are_only_shown(tmp_path: Path) -> None:
    evil = '"><script>alert(1)</script>=1+1'
    for game in ("coinrun", "maze"):
        for seed in (1, 2):
            for network in ("nature", evil):
                path = write_run(
                    tmp_path / "runs" / f"{game}{seed}{len(network)}", name=f"procgen-{game}-v0", seed=seed
                )
                content = json.loads((path / "benchmark_metrics.json").read_text())
                content["config"]["training"]["network"] = network
                (path / "benchmark_metrics.json").write_text(json.dumps(content))
    assert compare_any([tmp_path / "runs"], tmp_path / "out", None, 0) == 0
    assert "<script>alert" not in (tmp_path / "out" / "report.html").read_text()
    rows = list(csv.reader((tmp_path / "out" / "scores.csv").open()))
    assert any(evil in cell for row in rows for cell in row)
    assert len({len(row) for row in rows}) == 1
