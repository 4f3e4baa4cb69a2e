"""The comparison itself: comparable sets, groups over seeds, speed-ups, tests of all pairs."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations

import numpy as np

from rlcb.analysis.curves import group_curves
from rlcb.analysis.game_scores import scores_over_games
from rlcb.analysis.grouping import differences, labels_of, settings_of, split_by_group, split_by_task, without_repeats
from rlcb.analysis.metrics import METRIC, METRICS, NEEDS_ALL_SEEDS, Reference, measure, reference_of
from rlcb.analysis.records import NOT_SHOWN, ComparableSet, Comparison, Excluded, Failure, Group, Pair, Speedup
from rlcb.analysis.run import Run, Task
from rlcb.analysis.statistics import LEVEL, Summary, bootstrap_ratio, hedges_g, holm, summarize, welch
from rlcb.analysis.untrusted import number
from rlcb.analysis.verdict import notes_on, verdict_on, verdict_overall
from rlcb.errors import UsageError


def compare(runs: Sequence[Run], *, seed: int = 0, threshold: float | None = None) -> Comparison:
    """Compare what is comparable among `runs`; `seed` makes the intervals repeatable."""
    if not runs:
        raise UsageError("nothing to compare: no run")
    sets: list[ComparableSet] = []
    excluded: list[Excluded] = []
    by_task = split_by_task(runs)
    for task, members in by_task:
        one, repeats = _make_set(task, members, seed, threshold)
        sets.append(one)
        unlike = differences(task, by_task[0][0])
        for run in members:
            reasons = [f"{run.status}: {run.reason}"] if run.status != "finished" else []
            reasons += [f"repeats seed {run.seed} of {repeats[run]}"] if run in repeats else []
            if reasons or unlike:
                excluded.append(Excluded(run.name, run.label, "; ".join(reasons + unlike)))
    verdict = verdict_overall(sets, excluded)
    return Comparison(tuple(sets), tuple(excluded), verdict, seed, scores_over_games(sets, seed))


def _make_set(
    task: Task, members: Sequence[Run], seed: int, threshold: float | None
) -> tuple[ComparableSet, dict[Run, str]]:
    """One set of comparable groups, and the runs in it that only repeat another, with its name."""
    by_group = split_by_group(members)
    kept: list[list[Run]] = []
    repeats: dict[Run, str] = {}
    for alike in by_group:
        latest, repeated = without_repeats([run for run in alike if run.status != "failed"])
        kept.append(latest)
        repeats |= repeated
    reference = reference_of(kept, threshold)
    groups = [
        _make_group(label, alike, runs, reference, seed)
        for label, alike, runs in zip(labels_of(by_group), by_group, kept, strict=True)
    ]
    groups = [replace(group, speedup=_speedup(group, groups, seed)) for group in groups]
    made = ComparableSet(
        **vars(task),
        evaluation_policy=reference.policy,
        threshold=reference.threshold,
        equal_steps=reference.steps,
        equal_hours=reference.hours,
        groups=tuple(groups),
        pairs=_all_pairs(groups) if task.finished else (),
    )
    made = replace(made, notes=notes_on(made))
    return replace(made, verdict=verdict_on(made)), repeats


def _make_group(label: str, alike: Sequence[Run], runs: Sequence[Run], reference: Reference, seed: int) -> Group:
    """One group; `alike` are all its runs, `runs` those that count."""
    measured = [measure(run, reference) for run in runs]
    metrics = {metric.name: summarize([values[metric.name] for values in measured], seed) for metric in METRICS}
    for name in NEEDS_ALL_SEEDS:
        if metrics[name].missing:
            metrics[name] = Summary(metrics[name].values, metrics[name].missing)
    shares = [run.time_shares for run in runs if run.time_shares]
    activities = dict.fromkeys(name for share in shares for name in share)
    return Group(
        label=label,
        algorithm=alike[0].algorithm,
        mode=alike[0].mode,
        num_envs=alike[0].num_envs,
        num_workers=alike[0].num_workers,
        num_threads=alike[0].num_threads,
        device=alike[0].device,
        settings=settings_of(alike[0]),
        runs=tuple(runs),
        failed=tuple(Failure(run.name, run.seed, run.reason) for run in alike if run.status == "failed"),
        metrics=metrics,
        speedup=None,
        time_shares={name: float(np.mean([share.get(name, 0.0) for share in shares])) for name in activities},
        curves=group_curves(runs, seed) if runs else {},
    )


def _speedup(group: Group, groups: Sequence[Group], seed: int) -> Speedup | None:
    """The speed of a parallel group over the fastest sequential one of its algorithm with as many environments."""
    same = [other for other in groups if (other.algorithm, other.device) == (group.algorithm, group.device)]
    baselines = [other for other in same if other.mode == "sequential" and other.metrics["average_fps"].mean]
    speed = group.metrics["average_fps"]
    if group.mode != "parallel" or not baselines or not speed.mean:
        return None
    base = max(baselines, key=lambda one: (one.num_envs == group.num_envs, one.metrics["average_fps"].mean or 0.0))
    base_speed = base.metrics["average_fps"]
    assert base_speed.mean
    value = speed.mean / base_speed.mean
    interval = bootstrap_ratio(np.array(speed.values), np.array(base_speed.values), seed)
    cores, base_cores = _cores(group), _cores(base)
    known = cores and base_cores and group.device == "cpu"
    return Speedup(base.label, value, interval, cores, base_cores, value * base_cores / cores if known else None)


def _cores(group: Group) -> int:
    """Cores a group's runs can keep busy: its threads, but at most those of the machine; 0 where that is not known."""
    usable = number(group.runs[0].hardware.get("usable_cores")) or 0.0
    return min(group.num_workers * (group.num_threads or 0), int(usable))


def _all_pairs(groups: Sequence[Group]) -> tuple[Pair, ...]:
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
    invalid = next((group for group in (first, second) if not group.valid), None)
    if invalid:
        return replace(pair, verdict=f"n/a ({invalid.label} is invalid: {len(invalid.failed)} failed seeds)")
    if min(one.n, two.n) < 2:
        return replace(pair, verdict="n/a (one seed)" if min(one.n, two.n) else "n/a (no value)")
    values = np.array(one.values), np.array(two.values)
    tested = welch(*values)
    if tested is None:
        return replace(pair, verdict="n/a (no variation between seeds)")
    return replace(pair, interval=tested.interval, p=tested.p, effect=hedges_g(*values))


def _judge(pair: Pair) -> Pair:
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
