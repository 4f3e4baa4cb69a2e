"""The metrics that groups are compared by: how each is printed and computed for one run; and the curves of a group."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import numpy as np

from rlcb.analysis.history import History
from rlcb.analysis.machines import nodes_of
from rlcb.analysis.reaching import RewardLevel, Threshold, levels_for, single_threshold
from rlcb.analysis.run import LATE_STEPS, Run
from rlcb.analysis.statistics import Array, Curve, SeedCurve, first_reaching, mean_curve, value_at
from rlcb.analysis.untrusted import number

THRESHOLD = 0.8  # of the way from an untrained policy to the best group's final reward
HOURS = "hours"  # the form of a metric in hours, which is shown in a unit that fits
REWARD = "reward"  # that of a reward, which is shown with as many digits as it deserves
_WINDOWS = 60  # stretches of time that speed is measured over
_SMOOTHING = 100  # a hundredth of a run is averaged where single updates say little


@dataclass(frozen=True)
class Metric:
    """A metric; docs/metrics.md defines each."""

    name: str
    title: str
    form: str  # format specification of its values, HOURS or REWARD
    higher_is_better: bool = True
    paired: bool = False  # whether all pairs of groups are tested on it


METRICS = (
    Metric("final_reward", "Final reward", REWARD, paired=True),
    Metric("late_reward", f"Reward, last {LATE_STEPS // 1000} k steps", REWARD),
    Metric("best_reward", "Best reward", REWARD),
    Metric("initial_reward", "Initial reward", REWARD),
    Metric("final_episode_length", "Episode length (steps)", ",.0f"),
    Metric("reward_at_equal_steps", "Reward at equal steps", REWARD, paired=True),
    Metric("reward_at_equal_time", "Reward at equal time", REWARD, paired=True),
    Metric("evaluation_train", "Evaluation, training levels", REWARD),
    Metric("evaluation_unseen", "Evaluation, unseen levels", REWARD, paired=True),
    Metric("generalization_gap", "Generalisation gap", REWARD, higher_is_better=False),
    Metric("evaluation_train_length", "Evaluated length, training", ",.0f"),
    Metric("evaluation_unseen_length", "Evaluated length, unseen", ",.0f"),
    Metric("average_fps", "Average FPS", ",.0f", paired=True),
    Metric("final_fps", "Final FPS", ",.0f"),
    Metric("limit_percent", "Share of machine limit (%)", ".0f"),
    Metric("cpu_percent", "CPU (% of usable cores)", ".0f"),
    Metric("core_seconds_per_million", "CPU time per M steps (s)", ",.0f", higher_is_better=False, paired=True),
    Metric("energy_per_million", "Energy per M steps (kJ)", ".3g", higher_is_better=False),
    Metric("env_steps", "Steps", ",.0f"),
    Metric("duration_hours", "Duration", HOURS),
    Metric("steps_to_reward", "Steps to threshold", ",.0f", higher_is_better=False),
    Metric("hours_to_reward", "Time to threshold", HOURS, higher_is_better=False),
    Metric("peak_memory_gb", "Peak memory (GB)", ".2f", higher_is_better=False),
    Metric("memory_per_worker_gb", "Memory per worker (GB)", ".2f", higher_is_better=False),
    Metric("peak_gpu_memory_gb", "Peak GPU memory (GB)", ".2f", higher_is_better=False),
    Metric("gpu_percent", "GPU busy (%)", ".0f"),
)
METRIC = {metric.name: metric for metric in METRICS}
# A mean over only the seeds that reached the threshold would favour groups that often do not reach it.
NEEDS_ALL_SEEDS = ("steps_to_reward", "hours_to_reward")
# What depends on how fast a run was: it is not judged where runs shared their machine or were disturbed.
OF_SPEED = (
    "average_fps",
    "final_fps",
    "limit_percent",
    "duration_hours",
    "hours_to_reward",
    "reward_at_equal_time",
    "cpu_percent",
    "core_seconds_per_million",
    "energy_per_million",
)
NEEDS_ONE_MEASURE = ("peak_memory_gb", "memory_per_worker_gb")  # all seeds' memory measured alike


@dataclass(frozen=True)
class Reference:
    """The points at which all runs of a set are measured."""

    evaluation_policy: str
    threshold: float | None
    equal_steps: float | None  # the most steps and hours that all runs reached
    equal_hours: float | None
    reward_levels: tuple[RewardLevel, ...] = ()  # where several were asked for
    levels_unknown: str = ""  # why there are no published ones, if they were asked for


def reference_of(groups: Sequence[Sequence[Run]], threshold: Threshold) -> Reference:
    """The reference of a set; evaluations of sampled actions, unless some run has deterministic ones alone.

    Threshold and equal time are those of our runs, where there are any: the speed of others is not comparable.
    """
    runs = [run for group in groups for run in group]
    # An external run without a reward cannot be compared at any step, so it does not limit the others.
    logs = [run.history for run in runs if len(run.history) and not (run.external and run.compared_reward is None)]
    own = [[run for run in group if not run.external] for group in groups]
    judged = own if any(own) else groups
    times = [float(run.history.time[-1]) / 3600 for group in judged for run in group if len(run.history)]
    policies = [{entry.policy for entry in run.evaluations.entries if entry.complete} for run in runs]
    sampled = all("sampled" in found for found in policies if found)
    given = single_threshold(threshold)
    levels, unknown = levels_for([run for group in judged for run in group], threshold)
    return Reference(
        evaluation_policy="sampled" if sampled else "deterministic",
        threshold=given if given is not None else _default_threshold(judged),
        equal_steps=min((float(log.step[-1]) for log in logs), default=None),
        equal_hours=min((time for time in times if np.isfinite(time)), default=None),
        reward_levels=levels,
        levels_unknown=unknown,
    )


def _default_threshold(groups: Sequence[Sequence[Run]]) -> float | None:
    """Most of the way from an untrained policy to the best group; None where no group improved."""
    starts = [start for group in groups for run in group if (start := run.metrics.initial_reward) is not None]
    ends = [[end for run in group if (end := run.compared_reward) is not None] for group in groups]
    if not starts or not any(ends):
        return None
    start, best = float(np.mean(starts)), max(float(np.mean(rewards)) for rewards in ends if rewards)
    return start + THRESHOLD * (best - start) if best > start else None


def measure(run: Run, reference: Reference) -> dict[str, float | None]:
    """One run's value of every metric, among others that it recorded."""
    metrics, history = run.metrics, run.history
    hours = history.time / 3600
    settled = history.settled_reward
    policy, threshold = reference.evaluation_policy, reference.threshold
    played = [run.evaluations.find(run.env, levels, policy) for levels in ("train", "unseen")]
    seen, unseen = (one.mean_reward if one else None for one in played)
    seen_length, unseen_length = (one.mean_length if one else None for one in played)
    fraction = metrics.limit_fraction
    memory, steps, end = metrics.peak_memory_gb, reference.equal_steps, reference.equal_hours
    return {
        **vars(metrics),
        "final_reward": run.compared_reward,
        "reward_at_equal_steps": value_at(history.step, settled, steps) if steps else None,
        "reward_at_equal_time": value_at(hours, settled, end) if end else None,
        "evaluation_train": seen,
        "evaluation_unseen": unseen,
        "evaluation_train_length": seen_length,
        "evaluation_unseen_length": unseen_length,
        "generalization_gap": seen - unseen if seen is not None and unseen is not None else None,
        "env_steps": metrics.total_timesteps,
        "limit_percent": None if fraction is None else 100 * fraction,
        "steps_to_reward": None if threshold is None else first_reaching(history.step, settled, threshold),
        "hours_to_reward": None if threshold is None else first_reaching(hours, settled, threshold),
        "memory_per_worker_gb": None if memory is None else memory / run.num_workers,
        "core_seconds_per_million": _per_million(busy_cores(run), metrics.average_fps),
        "energy_per_million": _per_million(metrics.processor_watts, metrics.average_fps, 1e-3),
    }


