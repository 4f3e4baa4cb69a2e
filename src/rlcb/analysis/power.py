"""How many seeds would show a difference as large as the one observed: an estimate from the spread of few seeds."""

import math
from collections.abc import Sequence

import numpy as np

from rlcb.analysis.statistics import LEVEL, Array, varies

POWER = 0.8  # the chance that the difference is shown, if it is what was observed
MOST_SEEDS = 50  # of each group that are worth considering


def seeds_needed(first: Sequence[float] | Array, second: Sequence[float] | Array, tests: int = 1) -> int | None:
    """Seeds of each group with which a two-sided t-test would show the observed difference with POWER.

    `tests`: how many are made, so that each has its share of the level (Bonferroni). More than MOST_SEEDS where not
    even these suffice; None where the data allow no estimate: fewer than two values, no variation, no difference.
    """
    one, two = np.asarray(first, float), np.asarray(second, float)
    if min(len(one), len(two)) < 2 or not (varies(one) or varies(two)):
        return None
    effect = abs(float(one.mean() - two.mean())) / math.sqrt((float(one.var(ddof=1)) + float(two.var(ddof=1))) / 2)
    if effect < 1e-9:
        return None
    counts = range(2, MOST_SEEDS + 1)
    return next((n for n in counts if t_test_power(n, effect, tests) >= POWER), MOST_SEEDS + 1)


def t_test_power(seeds: int, effect: float, tests: int = 1) -> float:
    """The chance that a two-sided t-test on two groups of `seeds` shows an `effect`, in standard deviations."""
    from scipy.special import nctdtr, stdtrit

    degrees = 2.0 * seeds - 2
    critical = float(stdtrit(degrees, 1 - (1 - LEVEL) / 2 / tests))
    shift = effect * math.sqrt(seeds / 2)
    below = float(nctdtr(degrees, shift, critical)) - float(nctdtr(degrees, shift, -critical))
    # For large shifts scipy's distribution is not finite: the test shows such an effect with certainty.
    return 1 - below if math.isfinite(below) else 1.0
