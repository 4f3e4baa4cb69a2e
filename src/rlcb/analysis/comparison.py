"""The comparison itself: comparable sets, groups over seeds, speed-ups, tests of all pairs."""

from collections.abc import Sequence
from dataclasses import fields, replace
from itertools import combinations
from typing import Any

import numpy as np

from rlcb.analysis.grouping import differences, labels_of, settings_of, split_by_group, split_by_task, without_repeats
from rlcb.analysis.machines import efficiency
from rlcb.analysis.metrics import (
    METRIC,
    METRICS,
    NEEDS_ALL_SEEDS,
    NEEDS_ONE_MEASURE,
    OF_SPEED,
    Reference,
    group_curves,
    measure,
    reference_of,
)
from rlcb.analysis.records import (
    NOT_SHOWN,
    ComparableSet,
    Comparison,
    Excluded,
    GameScores,
    Group,
    GroupScores,
    MachineTable,
    Pair,
    Speedup,
)
from rlcb.analysis.run import Run, Task
from rlcb.analysis.statistics import LEVEL, Array, Summary, bootstrap, bootstrap_ratio, holm, iqm, summarize, welch
from rlcb.analysis.text import NO_WINNER, notes_on, verdict_on, verdict_overall
from rlcb.analysis.work import unequal_work, work_differences
from rlcb.envs.families import score_range
from rlcb.errors import UsageError

_OF_ALL_SEEDS = ("algorithm", "mode", "num_envs", "num_workers", "num_threads", "device")


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
    sets = [_concluded(one, sets, seed) for one in sets]
    across = _across_machines(sets)
    verdict = verdict_overall(sets, excluded, across)
    return Comparison(tuple(sets), tuple(excluded), verdict, seed, _scores_over_games(sets, seed), across)


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
    groups = tuple(
        _make_group(label, alike, runs, reference, seed)
        for label, alike, runs in zip(labels_of(by_group), by_group, kept, strict=True)
    )
    pairs = _all_pairs(groups) if task.finished else ()
    return ComparableSet(**vars(task), **vars(reference), groups=groups, pairs=pairs), repeats


def _concluded(one: ComparableSet, sets: Sequence[ComparableSet], seed: int) -> ComparableSet:
    """The set with its speed-ups, notes and verdict."""
    groups = tuple(replace(group, speedup=_speedup(group, _baselines(group, one, sets), seed)) for group in one.groups)
    made = replace(one, groups=groups)
    made = replace(made, notes=notes_on(made))
    return replace(made, verdict=verdict_on(made))


def _across_machines(sets: Sequence[ComparableSet]) -> tuple[MachineTable, ...]:
    """The finished sets that have the same task and budget on different machines."""
    alike: dict[tuple[str, str, str], list[int]] = {}
    for order, one in enumerate(sets, 1):
        if one.finished and one.measured:
            alike.setdefault((one.env, one.levels, one.budget), []).append(order)
    tables = []
    for task, orders in alike.items():
        found = [(group, sets[order - 1].machine) for order in orders for group in sets[order - 1].measured]
        named = [(f"{group.label} on {machine or 'an unknown machine'}", group.runs[0]) for group, machine in found]
        if len(orders) > 1:
            tables.append(MachineTable(*task, tuple(orders), NO_WINNER, tuple(unequal_work(named))))
    return tuple(tables)


def _make_group(label: str, alike: Sequence[Run], runs: Sequence[Run], reference: Reference, seed: int) -> Group:
    """One group; `alike` are all its runs, `runs` those that count."""
    measured = {run: measure(run, reference) for run in runs}
    quiet = [run for run in runs if not run.disturbed] or runs  # whose speeds count
    metrics = {
        metric.name: summarize(
            [measured[run][metric.name] for run in (quiet if metric.name in OF_SPEED else runs)], seed
        )
        for metric in METRICS
    }
    for name in NEEDS_ALL_SEEDS:
        if metrics[name].missing:
            metrics[name] = Summary(metrics[name].values, metrics[name].missing)
    if len({run.memory_measure for run in runs}) > 1:
        metrics |= {name: Summary((), len(runs)) for name in NEEDS_ONE_MEASURE}
    shares = [run.time_shares for run in runs if run.time_shares]
    activities = dict.fromkeys(name for share in shares for name in share)
    return Group(
        label=label,
        **{name: getattr(alike[0], name) for name in _OF_ALL_SEEDS},
        settings=settings_of(alike[0]),
        runs=tuple(runs),
        failed=tuple(run for run in alike if run.status == "failed"),
        metrics=metrics,
        speedup=None,
        time_shares={name: float(np.mean([share.get(name, 0.0) for share in shares])) for name in activities},
        curves=group_curves(runs, quiet, seed) if runs else {},
    )


