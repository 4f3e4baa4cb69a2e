"""The pictures of one comparable set, with captions and alternative texts; as PNG and as SVG in the page's colours."""

import io
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING
from xml.etree import ElementTree

import numpy as np
from numpy.typing import NDArray

from rlcb.analysis import plots
from rlcb.analysis.published import SOURCE, PublishedCurve, published_curve
from rlcb.analysis.records import ComparableSet, Group
from rlcb.analysis.statistics import Curve
from rlcb.analysis.text import mean_and_interval, over_seeds, sentence
from rlcb.report.charts import reward_views
from rlcb.report.document import Picture, View
from rlcb.words import reward_text, with_deviation

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_LINK = "{http://www.w3.org/1999/xlink}href"
_DROPPED = ("metadata", "style", "title")  # the style of a figure would apply to the whole page
# Text and grid take their colours from the page; the colours of the groups stay.
_THEMED = {"#222222": "currentColor", "#000000": "currentColor", "#dddddd": "var(--grid)"}
_GEOMETRY = ("d", "x", "y", "width", "height", "transform", "viewBox")


@dataclass(frozen=True)
class SetPictures:
    """Draws the pictures of a set; what has no data has no picture."""

    one: ComparableSet
    prefix: str  # of the names of the files
    colours: Mapping[str, int]  # the number of each group's colour
    points: int  # of a curve, at most

    def learning(self) -> Iterator[Picture]:
        """Reward over steps and over time."""
        groups = [thinned(group, self.points) for group in self._drawn]
        means = [group.curves["reward_steps"] for group in groups if "reward_steps" in group.curves]
        curves = means + [curve for group in groups for _, curve in group.seed_curves.get("reward_steps", ())]
        if not curves:
            return
        published = _published(self.one)
        several = any(curve.n > 1 for curve in means)
        notes = ["Lines: mean over seeds; bands: 95 % interval." if several else sentence(over_seeds(groups))]
        notes = notes if means else []
        without = [group.label for group in groups if "reward_steps" not in group.curves]
        if without:
            names = ", ".join(without)
            notes.append(f"No mean, because a seed has no reward: {names}; single seeds are drawn instead.")
        about = _about(published, max(float(curve.x[-1]) for curve in curves)) if published else ""
        task = f"{self.one.env}, {self.one.levels}" if self.one.levels else self.one.env
        captions = {
            "steps": f"Mean reward of the last 100 episodes. {' '.join(notes)}{about}",
            "time": f"The same reward over wall-clock time. {' '.join(notes)}",
        }
        for name, caption in captions.items():
            title = f"{task}: reward over {name}"
            figure = plots.figure_learning_curves(groups, title, name, published, self.colours)
            alt = f"Reward over {name}; final reward: {_values(groups, 'final_reward')}"
            first = name == "steps"
            views = reward_views(groups, self.colours, published) if first else ()
            yield self._picture(f"reward_{name}", figure, alt, caption, views, covered=not first)

    def fps(self) -> Iterator[Picture]:
        """The speed of each group."""
        groups = [group for group in self._drawn if group.metrics["average_fps"].n]
        if groups:
            figure = plots.figure_fps(groups, f"{self.one.env}: training speed", self.colours)
            caption = f"Environment steps per second of the whole training loop, {over_seeds(groups)}."
            if any(group.jobs_beside for group in groups):
                caption += " Shared: other runs of the suite used the machine at the same time."
            if any(group.unjudged == "disturbed" for group in groups):
                caption += " Disturbed: other programs used the cores at the same time."
            yield self._picture("fps", figure, f"Average FPS: {_values(groups, 'average_fps')}", caption)

    def time(self) -> Iterator[Picture]:
        """The shares of the training time."""
        groups = [group for group in self._drawn if group.time_shares]
        if groups:
            shares = [[f"{name} {100 * part:.0f} %" for name, part in one.time_shares.items()] for one in groups]
            values = "; ".join(f"{one.label}: {', '.join(parts)}" for one, parts in zip(groups, shares, strict=True))
            figure = plots.figure_time_shares(groups, f"{self.one.env}: where the time goes")
            caption = f"Shares of the training time, {over_seeds(groups)}; for parallel runs, mean over workers."
            yield self._picture("time", figure, f"Where the time goes. {values}", caption)

    def evaluation(self) -> Iterator[Picture]:
        """Evaluated rewards, on training levels and on unseen ones where there are levels."""
        names = ("evaluation_train", "evaluation_unseen")
        groups = [group for group in self._drawn if any(group.metrics[name].n for name in names)]
        if groups:
            title = f"{self.one.env}: evaluation after training"
            figure = plots.figure_evaluation(groups, title, self.colours, levels=bool(self.one.levels))
            caption = "Episodes that the trained policies played after training."
            alt = f"Evaluated reward: {_values(groups, names[0])}"
            if self.one.levels:
                caption = "Filled: training levels; hollow: levels never seen in training. The distance "
                caption += f"between them is the generalisation gap.{_published_gap(self.one)}"
                alt = f"Evaluated reward on unseen levels: {_values(groups, names[1])}"
            yield self._picture("evaluation", figure, alt, caption)

    @property
    def _drawn(self) -> list[Group]:
        return self.one.measured[: plots.MOST_CURVES]

    def _picture(
        self,
        name: str,
        figure: "Figure",
        alt: str,
        caption: str,
        views: tuple[View, ...] = (),
        covered: bool = False,
    ) -> Picture:
        count = len(self.one.measured)
        caption += (
            f" Only the first {plots.MOST_CURVES} of {count} groups are drawn." if count > plots.MOST_CURVES else ""
        )
        name = f"{self.prefix}_{name}"
        svg = inline_svg(figure, name, alt)
        return Picture(name, alt, caption, svg, lambda: plots.as_image(figure), views, covered)


