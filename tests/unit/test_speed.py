"""How sure a speed is: blocks of one run, ratios of several runs, and how many seeds would show a difference."""

import itertools
import math
import statistics
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from helpers.comparisons import compared, put
from helpers.run_directories import write_run
from rlcb.analysis.power import MOST_SEEDS, POWER, seeds_needed, t_test_power
from rlcb.analysis.speed import BlockError, Ratio, Speed, block_error, speed_ratio, within_interval
from rlcb.report.compare import comparison_text

Log = tuple[np.ndarray, np.ndarray]


def made_log(updates: int, correlation: float, seed: int, spread: float = 0.05) -> Log:
    """Steps and times of updates of 4 s each on average, whose durations depend on the one before (AR(1))."""
    rng = np.random.default_rng(seed)
    noise = [rng.normal()]
    for _ in range(updates - 1):
        noise.append(correlation * noise[-1] + math.sqrt(1 - correlation**2) * rng.normal())
    return 4096.0 * np.arange(1, updates + 1), np.cumsum(4 * np.exp(spread * np.array(noise)))


def slow_block_error(steps: list[float], times: list[float]) -> tuple[float, float]:
    """The same as block_error, term by term from its definition in docs/metrics.md."""
    updates = len(steps)
    first = max(1, math.ceil(updates / 10))
    blocks = min(20, updates - first)
    ends = [first - 1 + round((updates - first) * k / blocks) for k in range(blocks + 1)]
    done = [steps[b] - steps[a] for a, b in itertools.pairwise(ends)]
    took = [times[b] - times[a] for a, b in itertools.pairwise(ends)]
    fps = sum(done) / sum(took)
    deviations = [s / (sum(done) / blocks) - fps * t / (sum(done) / blocks) for s, t in zip(done, took, strict=True)]
    variance = sum(d * d for d in deviations) / (blocks - 1)
    lag = sum(a * b for a, b in itertools.pairwise(deviations)) / sum(d * d for d in deviations)
    rho = (blocks * lag + 1) / (blocks - 4)
    rho = 0.0 if rho < 0 else 0.9 if rho > 0.9 else rho
    independent = blocks * (1 - rho) / (1 + rho)
    return math.sqrt(variance / independent), max(independent - 1, 1.0)


@pytest.mark.parametrize("updates", [10, 23, 60, 1000])
@pytest.mark.parametrize("correlation", [0.0, 0.6, 0.97])
def test_blocks_against_a_slow_transcription(updates: int, correlation: float) -> None:
    step, time = made_log(updates, correlation, seed=updates)
    found = block_error(step, time)
    assert found is not None
    assert (found.error, found.degrees) == pytest.approx(slow_block_error(step.tolist(), time.tolist()))


@pytest.mark.parametrize(("updates", "correlation"), [(60, 0.0), (60, 0.5), (400, 0.9)])
def test_intervals_of_one_run_hold_the_true_speed_as_often_as_they_say(updates: int, correlation: float) -> None:
    true = 1024 / math.exp(0.05**2 / 2)
    hits = 0
    for seed in range(400):
        step, time = made_log(updates, correlation, seed)
        start = math.ceil(updates / 10) - 1
        fps = float((step[-1] - step[start]) / (time[-1] - time[start]))
        interval = within_interval(Speed(1, fps, block_error(step, time)))
        assert interval is not None
        hits += interval[0] <= true <= interval[1]
    assert 0.91 <= hits / 400 <= 0.99


def test_the_warm_up_does_not_count() -> None:
    step, time = made_log(100, 0.0, 1)
    slow_start = time + np.minimum(np.arange(100), 9) * 100.0
    assert block_error(step, slow_start) == block_error(step, time + 900.0)
    found, same = block_error(step, slow_start), block_error(step, time)
    assert found
    assert same
    assert found.error == pytest.approx(same.error)


