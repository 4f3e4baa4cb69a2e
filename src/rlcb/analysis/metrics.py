"""The metrics that groups are compared by: how each is printed and how it is computed for one run."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rlcb.analysis.run import WINDOW, Run
from rlcb.analysis.statistics import first_reaching, value_at

THRESHOLD = 0.8  # of the way from an untrained policy to the best group's final reward


@dataclass(frozen=True)
class Metric:
    """A metric; docs/metrics.md defines each."""

    name: str
    title: str
    form: str  # format specification of its values
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
    Metric("average_fps", "Average FPS", ",.0f", paired=True),
    Metric("final_fps", "Final FPS", ",.0f"),
    Metric("env_steps", "Steps", ",.0f"),
    Metric("duration_hours", "Duration (hours)", ".3g"),
    Metric("steps_to_reward", "Steps to threshold", ",.0f", higher_is_better=False),
    Metric("hours_to_reward", "Hours to threshold", ".3g", higher_is_better=False),
    Metric("peak_memory_gb", "Peak memory (GB)", ".2f", higher_is_better=False),
    Metric("memory_per_worker_gb", "Memory per worker (GB)", ".2f", higher_is_better=False),
)
METRIC = {metric.name: metric for metric in METRICS}
# A mean over only the seeds that reached the threshold would favour groups that often do not reach it.
NEEDS_ALL_SEEDS = ("steps_to_reward", "hours_to_reward")


@dataclass(frozen=True)
class Reference:
    """The points at which all runs of a set are measured."""

    steps: float | None  # the most steps and hours that all runs reached
    hours: float | None
    threshold: float | None
    policy: str  # of the evaluations


def reference_of(groups: Sequence[Sequence[Run]], threshold: float | None) -> Reference:
    """The reference of a set; evaluations of sampled actions, unless some run has deterministic ones alone."""
    runs = [run for group in groups for run in group]
    logs = [run.history for run in runs if len(run.history)]
    policies = [{entry.policy for entry in run.evaluations.entries if entry.complete} for run in runs]
    sampled = all("sampled" in found for found in policies if found)
    return Reference(
        steps=min((float(log.step[-1]) for log in logs), default=None),
        hours=min((float(log.time[-1]) / 3600 for log in logs), default=None),
        threshold=threshold if threshold is not None else _default_threshold(groups),
        policy="sampled" if sampled else "deterministic",
    )


def _default_threshold(groups: Sequence[Sequence[Run]]) -> float | None:
    """Most of the way from an untrained policy to the best group; None where no group improved."""
    starts = [start for group in groups for run in group if (start := run.metrics.initial_reward) is not None]
    ends = [[end for run in group if (end := run.metrics.final_reward) is not None] for group in groups]
    if not starts or not any(ends):
        return None
    start, best = float(np.mean(starts)), max(float(np.mean(rewards)) for rewards in ends if rewards)
    return start + THRESHOLD * (best - start) if best > start else None


def measure(run: Run, reference: Reference) -> dict[str, float | None]:
    """One run's value of every metric, among others that it recorded."""
    metrics, history = run.metrics, run.history
    hours = history.time / 3600
    # A mean over few episodes can reach any threshold by chance: it counts once it is over a full window.
    settled = np.where(history.episodes < WINDOW, np.nan, history.reward)
    seen, unseen = (run.evaluations.mean_reward(run.env, levels, reference.policy) for levels in ("train", "unseen"))
    memory, threshold = metrics.peak_memory_gb, reference.threshold
    return {
        **vars(metrics),
        "reward_at_equal_steps": value_at(history.step, history.reward, reference.steps) if reference.steps else None,
        "reward_at_equal_time": value_at(hours, history.reward, reference.hours) if reference.hours else None,
        "evaluation_train": seen,
        "evaluation_unseen": unseen,
        "generalization_gap": seen - unseen if seen is not None and unseen is not None else None,
        "env_steps": metrics.total_timesteps,
        "steps_to_reward": None if threshold is None else first_reaching(history.step, settled, threshold),
        "hours_to_reward": None if threshold is None else first_reaching(hours, settled, threshold),
        "memory_per_worker_gb": None if memory is None else memory / run.num_workers,
    }