def _published(one: ComparableSet, unseen: bool = False) -> PublishedCurve | None:
    """The published curve of a set's task, if there is one."""
    run = one.measured[0].runs[0]
    return published_curve(run.game, run.distribution_mode, run.num_levels, run.start_level, unseen)


def _about(published: PublishedCurve, end: float) -> str:
    """The part of a caption that explains the published curve; `end`: the last step of our own curves."""
    end = min(end, float(published.steps[-1]))
    value = published.at(end)
    if value is None or not len(published.up_to(end)[0]) > 1:
        return f" The published PPO curve ({SOURCE}) begins at {published.steps[0]:,.0f} steps, later than these runs."
    where = f"at {end:,.0f} steps it reaches {' '.join(with_deviation(*value))}"
    note = "Its network, number of environments and machine may differ, so compare over steps, not over time."
    return f" Dashed grey: published PPO ({SOURCE}; mean of 3 runs, {published.protocol}); {where}. {note}"


def _published_gap(one: ComparableSet) -> str:
    """The part of a caption that compares the gap with the published one."""
    seen, unseen = (_published(one, unseen=which) for which in (False, True))
    at = one.equal_steps
    means = [curve.at(at) if curve and at is not None else None for curve in (seen, unseen)]
    if at is None or means[0] is None or means[1] is None:
        return ""
    both = f"{reward_text(means[0][0])} on training and {reward_text(means[1][0])} on unseen levels"
    return f" Published PPO ({SOURCE}) has {both} after {at:,.0f} steps."


def thinned(group: Group, points: int) -> Group:
    """The group with at most this many points of each curve, its first, last, highest and lowest ones included."""
    single = {
        name: tuple((seed, _thinned(curve, points)) for seed, curve in curves)
        for name, curves in group.seed_curves.items()
    }
    curves = {name: _thinned(curve, points) for name, curve in group.curves.items()}
    return replace(group, curves=curves, seed_curves=single)


def _thinned(curve: Curve, points: int) -> Curve:
    if len(curve.x) <= points:
        return curve
    kept = kept_points(curve.mean, points)
    return Curve(curve.x[kept], curve.mean[kept], curve.low[kept], curve.high[kept], curve.n)


def kept_points(values: NDArray[np.float64], points: int) -> NDArray[np.intp]:
    """Places of at most this many values (4 or more): first, last, and the lowest and highest of equal stretches."""
    edges = np.linspace(0, len(values), (points - 2) // 2 + 1).astype(int)
    known = np.isfinite(values)
    low, high = np.where(known, values, np.inf), np.where(known, values, -np.inf)
    kept = {0, len(values) - 1}
    for start, end in itertools.pairwise(edges):
        if start < end:
            kept |= {start + int(low[start:end].argmin()), start + int(high[start:end].argmax())}
    return np.array(sorted(kept))


def _values(groups: Sequence[Group], metric: str) -> str:
    return ", ".join(f"{group.label} {mean_and_interval(group, metric)}" for group in groups)


def inline_svg(figure: "Figure", name: str, alt: str) -> str:
    """A figure as an <svg> element without background; `name` makes its ids differ from those of other figures."""
    import matplotlib as mpl

    buffer = io.BytesIO()
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": name}):
        figure.savefig(buffer, format="svg", transparent=True)
    root = ElementTree.fromstring(buffer.getvalue())
    nodes = list(root.iter())
    linked = {found for node in nodes for value in node.attrib.values() for found in re.findall(r"#([\w-]+)", value)}
    for node in nodes:
        for child in list(node):
            if child.tag.rpartition("}")[2] in _DROPPED:
                node.remove(child)
        node.tag, node.tail = node.tag.rpartition("}")[2], None
        node.text = node.text if node.tag == "text" else None
        kept = {key: value for key, value in node.attrib.items() if key != "id" or value in linked}
        node.attrib = {"href" if key == _LINK else key: _tidy(key, value) for key, value in kept.items()}
    root.attrib = {"viewBox": root.attrib["viewBox"], "role": "img", "aria-label": alt}
    return ElementTree.tostring(root, encoding="unicode")


def _tidy(key: str, value: str) -> str:
    """An attribute with shorter numbers, and without colours and fonts that the page sets."""
    if key in _GEOMETRY:
        value = re.sub(r"-?\d+\.\d+", lambda match: f"{float(match[0]):.1f}".removesuffix(".0"), value)
        return re.sub(r"\s*([MLCQzZ])\s*", r"\1", value) if key == "d" else value
    if key == "style":
        value = re.sub(r"#[0-9a-f]{6}\b", lambda match: _THEMED.get(match[0], match[0]), value)
        return re.sub(r"font-family: [^;]*;? ?", "", value).replace(": ", ":").replace("; ", ";")
    return value
