"""The comparison itself: comparable sets, groups over seeds, pairs, thresholds, speed-ups."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from rlcb.analysis.curves import group_curves
from rlcb.analysis.grouping import (
    Setting,
    differences,
    labels_of,
    settings_of,
    split_by_group,
    split_by_setting,
    without_repeats,
)
from rlcb.analysis.pairs import all_pairs
from rlcb.analysis.records import (
    METRICS,
    NEEDS_ALL_SEEDS,
    ComparableSet,
    Comparison,
    Excluded,
    Failure,
    Group,
    Speedup,
)
from rlcb.analysis.run import WINDOW, Run
from rlcb.analysis.statistics import Summary, bootstrap_ratio, first_reaching, summarize, value_at
from rlcb.analysis.untrusted import number
from rlcb.analysis.verdict import notes_on, verdict_on, verdict_overall
from rlcb.errors import UsageError

THRESHOLD = 0.8  # of the way from an untrained policy to the best group's final reward


@dataclass(frozen=True)
class _Common:
    """What all runs of a set are measured by."""

    steps: float | None
    hours: float | None
    threshold: float | None
    policy: str


def compare(runs: Sequence[Run], *, seed: int = 0, threshold: float | None = None) -> Comparison:
    """Compare what is comparable among `runs`; `seed` makes the intervals repeatable."""
    if not runs:
        raise UsageError("nothing to compare: no run")
    sets: list[ComparableSet] = []
    excluded: list[Excluded] = []
    split = split_by_setting(runs)
    for setting, members in split:
        one, repeats = _make_set(setting, members, seed, threshold)
        sets.append(one)
        unlike = differences(setting, split[0][0])
        for run in members:
            reasons = [f"{run.status}: {run.reason}"] if run.status != "finished" else []
            reasons += [f"repeats seed {run.seed} of {repeats[run]}"] if run in repeats else []
            if reasons or unlike:
                excluded.append(Excluded(run.name, run.label, "; ".join(reasons + unlike)))
    return Comparison(tuple(sets), tuple(excluded), verdict_overall(sets, excluded), seed)


def _make_set(
    setting: Setting, members: Sequence[Run], seed: int, threshold: float | None
) -> tuple[ComparableSet, dict[Run, str]]:
    """One set of comparable groups, and the runs in it that only repeat another, with its name."""
    by_group = split_by_group(members)
    kept: list[list[Run]] = []
    failed: list[list[Failure]] = []
    repeats: dict[Run, str] = {}
    for alike in by_group:
        whole, again = without_repeats([run for run in alike if run.status != "failed"])
        kept.append(whole)
        failed.append([Failure(run.name, run.seed, run.reason) for run in alike if run.status == "failed"])
        repeats |= {run: other.name for run, other in again}
    common = _in_common(kept, threshold)
    groups = [
        _make_group(label, alike[0], runs, failures, common, seed)
        for label, alike, runs, failures in zip(labels_of(by_group), by_group, kept, failed, strict=True)
    ]
    groups = [replace(group, speedup=_speedup(group, groups, seed)) for group in groups]
    made = ComparableSet(
        title=setting.title,
        env=setting.env,
        levels=setting.levels,
        budget=setting.budget_text,
        machine=setting.machine,
        finished=setting.finished,
        evaluation_policy=common.policy,
        threshold=common.threshold,
        equal_steps=common.steps,
        equal_hours=common.hours,
        groups=tuple(groups),
        pairs=all_pairs(groups) if setting.finished else (),
        notes=(),
        verdict="",
    )
    made = replace(made, notes=notes_on(made))
    return replace(made, verdict=verdict_on(made)), repeats


def _in_common(kept: Sequence[Sequence[Run]], threshold: float | None) -> _Common:
    """The furthest point that all runs reached, the threshold, and which evaluations all can show."""
    runs = [run for group in kept for run in group]
    logs = [run.history for run in runs if len(run.history)]
    policies = [{entry.policy for entry in run.evaluations.entries if entry.complete} for run in runs]
    evaluated = [found for found in policies if found]
    sampled = not evaluated or all("sampled" in found for found in evaluated)
    return _Common(
        steps=min((float(log.step[-1]) for log in logs), default=None),
        hours=min((float(log.time[-1]) / 3600 for log in logs), default=None),
        threshold=threshold if threshold is not None else _default_threshold(kept),
        policy="sampled" if sampled else "deterministic",
    )


def _default_threshold(kept: Sequence[Sequence[Run]]) -> float | None:
    """Most of the way from an untrained policy to the best group; None where nobody got beyond the start."""
    starts = [run.figures.initial_reward for group in kept for run in group if run.figures.initial_reward is not None]
    ends = [[run.figures.final_reward for run in group if run.figures.final_reward is not None] for group in kept]
    if not starts or not any(ends):
        return None
    start, best = float(np.mean(starts)), max(float(np.mean(end)) for end in ends if end)
    return start + THRESHOLD * (best - start) if best > start else None


def _make_group(
    label: str, example: Run, runs: Sequence[Run], failed: Sequence[Failure], common: _Common, seed: int
) -> Group:
    measured = [_measure(run, common) for run in runs]
    metrics = {metric.name: summarize([one[metric.name] for one in measured], seed) for metric in METRICS}
    for name in NEEDS_ALL_SEEDS:
        if metrics[name].missing:
            metrics[name] = Summary(metrics[name].values, metrics[name].missing, None, None, None, None, None)
    shares = [run.time_shares for run in runs if run.time_shares]
    activities = dict.fromkeys(name for share in shares for name in share)
    return Group(
        label=label,
        algorithm=example.algorithm,
        mode=example.mode,
        num_envs=example.num_envs,
        num_workers=example.num_workers,
        num_threads=example.num_threads,
        device=example.device,
        settings=settings_of(example),
        runs=tuple(runs),
        failed=tuple(failed),
        metrics=metrics,
        speedup=None,
        time_shares={name: float(np.mean([share.get(name, 0.0) for share in shares])) for name in activities},
        curves=group_curves(runs, seed) if runs else {},
    )


def _measure(run: Run, common: _Common) -> dict[str, float | None]:
    """One run's value of every metric."""
    figures, history = run.figures, run.history
    hours = history.time / 3600
    # The mean of a few episodes may reach anything; it counts once it is a mean of as many as it is meant to be.
    settled = np.where(history.episodes < WINDOW, np.nan, history.reward)
    seen, unseen = (run.evaluations.find(run.env, levels, common.policy) for levels in ("train", "unseen"))
    train = seen.mean_reward if seen and seen.complete else None
    test = unseen.mean_reward if unseen and unseen.complete else None
    memory, threshold = figures.peak_memory_gb, common.threshold
    return {
        "final_reward": figures.final_reward,
        "best_reward": figures.best_reward,
        "initial_reward": figures.initial_reward,
        "reward_at_equal_steps": value_at(history.step, history.reward, common.steps) if common.steps else None,
        "reward_at_equal_time": value_at(hours, history.reward, common.hours) if common.hours else None,
        "evaluation_train": train,
        "evaluation_unseen": test,
        "generalization_gap": train - test if train is not None and test is not None else None,
        "average_fps": figures.average_fps,
        "final_fps": figures.final_fps,
        "env_steps": figures.total_timesteps,
        "duration_hours": figures.duration_hours,
        "steps_to_reward": None if threshold is None else first_reaching(history.step, settled, threshold),
        "hours_to_reward": None if threshold is None else first_reaching(hours, settled, threshold),
        "peak_memory_gb": memory,
        "memory_per_worker_gb": None if memory is None else memory / run.num_workers,
    }


