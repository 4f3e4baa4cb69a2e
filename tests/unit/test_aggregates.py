"""Aggregates over games against slow transcriptions of their definitions, published figures and cases by hand."""

import itertools
import math
import random
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from scipy import stats

from rlcb.analysis.aggregates import (
    Aggregates,
    aggregate,
    normalized,
    probability_of_improvement,
    profile,
    thresholds_for,
    why_no_interval,
)
from rlcb.analysis.statistics import CURVE_RESAMPLES, RESAMPLES, Array

Slow = Sequence[Sequence[float]]  # the scores of each game's runs
STATISTICS = ("mean", "median", "iqm", "optimality_gap")


def made_up(seed: int, games: int = 16, runs: int = 3) -> list[Array]:
    rng = np.random.default_rng(seed)
    return [rng.normal(0.4, 0.05, runs) + 0.3 * rng.random() for _ in range(games)]


def slow_mean(scores: Slow) -> float:
    return sum(sum(game) / len(game) for game in scores) / len(scores)


def slow_median(scores: Slow) -> float:
    means = sorted(sum(game) / len(game) for game in scores)
    half = len(means) // 2
    return means[half] if len(means) % 2 else (means[half - 1] + means[half]) / 2


def slow_iqm(scores: Slow) -> float:
    ordered = sorted(score for game in scores for score in game)
    cut = math.floor(len(ordered) / 4)
    kept = ordered[cut : len(ordered) - cut]
    return sum(kept) / len(kept)


def slow_gap(scores: Slow) -> float:
    total = 0.0
    for game in scores:
        for score in game:
            total += (1 - min(score, 1.0)) / len(game) / len(scores)
    return total


def slow_improvement(first: Slow, second: Slow) -> float:
    total = 0.0
    for ours, theirs in zip(first, second, strict=True):
        wins = sum(1.0 if x > y else 0.5 if x == y else 0.0 for x, y in itertools.product(ours, theirs))
        total += wins / (len(ours) * len(theirs))
    return total / len(first)


def slow_interval(statistic: Callable[..., float], groups: Sequence[Slow], resamples: int) -> tuple[float, float]:
    """A stratified percentile bootstrap, one resample after the other."""
    draw = random.Random(5)
    found = sorted(
        statistic(*([draw.choices(game, k=len(game)) for game in group] for group in groups)) for _ in range(resamples)
    )
    return found[round(0.025 * (resamples - 1))], found[round(0.975 * (resamples - 1))]


SLOW = dict(zip(STATISTICS, (slow_mean, slow_median, slow_iqm, slow_gap), strict=True))


@pytest.mark.parametrize("name", STATISTICS)
@pytest.mark.parametrize(("games", "runs"), [(16, 3), (5, 4), (2, 2)])
def test_aggregates_are_the_slow_ones(name: str, games: int, runs: int) -> None:
    strata = made_up(games, games, runs)
    lists = [scores.tolist() for scores in strata]
    found = getattr(aggregate(strata, 0), name)
    assert found.value == pytest.approx(SLOW[name](lists))
    assert found.interval is not None
    width = found.interval[1] - found.interval[0]
    # Two bootstraps with other random numbers differ by the error of a percentile, a small part of the width.
    assert found.interval == pytest.approx(slow_interval(SLOW[name], [lists], 4000), abs=0.08 * width)


def test_the_same_seed_gives_the_same_intervals_and_another_one_others() -> None:
    strata = made_up(1)
    assert aggregate(strata, 3) == aggregate(strata, 3)
    assert aggregate(strata, 3) != aggregate(strata, 4)


def test_games_with_different_numbers_of_runs() -> None:
    strata = [np.array([0.0, 1.0]), np.array([0.2, 0.4, 0.6, 0.8]), np.array([0.9, 1.3])]
    lists = [scores.tolist() for scores in strata]
    found = aggregate(strata, 0)
    for name in STATISTICS:
        assert getattr(found, name).value == pytest.approx(SLOW[name](lists))
    # Means 0.5, 0.5 and 1.1; of the eight scores in order the middle four; gaps 0.5, 0.5 and 0.05 (1.3 counts as 1).
    by_hand = (2.1 / 3, 0.5, (0.4 + 0.6 + 0.8 + 0.9) / 4, 1.05 / 3)
    assert tuple(getattr(found, name).value for name in STATISTICS) == pytest.approx(by_hand)


def test_the_interval_of_two_runs_in_one_game_by_hand() -> None:
    # Resamples of {0, 1}: 00, 01, 10, 11, so the mean is 0, 0.5 or 1, and each end has more than 2.5 % of them.
    found = aggregate([np.array([0.0, 1.0])], 0)
    assert (found.mean.value, found.mean.interval) == (0.5, (0.0, 1.0))
    assert (found.optimality_gap.value, found.optimality_gap.interval) == (0.5, (0.0, 1.0))


