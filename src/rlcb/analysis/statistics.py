"""The statistics of comparisons and evaluations as pure functions; None where a statistic is not defined."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Interval = tuple[float, float]
LEVEL = 0.95
PERCENTILES = (50 * (1 - LEVEL), 50 * (1 + LEVEL))
RESAMPLES = 10_000
CURVE_RESAMPLES = 2_000  # per point of a curve, of which there are many


def width_of(interval: Interval | None) -> float | None:
    """How wide an interval is."""
    return interval[1] - interval[0] if interval else None


@dataclass(frozen=True)
class Summary:
    """One metric over the seeds of a group; intervals are None with one value or without any variation."""

    values: tuple[float, ...]
    missing: int  # seeds that have no value
    mean: float | None = None
    std: float | None = None  # over seeds, ddof 1
    interval: Interval | None = None  # of the mean
    iqm: float | None = None
    iqm_interval: Interval | None = None
    interval_over: str = "seeds"  # with one seed: blocks of its updates (speed), or the episodes of its evaluation

    @property
    def n(self) -> int:
        """How many seeds have a value."""
        return len(self.values)

    @property
    def width(self) -> float | None:
        """How wide the interval of the mean is, without one the span of a deviation to both sides; None without both.

        All that is shown of the metric gets the digits that this deserves.
        """
        return width_of(self.interval) or (2 * self.std if self.std else None)


@dataclass(frozen=True)
class Difference:
    """Welch's comparison of two means, first minus second."""

    interval: Interval
    t: float
    degrees: float
    p: float
    effect: float  # Hedges' g: in pooled standard deviations, corrected for small samples


def summarize(values: Sequence[float | None], seed: int) -> Summary:
    """Mean, standard deviation, interquartile mean and bootstrap intervals of the values that are known."""
    known = tuple(float(value) for value in values if value is not None)
    x = np.array(known)
    mean_interval, iqm_interval = bootstrap([x], seed)
    return Summary(
        values=known,
        missing=len(values) - len(known),
        mean=float(x.mean()) if known else None,
        std=float(x.std(ddof=1)) if len(known) > 1 else None,
        interval=mean_interval,
        iqm=float(iqm(x)) if known else None,
        iqm_interval=iqm_interval,
    )


def iqm(values: Array) -> Array:
    """Interquartile mean along the last axis: a quarter of the values, rounded down, is left out at either end."""
    ordered = np.sort(values, axis=-1)
    cut = int(0.25 * ordered.shape[-1])
    return np.asarray(ordered[..., cut : ordered.shape[-1] - cut].mean(axis=-1))


def _draws(n: int, resamples: int, seed: int) -> NDArray[np.int64]:
    """Which of `n` values each resample takes, [resamples, n]."""
    return np.random.default_rng(seed).integers(0, n, (resamples, n))


def _percentiles(resampled: Array) -> Interval:
    low, high = np.percentile(resampled, PERCENTILES)
    return float(low), float(high)


def varies(values: Array) -> bool:
    """Whether there are at least two values and they are not all the same."""
    return len(values) > 1 and bool(np.ptp(values) > 1e-12 * max(1.0, float(np.abs(values).max())))


def bootstrap(strata: Sequence[Array], seed: int) -> tuple[Interval, Interval] | tuple[None, None]:
    """Percentile bootstrap: intervals of the mean of the strata's means, and of the IQM of all values together.

    Values are resampled within their stratum: the seeds of one game, or of all there is.
    """
    if not all(varies(values) for values in strata):
        return None, None
    rng = np.random.default_rng(seed)
    drawn = [values[rng.integers(0, len(values), (RESAMPLES, len(values)))] for values in strata]
    means = np.mean([draws.mean(axis=1) for draws in drawn], axis=0)
    return _percentiles(means), _percentiles(iqm(np.concatenate(drawn, axis=1)))


def student_interval(middle: float, error: float, degrees: float) -> Interval:
    """The 95 % interval around an estimate with this standard error, by Student's t distribution."""
    from scipy.special import stdtrit  # loads much faster than scipy.stats

    half = float(stdtrit(degrees, 0.5 * (1 + LEVEL))) * error
    return middle - half, middle + half


def welch_error(first: Sequence[float] | Array, second: Sequence[float] | Array) -> tuple[float, float]:
    """Standard error and degrees of freedom of the difference of two means, by Welch; at least two values each."""
    one, two = float(np.var(first, ddof=1)) / len(first), float(np.var(second, ddof=1)) / len(second)
    degrees = (one + two) ** 2 / (one**2 / (len(first) - 1) + two**2 / (len(second) - 1))
    return math.sqrt(one + two), degrees


