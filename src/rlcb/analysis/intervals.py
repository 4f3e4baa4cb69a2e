"""Student's t for means and their differences: what evaluations and comparisons both give intervals with."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

LEVEL = 0.95


def student_interval(middle: float, error: float, freedom: float) -> tuple[float, float]:
    """The 95 % interval around an estimate with this standard error."""
    from scipy.special import stdtrit  # the t distribution, without the weight of scipy.stats

    half = float(stdtrit(freedom, 0.5 * (1 + LEVEL))) * error
    return middle - half, middle + half


def welch_error(
    first: Sequence[float] | NDArray[np.float64], second: Sequence[float] | NDArray[np.float64]
) -> tuple[float, float]:
    """Standard error and degrees of freedom of the difference of two means, by Welch; at least two values each."""
    one, two = float(np.var(first, ddof=1)) / len(first), float(np.var(second, ddof=1)) / len(second)
    freedom = (one + two) ** 2 / (one**2 / (len(first) - 1) + two**2 / (len(second) - 1))
    return math.sqrt(one + two), freedom
