"""Choosing a recipe: the late reward, the ranking of variants by it, what it says, and the suites of the search."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.processes import ROOT
from helpers.run_directories import add_event, as_columns, log_of, write_run
from rlcb.analysis.comparison import compare
from rlcb.analysis.load import load_run, load_runs
from rlcb.analysis.recipe_records import RecipeRanking
from rlcb.analysis.recipes import changes_text
from rlcb.analysis.records import Comparison
from rlcb.analysis.statistics import welch, welch_over_strata
from rlcb.config.registry import MODES
from rlcb.report.compare import compare_any, comparison_csv, comparison_text, runs_csv
from rlcb.report.recipes import recipe_lines
from rlcb.suite.directory import runs_of
from rlcb.suite.settings import build_suite

SEARCHES = ("ppo", "impala", "a2c", "a3c")
LIMITS = {"coinrun": (5.0, 10.0), "maze": (5.0, 10.0), "starpilot": (2.5, 64.0)}
VARIANTS: dict[str, tuple[dict[str, Any], float]] = {  # settings, and the normalised score that they reach
    "base": ({}, 0.3),
    "linear": ({"lr_schedule": "linear", "learning_rate": 5e-4}, 0.6),
    "low-entropy": ({"ent_coef": 0.003}, 0.5),
}


def compared(folder: Path) -> Comparison:
    return compare(load_runs([folder], lambda _: None))


def write_variants(
    folder: Path, games: tuple[str, ...], seeds: tuple[int, ...], spread: float = 0.01, **settings: Any
) -> None:
    """Runs of all variants; a seed moves the scores by a multiple of `spread`."""
    for game in games:
        low, high = LIMITS[game]
        for name, (changed, score) in VARIANTS.items():
            for seed in seeds:
                top = low + (high - low) * (score + spread * (seed % 10 - 2))
                env = {"name": f"procgen-{game}-v0", "seed": seed, "variant": name, "rewards": (low, top), "noise": 0.0}
                write_run(folder / f"{game}_{name}_{seed}", updates=80, **{**env, **changed, **settings})


def ranking_of(comparison: Comparison, metric: str = "late_reward") -> RecipeRanking:
    (found,) = (ranking for ranking in comparison.recipes if ranking.metric == metric)
    return found


# --- the metric


def slow_late_reward(path: Path) -> float | None:
    """The definition, read off the log line by line."""
    lines = [json.loads(line) for line in log_of(path).read_text().splitlines()]
    end = lines[-1]["step"]
    if lines[0]["step"] > end - 250_000:
        return None
    total, count = 0.0, 0
    for line in lines:
        reward = line["rollout/ep_reward_mean"]
        full = line["rollout/episodes"] >= 100
        if line["step"] > end - 250_000 and reward is not None and full:
            total += reward
            count += 1
    return total / count if count else None


@pytest.mark.parametrize("updates", [1, 61, 62, 63, 200])
def test_the_late_reward_is_the_mean_of_the_logged_means_in_the_window(tmp_path: Path, updates: int) -> None:
    path = write_run(tmp_path / "run", updates=updates, noise=0.5)
    expected = slow_late_reward(path)
    assert (expected is None) == (updates < 63)  # 62 × 4,096 steps are behind the first update from the 63rd on
    for name in ("with columns", "log alone"):
        assert load_run(path).metrics.late_reward == (expected if expected is None else pytest.approx(expected)), name
        (path / "metrics.json").unlink(missing_ok=True)


def rewrite(path: Path, lines: list[dict[str, Any]]) -> None:
    log_of(path).write_text("".join(json.dumps(line) + "\n" for line in lines))
    (path / "metrics.json").write_text(json.dumps(as_columns(lines)))


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log_of(path).read_text().splitlines()]


def test_updates_without_a_finished_episode_do_not_count(tmp_path: Path) -> None:
    path = write_run(tmp_path / "run", updates=100)
    lines = lines_of(path)
    for line in lines[:80]:
        line["rollout/ep_reward_mean"] = None
    rewrite(path, lines)
    rewards = [line["rollout/ep_reward_mean"] for line in lines[80:]]
    assert (
        load_run(path).metrics.late_reward == pytest.approx(np.mean(rewards)) == pytest.approx(slow_late_reward(path))
    )
    for line in lines:
        line["rollout/ep_reward_mean"] = None
    rewrite(path, lines)
    assert load_run(path).metrics.late_reward is None


def test_the_window_of_a_resumed_run_spans_the_resume_and_whole_larger_updates(tmp_path: Path) -> None:
    path = write_run(tmp_path / "run", updates=100)
    lines = lines_of(path)
    for number, line in enumerate(lines):  # resumed after 70 updates with twice as many environments
        line["step"] = (number + 1) * 4096 + max(number - 69, 0) * 4096
    rewrite(path, lines)
    add_event(path, "interrupted")
    add_event(path, "resumed")
    benchmark = json.loads((path / "benchmark_metrics.json").read_text())
    (path / "benchmark_metrics.json").write_text(json.dumps({**benchmark, "total_timesteps": lines[-1]["step"]}))
    found = load_run(path)
    assert found.status == "finished"
    inside = [line for line in lines if line["step"] > lines[-1]["step"] - 250_000]
    assert inside[0]["step"] < 71 * 4096 < inside[-1]["step"]
    mean = np.mean([line["rollout/ep_reward_mean"] for line in inside])
    assert found.metrics.late_reward == pytest.approx(mean) == pytest.approx(slow_late_reward(path))


def test_a_log_that_lacks_the_end_or_the_start_of_the_window_has_no_late_reward(tmp_path: Path) -> None:
    path = write_run(tmp_path / "run", updates=100)
    lines = lines_of(path)
    rewrite(path, lines[:90])
    assert load_run(path).metrics.late_reward is None
    rewrite(path, lines[50:])
    assert load_run(path).metrics.late_reward is None
    rewrite(path, lines[20:])
    assert load_run(path).metrics.late_reward == pytest.approx(slow_late_reward(path))


def test_tables_and_files_have_it_only_where_runs_are_long_enough(tmp_path: Path) -> None:
    for name, updates in (("long", 80), ("short", 20)):
        write_run(tmp_path / name / "run", updates=updates)
        comparison = compared(tmp_path / name)
        assert ("Reward, last 250 k steps" in comparison_text(comparison)) == (name == "long")
        summary = comparison.sets[0].groups[0].metrics["late_reward"]
        run = comparison.sets[0].groups[0].runs[0]
        assert summary.values == (() if name == "short" else (run.metrics.late_reward,))
        assert ",late_reward," in comparison_csv(comparison)
        assert ",late_reward," in runs_csv(comparison, [run]).splitlines()[0]


# --- the ranking


def test_variants_are_ranked_by_their_normalised_mean_over_games(tmp_path: Path) -> None:
    write_variants(tmp_path, ("coinrun", "starpilot"), (1, 2, 3))
    found = ranking_of(compared(tmp_path))
    assert (found.title, found.games, found.normalized) == ("PPO Sequential", ("coinrun", "starpilot"), True)
    assert [recipe.variant for recipe in found.recipes] == ["linear", "low-entropy", "base"]
    for recipe in found.recipes:
        scores = []
        for game in found.games:
            low, high = LIMITS[game]
            paths = [tmp_path / f"{game}_{recipe.variant}_{seed}" for seed in (1, 2, 3)]
            rewards = [slow_late_reward(path) or math.nan for path in paths]
            assert recipe.rewards[game] == pytest.approx(rewards)
            scores.append(np.mean([(reward - low) / (high - low) for reward in rewards]))
        assert recipe.score == pytest.approx(np.mean(scores))
        assert recipe.difference == pytest.approx(recipe.score - found.pick.score)
    assert [changes_text(recipe) for recipe in found.recipes] == [
        "learning_rate 0.0005, lr_schedule linear", "ent_coef 0.003", "as configured"
    ]  # fmt: skip
    assert found.notes == ()
    assert [recipe.established for recipe in found.recipes] == [False, True, True]
    assert "Pick (Reward, last 250 k steps): PPO Sequential · linear has the highest mean (0." in found.verdict
    assert "is established: 0.0" in found.verdict
    assert "Its lead is established over 2 of 2 others." in found.verdict


def test_a_lead_within_the_noise_is_not_established(tmp_path: Path) -> None:
    write_variants(tmp_path, ("coinrun", "maze"), (1, 2, 3), spread=0.3)
    found = ranking_of(compared(tmp_path))
    assert found.pick.variant == "linear"
    second = found.recipes[1]
    assert second.interval is not None
    assert second.interval[0] < 0 < second.interval[1]
    assert not any(recipe.established for recipe in found.recipes)
    assert "is not established: 0.0" in found.verdict
    assert "Its lead is established over 0 of 2 others." in found.verdict


def test_one_seed_gives_a_ranking_without_intervals(tmp_path: Path) -> None:
    write_variants(tmp_path, ("coinrun", "maze"), (101,))
    found = ranking_of(compared(tmp_path))
    assert [recipe.interval for recipe in found.recipes] == [None] * 3
    assert "is not established (one seed)." in found.verdict
    assert "[n/a]" in recipe_lines(found)[3]


def test_a_single_game_is_ranked_by_its_rewards(tmp_path: Path) -> None:
    write_variants(tmp_path, ("starpilot",), (1, 2))
    found = ranking_of(compared(tmp_path))
    assert (found.games, found.normalized) == (("starpilot",), False)
    best, second, _ = found.recipes
    assert best.score == pytest.approx(np.mean(best.rewards["starpilot"]))
    test = welch(np.array(second.rewards["starpilot"]), np.array(best.rewards["starpilot"]))
    assert test
    assert (second.interval, second.p) == (pytest.approx(test.interval), pytest.approx(test.p))


def test_a_variant_that_lacks_a_game_is_not_ranked(tmp_path: Path) -> None:
    write_variants(tmp_path, ("coinrun", "maze"), (1,))
    for file in sorted((tmp_path / "maze_linear_1").rglob("*"), reverse=True):
        file.rmdir() if file.is_dir() else file.unlink()
    found = ranking_of(compared(tmp_path))
    assert [recipe.variant for recipe in found.recipes] == ["low-entropy", "base"]
    assert found.notes == ("not ranked: PPO Sequential · linear, no value in maze",)


def test_seeds_that_not_all_have_are_left_out_and_said(tmp_path: Path) -> None:
    write_variants(tmp_path, ("coinrun",), (1, 2))
    write_run(tmp_path / "more", name="procgen-coinrun-v0", seed=7, variant="base", updates=80, rewards=(5.0, 10.0))
    found = ranking_of(compared(tmp_path))
    assert [len(recipe.rewards["coinrun"]) for recipe in found.recipes] == [2, 2, 2]
    assert found.notes == ("only seeds that all variants have are used; some have more in coinrun",)
    write_run(tmp_path / "own", name="procgen-coinrun-v0", seed=9, variant="other", gamma=0.9, updates=80)
    assert ranking_of(compared(tmp_path)).notes == (
        "the variants have no seed in common in coinrun, so each uses its own",
    )


def test_runs_that_did_not_have_the_machine_alone_are_not_ranked_at_equal_time(tmp_path: Path) -> None:
    write_variants(tmp_path / "alone", ("coinrun", "maze"), (1, 2))
    comparison = compared(tmp_path / "alone")
    assert [ranking.metric for ranking in comparison.recipes] == ["late_reward", "reward_at_equal_time"]
    one = next(one for one in comparison.sets if one.env == "maze")
    expected = one.groups[0].metrics["reward_at_equal_time"].values
    by_label = {recipe.group: recipe for recipe in ranking_of(comparison, "reward_at_equal_time").recipes}
    assert by_label[one.groups[0].label].rewards["maze"] == pytest.approx(expected)
    write_run(tmp_path / "alone" / "quick", algorithm="a2c", updates=80, fps=9000.0, name="procgen-maze-v0")
    found = ranking_of(
        compared(tmp_path / "alone"), "reward_at_equal_time"
    )  # the other algorithm's time does not count
    assert {recipe.group: recipe.rewards["maze"] for recipe in found.recipes}[one.groups[0].label] == (
        pytest.approx(expected)
    )
    write_variants(tmp_path / "shared", ("coinrun",), (1, 2), machine={"jobs_beside": 1})
    (found,) = compared(tmp_path / "shared").recipes
    assert found.metric == "late_reward"
    assert "not ranked at equal time: 6 of 6 runs shared the machine" in found.notes[-1]
    path = tmp_path / "alone" / "maze_base_1" / "benchmark_metrics.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "disturbance": {"disturbed": True}}))
    (found,) = compared(tmp_path / "alone").recipes
    assert found.notes == ("not ranked at equal time: 1 of 12 runs disturbed by other programs",)


def test_short_runs_and_runs_without_variants_are_not_ranked(tmp_path: Path) -> None:
    for seed, name in enumerate(("a", "b")):
        write_run(tmp_path / "short" / name, seed=seed, variant=name, updates=20)
        write_run(tmp_path / "plain" / name, seed=seed, updates=80, learning_rate=1e-4 * (1 + seed))
    assert compared(tmp_path / "short").recipes == compared(tmp_path / "plain").recipes == ()


def test_every_form_of_output_has_the_ranking(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_variants(tmp_path / "runs", ("coinrun", "maze"), (1, 2))
    assert compare_any([tmp_path / "runs"], tmp_path / "out", None, 0) == 0
    title = "Recipes of PPO Sequential: Reward, last 250 k steps, normalised, mean of 2 games"
    printed, text = capsys.readouterr().out, (tmp_path / "out" / "comparison_report.txt").read_text()
    for content in (printed, text):
        assert title in content
        assert "Pick (Reward at equal time): PPO Sequential · linear has the" in content
    for name in ("report.html", "report.md"):
        content = (tmp_path / "out" / name).read_text()
        assert title in content
        assert "low-entropy" in content
        assert "ent_coef" in content
    stored = json.loads((tmp_path / "out" / "comparison.json").read_text())["recipes"]
    assert [ranking["metric"] for ranking in stored] == ["late_reward", "reward_at_equal_time"]
    assert [recipe["variant"] for recipe in stored[0]["recipes"]] == ["linear", "low-entropy", "base"]
    assert stored[0]["recipes"][1]["changes"] == {"ent_coef": 0.003}


# --- the statistics


def test_the_interval_over_strata_is_the_sum_of_the_variances() -> None:
    from scipy import stats

    rng = np.random.default_rng(3)
    first, second = ([rng.normal(size=n) for n in sizes] for sizes in ((3, 4, 2), (5, 3, 3)))
    parts = [(float(values.var(ddof=1)) / len(values) / 9, len(values) - 1) for values in (*first, *second)]
    error = math.sqrt(sum(variance for variance, _ in parts))
    degrees = error**4 / sum(variance**2 / free for variance, free in parts)
    middle = sum(values.mean() for values in first) / 3 - sum(values.mean() for values in second) / 3
    half = stats.t.ppf(0.975, degrees) * error
    found = welch_over_strata(first, second)
    assert found
    assert found[0] == pytest.approx((middle - half, middle + half))
    assert found[1] == pytest.approx(2 * stats.t.sf(abs(middle) / error, degrees))


def test_there_is_no_interval_over_strata_with_one_value_or_without_variation() -> None:
    two = np.array([1.0, 2.0])
    assert welch_over_strata([two, two], [two, two[:1]]) is None
    assert welch_over_strata([two[:1].repeat(2)], [two[1:].repeat(2)]) is None
    assert welch_over_strata([two], [two[:1].repeat(2)]) is not None


# --- the suites


def test_the_searches_have_as_many_variants_of_the_same_length_and_no_seed_of_a_report(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(ROOT)
    suites = {name: build_suite(ROOT / "config" / "suites" / f"search_{name}.yaml", {}) for name in SEARCHES}
    report = build_suite(ROOT / "config" / "suites" / "recipes.yaml", {})
    for name, suite in suites.items():
        settings = suite.settings
        assert settings.algorithms == [name]
        assert len(settings.modes) == 1
        assert (len(settings.variants), settings.variants["base"]) == (12, {})
        assert len(runs_of(settings, Path("out"))) == 12 * 3
        assert settings.games == report.settings.games
        assert settings.total_timesteps == report.settings.total_timesteps
        assert settings.seeds == [101]
        assert not set(settings.seeds) & set(report.settings.seeds)
        for config in suite.configs.values():
            assert config.training.total_timesteps % config.rollout_size == 0
            assert (config.rollout_size // config.training.n_steps, config.training.network) == (32, "nature")
    assert len(report.configs) == 7
    assert {kind.mode for kind in report.configs} == set(MODES)
    assert len(runs_of(report.settings, Path("out"))) == 7 * 3 * 3