def test_no_error_where_nothing_is_known_about_it() -> None:
    step, time = made_log(9, 0.0, 1)
    assert block_error(step[:8], time[:8]) is None  # seven updates after the warm-up
    assert block_error(step, time) is not None
    assert block_error(step, 4.0 * np.arange(1, 10)) is None  # all blocks the same
    assert block_error(step, np.zeros(9)) is None
    assert block_error(np.full(9, np.nan), time) is None
    assert block_error(np.empty(0), np.empty(0)) is None
    assert within_interval(Speed(1, 1000.0, None)) is None


def speeds(values: dict[int, float], error: float = 0.01) -> list[Speed]:
    return [Speed(seed, fps, BlockError(error, 19.0)) for seed, fps in values.items()]


def test_three_seeds_are_paired() -> None:
    ours, theirs = {1: 1100.0, 2: 905.0, 3: 1010.0}, {3: 1000.0, 1: 1080.0, 2: 900.0}
    logs = [math.log(ours[seed] / theirs[seed]) for seed in (1, 2, 3)]
    found = speed_ratio(speeds(ours), speeds(theirs))
    assert found == Ratio(
        pytest.approx(statistics.fmean(logs)), pytest.approx(statistics.stdev(logs) / math.sqrt(3)), 2.0, "seeds"
    )
    expected = stats.ttest_rel(np.log([ours[seed] for seed in (1, 2, 3)]), np.log([theirs[seed] for seed in (1, 2, 3)]))
    assert found.p == pytest.approx(expected.pvalue)
    bounds = expected.confidence_interval(0.95)
    assert found.interval == pytest.approx((math.exp(bounds.low), math.exp(bounds.high)))
    # Seeds vary by a fifth, but the ratio by two hundredths: unpaired nothing would be shown.
    assert speed_ratio(speeds(ours), speeds({4: 1000.0, 5: 1080.0, 6: 900.0})).p > 0.5  # type: ignore[union-attr]


def test_seeds_that_have_nothing_in_common_are_compared_by_welch() -> None:
    ours, theirs = {1: 1100.0, 2: 1150.0, 3: 1120.0}, {4: 1000.0, 5: 1010.0, 6: 990.0, 7: 1005.0}
    found = speed_ratio(speeds(ours), speeds(theirs))
    assert found is not None
    expected = stats.ttest_ind(np.log(list(ours.values())), np.log(list(theirs.values())), equal_var=False)
    assert (found.p, found.basis) == (pytest.approx(expected.pvalue), "seeds")


def test_one_seed_is_judged_within_the_runs() -> None:
    found = speed_ratio(speeds({1: 1100.0}, 0.003), speeds({1: 1000.0}, 0.004))
    assert found is not None
    assert (found.log, found.error, found.basis) == (pytest.approx(math.log(1.1)), pytest.approx(0.005), "blocks")
    assert found.degrees == pytest.approx(0.005**4 / (0.003**4 / 19 + 0.004**4 / 19))
    assert found.interval[0] > 1


def test_two_seeds_are_at_least_as_uncertain_as_their_difference() -> None:
    calm = speed_ratio(speeds({1: 1100.0, 2: 1100.0}, 0.01), speeds({1: 1000.0, 2: 1000.0}, 0.01))
    assert calm is not None
    assert calm.error == pytest.approx(math.sqrt(2 * 0.01**2 / 2))
    apart = speed_ratio(speeds({1: 1000.0, 2: 1210.0}, 0.01), speeds({1: 1000.0, 2: 1000.0}, 0.01))
    assert apart is not None
    between = statistics.variance([math.log(1000), math.log(1210)])
    assert apart.error == pytest.approx(math.sqrt(between / 2 + 0.01**2 / 2))


def test_no_ratio_where_nothing_varies_or_is_missing() -> None:
    alike, half = {1: 1000.0, 2: 1000.0, 3: 1000.0}, {1: 500.0, 2: 500.0, 3: 500.0}
    by_blocks = speed_ratio(speeds(alike), speeds(half))
    assert by_blocks is not None
    assert by_blocks.basis == "blocks"  # seeds that do not vary say nothing about chance
    bare = [Speed(seed, 1000.0, None) for seed in (1, 2, 3)]
    assert speed_ratio(bare, bare) is None
    assert speed_ratio([], speeds(alike)) is None
    assert speed_ratio([Speed(1, 0.0, None)], speeds(alike)) is None
    assert speed_ratio(bare[:1], speeds({1: 900.0})) is None


