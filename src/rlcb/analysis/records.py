"""The result of a comparison as records, which are also the content of comparison.json."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rlcb.analysis.external.record import External
from rlcb.analysis.game_records import GameScores, GameValue
from rlcb.analysis.reaching import Reached, RewardLevel
from rlcb.analysis.recipe_records import RecipeRanking
from rlcb.analysis.run import Run, Task
from rlcb.analysis.speed import Speed
from rlcb.analysis.statistics import Curve, Interval, SeedCurve, Summary

NOT_SHOWN = "no difference shown"  # the verdict on a pair whose difference may be due to chance


@dataclass(frozen=True)
class Speedup:
    """The speed of a parallel group relative to a sequential one of the same algorithm on the same machine."""

    baseline: str
    machine: str  # of the baseline, where it is not the group's own: the one a cluster run was started from
    value: float
    interval: Interval | None
    cores: int | None  # that each can keep busy; None where that is not recorded
    baseline_cores: int | None
    efficiency: float | None  # speed-up per core, relative to the baseline's
    unequal_work: str  # where the baseline's work is another; empty where it is not
    interval_over: str = "seeds"  # or blocks: within the runs

    @property
    def over(self) -> str:
        """What it is relative to."""
        return f"{self.baseline} on {self.machine}" if self.machine else self.baseline


@dataclass(frozen=True, eq=False)
class Group:
    """Runs that differ in nothing but their seed."""

    label: str
    algorithm: str
    mode: str
    variant: str  # the name of its settings; empty where they have none
    num_envs: int | None
    num_workers: int
    num_threads: int | None
    device: str
    settings: dict[str, Any]
    runs: tuple[Run, ...]
    failed: tuple[Run, ...]
    metrics: dict[str, Summary]
    speedup: Speedup | None
    time_shares: dict[str, float]
    curves: dict[str, Curve]  # reward_steps, reward_hours, fps_hours, policy_loss_steps, steps_hours
    seed_curves: dict[str, tuple[SeedCurve, ...]] = field(default_factory=dict)  # in place of those without a mean
    speeds: tuple[Speed, ...] = ()  # of its runs that were not disturbed, of all where each was
    reached: tuple[Reached, ...] = ()  # when its runs reached each of the set's reward levels

    @property
    def valid(self) -> bool:
        """Whether at most one seed failed; with more failures the other seeds are not representative."""
        return len(self.failed) <= 1

    @property
    def memory_measure(self) -> str:
        """How the memory of its runs was measured: PSS, RSS, both, or empty where that is not recorded."""
        if self.external:
            return "unknown"
        return _one_or_all(run.memory_measure for run in self.runs)

    @property
    def jobs_beside(self) -> int:
        """The most other runs of a suite that shared the machine with a run of it."""
        return max((run.jobs_beside for run in self.runs), default=0)

    @property
    def disturbed(self) -> tuple[Run, ...]:
        """The runs that other programs disturbed."""
        return tuple(run for run in self.runs if run.disturbed)

    @property
    def external(self) -> External | None:
        """Where its runs come from, if they are another program's."""
        return next((run.external for run in (*self.runs, *self.failed)), None)

    @property
    def unjudged(self) -> str:
        """Why its speed is not judged, in a word or two; empty where it is judged, by its undisturbed runs."""
        if self.external:
            return "machine unknown"
        if self.jobs_beside:
            return "shared"
        return "disturbed" if self.runs and len(self.disturbed) == len(self.runs) else ""

    @property
    def seeds(self) -> tuple[int | None, ...]:
        """The seeds of the runs that count."""
        return tuple(run.seed for run in self.runs)


@dataclass(frozen=True)
class Pair:
    """Two groups on one metric: first minus second."""

    metric: str
    first: str
    second: str
    difference: float | None
    interval: Interval | None = None
    p: float | None = None
    holm_p: float | None = None
    effect: float | None = None  # Hedges' g
    winner: str | None = None
    verdict: str = ""
    interval_over: str = "seeds"  # or blocks: within the runs

    def other(self, label: str) -> str:
        """The group of the pair that has not this name."""
        return self.second if self.first == label else self.first


@dataclass(frozen=True)
class Card:
    """The best group by one criterion; or, without a group, the criteria by which none is judged."""

    metric: str  # empty where none is judged
    title: str
    group: str
    value: str
    interval: str  # of the value; empty where there is none
    certainty: str  # over whom its lead is established, and who is left out


@dataclass(frozen=True)
class Advice:
    """Which group to use, in a sentence, and the best by each criterion."""

    group: str
    text: str
    cards: tuple[Card, ...] = ()


@dataclass(frozen=True)
class Excluded:
    """A run that is not compared with the main set, and why."""

    run: str
    label: str
    reason: str


