"""Figures over several games: a small plot for each game, and performance profiles."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rlcb.analysis.game_records import LATE, GameScores
from rlcb.analysis.game_text import TITLES
from rlcb.analysis.plots import (
    COLOURS,
    GREY,
    INK,
    MOST_CURVES,
    STYLES,
    Colours,
    draw_curves,
    finish,
    group_colour,
    label_text,
    new_figure,
    style_axis,
)
from rlcb.analysis.published import PublishedCurve
from rlcb.analysis.records import ComparableSet, Group

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MOST_COLUMNS = 4


def figure_games(
    sets: Sequence[ComparableSet], title: str, published: Mapping[str, PublishedCurve], colours: Colours
) -> "Figure":
    """Reward over steps in a small plot for each game, with the game's published curve where there is one."""
    columns = min(_MOST_COLUMNS, len(sets))
    rows = -(-len(sets) // columns)
    figure = new_figure(max(2.9 * columns, 8.0), 2.1 * rows + 1.0)
    axes = figure.subplots(rows, columns, squeeze=False)
    for place, axis in enumerate(axes.flat):
        if place >= len(sets):
            axis.set_visible(False)
            continue
        one = sets[place]
        end = draw_curves(axis, one.measured, "reward_steps", "", colours)
        curve = published.get(one.env)
        if curve and len(curve.up_to(end)[0]) > 1:
            axis.plot(*curve.up_to(end), "--", color=GREY, label="PPO (published)")
        axis.set_title(one.env, fontsize=10, color=INK)
        if place + columns < len(sets):  # there is a plot below it
            axis.set_xlabel("")
        axis.tick_params(labelsize=8)
    figure.supylabel("Mean reward of the last 100 episodes", fontsize=10, color=INK)
    finish(figure, all_groups(sets), title)
    return figure


def figure_profiles(scores: GameScores, sets: Sequence[ComparableSet], title: str, colours: Colours) -> "Figure":
    """The share of runs with a normalised score above each threshold, in a panel per metric but the late reward."""
    drawn_metrics = [found for found in scores.metrics if found.metric != LATE] or scores.metrics
    figure = new_figure(max(3.7 * len(drawn_metrics), 8.0), 4.2)
    axes = figure.subplots(1, len(drawn_metrics), squeeze=False)
    for axis, found in zip(axes.flat, drawn_metrics, strict=True):
        style_axis(axis)
        for one in found.groups[:MOST_CURVES]:
            number, drawn = colours[one.group], one.profile
            style = STYLES[number // len(COLOURS) % len(STYLES)]
            look: dict[str, Any] = {"color": group_colour(number), "linestyle": style, "linewidth": 1.7}
            axis.plot(drawn.thresholds, drawn.share, label=label_text(one.group), **look)
            if drawn.low is not None and drawn.high is not None:
                axis.fill_between(drawn.thresholds, drawn.low, drawn.high, color=look["color"], alpha=0.18, linewidth=0)
        axis.set_title(TITLES[found.metric], fontsize=10, color=INK)
        axis.set_xlabel("Normalised score τ")
        axis.set_ylim(-0.02, 1.02)
    axes[0, 0].set_ylabel("Share of runs above τ")
    finish(figure, all_groups(sets), title, "bands: pointwise 95 % intervals")
    return figure


def all_groups(sets: Sequence[ComparableSet]) -> list[Group]:
    """A group of each name, in the order in which they appear."""
    found: dict[str, Group] = {}
    for one in sets:
        for group in one.measured:
            found.setdefault(group.label, group)
    return list(found.values())
