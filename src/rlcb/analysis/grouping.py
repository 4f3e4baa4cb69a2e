"""Which runs may be compared with which, which differ only in their seed, and what the groups are called."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from rlcb.analysis.run import Run, Task
from rlcb.analysis.untrusted import plain, section
from rlcb.config.registry import ALGORITHMS, CLUSTER_KEYS

_ALGORITHM_SECTIONS = {*ALGORITHMS, *(entry.section for entry in ALGORITHMS.values())}
# Keys that are part of the task, or that influence neither learning nor speed.
_NOT_SETTINGS = {
    "env": ("name", "seed", "distribution_mode", "num_levels", "start_level"),
    "training": ("total_timesteps", "duration_hours"),
    # A cluster is part of the task: its nodes are the machine.
    "parallel": ("num_workers", "num_envs_per_worker", "worker_timeout", *CLUSTER_KEYS),
    "hardware": ("device", "num_threads"),
}
_RESOLVED = ("num_workers", "num_threads", "device", "precision")  # settings that a run knows once it has started
_MOST_NAMED = 3  # differing settings in a group's name


def differences(one: Task, main: Task) -> list[str]:
    """In which ways one task is not the main one."""
    found = []
    if one.env != main.env:
        found.append(f"different environment: {one.env} instead of {main.env}")
    elif one.levels != main.levels:
        found.append(f"different levels: {one.levels} instead of {main.levels}")
    if one.machine != main.machine:
        found.append(f"different hardware: {one.machine or 'unknown'} instead of {main.machine or 'unknown'}")
    if one.budget != main.budget:
        found.append(f"different budget: {one.budget} instead of {main.budget}")
    return found


def settings_of(run: Run) -> dict[str, Any]:
    """Every setting that may change how a run learns or how fast it is, and that is not part of its task."""
    if run.external:  # its settings are not known: what it comes from tells it apart
        rewards = "of 100 episodes" if run.external.same_rewards else "averages"
        return {"program": run.external.program, "log": run.external.format, "rewards": rewards}
    entry = ALGORITHMS.get(run.algorithm)
    foreign = _ALGORITHM_SECTIONS - {run.algorithm, entry.section if entry else run.algorithm}
    ignored = {"logging", *foreign, *(["parallel"] if run.mode == "sequential" else [])}
    found: dict[str, Any] = {}
    for name in run.config:
        if name not in ignored:
            values = section(run.config, name)
            found |= {key: value for key, value in values.items() if key not in _NOT_SETTINGS.get(name, ())}
    # What was used, rather than what was asked for.
    return {**found, **{name: getattr(run, name) for name in _RESOLVED}}


def shown_config(run: Run) -> dict[str, Any]:
    """A run's configuration without what meant nothing to it: a cluster's keys, or how to divide a sequential run."""
    config = {name: section(run.config, name) for name in run.config if name != "parallel" or run.mode == "parallel"}
    if "parallel" in config and not config["parallel"].get("cluster"):
        config["parallel"] = {key: value for key, value in config["parallel"].items() if key not in CLUSTER_KEYS}
    return config


def split_by_task(runs: Iterable[Run]) -> list[tuple[Task, list[Run]]]:
    """Runs by task, the one with most runs that did not fail first; others' alone after them, unfinished ones last.

    A run that failed before it recorded its machine joins the finished runs that have the same task otherwise; a run
    of another program the largest set of finished ones with its environment and, where they are known, its levels.
    """
    sets: dict[Task, list[Run]] = {}
    without_machine, foreign = [], []
    for run in runs:
        task = run.task
        if run.external:
            foreign.append((task, run))
        elif run.status == "failed" and not task.machine:
            without_machine.append((task, run))
        else:
            sets.setdefault(task, []).append(run)
    for task, run in without_machine:
        alike = (other for other in sets if other.finished and replace(other, machine="") == task)
        sets.setdefault(next(alike, task), []).append(run)
    own = {task: _usable(members) for task, members in sets.items() if task.finished}
    for task, run in foreign:
        fitting = [other for other in own if other.env == task.env and task.levels in ("", other.levels)]
        sets.setdefault(max(fitting, key=lambda other: own[other], default=task), []).append(run)
    foreign_alone = {task: all(run.external for run in members) for task, members in sets.items()}
    return sorted(sets.items(), key=lambda item: (not item[0].finished, foreign_alone[item[0]], -_usable(item[1])))


def _usable(runs: Sequence[Run]) -> int:
    return sum(run.status != "failed" for run in runs)


def split_by_group(runs: Iterable[Run]) -> list[list[Run]]:
    """Runs that differ only in their seed together: by algorithm, sequential before parallel, then by variant."""
    groups: dict[tuple[str, ...], list[Run]] = {}
    # Runs that failed before they recorded their machine come last, so that their group exists already.
    for run in sorted(runs, key=lambda run: not run.hardware):
        alike = (key for key, others in groups.items() if _requested(run) == _requested(others[0]))
        order = "0" if run.mode == "sequential" else f"1{run.num_workers:06d}"
        kind = ("~", run.label) if run.external else (run.algorithm, order)  # other programs' runs come last
        key = (*kind, run.variant, json.dumps(settings_of(run), sort_keys=True, default=str))
        groups.setdefault(key if run.hardware else next(alike, key), []).append(run)
    return [groups[key] for key in sorted(groups)]


def _requested(run: Run) -> tuple[str, str, str, str, dict[str, Any]]:
    """What identifies a group, without the settings that a run knows only once it has started."""
    settings = {key: value for key, value in settings_of(run).items() if key not in _RESOLVED}
    return run.algorithm, run.mode, run.variant, run.label if run.external else "", settings


def without_repeats(runs: Sequence[Run]) -> tuple[list[Run], dict[Run, str]]:
    """The latest run of each seed; and the other runs with the name of the run that is used instead.

    The same seed gives the same run again: counting it twice would underestimate the variation between seeds. A run
    that shared its machine or was disturbed is used only where none had it to itself: only their speeds differ.
    """
    latest: dict[int | None, Run] = {}
    for run in sorted(runs, key=lambda run: (run.jobs_beside == 0, not run.disturbed, run.ended), reverse=True):
        latest.setdefault(run.seed, run)
    repeats = {run: latest[run.seed].name for run in runs if run.seed is not None and latest[run.seed] is not run}
    return [run for run in runs if run not in repeats], repeats


def labels_of(groups: Sequence[Sequence[Run]]) -> list[str]:
    """A name for each group: algorithm, mode, variant, and the first settings that distinguish it from its like."""
    first = [runs[0] for runs in groups]
    names = [run.group_label for run in first]
    settings = [settings_of(run) for run in first]
    labels = []
    for name, mine in zip(names, settings, strict=True):
        alike = [theirs for other, theirs in zip(names, settings, strict=True) if other == name]
        keys = [key for key in mine if any(theirs.get(key) != mine[key] for theirs in alike)]
        keys.sort(key=lambda key: key == "imports")  # named last: modules differ wherever the environments do
        labels.append(", ".join([name, *(plain(f"{key} {setting_text(mine[key])}") for key in keys[:_MOST_NAMED])]))
    return [label if labels.count(label) == 1 else f"{label} #{number + 1}" for number, label in enumerate(labels)]


def variant_settings(groups: Sequence[tuple[str, Run]]) -> dict[str, dict[str, Any]]:
    """What variants change: by the name of each group of one, the settings in which its algorithm and mode differ."""
    found: dict[str, dict[str, Any]] = {}
    for label, run in groups:
        if run.variant:
            alike = [
                settings_of(other) for _, other in groups if (other.algorithm, other.mode) == (run.algorithm, run.mode)
            ]
            mine = settings_of(run)
            differing = [key for key in mine if any(theirs.get(key) != mine[key] for theirs in alike)]
            found[label] = {key: mine[key] for key in differing}
    return found


def setting_text(value: Any) -> str:
    """The value of a setting."""
    if isinstance(value, list):
        return plain(" ".join(map(str, value))) or "none"
    return f"{value:g}" if isinstance(value, float) else plain(str(value))