def busy_cores(run: Run) -> float | None:
    """The mean number of cores that a run kept busy; None where it is not known."""
    if run.metrics.busy_cores is not None:
        return run.metrics.busy_cores
    # Earlier versions recorded the share of the cores alone; of how many is known only of a run with its own machine.
    cores, percent = number(run.hardware.get("usable_cores")), run.metrics.cpu_percent
    known = cores is not None and percent is not None and not run.jobs_beside and not nodes_of(run.hardware)
    return percent / 100 * cores if known and percent is not None and cores is not None else None


def _per_million(rate: float | None, fps: float | None, unit: float = 1.0) -> float | None:
    """What a million steps take of something that is used at this rate per second."""
    return rate * unit * 1e6 / fps if rate is not None and fps else None


def group_curves(runs: Sequence[Run], quiet: Sequence[Run], seed: int) -> dict[str, Curve]:
    """All curves of a group, those over time of its `quiet` runs; those for which a run has no data are left out."""
    found = {
        name: mean_curve([maker(run.history) for run in (quiet if "hours" in name else runs)], seed)
        for name, maker in _CURVES.items()
    }
    return {name: curve for name, curve in found.items() if curve is not None}


def seed_curves(runs: Sequence[Run], quiet: Sequence[Run], drawn: Collection[str]) -> dict[str, tuple[SeedCurve, ...]]:
    """For each curve that is not `drawn` as a mean over all seeds: those of the single seeds that have data."""
    found = {}
    for name in [name for name in _CURVES if name not in drawn]:
        alone = [
            (run.seed, mean_curve([_CURVES[name](run.history)], 0)) for run in (quiet if "hours" in name else runs)
        ]
        found[name] = tuple((seed, curve) for seed, curve in alone if curve is not None)
    return {name: curves for name, curves in found.items() if curves}


def _speed(history: History) -> tuple[Array, Array]:
    """Steps per second in equal stretches of time, over the middle of each in hours."""
    time, step = np.append(0.0, history.time), np.append(0.0, history.step)
    edges = np.linspace(0, time[-1], min(_WINDOWS, len(history)) + 1)
    if time[-1] == 0:
        return np.empty(0), np.empty(0)
    speed = np.diff(np.interp(edges, time, step)) / np.diff(edges)
    return (edges[1:] + edges[:-1]) / 7200, speed


def _smooth(values: Array) -> Array:
    """A running mean over a hundredth of the run, over what is there at the ends and around gaps."""
    width = len(values) // _SMOOTHING
    if width < 2:
        return values
    window = np.ones(width)
    known = np.isfinite(values)
    sums = np.convolve(np.where(known, values, 0.0), window, "same")
    counts = np.convolve(known.astype(float), window, "same")
    return np.where(known & (counts > 0), sums / np.maximum(counts, 1), np.nan)


# How each curve follows from the history of a run.
_CURVES: dict[str, Callable[[History], tuple[Array, Array]]] = {
    "reward_steps": lambda history: (history.step, history.settled_reward),
    "reward_hours": lambda history: (history.time / 3600, history.settled_reward),
    "fps_hours": _speed,
    "policy_loss_steps": lambda history: (history.step, _smooth(history.policy_loss)),
    "steps_hours": lambda history: (history.time / 3600, history.step),
}
