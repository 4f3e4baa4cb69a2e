"""The uncertainty of a speed: its error within one run from blocks of updates, and the ratio of two speeds.

Updates that follow each other are alike (caches, clock, length of episodes), so single updates would give too small an
error. Means of long blocks of updates are nearly independent of each other (batch means), and what is left of their
correlation widens the error.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rlcb.analysis.statistics import Array, Interval, student_interval, varies, welch_error

WARM_UP = 0.1  # of a run's updates that its blocks leave out, at least one: caches and allocator fill, clocks settle
BLOCKS = 20  # Schmeiser (1982): with 10 to 30 blocks the interval is hardly wider than with the best number
FEWEST_BLOCKS = 8
_MOST_CORRELATION = 0.9
_ROUNDING = 1e-9  # differences between blocks, as shares of their means, that are not of the speed
SEEDS_FOR_SPREAD = 3  # from this number on their own spread is the error; two values say next to nothing about it


@dataclass(frozen=True)
class BlockError:
    """The standard error of a run's mean speed as a share of it, and its degrees of freedom."""

    error: float
    degrees: float


@dataclass(frozen=True)
class Speed:
    """The speed of one run."""

    seed: int | None
    fps: float
    within: BlockError | None


@dataclass(frozen=True)
class Ratio:
    """The logarithm of a ratio of two speeds with its standard error."""

    log: float
    error: float
    degrees: float
    basis: str  # what the error is from: seeds, or blocks of the runs

    @property
    def value(self) -> float:
        """The ratio, a geometric mean, which the interval is about."""
        return _exp(self.log)

    @property
    def interval(self) -> Interval:
        """The 95 % interval of the ratio."""
        low, high = student_interval(self.log, self.error, self.degrees)
        return _exp(low), _exp(high)

    @property
    def p(self) -> float:
        """How often chance alone would give a ratio at least so far from 1."""
        from scipy.special import stdtr

        return float(2 * stdtr(self.degrees, -abs(self.log / self.error)))


def block_error(step: Array, time: Array) -> BlockError | None:
    """The error of the mean speed of a log, [updates] each; None for short logs and where all blocks are the same."""
    start = max(1, math.ceil(WARM_UP * len(step)))
    if len(step) - start < FEWEST_BLOCKS:
        return None
    count = min(BLOCKS, len(step) - start)
    # Edges between updates; the last update before the first block is where it begins.
    edges = start - 1 + np.round(np.linspace(0, len(step) - start, count + 1)).astype(int)
    steps, seconds = np.diff(step[edges]), np.diff(time[edges])
    if not (np.isfinite(steps).all() and np.isfinite(seconds).all() and seconds.min() > 0 and steps.min() > 0):
        return None
    mean = steps.sum() / seconds.sum()
    residuals = (steps - mean * seconds) / steps.mean()  # of the ratio of two sums; their mean is zero
    if float(np.abs(residuals).max()) < _ROUNDING:
        return None
    effective = count * _independent(residuals)
    # Relative error of a ratio of sums, over as many blocks as are independent.
    return BlockError(float(math.sqrt((residuals**2).sum() / (count - 1) / effective)), max(effective - 1, 1.0))


def _independent(values: Array) -> float:
    """The share of the values that a mean over independent ones would need for the same error (AR(1))."""
    n = len(values)
    found = float((values[1:] * values[:-1]).sum() / (values**2).sum())
    correlation = min(max((n * found + 1) / (n - 4), 0.0), _MOST_CORRELATION)  # Marriott and Pope's (1954) correction
    return (1 - correlation) / (1 + correlation)


def within_interval(speed: Speed) -> Interval | None:
    """The interval of one run's mean speed from its blocks."""
    if speed.within is None or speed.fps <= 0:
        return None
    low, high = student_interval(math.log(speed.fps), speed.within.error, speed.within.degrees)
    return _exp(low), _exp(high)


def speed_ratio(first: Sequence[Speed], second: Sequence[Speed]) -> Ratio | None:
    """The ratio of two groups' speeds; None where nothing is known about its error.

    With three common seeds or more it is the mean over them (their runs were made one after the other, so what slows
    the machine down affects both); without common seeds Welch's. With fewer the error is that within the runs.
    """
    if not first or not second or min(speed.fps for speed in (*first, *second)) <= 0:
        return None
    ours, theirs = ({speed.seed: speed for speed in group if speed.seed is not None} for group in (first, second))
    common = [seed for seed in ours if seed in theirs]
    if len(common) >= SEEDS_FOR_SPREAD:
        return _paired([ours[seed] for seed in common], [theirs[seed] for seed in common])
    if min(len(first), len(second)) >= SEEDS_FOR_SPREAD:
        one, two = _logs(first), _logs(second)
        if varies(one) or varies(two):
            error, degrees = welch_error(one, two)
            return Ratio(float(one.mean() - two.mean()), error, degrees, "seeds")
    return _from_blocks(first, second)


def ratio_of_means(first: Sequence[Speed], second: Sequence[Speed]) -> float | None:
    """The ratio of two groups' geometric mean speeds, for where nothing is known about its error; None without one."""
    if not first or not second or min(speed.fps for speed in (*first, *second)) <= 0:
        return None
    return _exp(float(_logs(first).mean() - _logs(second).mean()))


def _paired(first: Sequence[Speed], second: Sequence[Speed]) -> Ratio | None:
    logs = _logs(first) - _logs(second)
    if not varies(logs):
        return _from_blocks(first, second)
    return Ratio(float(logs.mean()), float(logs.std(ddof=1)) / math.sqrt(len(logs)), len(logs) - 1.0, "seeds")


def _from_blocks(first: Sequence[Speed], second: Sequence[Speed]) -> Ratio | None:
    """The errors of both groups within their runs; of two runs at least that of the difference between them."""
    sides = [_side_error(speeds) for speeds in (first, second)]
    known = [side for side in sides if side is not None]
    if len(known) < 2:
        return None
    variance = sum(error**2 for error, _ in known)
    degrees = variance**2 / sum(error**4 / freedom for error, freedom in known)
    return Ratio(float(_logs(first).mean() - _logs(second).mean()), math.sqrt(variance), degrees, "blocks")


def _side_error(speeds: Sequence[Speed]) -> tuple[float, float] | None:
    errors = [speed.within for speed in speeds if speed.within is not None]
    if len(errors) < len(speeds):
        return None
    n = len(errors)
    within = sum(one.error**2 for one in errors) / n
    between = float(_logs(speeds).var(ddof=1)) if n > 1 else 0.0
    return math.sqrt(max(within, between) / n), sum(one.degrees for one in errors)


def _logs(speeds: Sequence[Speed]) -> Array:
    return np.log([speed.fps for speed in speeds])


def _exp(value: float) -> float:
    return math.exp(min(value, 700.0))
