"""The statistics against scipy, slow transcriptions and published figures."""

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from rlcb.analysis.statistics import (
    RESAMPLES,
    bootstrap,
    first_reaching,
    holm,
    iqm,
    mean_curve,
    summarize,
    value_at,
    welch,
)


def samples(seed: int, *sizes: int) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.normal(number, 1 + number, size) for number, size in enumerate(sizes)]


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 7, 8, 16, 33])
def test_iqm_is_the_trimmed_mean(size: int) -> None:
    (values,) = samples(size, size)
    assert iqm(values) == pytest.approx(stats.trim_mean(values, 0.25))


def test_bootstrap_is_the_slow_loop_and_repeats() -> None:
    (values,) = samples(3, 5)
    rng = np.random.default_rng(7)
    draws = rng.integers(0, 5, (RESAMPLES, 5))
    means = sorted(sum(values[index] for index in draw) / 5 for draw in draws)

    def percentile(share: float) -> float:
        place = share * (RESAMPLES - 1)
        below = math.floor(place)
        return means[below] + (place - below) * (means[below + 1] - means[below])

    found = bootstrap([values], 7)[0]
    assert found == pytest.approx((percentile(0.025), percentile(0.975)))
    assert found == bootstrap([values], 7)[0]
    assert found != bootstrap([values], 8)[0]


def test_bootstrap_agrees_with_scipy() -> None:
    (values,) = samples(11, 20)
    theirs = stats.bootstrap((values,), np.mean, n_resamples=RESAMPLES, method="percentile", random_state=1)
    ours = bootstrap([values], 1)[0]
    assert ours == pytest.approx(tuple(theirs.confidence_interval), abs=0.03)
    assert summarize(list(values), 1).iqm_interval == pytest.approx(
        tuple(stats.bootstrap((values,), lambda x, axis: stats.trim_mean(x, 0.25, axis=axis), n_resamples=RESAMPLES,
                              method="percentile", random_state=1).confidence_interval), abs=0.04)  # fmt: skip


def test_one_value_or_no_variation_has_no_interval() -> None:
    one, same, none = summarize([4.0], 0), summarize([2.5, 2.5, 2.5], 0), summarize([None, None], 0)
    assert (one.mean, one.std, one.interval, one.iqm_interval) == (4.0, None, None, None)
    assert (same.mean, same.std, same.interval, same.iqm_interval) == (2.5, 0.0, None, None)
    assert (none.n, none.missing, none.mean, none.std, none.iqm, none.interval) == (0, 2, None, None, None, None)
    assert summarize([1.0, None, 3.0], 0).mean == 2.0
    # Rounding must not pass for variation.
    assert summarize([0.1 + 0.2, 0.3, 0.3], 0).interval is None


@pytest.mark.parametrize("sizes", [(2, 2), (3, 5), (10, 4), (30, 30)])
def test_welch_is_scipys(sizes: tuple[int, int]) -> None:
    first, second = samples(sum(sizes), *sizes)
    ours, theirs = welch(first, second), stats.ttest_ind(first, second, equal_var=False)
    assert ours is not None
    interval = theirs.confidence_interval(0.95)
    assert (ours.t, ours.p, ours.degrees) == pytest.approx((theirs.statistic, theirs.pvalue, theirs.df))
    assert ours.interval == pytest.approx((interval.low, interval.high))


def test_welch_with_one_side_constant_and_with_both() -> None:
    constant, varied = np.full(3, 2.0), np.array([1.0, 2.5, 3.0])
    ours, theirs = welch(varied, constant), stats.ttest_1samp(varied, 2.0)  # a constant adds nothing to the error
    assert ours is not None
    assert (ours.p, ours.degrees) == pytest.approx((theirs.pvalue, 2.0))
    assert welch(constant, constant + 1) is None
    assert welch(varied, np.array([1.0])) is None