@pytest.mark.parametrize(
    ("strata", "why"),
    [
        ([[0.1], [0.5]], "one run per game: no interval"),
        ([[0.1, 0.2], [0.5]], "one run in 1 of 2 games: no interval"),
        ([[0.1, 0.1], [0.5, 0.5]], "all runs of a game have the same score: no interval"),
        ([[0.1, 0.1], [0.5, 0.6]], ""),
    ],
)
def test_no_interval_where_there_is_nothing_to_resample(strata: Slow, why: str) -> None:
    scores = [np.array(game) for game in strata]
    assert why_no_interval(scores) == why
    found = aggregate(scores, 0)
    assert isinstance(found, Aggregates)
    assert (found.mean.value, found.iqm.value) == pytest.approx((slow_mean(strata), slow_iqm(strata)))
    for name in STATISTICS:
        assert (getattr(found, name).interval is None) == bool(why)
    band = profile(scores, np.array([0.0, 0.3]), 0)
    assert band.share.tolist() == [1.0, 0.5]
    assert (band.low is None) == (band.high is None) == bool(why)


def test_a_profile_is_the_slow_one_with_pointwise_intervals() -> None:
    strata = made_up(9, games=6, runs=4)
    thresholds = thresholds_for([strata], 41)
    found = profile(strata, thresholds, 0)
    assert found.low is not None
    assert found.high is not None
    lists = [scores.tolist() for scores in strata]

    def share_above(scores: Slow, limit: float) -> float:
        return sum(sum(score > limit for score in game) / len(game) for game in scores) / len(scores)

    for place in range(0, 41, 8):
        limit = float(thresholds[place])
        assert found.share[place] == pytest.approx(share_above(lists, limit))
        low, high = slow_interval(lambda scores, limit=limit: share_above(scores, limit), [lists], 2000)
        one_run = 1 / 24  # what a percentile of a step function may be off by
        assert (found.low[place], found.high[place]) == pytest.approx((low, high), abs=one_run + 1e-9)
    assert (found.share[0], found.share[-1]) == (1.0, 0.0)
    assert (np.diff(found.share) <= 0).all()


def test_thresholds_span_all_groups() -> None:
    found = thresholds_for([[np.array([0.2])], [np.array([-0.3, 0.7])]], 11)
    assert (len(found), found[-1]) == (11, 0.7)
    assert found[0] < -0.3


def test_probability_of_improvement_by_hand() -> None:
    first = [np.array([1.0, 2.0]), np.array([0.0, 5.0])]
    second = [np.array([0.0, 2.0]), np.array([1.0, 2.0])]
    # Game 1: 1 > 0, 1 < 2, 2 > 0, 2 = 2: 2.5 of 4. Game 2: 5 is above both, 0 below both: 2 of 4.
    assert probability_of_improvement(first, second, 0).value == pytest.approx((2.5 / 4 + 2 / 4) / 2)
    assert probability_of_improvement(first, first, 0).value == 0.5
    above = probability_of_improvement([scores + 10.0 for scores in first], second, 0)
    assert (above.value, above.interval) == (1.0, (1.0, 1.0))
    assert probability_of_improvement([np.array([1.0])], [np.array([0.0, 2.0])], 0).interval is None


def test_probability_of_improvement_is_mann_whitneys_and_the_slow_bootstrap() -> None:
    first, second = made_up(2, games=5, runs=6), made_up(3, games=5, runs=4)
    found = probability_of_improvement(first, second, 0)
    theirs = [stats.mannwhitneyu(x, y).statistic / (len(x) * len(y)) for x, y in zip(first, second, strict=True)]
    assert found.value == pytest.approx(np.mean(theirs))
    lists = [[scores.tolist() for scores in strata] for strata in (first, second)]
    assert found.value == pytest.approx(slow_improvement(*lists))
    assert found.interval is not None
    width = found.interval[1] - found.interval[0]
    assert found.interval == pytest.approx(slow_interval(slow_improvement, lists, 4000), abs=0.1 * width)
    swapped = probability_of_improvement(second, first, 0)
    assert swapped.value == pytest.approx(1 - found.value)


def test_as_many_resamples_as_promised() -> None:
    assert RESAMPLES >= 2000
    assert CURVE_RESAMPLES >= 2000


def test_normalised_scores_by_hand() -> None:
    assert normalized(np.array([5.0, 7.5, 10.0, 2.5]), (5, 10)).tolist() == [0.0, 0.5, 1.0, -0.5]
    assert normalized(np.array([-1.5, 32.4]), (-1.5, 32.4)).tolist() == [0.0, 1.0]