@pytest.mark.parametrize(("effect", "seeds"), [(0.5, 64), (0.8, 26), (1.0, 17), (1.5, 9), (2.0, 6), (3.0, 4)])
def test_power_as_in_tables(effect: float, seeds: int) -> None:
    """Cohen (1988): the smallest groups with which a two-sided test at 0.05 has a power of 0.8."""
    assert t_test_power(seeds - 1, effect) < POWER <= t_test_power(seeds, effect)


def test_power_is_how_often_a_test_shows_the_effect() -> None:
    rng = np.random.default_rng(0)
    ours, theirs = rng.normal(1.5, 1, (4000, 5)), rng.normal(0, 1, (4000, 5))
    for tests in (1, 6):
        shown = (stats.ttest_ind(ours, theirs, axis=1).pvalue < 0.05 / tests).mean()
        assert t_test_power(5, 1.5, tests) == pytest.approx(shown, abs=0.03)
    assert t_test_power(5, 1e4) == 1.0


def test_the_number_of_seeds_is_estimated_only_where_the_data_allow_it() -> None:
    ours, theirs = [8.0, 9.0, 10.0], [7.0, 8.0, 9.0]  # one standard deviation apart
    assert seeds_needed(ours, theirs) == 17
    assert seeds_needed(ours, theirs, tests=3) == next(n for n in range(2, 60) if t_test_power(n, 1.0, 3) >= POWER)
    assert seeds_needed([8.0, 9.0, 10.0], [8.01, 9.01, 10.0]) == MOST_SEEDS + 1
    assert seeds_needed([8.0], [7.0, 9.0]) is None
    assert seeds_needed([8.0, 8.0], [7.0, 7.0]) is None
    assert seeds_needed(ours, ours) is None


def test_the_ratio_shown_is_the_one_that_its_interval_is_about(tmp_path: Path) -> None:
    ratios = {1: 2.0, 2: 4.0, 3: 8.0}  # geometric mean 4; the ratio of the arithmetic means is 4.67
    for seed, ratio in ratios.items():
        put(write_run(tmp_path / f"s{seed}", seed=seed), average_fps=500.0)
        path = write_run(tmp_path / f"p{seed}", seed=seed, mode="parallel", workers=4, threads=1)
        put(path, average_fps=500.0 * ratio)
    comparison = compared(tmp_path)
    group = next(group for group in comparison.sets[0].groups if group.mode == "parallel")
    speedup = group.speedup
    assert speedup is not None
    assert speedup.interval is not None
    assert speedup.value == pytest.approx(4.0)
    # An interval of a logarithm has the ratio as its geometric middle.
    assert np.sqrt(np.prod(speedup.interval)) == pytest.approx(4.0)
    assert speedup.efficiency == pytest.approx(4.0 * 8 / 4)
    pair = next(pair for pair in comparison.sets[0].pairs if pair.metric == "average_fps")
    assert pair.interval is not None
    assert pair.second == group.label
    second = 500.0 * sum(ratios.values()) / 3
    assert pair.difference == pytest.approx((1 / 4 - 1) * second)
    assert pair.interval == pytest.approx([(1 / bound - 1) * second for bound in reversed(speedup.interval)])
    assert comparison.advice is not None
    assert "4.00 × sequential" in comparison.advice.text
    assert "4.00x" in comparison_text(comparison)


def test_a_ratio_without_an_interval_is_geometric_too(tmp_path: Path) -> None:
    for seed, fps in ((1, 1000.0), (2, 4000.0)):
        for mode, factor in (("sequential", 1.0), ("parallel", seed)):
            path = write_run(tmp_path / f"{mode}{seed}", seed=seed, mode=mode, updates=5)
            put(path, average_fps=fps * factor)
    (speedup,) = [group.speedup for group in compared(tmp_path).sets[0].groups if group.mode == "parallel"]
    assert speedup is not None
    assert (speedup.value, speedup.interval) == (pytest.approx(np.sqrt(2)), None)
