"""The comparison itself: comparable sets, groups over seeds, speed-ups, tests of all pairs."""

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np

from rlcb.analysis.advice import advise
from rlcb.analysis.external.convert import IMPORTED
from rlcb.analysis.external.judged import external_notes, external_verdict, own_groups
from rlcb.analysis.game_text import verdict_over_games
from rlcb.analysis.games import scores_over_games
from rlcb.analysis.grouping import (
    differences,
    labels_of,
    settings_of,
    split_by_group,
    split_by_task,
    variant_settings,
    without_repeats,
)
from rlcb.analysis.machines import efficiency
from rlcb.analysis.metrics import (
    METRICS,
    NEEDS_ALL_SEEDS,
    NEEDS_ONE_MEASURE,
    OF_SPEED,
    Reference,
    group_curves,
    measure,
    reference_of,
    seed_curves,
)
from rlcb.analysis.pairs import all_pairs
from rlcb.analysis.reaching import Threshold, reach
from rlcb.analysis.recipes import rank_recipes
from rlcb.analysis.records import (
    ComparableSet,
    Comparison,
    Excluded,
    Group,
    MachineTable,
    Speedup,
)
from rlcb.analysis.run import Run, Task
from rlcb.analysis.speed import Speed, block_error, ratio_of_means, speed_ratio, within_interval
from rlcb.analysis.statistics import Summary, summarize
from rlcb.analysis.text import NO_WINNER, notes_on, verdict_on, verdict_overall
from rlcb.analysis.work import unequal_work, work_differences
from rlcb.errors import UsageError

_OF_ALL_SEEDS = ("algorithm", "mode", "variant", "num_envs", "num_workers", "num_threads", "device")


def compare(runs: Sequence[Run], *, seed: int = 0, threshold: Threshold = None) -> Comparison:
    """Compare what is comparable among `runs`; `seed` makes the intervals repeatable.

    `threshold`: a reward; several, or `published`, are levels for which times and steps are shown beside each other.
    """
    if not runs:
        raise UsageError("nothing to compare: no run found")
    by_task = split_by_task(runs)
    made = [_make_set(task, members, _labels(task, by_task), seed, threshold) for task, members in by_task]
    sets = [one for one, _ in made]
    sets = [_concluded(one, sets) for one in sets]
    own = [own_groups(one) for one in sets]  # what other programs' runs lack takes no part in these
    scored, ranked = scores_over_games([one for one in own if one.groups], seed), rank_recipes(own)
    comparison = Comparison(tuple(sets), (), "", seed, scored, _across_machines(own), ranked)
    excluded: list[Excluded] = []
    for one, (task, members), (_, repeats) in zip(sets, by_task, made, strict=True):
        unlike = [] if comparison.is_main_task(one) else differences(task, by_task[0][0])
        for run in members:
            reasons = [f"{run.status}: {run.reason}"] if run.status not in ("finished", IMPORTED) else []
            reasons += [f"repeats seed {run.seed} of {repeats[run]}"] if run in repeats else []
            if reasons or unlike:
                excluded.append(Excluded(run.name, run.label, "; ".join(reasons + unlike)))
    scores = comparison.scores_of(sets[0])
    main = verdict_over_games(scores, sets) if scores else sets[0].verdict
    verdict = verdict_overall(main, excluded, comparison.machine_tables)
    return replace(comparison, excluded=tuple(excluded), verdict=verdict)


def _labels(task: Task, by_task: Sequence[tuple[Task, list[Run]]]) -> dict[Run, str]:
    """The name of each run's group, the same in all tasks that differ from this one in nothing but their game."""
    alike = [run for other, members in by_task if replace(other, env=task.env) == task for run in members]
    groups = split_by_group(alike)
    return {run: label for label, runs in zip(labels_of(groups), groups, strict=True) for run in runs}


def _make_set(
    task: Task, members: Sequence[Run], labels: Mapping[Run, str], seed: int, threshold: Threshold
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
        _make_group(labels[alike[0]], alike, runs, reference, seed) for alike, runs in zip(by_group, kept, strict=True)
    )
    pairs = all_pairs(groups) if task.finished else ()
    variants = variant_settings([(group.label, alike[0]) for group, alike in zip(groups, by_group, strict=True)])
    return ComparableSet(**vars(task), **vars(reference), groups=groups, pairs=pairs, variants=variants), repeats


