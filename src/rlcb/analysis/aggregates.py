"""Aggregates of normalised scores over games, as Agarwal et al. 2021 (arXiv 2108.13264) define them.

Scores come as strata: an array for each game, with the score of each run. Intervals are percentiles of a stratified
bootstrap, which draws as many runs of each game as there are, with replacement, from the runs of that game. With one
run of a game there is nothing to draw from, so there is no interval.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rlcb.analysis.statistics import CURVE_RESAMPLES, PERCENTILES, RESAMPLES, Array, Interval, iqm

Strata = Sequence[Array]
OPTIMAL = 1.0  # the normalised score of the best possible or practical reward


@dataclass(frozen=True)
class Estimate:
    """A statistic of the scores, with its 95 % interval where there is one."""

    value: float
    interval: Interval | None = None


@dataclass(frozen=True)
class Aggregates:
    """What a group's scores come to over all games."""

    mean: Estimate  # of the games' means
    median: Estimate  # of the games' means
    iqm: Estimate  # of all runs of all games
    optimality_gap: Estimate  # how far runs are below OPTIMAL on average; a run above it counts as 0


@dataclass(frozen=True, eq=False)
class Profile:
    """The share of runs with a score above each threshold, the mean over games; bounds are None without an interval."""

    thresholds: Array
    share: Array
    low: Array | None = None
    high: Array | None = None


def normalized(rewards: Array, limits: tuple[float, float]) -> Array:
    """(reward − lowest) / (highest − lowest) with a game's published limits."""
    low, high = limits
    return (rewards - low) / (high - low)


def why_no_interval(strata: Strata) -> str:
    """Why the scores have no bootstrap interval, in words; empty where they have one."""
    alone = sum(len(scores) < 2 for scores in strata)
    if alone == len(strata):
        return "one run per game: no interval"
    if alone:
        return f"one run in {alone} of {len(strata)} games: no interval"
    same = all(np.ptp(scores) == 0 for scores in strata)
    return "all runs of a game have the same score: no interval" if same else ""


def aggregate(strata: Strata, seed: int) -> Aggregates:
    """Mean, median, IQM and optimality gap with intervals; at least one run of each game."""
    one = [scores[np.newaxis] for scores in strata]
    values = _statistics(one)
    if why_no_interval(strata):
        return Aggregates(*(Estimate(float(value[0])) for value in values))
    rng = np.random.default_rng(seed)
    drawn = [scores[rng.integers(0, len(scores), (RESAMPLES, len(scores)))] for scores in strata]
    found = zip(values, _statistics(drawn), strict=True)
    return Aggregates(*(Estimate(float(value[0]), _bounds(resampled)) for value, resampled in found))


def _statistics(samples: Sequence[Array]) -> tuple[Array, Array, Array, Array]:
    """Mean, median, IQM and optimality gap of each row of samples, [rows, runs] for each game."""
    means = np.stack([scores.mean(axis=1) for scores in samples])
    gaps = np.stack([np.maximum(OPTIMAL - scores, 0.0).mean(axis=1) for scores in samples])
    middle = iqm(np.concatenate(samples, axis=1))
    return means.mean(axis=0), np.median(means, axis=0), middle, gaps.mean(axis=0)


def _bounds(resampled: Array) -> Interval:
    low, high = np.percentile(resampled, PERCENTILES)
    return float(low), float(high)


def profile(strata: Strata, thresholds: Array, seed: int) -> Profile:
    """The performance profile of the scores, with pointwise intervals."""
    above = [(scores[:, np.newaxis] > thresholds).astype(float) for scores in strata]  # [runs, thresholds] of each game
    share = np.mean([rows.mean(axis=0) for rows in above], axis=0)
    if why_no_interval(strata):
        return Profile(thresholds, share)
    rng = np.random.default_rng(seed)
    resampled = np.mean([_taken(len(rows), rng) @ rows / len(rows) for rows in above], axis=0)
    low, high = np.percentile(resampled, PERCENTILES, axis=0)
    return Profile(thresholds, share, low, high)


def _taken(count: int, rng: np.random.Generator) -> Array:
    """How often each resample takes each of `count` runs, [resamples, runs]."""
    draws = rng.integers(0, count, (CURVE_RESAMPLES, count))
    found: Array = np.stack([(draws == run).sum(axis=1) for run in range(count)], axis=1).astype(float)
    return found


def thresholds_for(groups: Sequence[Strata], points: int = 101) -> Array:
    """Thresholds from just below the lowest score of all groups to the highest one."""
    scores = np.concatenate([values for strata in groups for values in strata])
    lowest, highest = float(scores.min()), float(scores.max())
    return np.linspace(lowest - 0.02 * max(highest - lowest, 0.1), highest, points)


def probability_of_improvement(first: Strata, second: Strata, seed: int) -> Estimate:
    """The probability that a run of the first is better than one of the second, the mean over games; ties count half.

    Both have the same games in the same order.
    """
    wins = [_wins(ours, theirs) for ours, theirs in zip(first, second, strict=True)]
    value = float(np.mean([pairs.mean() for pairs in wins]))
    if any(min(pairs.shape) < 2 for pairs in wins):
        return Estimate(value)
    rng = np.random.default_rng(seed)
    resampled = np.mean([_resampled_wins(pairs, rng) for pairs in wins], axis=0)
    return Estimate(value, _bounds(resampled))


def _wins(ours: Array, theirs: Array) -> Array:
    """1 where a run of ours is better than one of theirs, 0.5 where they are equal, [ours, theirs]."""
    differences = ours[:, np.newaxis] - theirs
    found: Array = (differences > 0) + 0.5 * (differences == 0)
    return found


def _resampled_wins(pairs: Array, rng: np.random.Generator) -> Array:
    """The mean of the pairs in each resample of both sides."""
    ours, theirs = _taken(pairs.shape[0], rng), _taken(pairs.shape[1], rng)
    found: Array = ((ours @ pairs) * theirs).sum(axis=1) / pairs.size
    return found
