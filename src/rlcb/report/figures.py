"""The pictures of one comparable set, for the report."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from rlcb.analysis.plots import (
    MOST_CURVES,
    Reference,
    as_image,
    figure_evaluation,
    figure_fps,
    figure_learning_curves,
    figure_time_shares,
)
from rlcb.analysis.published import SOURCE, PublishedCurve, published_curve
from rlcb.analysis.records import ComparableSet, Group
from rlcb.analysis.statistics import Curve
from rlcb.analysis.verdict import figure as figure_text
from rlcb.report.document import Picture
from rlcb.report.svg import inline_svg
from rlcb.report.tables import Colours

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def learning_pictures(one: ComparableSet, prefix: str, colours: Colours, points: int) -> Iterator[Picture]:
    """Reward over steps and over time, with at most so many points for each curve."""
    groups = [_thinned(group, points) for group in _drawable(one)]
    curves = [group.curves["reward_steps"] for group in groups if "reward_steps" in group.curves]
    if not curves:
        return
    end = max(float(curve.x[-1]) for curve in curves)
    published = matching_curve(one)
    reference, told = _reference(published, end), _told(published, end)
    several = any(group.curves["reward_steps"].n > 1 for group in groups if "reward_steps" in group.curves)
    spread = "Lines: mean over seeds; bands: 95 % interval." if several else "One seed each, so without intervals."
    task = f"{one.env}, {one.levels}" if one.levels else one.env
    listed = _listed(groups, "final_reward")
    figure = figure_learning_curves(groups, f"{task}: reward over steps", reference=reference, colours=colours)
    missing = _without_curve(groups)
    caption = f"Mean reward of the last 100 episodes over environment steps. {spread}{missing}{told}{_left_out(one)}"
    yield _picture(figure, f"{prefix}_reward_steps", f"Reward over steps; final reward: {listed}", caption)
    figure = figure_learning_curves(groups, f"{task}: reward over time", over="hours", colours=colours)
    caption = f"The same reward over wall-clock time. {spread}{missing}{_left_out(one)}"
    yield _picture(figure, f"{prefix}_reward_time", f"Reward over time; final reward: {listed}", caption)


def fps_picture(one: ComparableSet, prefix: str, colours: Colours) -> Iterator[Picture]:
    """How fast each group is."""
    groups = [group for group in _drawable(one) if group.metrics["average_fps"].n]
    if groups:
        figure = figure_fps(groups, f"{one.env}: training speed", colours)
        caption = f"Environment steps per second of the whole training loop, mean over seeds.{_left_out(one)}"
        yield _picture(figure, f"{prefix}_fps", f"Average FPS: {_listed(groups, 'average_fps')}", caption)


def time_picture(one: ComparableSet, prefix: str) -> Iterator[Picture]:
    """Where the time went."""
    groups = [group for group in _drawable(one) if group.time_shares]
    if groups:
        shares = [", ".join(f"{name} {100 * part:.0f} %" for name, part in one.time_shares.items()) for one in groups]
        listed = "; ".join(f"{group.label}: {share}" for group, share in zip(groups, shares, strict=True))
        figure = figure_time_shares(groups, f"{one.env}: where the time went")
        caption = f"Shares of the training time, mean over seeds; of parallel runs, mean over workers.{_left_out(one)}"
        yield _picture(figure, f"{prefix}_time", f"Where the time went. {listed}", caption)


def evaluation_picture(one: ComparableSet, prefix: str, colours: Colours) -> Iterator[Picture]:
    """How the trained policies do on levels they know and on others."""
    names = ("evaluation_train", "evaluation_unseen")
    groups = [group for group in _drawable(one) if any(group.metrics[name].n for name in names)]
    if groups:
        figure = figure_evaluation(groups, f"{one.env}: evaluation after training", colours)
        caption = "Filled: levels that were trained on; hollow: levels never seen in training. The distance between "
        caption += f"them is the generalisation gap.{_published_gap(one)}{_left_out(one)}"
        alt = f"Evaluated reward on unseen levels: {_listed(groups, names[1])}"
        yield _picture(figure, f"{prefix}_evaluation", alt, caption)


def matching_curve(one: ComparableSet, unseen: bool = False) -> PublishedCurve | None:
    """The published curve of a set's task, if there is one."""
    runs = [run for group in one.groups for run in group.runs]
    if not runs:
        return None
    return published_curve(runs[0].env, runs[0].distribution_mode, runs[0].num_levels, runs[0].start_level, unseen)


def _reference(published: PublishedCurve | None, end: float) -> Reference | None:
    steps, means = published.up_to(end) if published else (np.empty(0), np.empty(0))
    return Reference("PPO as published", steps, means) if len(steps) > 1 else None


def _told(published: PublishedCurve | None, end: float) -> str:
    """What a reader should know about the published curve."""
    if published is None:
        return ""
    value = published.at(min(end, float(published.steps[-1])))
    if value is None or not len(published.up_to(end)[0]) > 1:
        return f" The published PPO curve ({SOURCE}) begins at {published.steps[0]:,.0f} steps, after these runs."
    where = f"at {min(end, float(published.steps[-1])):,.0f} steps it is at {value[0]:.2f} ± {value[1]:.2f}"
    note = "Its network, number of environments and machine may be others, so compare by steps, never by time."
    return f" Dashed grey: PPO as published ({SOURCE}; mean of 3 runs, {published.protocol}); {where}. {note}"


def _published_gap(one: ComparableSet) -> str:
    seen, unseen = matching_curve(one), matching_curve(one, unseen=True)
    at = one.equal_steps
    if not seen or not unseen or at is None:
        return ""
    values = seen.at(at), unseen.at(at)
    if values[0] is None or values[1] is None:
        return ""
    both = f"{values[0][0]:.2f} on training and {values[1][0]:.2f} on unseen levels"
    return f" PPO as published ({SOURCE}) has {both} after {at:,.0f} steps."


def _drawable(one: ComparableSet) -> list[Group]:
    """The groups a picture has room for."""
    return [group for group in one.groups if group.runs][:MOST_CURVES]


def _thinned(group: Group, points: int) -> Group:
    return replace(group, curves={name: _thin(curve, points) for name, curve in group.curves.items()})


def _thin(curve: Curve, points: int) -> Curve:
    """At most so many points, the first and the last among them."""
    if len(curve.x) <= points:
        return curve
    kept = np.unique(np.linspace(0, len(curve.x) - 1, points).astype(int))
    return Curve(curve.x[kept], curve.mean[kept], curve.low[kept], curve.high[kept], curve.n)


def _without_curve(groups: Sequence[Group]) -> str:
    names = [group.label for group in groups if "reward_steps" not in group.curves]
    return f" Without a curve, as a seed has no reward: {', '.join(names)}." if names else ""


def _left_out(one: ComparableSet) -> str:
    count = sum(1 for group in one.groups if group.runs)
    return f" Only the first {MOST_CURVES} of {count} groups are drawn." if count > MOST_CURVES else ""


def _listed(groups: Sequence[Group], metric: str) -> str:
    return ", ".join(f"{group.label} {figure_text(group, metric)}" for group in groups)


def _picture(figure: "Figure", name: str, alt: str, caption: str) -> Picture:
    return Picture(name, alt, caption, inline_svg(figure, name, alt), as_image(figure))