def _concluded(one: ComparableSet, sets: Sequence[ComparableSet]) -> ComparableSet:
    """The set with its speed-ups, notes and verdict."""
    groups = tuple(replace(group, speedup=_speedup(group, _baselines(group, one, sets))) for group in one.groups)
    made = replace(one, groups=groups)
    own = own_groups(made)
    notes = (*(notes_on(own) if own.groups else ()), *external_notes(made))
    sentences = [verdict_on(own, len(own.groups) < len(made.groups))] if own.groups else []
    made = replace(made, notes=notes, verdict=" ".join([*sentences, *external_verdict(made)]))
    return replace(made, advice=advise(made))


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
    speeds = tuple(
        Speed(run.seed, fps, block_error(run.history.step, run.history.time))
        for run in quiet
        if (fps := run.metrics.average_fps)
    )
    metrics |= _within_one_run(runs, metrics, speeds, reference)
    shares = [run.time_shares for run in runs if run.time_shares]
    activities = dict.fromkeys(name for share in shares for name in share)
    curves = group_curves(runs, quiet, seed) if runs else {}
    return Group(
        label=label,
        **{name: getattr(alike[0], name) for name in _OF_ALL_SEEDS},
        settings=settings_of(alike[0]),
        runs=tuple(runs),
        failed=tuple(run for run in alike if run.status == "failed"),
        metrics=metrics,
        speedup=None,
        time_shares={name: float(np.mean([share.get(name, 0.0) for share in shares])) for name in activities},
        curves=curves,
        seed_curves=seed_curves(runs, quiet, curves),
        speeds=speeds,
        reached=reach(runs, reference.reward_levels),
    )


def _within_one_run(
    runs: Sequence[Run], metrics: Mapping[str, Summary], speeds: Sequence[Speed], reference: Reference
) -> dict[str, Summary]:
    """Metrics of one seed that have an interval within the run: speed, and evaluations over their episodes."""
    found = {}
    if len(speeds) == 1 and (interval := within_interval(speeds[0])):
        found["average_fps"] = replace(metrics["average_fps"], interval=interval, interval_over="blocks")
    for levels in ("train", "unseen") if len(runs) == 1 else ():
        played = runs[0].evaluations.find(runs[0].env, levels, reference.evaluation_policy)
        if played and played.ci95:
            name = f"evaluation_{levels}"
            found[name] = replace(metrics[name], interval=played.ci95, interval_over="episodes")
    return found


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


def _speedup(group: Group, others: Sequence[tuple[Group, str]]) -> Speedup | None:
    """The speed of a parallel group over the fastest sequential one of its algorithm with as many environments.

    One of the same variant is preferred, where there is any. None where one of them shared the machine with other runs
    or was disturbed.
    """
    alone = [item for item in others if not item[0].unjudged] if not group.unjudged else []
    same = [item for item in alone if (item[0].algorithm, item[0].device) == (group.algorithm, group.device)]
    baselines = [item for item in same if item[0].mode == "sequential" and item[0].metrics["average_fps"].mean]
    if group.mode != "parallel" or not baselines or not group.metrics["average_fps"].mean:
        return None
    base, machine = max(baselines, key=lambda item: _nearness(item[0], group))
    ratio = speed_ratio(group.speeds, base.speeds)
    value = ratio.value if ratio else ratio_of_means(group.speeds, base.speeds)
    if value is None:
        return None
    cores, base_cores = group.runs[0].cores, base.runs[0].cores
    per_core = efficiency(value, cores, base_cores) if group.device == "cpu" else None
    unlike = work_differences(group.runs[0], base.runs[0])
    interval, over = (ratio.interval, ratio.basis) if ratio else (None, "seeds")
    return Speedup(base.label, machine, value, interval, cores, base_cores, per_core, unlike, over)


def _nearness(base: Group, group: Group) -> tuple[bool, bool, float]:
    """How well a group's speed can be related to another's; the larger the better."""
    return base.variant == group.variant, base.num_envs == group.num_envs, base.metrics["average_fps"].mean or 0.0