@dataclass(frozen=True, eq=False)
class ComparableSet(Task):
    """Groups with the same task; a set of unfinished runs is shown, but nothing is concluded from it."""

    evaluation_policy: str
    threshold: float | None
    equal_steps: float | None
    equal_hours: float | None
    groups: tuple[Group, ...]
    pairs: tuple[Pair, ...]
    variants: dict[str, dict[str, Any]]  # name of a variant's group → settings in which it differs from others
    notes: tuple[str, ...] = ()
    verdict: str = ""
    advice: Advice | None = None
    reward_levels: tuple[RewardLevel, ...] = ()  # where several were asked for
    levels_unknown: str = ""  # why there are no published ones, if they were asked for

    @property
    def measured(self) -> list[Group]:
        """The groups that have a run; in the others every run failed."""
        return [group for group in self.groups if group.runs]

    @property
    def evaluated(self) -> bool:
        """Whether any run has been evaluated."""
        names = ("evaluation_train", "evaluation_unseen")
        return any(group.metrics[name].n for group in self.groups for name in names)

    @property
    def memory_measure(self) -> str:
        """How memory was measured: PSS, RSS, several ways, or empty where that is not recorded."""
        own = [group for group in self.measured if not group.external]
        return _one_or_all(group.memory_measure for group in own or self.measured)

    @property
    def reward_metric(self) -> str:
        """The metric that rewards are judged by: evaluation on unseen levels if every run of ours has one."""
        own = [group for group in self.measured if not group.external]
        complete = (group.metrics["evaluation_unseen"].n == len(group.runs) for group in own)
        return "evaluation_unseen" if own and all(complete) else "final_reward"

    def pair(self, metric: str, one: str, other: str) -> Pair | None:
        """The pair of two groups on a metric, in whichever order it was made."""
        found = (pair for pair in self.pairs if pair.metric == metric and {pair.first, pair.second} == {one, other})
        return next(found, None)


def _one_or_all(measures: Iterable[str]) -> str:
    """The measure that all have in common, or all of them; empty where none is recorded."""
    found = sorted(set(measures))
    return found[0] if len(found) == 1 else " / ".join(name or "not recorded" for name in found)


@dataclass(frozen=True)
class MachineTable:
    """Sets that differ in nothing but their machine: what each has is shown side by side, without a winner."""

    env: str
    levels: str
    budget: str
    sets: tuple[int, ...]  # their numbers, from 1
    why: str  # there is no winner
    unequal_work: tuple[str, ...]  # where their groups do not do the same work


@dataclass(frozen=True, eq=False)
class Comparison:
    """A whole comparison; the first set is the main one, the others are not comparable with it."""

    sets: tuple[ComparableSet, ...]
    excluded: tuple[Excluded, ...]
    verdict: str
    seed: int
    game_scores: tuple[GameScores, ...]
    machine_tables: tuple[MachineTable, ...] = ()
    recipes: tuple[RecipeRanking, ...] = ()

    def scores_of(self, one: ComparableSet) -> GameScores | None:
        """The scores over games that a set is part of, None where it is part of none."""
        task = (one.levels, one.budget, one.machine)
        alike = (found for found in self.game_scores if (found.levels, found.budget, found.machine) == task)
        return next((found for found in alike if one.finished and one.env in found.games), None)

    def is_main_task(self, one: ComparableSet) -> bool:
        """Whether a set is the main one, or differs from it in nothing but its game."""
        scores = self.scores_of(one)
        return one is self.sets[0] or (scores is not None and scores is self.scores_of(self.sets[0]))

    @property
    def advice(self) -> Advice | None:
        """The advice that the main set allows; None for several games, which the verdict is about together."""
        return None if self.scores_of(self.sets[0]) else self.sets[0].advice

    def places(self) -> dict[str, tuple[int, str]]:
        """The number of each run's set, from 1, and its group, by its name; without runs that only repeat another."""
        return {
            run.name: (order, group.label)
            for order, one in enumerate(self.sets, 1)
            for group in one.groups
            for run in (*group.runs, *group.failed)
        }

    def to_dict(self) -> dict[str, Any]:
        """The content of comparison.json; NaN becomes null."""
        return {"schema": 1, **{field.name: _plain(getattr(self, field.name)) for field in fields(self)}}


def _plain(value: Any) -> Any:
    """A value as JSON represents it."""
    if isinstance(value, Run):  # without its history and the settings it shares with its group
        names = (
            "path",
            "seed",
            "status",
            "reason",
            "time_shares",
            "evaluations",
            "problems",
            "jobs_beside",
            "disturbance",
        )
        return {**{name: _plain(getattr(value, name)) for name in names}, "figures": _plain(value.metrics)}
    if is_dataclass(value) and not isinstance(value, type):
        record = {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
        if isinstance(value, Group):
            record["failed"] = [{"run": run.name, "seed": run.seed, "reason": run.reason} for run in value.failed]
            record["valid"] = value.valid
            record["external"] = _plain(value.external)
        if isinstance(value, GameValue):
            record["difference"] = _plain(value.difference)
        return {"title": value.title, **record} if isinstance(value, ComparableSet) else record
    if isinstance(value, dict):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple | np.ndarray):
        return [_plain(inner) for inner in (value.tolist() if isinstance(value, np.ndarray) else value)]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return str(value) if isinstance(value, Path) else value
