"""When runs first reached levels of reward: the levels of a comparison, and each run's steps and time."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rlcb.analysis.published import published_curve
from rlcb.analysis.run import Run
from rlcb.analysis.statistics import Array, first_reaching

PUBLISHED = "published"  # stands for the levels of the published curve of a game
_PUBLISHED_STEPS = (250_000, 500_000, 1_000_000, 2_000_000, 5_000_000)
_DIGITS = 2  # of published rewards

Wanted = float | str  # a level as it is asked for: a reward, or PUBLISHED
Threshold = Wanted | Sequence[Wanted] | None


@dataclass(frozen=True)
class RewardLevel:
    """A mean reward of 500 episodes that runs may reach."""

    reward: float
    published_steps: tuple[int, ...] = ()  # after which the published curve has it; empty for a level that was given


@dataclass(frozen=True)
class Reached:
    """When the runs of a group first reached a level; None for a run that did not, or whose time is unknown."""

    level: RewardLevel
    steps: tuple[float | None, ...]  # of each run
    hours: tuple[float | None, ...]
    mean_steps: float | None  # this and the next: only where all runs reached it
    mean_hours: float | None  # of the undisturbed runs, or of all where each was disturbed

    @property
    def count(self) -> int:
        """How many runs reached it."""
        return sum(steps is not None for steps in self.steps)


def wanted_levels(threshold: Threshold) -> tuple[Wanted, ...]:
    """The levels that are asked for, each once."""
    if threshold is None:
        return ()
    return (threshold,) if isinstance(threshold, float | int | str) else tuple(dict.fromkeys(threshold))


def single_threshold(threshold: Threshold) -> float | None:
    """The threshold, if exactly one reward is asked for."""
    wanted = wanted_levels(threshold)
    return float(wanted[0]) if len(wanted) == 1 and wanted[0] != PUBLISHED else None


def levels_for(runs: Sequence[Run], threshold: Threshold) -> tuple[tuple[RewardLevel, ...], str]:
    """The levels of runs of one task, and why there are no published ones if these are wanted."""
    wanted = wanted_levels(threshold)
    if not runs or single_threshold(threshold) is not None:
        return (), ""
    found = (published_levels(run.game, run.distribution_mode, run.num_levels, run.start_level) for run in runs)
    published = next((levels for levels in found if levels), ()) if PUBLISHED in wanted else ()
    task = runs[0].task
    trained_on = f"{task.env}, {task.levels}" if task.levels else task.env
    unknown = f"there is no published PPO curve for {trained_on}, so no published levels"
    return with_published(wanted, published), unknown if PUBLISHED in wanted and not published else ""


def with_published(wanted: Sequence[Wanted], published: Sequence[RewardLevel]) -> tuple[RewardLevel, ...]:
    """The wanted levels from the lowest on, with the published ones in place of the word that stands for them."""
    levels = {float(level): RewardLevel(float(level)) for level in wanted if level != PUBLISHED}
    levels |= {level.reward: level for level in published if PUBLISHED in wanted}
    return tuple(levels[reward] for reward in sorted(levels))


def published_levels(
    game: str, distribution_mode: str | None, num_levels: int | None, start_level: int | None
) -> tuple[RewardLevel, ...]:
    """The rewards of the published curve of a task after some numbers of steps; none where there is no curve."""
    curve = published_curve(game, distribution_mode, num_levels, start_level)
    found: dict[float, tuple[int, ...]] = {}
    for steps in _PUBLISHED_STEPS:
        if curve and (point := curve.at(steps)):
            reward = round(point[0], _DIGITS)
            found[reward] = (*found.get(reward, ()), steps)
    return tuple(RewardLevel(reward, found[reward]) for reward in sorted(found))


def reach(runs: Sequence[Run], levels: Sequence[RewardLevel]) -> tuple[Reached, ...]:
    """When the runs of a group reached each level."""
    quiet = [not run.disturbed for run in runs]
    counts = quiet if any(quiet) else [True] * len(runs)  # whether the run's time is part of the mean
    found = []
    for level in levels:
        steps = tuple(_first(run, run.history.step, level.reward) for run in runs)
        hours = tuple(_first(run, run.history.time / 3600, level.reward) for run in runs)
        timed = [time for time, included in zip(hours, counts, strict=True) if included]
        mean_steps = _mean_of_all(steps)
        mean_hours = None if mean_steps is None else _mean_of_all(timed)
        found.append(Reached(level, steps, hours, mean_steps, mean_hours))
    return tuple(found)


def _first(run: Run, x: Array, reward: float) -> float | None:
    return first_reaching(x, run.history.long_mean_reward, reward)


def _mean_of_all(values: Sequence[float | None]) -> float | None:
    """The mean, if every value is known: one over those that reached a level would favour groups that often do not."""
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known and len(known) == len(values) else None