def _baselines(group: Group, one: ComparableSet, sets: Sequence[ComparableSet]) -> list[tuple[Group, str]]:
    """What a group's speed can be related to, and on which machine if not on the group's own.

    For runs on a cluster that is also the machine that they were started from.
    """
    found = [(other, "") for other in one.groups]
    if group.runs and one.machine != group.runs[0].own_machine:
        driver = {**_task(one), "machine": group.runs[0].own_machine}
        found += [(other, two.machine) for two in sets if _task(two) == driver for other in two.groups]
    return found


def _task(one: ComparableSet) -> dict[str, Any]:
    return {field.name: getattr(one, field.name) for field in fields(Task)}


def _speedup(group: Group, others: Sequence[tuple[Group, str]], seed: int) -> Speedup | None:
    """The speed of a parallel group over the fastest sequential one of its algorithm with as many environments.

    None where one of them shared the machine with other runs or was disturbed.
    """
    alone = [item for item in others if not item[0].unjudged] if not group.unjudged else []
    same = [item for item in alone if (item[0].algorithm, item[0].device) == (group.algorithm, group.device)]
    baselines = [item for item in same if item[0].mode == "sequential" and item[0].metrics["average_fps"].mean]
    speed = group.metrics["average_fps"]
    if group.mode != "parallel" or not baselines or not speed.mean:
        return None
    base, machine = max(
        baselines, key=lambda item: (item[0].num_envs == group.num_envs, item[0].metrics["average_fps"].mean or 0.0)
    )
    base_speed = base.metrics["average_fps"]
    assert base_speed.mean
    value = speed.mean / base_speed.mean
    interval = bootstrap_ratio(np.array(speed.values), np.array(base_speed.values), seed)
    cores, base_cores = group.runs[0].cores, base.runs[0].cores
    per_core = efficiency(value, cores, base_cores) if group.device == "cpu" else None
    unlike = work_differences(group.runs[0], base.runs[0])
    return Speedup(base.label, machine, value, interval, cores, base_cores, per_core, unlike)


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
    unjudged = next((group for group in (first, second) if metric in OF_SPEED and group.unjudged), None)
    if unjudged:
        label, shared = unjudged.label, unjudged.unjudged == "shared"
        return replace(pair, verdict=f"n/a ({label} shared the machine)" if shared else f"n/a ({label} was disturbed)")
    if min(one.n, two.n) < 2:
        return replace(pair, verdict="n/a (one seed)" if min(one.n, two.n) else "n/a (no value)")
    tested = welch(np.array(one.values), np.array(two.values))
    if tested is None:
        return replace(pair, verdict="n/a (no variation between seeds)")
    return replace(pair, interval=tested.interval, p=tested.p, effect=tested.effect)


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


def _scores_over_games(sets: Sequence[ComparableSet], seed: int) -> tuple[GameScores, ...]:
    """Scores for every collection of at least two finished sets that differ in nothing but their game."""
    collections: dict[tuple[str, str, str], list[ComparableSet]] = {}
    for one in sets:
        if one.finished and one.measured and score_range(one.env, one.measured[0].runs[0].distribution_mode):
            collections.setdefault((one.levels, one.budget, one.machine), []).append(one)
    return tuple(_game_scores(alike, seed) for alike in collections.values() if len(alike) > 1)


def _game_scores(sets: Sequence[ComparableSet], seed: int) -> GameScores:
    """The scores of every group, on unseen levels if every run has been evaluated there."""
    evaluated = all(one.reward_metric == "evaluation_unseen" for one in sets)
    metric = "evaluation_unseen" if evaluated else "final_reward"
    found: dict[str, dict[str, Array]] = {}
    for one in sets:
        low, high = score_range(one.env, one.measured[0].runs[0].distribution_mode) or (0.0, 1.0)
        for group in one.measured:
            if group.metrics[metric].n and group.valid:
                rewards = np.array(group.metrics[metric].values)
                found.setdefault(group.label, {})[one.env] = (rewards - low) / (high - low)
    games = tuple(sorted(one.env for one in sets))
    groups = tuple(_group_scores(label, scores, len(games), seed) for label, scores in found.items())
    return GameScores(games, sets[0].levels, sets[0].budget, sets[0].machine, metric, groups)


def _group_scores(label: str, scores: dict[str, Array], num_games: int, seed: int) -> GroupScores:
    """Mean and IQM with bootstrap intervals; the seeds are resampled within each game."""
    by_game = {game: tuple(values.tolist()) for game, values in scores.items()}
    if len(scores) < num_games:
        return GroupScores(label, by_game)
    strata = list(scores.values())
    mean, middle = float(np.mean([values.mean() for values in strata])), float(iqm(np.concatenate(strata)))
    mean_interval, iqm_interval = bootstrap(strata, seed)
    return GroupScores(label, by_game, mean, mean_interval, middle, iqm_interval)