def welch(first: Array, second: Array) -> Difference | None:
    """Welch's t-test with the interval of the difference; None with a single value or without any variation."""
    if min(len(first), len(second)) < 2 or not (varies(first) or varies(second)):
        return None
    from scipy.special import stdtr

    error, degrees = welch_error(first, second)
    difference = float(first.mean() - second.mean())
    t = difference / error
    p = float(2 * stdtr(degrees, -abs(t)))
    both = len(first) + len(second) - 2
    pooled = ((len(first) - 1) * first.var(ddof=1) + (len(second) - 1) * second.var(ddof=1)) / both
    effect = float((first.mean() - second.mean()) / np.sqrt(pooled) * (1 - 3 / (4 * both - 1)))
    return Difference(student_interval(difference, error, degrees), t, degrees, p, effect)


def welch_over_strata(first: Sequence[Array], second: Sequence[Array]) -> tuple[Interval, float] | None:
    """Interval and p of the difference of two means of the strata's means, by Welch; with one stratum, his test.

    None where a stratum has a single value, or none of them varies.
    """
    parts = [values for values in (*first, *second) if len(values) > 1]
    if len(parts) < len(first) + len(second) or not any(varies(values) for values in parts):
        return None
    from scipy.special import stdtr

    variances = [float(np.var(values, ddof=1)) / len(values) / len(first) ** 2 for values in parts]
    error = math.sqrt(sum(variances))
    degrees = sum(variances) ** 2 / sum(
        one**2 / (len(values) - 1) for one, values in zip(variances, parts, strict=True)
    )
    difference = float(np.mean([ours.mean() - theirs.mean() for ours, theirs in zip(first, second, strict=True)]))
    return student_interval(difference, error, degrees), float(2 * stdtr(degrees, -abs(difference / error)))


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Holm's correction for the number of tests; None stays None and does not count as a test."""
    order = sorted((p, index) for index, p in enumerate(p_values) if p is not None)
    corrected: list[float | None] = [None] * len(p_values)
    highest = 0.0
    for rank, (p, index) in enumerate(order):
        highest = max(highest, min(1.0, (len(order) - rank) * p))
        corrected[index] = highest
    return corrected


@dataclass(frozen=True, eq=False)
class Curve:
    """The mean of several runs' curves where all of them have data; bounds are NaN where there is no interval."""

    x: Array
    mean: Array
    low: Array
    high: Array
    n: int


SeedCurve = tuple[int | None, Curve]  # of a single run, with its seed


def value_at(x: Array, y: Array, point: float) -> float | None:
    """A curve's value at one point, None before its first and after its last known point."""
    known = np.isfinite(x) & np.isfinite(y)
    value = np.interp(point, x[known], y[known], left=np.nan, right=np.nan) if known.any() else np.nan
    return float(value) if np.isfinite(value) else None


def first_reaching(x: Array, y: Array, threshold: float) -> float | None:
    """The first x at which y has reached the threshold; falling back later does not count.

    None if it never does, and where the x is not known, as in a log without times.
    """
    hits = np.flatnonzero(y >= threshold)
    return float(x[hits[0]]) if len(hits) and np.isfinite(x[hits[0]]) else None


def mean_curve(curves: Sequence[tuple[Array, Array]], seed: int, points: int = 200) -> Curve | None:
    """Mean and bootstrap interval over curves, on a grid that spans where all of them have data."""
    known = [(x[np.isfinite(x) & np.isfinite(y)], y[np.isfinite(x) & np.isfinite(y)]) for x, y in curves]
    if not known or any(len(x) == 0 for x, _ in known):
        return None
    start, end = max(x[0] for x, _ in known), min(x[-1] for x, _ in known)
    if start > end:
        return None
    grid = np.linspace(start, end, points if end > start else 1)
    values = np.stack([np.interp(grid, x, y) for x, y in known])
    low = high = np.full(len(grid), np.nan)
    if len(known) > 1:
        draws = _draws(len(known), CURVE_RESAMPLES, seed)
        taken = np.stack([(draws == index).sum(axis=1) for index in range(len(known))], axis=1)
        low, high = np.percentile(taken @ values / len(known), PERCENTILES, axis=0)
        same = np.ptp(values, axis=0) == 0
        low, high = np.where(same, np.nan, low), np.where(same, np.nan, high)
    return Curve(grid, values.mean(axis=0), low, high, len(known))
