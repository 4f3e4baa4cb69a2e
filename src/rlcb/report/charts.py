"""The data of the interactive charts: rewards over steps and time, performance profiles."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from rlcb.analysis import plots, statistics
from rlcb.analysis.game_records import LATE, GameScores
from rlcb.analysis.game_text import TITLES
from rlcb.analysis.published import PublishedCurve
from rlcb.analysis.records import Group
from rlcb.report.document import Curve, View

_DIGITS = 6  # of each number, more than any reader needs
Colours = Mapping[str, int]  # the number of each group's colour, by its label


def reward_views(groups: Sequence[Group], colours: Colours, published: PublishedCurve | None) -> tuple[View, ...]:
    """Reward over steps, with the published curve if there is one, and over time."""
    by_steps, by_time = (_curves(groups, colours, *over) for over in (("reward_steps", 1.0), ("reward_hours", 3600.0)))
    end = max((curve.x[-1] for curve in by_steps), default=0.0)
    if published and len(published.up_to(end)[0]) > 1:
        x, mean = published.up_to(end)
        by_steps.append(Curve("PPO (published)", -1, _known(x), _numbers(mean)))
    views = [
        View("Over steps", "Environment steps", plots.REWARD, "number", tuple(by_steps)),
        View("Over time", "Wall-clock time", plots.REWARD, "time", tuple(by_time)),
    ]
    return tuple(view for view in views if view.curves)


def profile_views(scores: GameScores, colours: Colours) -> tuple[View, ...]:
    """The share of runs above each normalised score, a view for each metric but the late reward."""
    shown = [found for found in scores.metrics if found.metric != LATE] or scores.metrics
    views = []
    for found in shown:
        curves = []
        for one in found.groups[: plots.MOST_CURVES]:
            drawn = one.profile
            bounds = None if drawn.low is None or drawn.high is None else (_numbers(drawn.low), _numbers(drawn.high))
            x, share = _known(np.asarray(drawn.thresholds)), _numbers(np.asarray(drawn.share))
            curves.append(Curve(one.group, colours[one.group], x, share, *(bounds or ())))
        views.append(View(TITLES[found.metric], "Normalised score τ", "Share of runs above τ", "number", tuple(curves)))
    return tuple(views)


def _curves(groups: Sequence[Group], colours: Colours, name: str, scale: float) -> list[Curve]:
    """The mean curves of groups, and those of single seeds where there is no mean over all of them."""
    found = []
    for group in groups:
        colour = colours[group.label]
        if name in group.curves:
            found.append(_curve(group.label, colour, group.curves[name], scale))
        for seed, curve in group.seed_curves.get(name, ()):
            found.append(_curve(f"{group.label}, seed {seed}", colour, curve, scale))
    return found


def _curve(label: str, colour: int, curve: statistics.Curve, scale: float = 1.0) -> Curve:
    """A group's curve; where all seeds have the same value there is no interval, so its bounds are the mean."""
    x, mean = _known(curve.x * scale), _numbers(curve.mean)
    if curve.n < 2:
        return Curve(label, colour, x, mean)
    low, high = (np.where(np.isfinite(bound), bound, curve.mean) for bound in (curve.low, curve.high))
    return Curve(label, colour, x, mean, _numbers(low), _numbers(high))


def _known(values: NDArray[np.float64]) -> list[float]:
    return [_short(value) for value in values]


def _numbers(values: NDArray[np.float64]) -> list[float | None]:
    return [_short(value) if np.isfinite(value) else None for value in values]


def _short(value: float) -> float:
    """A number with few digits, whole where it is whole."""
    rounded = float(f"{value:.{_DIGITS}g}")
    return int(rounded) if rounded.is_integer() else rounded