def test_hedges_g_by_hand() -> None:
    # Means 3 and 6, both variances 2.5, so d = −3/√2.5; 4 + 4 degrees of freedom correct by 1 − 3/31.
    first, second = np.arange(1.0, 6.0), np.arange(4.0, 9.0)
    found = welch(first, second)
    assert found is not None
    assert found.effect == pytest.approx(-3 / math.sqrt(2.5) * (1 - 3 / 31))


def test_holm_by_hand_and_by_its_definition() -> None:
    assert holm([0.01, None, 0.04, 0.03]) == pytest.approx([0.03, None, 0.06, 0.06])
    assert holm([None]) == [None]
    assert holm([0.6, 0.7]) == [1.0, 1.0]
    for p_values in itertools.product((0.004, 0.012, 0.02, 0.3), repeat=4):
        # Step down: reject the smallest while p ≤ level/(tests left); the corrected p is the level at which it falls.
        for level in (0.01, 0.05, 0.1, 0.5):
            rejected = set()
            for rank, index in enumerate(sorted(range(4), key=lambda i: p_values[i])):
                if p_values[index] > level / (4 - rank) + 1e-15:
                    break
                rejected.add(index)
            corrected = [p for p in holm(p_values) if p is not None]
            assert {index for index, p in enumerate(corrected) if p <= level + 1e-15} == rejected


def test_a_curve_ends_where_it_ends() -> None:
    x, y = np.array([10.0, 20.0, 30.0, 40.0]), np.array([np.nan, 2.0, 4.0, 5.0])
    found = [value_at(x, y, point) for point in (10.0, 15.0, 20.0, 25.0, 35.0, 40.0, 41.0)]
    assert found == [None, None, 2.0, 3.0, 4.5, 5.0, None]
    assert value_at(np.empty(0), np.empty(0), 10.0) is None


def test_a_mean_curve_spans_what_all_seeds_have() -> None:
    short = np.array([0.0, 50.0]), np.array([0.0, 50.0])
    long = np.array([10.0, 100.0]), np.array([20.0, 110.0])
    curve = mean_curve([short, long], seed=0, points=5)
    assert curve is not None
    assert (curve.x[0], curve.x[-1], curve.n) == (10.0, 50.0, 2)
    assert curve.mean == pytest.approx(curve.x + 5)  # x and x + 10
    assert curve.low == pytest.approx(curve.x)
    assert curve.high == pytest.approx(curve.x + 10)
    assert mean_curve([short, (np.array([60.0, 70.0]), np.array([1.0, 1.0]))], seed=0) is None
    assert mean_curve([short, (np.empty(0), np.empty(0))], seed=0) is None
    alone, same = mean_curve([short], seed=0), mean_curve([short, short], seed=0)
    assert alone is not None
    assert same is not None
    assert np.isnan(alone.low).all()
    assert np.isnan(same.high).all()


def test_the_band_of_a_curve_is_the_bootstrap_of_its_points() -> None:
    rng = np.random.default_rng(5)
    x, runs = np.arange(4.0), rng.normal(size=(6, 4))
    curve = mean_curve([(x, run) for run in runs], seed=9, points=4)
    assert curve is not None
    draws = np.random.default_rng(9).integers(0, 6, (2000, 6))
    for point in range(4):
        means = [np.mean([runs[index, point] for index in draw]) for draw in draws]
        expected = tuple(np.percentile(means, [2.5, 97.5]))
        assert (curve.low[point], curve.high[point]) == pytest.approx(expected)


def test_reaching_a_threshold_counts_even_if_it_does_not_last() -> None:
    x, y = np.array([1.0, 2.0, 3.0, 4.0]), np.array([np.nan, 1.0, 6.0, 2.0])
    assert first_reaching(x, y, 5.0) == 3.0
    assert first_reaching(x, y, 6.0) == 3.0
    assert first_reaching(x, y, 6.1) is None
    assert first_reaching(np.empty(0), np.empty(0), 0.0) is None
    # In a log without times the threshold is reached at a time that nobody knows.
    assert first_reaching(np.where(x == 3.0, np.nan, x), y, 5.0) is None
