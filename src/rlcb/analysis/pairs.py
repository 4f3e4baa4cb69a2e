"""All pairs of groups on the metrics that decide, tested and corrected for their number."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations

import numpy as np

from rlcb.analysis.intervals import LEVEL
from rlcb.analysis.records import METRIC, METRICS, Group, Pair
from rlcb.analysis.statistics import Difference, hedges_g, holm, welch

NOT_SHOWN = "no difference shown"


def all_pairs(groups: Sequence[Group]) -> tuple[Pair, ...]:
    """Every pair of groups that have runs, on every paired metric there is; corrected over the pairs of each metric."""
    found: list[Pair] = []
    alive = [group for group in groups if group.runs]
    for metric in METRICS:
        if metric.paired and any(group.metrics[metric.name].n for group in alive):
            pairs = [_pair(metric.name, first, second) for first, second in combinations(alive, 2)]
            corrected = holm([pair.p for pair in pairs])
            found += [_judged(replace(pair, holm_p=p)) for pair, p in zip(pairs, corrected, strict=True)]
    return tuple(found)


def _pair(metric: str, first: Group, second: Group) -> Pair:
    """Two groups, tested where that is possible; `verdict` says why where it is not."""
    one, two = first.metrics[metric], second.metrics[metric]
    a, b = np.array(one.values), np.array(two.values)
    difference = one.mean - two.mean if one.mean is not None and two.mean is not None else None
    why_not = _why_not(first, second, metric)
    tested: Difference | None = None if why_not else welch(a, b)
    return Pair(
        metric=metric,
        first=first.label,
        second=second.label,
        difference=difference,
        interval=tested.interval if tested else None,
        p=tested.p if tested else None,
        holm_p=None,
        effect=hedges_g(a, b) if tested else None,
        winner=None,
        verdict=why_not or ("" if tested else "n/a (no variation between seeds)"),
    )


def _why_not(first: Group, second: Group, metric: str) -> str:
    for group in (first, second):
        if not group.valid:
            return f"n/a ({group.label} is invalid: {len(group.failed)} failed seeds)"
    counts = first.metrics[metric].n, second.metrics[metric].n
    if min(counts) == 0:
        return "n/a (no value)"
    return "n/a (one seed)" if min(counts) == 1 else ""


def _judged(pair: Pair) -> Pair:
    """A winner only where the interval leaves zero out and that survives the correction."""
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
