"""What a comparison finds, as plain records that also go into a file."""

import math
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rlcb.analysis.run import Run
from rlcb.analysis.statistics import Curve, Interval, Summary


@dataclass(frozen=True)
class Metric:
    """A figure that groups are compared by; docs/metrics.md defines each."""

    name: str
    title: str
    form: str  # how it is printed
    unit: str = ""
    higher_is_better: bool = True
    paired: bool = False  # whether all pairs of groups are tested on it


METRICS = (
    Metric("final_reward", "Final reward", ".2f", paired=True),
    Metric("best_reward", "Best reward", ".2f"),
    Metric("initial_reward", "Initial reward", ".2f"),
    Metric("reward_at_equal_steps", "Reward at equal steps", ".2f", paired=True),
    Metric("reward_at_equal_time", "Reward at equal time", ".2f", paired=True),
    Metric("evaluation_train", "Evaluation, training levels", ".2f"),
    Metric("evaluation_unseen", "Evaluation, unseen levels", ".2f", paired=True),
    Metric("generalization_gap", "Generalisation gap", ".2f", higher_is_better=False),
    Metric("average_fps", "Average FPS", ",.0f", "steps/s", paired=True),
    Metric("final_fps", "Final FPS", ",.0f", "steps/s"),
    Metric("env_steps", "Steps", ",.0f"),
    Metric("duration_hours", "Duration (hours)", ".3g", "h"),
    Metric("steps_to_reward", "Steps to threshold", ",.0f", higher_is_better=False),
    Metric("hours_to_reward", "Hours to threshold", ".3g", "h", higher_is_better=False),
    Metric("peak_memory_gb", "Peak memory (GB)", ".2f", "GB", higher_is_better=False),
    Metric("memory_per_worker_gb", "Memory per worker (GB)", ".2f", "GB", higher_is_better=False),
)
METRIC = {metric.name: metric for metric in METRICS}
# A mean over only the seeds that got there would flatter those that often do not.
NEEDS_ALL_SEEDS = ("steps_to_reward", "hours_to_reward")


@dataclass(frozen=True)
class Failure:
    """A run that broke off by itself."""

    run: str
    seed: int | None
    reason: str


@dataclass(frozen=True)
class Speedup:
    """A parallel group's speed beside the sequential one's of the same algorithm on the same machine."""

    baseline: str
    value: float
    interval: Interval | None
    cores: int
    baseline_cores: int
    efficiency: float | None  # speed-up per core, relative to the baseline's


@dataclass(frozen=True, eq=False)
class Group:
    """Runs that differ in nothing but their seed."""

    label: str
    algorithm: str
    mode: str
    num_envs: int | None
    num_workers: int
    num_threads: int | None
    device: str
    settings: dict[str, Any]
    runs: tuple[Run, ...]
    failed: tuple[Failure, ...]
    metrics: dict[str, Summary]
    speedup: Speedup | None
    time_shares: dict[str, float]
    curves: dict[str, Curve]  # reward_steps, reward_hours, fps_hours, policy_loss_steps, steps_hours

    @property
    def valid(self) -> bool:
        """More than one failed seed and what the others show is not representative."""
        return len(self.failed) <= 1

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
    interval: Interval | None
    p: float | None
    holm_p: float | None
    effect: float | None  # Hedges' g
    winner: str | None
    verdict: str


@dataclass(frozen=True)
class Excluded:
    """A run that is not compared with the main set, and why."""

    run: str
    label: str
    reason: str


@dataclass(frozen=True, eq=False)
class ComparableSet:
    """Groups that did the same task with the same budget on the same machine."""

    title: str
    env: str
    levels: str
    budget: str
    machine: str
    finished: bool  # a set of unfinished runs is shown, but nothing is concluded from it
    evaluation_policy: str
    threshold: float | None
    equal_steps: float | None
    equal_hours: float | None
    groups: tuple[Group, ...]
    pairs: tuple[Pair, ...]
    notes: tuple[str, ...]
    verdict: str

    def pair(self, metric: str, first: str, second: str) -> Pair | None:
        """The pair of two groups on a metric, in the order it was made."""
        wanted = (metric, first, second)
        return next((pair for pair in self.pairs if (pair.metric, pair.first, pair.second) == wanted), None)


@dataclass(frozen=True, eq=False)
class Comparison:
    """Everything; the first set is the main one, the others are not comparable with it."""

    sets: tuple[ComparableSet, ...]
    excluded: tuple[Excluded, ...]
    verdict: str
    seed: int

    def to_dict(self) -> dict[str, Any]:
        """The comparison as JSON takes it; NaN becomes null."""
        return {"schema": 1, **{field.name: _plain(getattr(self, field.name)) for field in fields(self)}}


def _plain(value: Any) -> Any:
    if isinstance(value, Run):
        return _run_record(value)
    if is_dataclass(value) and not isinstance(value, type):
        record = {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
        return {**record, "valid": value.valid} if isinstance(value, Group) else record
    if isinstance(value, dict):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple | np.ndarray):
        return [_plain(inner) for inner in (value.tolist() if isinstance(value, np.ndarray) else value)]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return str(value) if isinstance(value, Path) else value


def _run_record(run: Run) -> dict[str, Any]:
    """A run without its history and the settings it shares with its group."""
    names = ("path", "seed", "status", "reason", "figures", "time_shares", "evaluations", "problems")
    return {name: _plain(getattr(run, name)) for name in names}
