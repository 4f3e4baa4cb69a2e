"""Which runs may be compared with which, which differ only in their seed, and what the groups are called."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from rlcb.analysis.run import Run
from rlcb.analysis.untrusted import plain, section

_ALGORITHM_SECTIONS = {"ppo": ("ppo",), "impala": ("impala",), "a2c": ("a2c",), "a3c": ("a2c", "a3c")}
_EVERY_ALGORITHMS = ("ppo", "impala", "a2c", "a3c")
# Part of what makes runs comparable, or without any influence on learning and speed.
_ELSEWHERE = {
    "env": ("name", "seed", "distribution_mode", "num_levels", "start_level"),
    "training": ("total_timesteps", "duration_hours"),
    "parallel": ("num_workers", "num_envs_per_worker", "worker_timeout"),
}
_MOST_NAMED = 3  # differing settings in a group's name


@dataclass(frozen=True)
class Setting:
    """What runs must have in common to be compared."""

    env: str
    levels: str
    budget: tuple[str, float | None]
    machine: str
    finished: bool

    @property
    def budget_text(self) -> str:
        """The budget, for people."""
        kind, amount = self.budget
        if amount is None:
            return "unknown budget"
        return f"{amount:g} hour{'s' * (amount != 1)}" if kind == "hours" else f"{amount:,.0f} steps"

    @property
    def title(self) -> str:
        """One line that says what was done."""
        task = f"{self.env}, {self.levels}" if self.levels else self.env
        state = "" if self.finished else ", unfinished"
        return f"{task}, {self.budget_text}{state}, on {self.machine or 'an unknown machine'}"


def setting_of(run: Run) -> Setting:
    """The setting of a run; a failed one belongs to those that finished."""
    return Setting(run.game, run.levels, run.budget, run.machine, run.status != "unfinished")


def differences(one: Setting, main: Setting) -> list[str]:
    """In which ways one setting is not the main one's."""
    found = []
    if one.env != main.env:
        found.append(f"other environment: {one.env}, not {main.env}")
    elif one.levels != main.levels:
        found.append(f"other levels: {one.levels}, not {main.levels}")
    if one.machine != main.machine:
        found.append(f"other hardware: {one.machine or 'unknown'}, not {main.machine or 'unknown'}")
    if one.budget != main.budget:
        found.append(f"other budget: {one.budget_text}, not {main.budget_text}")
    return found


def settings_of(run: Run) -> dict[str, Any]:
    """Every setting that may change how a run learns or how fast it is, and that is not part of its Setting."""
    mine = _ALGORITHM_SECTIONS.get(run.algorithm, (run.algorithm,))
    found: dict[str, Any] = {}
    for name in run.config:
        foreign = name in _EVERY_ALGORITHMS and name not in mine
        if name in ("logging", "hardware") or foreign or (name == "parallel" and run.mode == "sequential"):
            continue
        elsewhere = _ELSEWHERE.get(name, ())
        found |= {key: value for key, value in section(run.config, name).items() if key not in elsewhere}
    # What was used, rather than what was asked for.
    return {**found, "num_workers": run.num_workers, "num_threads": run.num_threads, "device": run.device}


def _group_key(run: Run) -> tuple[str, ...]:
    """Equal for runs that differ in nothing but their seed, and sorts sequential before parallel."""
    order = "0" if run.mode == "sequential" else f"1{run.num_workers:06d}"
    return run.algorithm, order, json.dumps(settings_of(run), sort_keys=True, default=str)


def _same_but_for_machine(one: Run, other: Run) -> bool:
    known = ("num_workers", "num_threads", "device")
    settings = [{key: value for key, value in settings_of(run).items() if key not in known} for run in (one, other)]
    return (one.algorithm, one.mode) == (other.algorithm, other.mode) and settings[0] == settings[1]


def split_by_setting(runs: Iterable[Run]) -> list[tuple[Setting, list[Run]]]:
    """Runs by setting, the one with most runs first; a failed run whose machine is not known joins its likes."""
    sets: dict[Setting, list[Run]] = {}
    homeless = []
    for run in runs:
        setting = setting_of(run)
        if run.status == "failed" and not setting.machine:
            homeless.append((setting, run))
        else:
            sets.setdefault(setting, []).append(run)
    for setting, run in homeless:
        alike = (other for other in sets if not differences(_somewhere(other), setting) and other.finished)
        sets.setdefault(next(alike, setting), []).append(run)
    # Unfinished runs never come first where there is a finished one.
    return sorted(sets.items(), key=lambda item: (not item[0].finished, -len(item[1])))


def _somewhere(setting: Setting) -> Setting:
    return Setting(setting.env, setting.levels, setting.budget, "", setting.finished)


def split_by_group(runs: Iterable[Run]) -> list[list[Run]]:
    """Runs that differ only in their seed together, in a fixed order."""
    groups: dict[tuple[str, ...], list[Run]] = {}
    # A run that failed before it described its machine goes where it would have belonged.
    for run in sorted(runs, key=lambda run: not run.hardware):
        alike = (key for key, others in groups.items() if _same_but_for_machine(run, others[0]))
        key = _group_key(run)
        groups.setdefault(key if run.hardware else next(alike, key), []).append(run)
    return [groups[key] for key in sorted(groups)]


def without_repeats(runs: Sequence[Run]) -> tuple[list[Run], list[tuple[Run, Run]]]:
    """One run per seed, the latest; and the others with the one that stands for them.

    The same seed gives the same run again, so counting it twice would make chance look smaller than it is.
    """
    latest: dict[int, Run] = {}
    for run in runs:
        if run.seed is not None and (run.seed not in latest or run.ended > latest[run.seed].ended):
            latest[run.seed] = run
    kept = [run for run in runs if run.seed is None or latest[run.seed] is run]
    repeats = [(run, latest[run.seed]) for run in runs if run.seed is not None and latest[run.seed] is not run]
    return kept, repeats


def _told(key: str, value: Any) -> str:
    return f"{plain(key)} {value:g}" if isinstance(value, float) else plain(f"{key} {value}")


def labels_of(groups: Sequence[Sequence[Run]]) -> list[str]:
    """A name for each group: algorithm and mode, and what else tells it from the others."""
    first = [runs[0] for runs in groups]
    names = [run.label + (f" ({run.num_workers} workers)" if run.mode == "parallel" else "") for run in first]
    settings = [settings_of(run) for run in first]
    labels = []
    for index, name in enumerate(names):
        alike = [settings[other] for other, theirs in enumerate(names) if theirs == name]
        keys = [key for key in settings[index] if any(other.get(key) != settings[index][key] for other in alike)]
        told = [_told(key, settings[index][key]) for key in keys[:_MOST_NAMED]]
        labels.append(", ".join([name, *told]))
    return [label if labels.count(label) == 1 else f"{label} #{number + 1}" for number, label in enumerate(labels)]
