"""Tests of all pairs of groups, and which group is ahead where that is established."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations

import numpy as np

from rlcb.analysis.external.judged import lacking
from rlcb.analysis.metrics import METRIC, METRICS, OF_SPEED
from rlcb.analysis.records import NOT_SHOWN, Group, Pair
from rlcb.analysis.speed import SEEDS_FOR_SPREAD, speed_ratio
from rlcb.analysis.statistics import LEVEL, holm, welch


def all_pairs(groups: Sequence[Group]) -> tuple[Pair, ...]:
    """Every pair of groups that have runs, on every paired metric there is; corrected over the pairs of each metric."""
    found: list[Pair] = []
    measured = [group for group in groups if group.runs]
    for metric in METRICS:
        if metric.paired and any(group.metrics[metric.name].n for group in measured):
            pairs = [_test(metric.name, first, second) for first, second in combinations(measured, 2)]
            corrected = holm([pair.p for pair in pairs])
            found += [_judge(replace(pair, holm_p=p)) for pair, p in zip(pairs, corrected, strict=True)]
    return tuple(found)


def _test(metric: str, first: Group, second: Group) -> Pair:
    """Two groups, tested where that is possible; `verdict` says why where it is not."""
    one, two = first.metrics[metric], second.metrics[metric]
    difference = one.mean - two.mean if one.mean is not None and two.mean is not None else None
    pair = Pair(metric, first.label, second.label, difference)
    reason = _why_not_tested(metric, first, second)
    if reason:
        return replace(pair, verdict=f"n/a ({reason})")
    if metric == "average_fps":
        return _test_speed(pair, first, second)
    if min(one.n, two.n) < 2:
        return replace(pair, verdict="n/a (one seed)" if min(one.n, two.n) else "n/a (no value)")
    tested = welch(np.array(one.values), np.array(two.values))
    if tested is None:
        return replace(pair, verdict="n/a (no variation between seeds)")
    return replace(pair, interval=tested.interval, p=tested.p, effect=tested.effect)


def _why_not_tested(metric: str, first: Group, second: Group) -> str:
    """What forbids a test of two groups on a metric, whatever their values; empty if nothing does."""
    for group in (first, second):
        if not group.valid:
            return f"{group.label} is invalid: {len(group.failed)} failed seeds"
    unknown = lacking(metric, first, second)
    if unknown:
        return unknown
    for group in (first, second) if metric in OF_SPEED else ():
        if group.unjudged:
            return f"{group.label} shared the machine" if group.unjudged == "shared" else f"{group.label} was disturbed"
    return ""


def _test_speed(pair: Pair, first: Group, second: Group) -> Pair:
    """The ratio of two speeds, whose error is known also within one run each, as a difference from the second mean."""
    one, two = (np.array(group.metrics[pair.metric].values) for group in (first, second))
    ratio = speed_ratio(first.speeds, second.speeds)
    if pair.difference is None or not len(one) or not len(two):
        return replace(pair, verdict="n/a (no value)")
    if ratio is None:
        few = min(len(one), len(two)) < SEEDS_FOR_SPREAD
        return replace(
            pair, verdict="n/a (too few seeds and too few updates)" if few else "n/a (no variation between seeds)"
        )
    difference, low, high = ((value - 1) * float(two.mean()) for value in (ratio.value, *ratio.interval))
    tested = welch(one, two)
    effect = tested.effect if tested and ratio.basis == "seeds" else None
    return replace(
        pair, difference=difference, interval=(low, high), p=ratio.p, effect=effect, interval_over=ratio.basis
    )


def _judge(pair: Pair) -> Pair:
    """A winner only where the interval excludes zero and that survives the correction."""
    if pair.interval is None or pair.holm_p is None or pair.difference is None:
        return pair
    low, high = pair.interval
    if low <= 0 <= high:
        return replace(pair, verdict=NOT_SHOWN)
    if pair.holm_p >= 1 - LEVEL:
        return replace(pair, verdict=f"{NOT_SHOWN} (after correction)")
    first_is_better = (pair.difference > 0) == METRIC[pair.metric].higher_is_better
    winner = pair.first if first_is_better else pair.second
    return replace(pair, winner=winner, verdict=f"{winner} is ahead")