def _speedup(group: Group, groups: Sequence[Group], seed: int) -> Speedup | None:
    """The speed of a parallel group over the fastest sequential one of its algorithm with as many environments."""
    same = [other for other in groups if (other.algorithm, other.device) == (group.algorithm, group.device)]
    baselines = [other for other in same if other.mode == "sequential" and other.metrics["average_fps"].mean]
    speed = group.metrics["average_fps"]
    if group.mode != "parallel" or not baselines or not speed.mean:
        return None
    base = max(baselines, key=lambda one: (one.num_envs == group.num_envs, one.metrics["average_fps"].mean or 0.0))
    below = base.metrics["average_fps"]
    assert below.mean
    value = speed.mean / below.mean
    cores, base_cores = _cores(group), _cores(base)
    interval = bootstrap_ratio(np.array(speed.values), np.array(below.values), seed)
    known = cores and base_cores and group.device == "cpu"
    return Speedup(base.label, value, interval, cores, base_cores, value * base_cores / cores if known else None)


def _cores(group: Group) -> int:
    """Cores a group's runs can keep busy: its threads, but no more than the machine has; 0 where it does not say."""
    usable = number(group.runs[0].hardware.get("usable_cores")) or 0.0
    return min(group.num_workers * (group.num_threads or 0), int(usable))
