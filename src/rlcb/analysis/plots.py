"""Figures of comparisons: curves, bars and the four panels, drawn on white for screen and paper."""

import io
import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from rlcb.analysis.published import PublishedCurve
from rlcb.analysis.records import Group
from rlcb.analysis.statistics import Summary
from rlcb.analysis.text import interval_label, metric_text
from rlcb.analysis.unjudged import speed_mark

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's colours, which people with any kind of colour vision can tell apart, without the yellow.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
STYLES = ("-", "--", ":", "-.")
MOST_CURVES = len(COLOURS) * len(STYLES)
_ACTIVITIES = {
    "learning": "#0072B2", "acting": "#56B4E9", "env": "#009E73", "allreduce": "#E69F00", "waiting": "#D55E00",
    "other": "#999999",
}  # fmt: skip
IMAGE_FORMATS = (".png", ".svg", ".pdf")
_DOTS = 150  # per inch
INK, _FAINT, GREY, _ON_BRIGHT = "#222222", "#DDDDDD", "#777777", "#1A1A1A"
_DARK = ("#0072B2", "#D55E00", "#009E73", "#000000", "#666666")  # colours to write on in white
_SPREAD = "lines: mean over seeds, bands: 95 % interval"
_SINGLE = "; thin lines: single seeds, where another seed has no value"
REWARD = "Mean reward of the last 100 episodes"
# Curve, title and label of each panel.
_FOUR_PANELS = (
    ("reward_steps", "Episode reward", REWARD),
    ("fps_hours", "Training speed", "Environment steps per second"),
    ("policy_loss_steps", "Policy loss", "Policy loss"),
    ("steps_hours", "Training progress", "Environment steps"),
)
_TIME_UNITS = ((2, 1.0, "hours"), (1 / 20, 60.0, "minutes"), (0, 3600.0, "seconds"))  # from this many hours on
_MACHINE_MARKS = {"shared": "shared machine", "disturbed": "disturbed", "machine unknown": "external: machine unknown"}
Colours = Mapping[str, int]  # the number of each group's colour, by its label


def figure_four_panels(groups: Sequence[Group], title: str) -> "Figure":
    """Reward over steps, speed over time, policy loss over steps, steps over time."""
    figure = new_figure(11, 7.6)
    axes = figure.subplots(2, 2)
    for axis, (curve, heading, label) in zip(axes.flat, _FOUR_PANELS, strict=True):
        draw_curves(axis, groups, curve, label, _by_position(groups))
        if curve in ("fps_hours", "steps_hours"):
            axis.set_ylim(bottom=0)
        marks = sorted({group.unjudged for group in groups if group.unjudged}) if "hours" in curve else []
        mark = f" ({', '.join(_MACHINE_MARKS[mark] for mark in marks)})" if marks else ""
        axis.set_title(heading + mark, fontsize=11, color=INK)
    axes[0, 1].yaxis.set_major_formatter("{x:,.0f}")
    _scale_steps(axes[1, 1].yaxis)
    finish(figure, groups, title)
    return figure


def figure_learning_curves(
    groups: Sequence[Group],
    title: str,
    over: str = "steps",
    published: PublishedCurve | None = None,
    colours: Colours | None = None,
) -> "Figure":
    """Reward `over` steps or time, with intervals over seeds, and over steps the published curve if there is one."""
    figure = new_figure(8, 4.6)
    axis = figure.subplots()
    curve = "reward_steps" if over == "steps" else "reward_hours"
    end = draw_curves(axis, groups, curve, REWARD, colours or _by_position(groups))
    if published and over == "steps" and len(published.up_to(end)[0]) > 1:
        axis.plot(*published.up_to(end), "--", color=GREY, label="PPO (published)")
    finish(figure, groups, title)
    return figure


def figure_fps(groups: Sequence[Group], title: str, colours: Colours | None = None) -> "Figure":
    """Average speed as bars, with intervals."""
    figure, axis = _bars(groups, title)
    colours = colours or _by_position(groups)
    for place, group in enumerate(groups):
        summary = group.metrics["average_fps"]
        if summary.mean is not None:
            axis.barh(place, summary.mean, color=group_colour(colours[group.label]), height=0.6, alpha=0.85)
            axis.errorbar(summary.mean, place, xerr=_errors(summary), color=INK, capsize=3)
            end = summary.interval[1] if summary.interval else summary.mean
            text = f"{metric_text(group, 'average_fps')} {speed_mark(group, 'average_fps')}".rstrip()
            axis.annotate(text, (end, place), (6, 0), textcoords="offset points", va="center")
    axis.set_xlabel(f"Environment steps per second ({interval_label(groups, ['average_fps'])})")
    axis.margins(x=0.15)
    axis.set_xlim(left=0)
    axis.xaxis.set_major_formatter("{x:,.0f}")
    return figure


def figure_time_shares(groups: Sequence[Group], title: str) -> "Figure":
    """The share of each group's time that each activity took, in percent."""
    figure, axis = _bars(groups, title, extra=0.4)
    names = dict.fromkeys([*_ACTIVITIES, *(name for group in groups for name in group.time_shares)])
    left = np.zeros(len(groups))
    spare = iter(COLOURS[3:4] + COLOURS[6:])
    for name in names:
        shares = np.array([100 * group.time_shares.get(name, 0.0) for group in groups])
        if not shares.any():
            continue
        colour = _ACTIVITIES.get(name) or next(spare, "#666666")
        ink = "white" if colour in _DARK else _ON_BRIGHT
        axis.barh(range(len(groups)), shares, left=left, color=colour, label=name, height=0.6, edgecolor="white")
        for place, share in enumerate(shares):
            if share >= 6:
                where = (left[place] + share / 2, place)
                axis.annotate(f"{share:.0f} %", where, ha="center", va="center", color=ink, fontsize=9)
        left += shares
    axis.set_xlim(0, 100)
    axis.set_xlabel("Share of the training time (%)")
    figure.legend(loc="outside lower center", ncols=6, frameon=False)
    return figure


def figure_evaluation(
    groups: Sequence[Group], title: str, colours: Colours | None = None, levels: bool = True
) -> "Figure":
    """Evaluated reward with intervals: on training levels (filled) and unseen ones (hollow), where there are levels."""
    figure, axis = _bars(groups, title, extra=0.4 + 0.2 * len(groups))
    rows: tuple[tuple[float, str, str, dict[str, Any]], ...] = (
        (-0.16, "evaluation_train", "training levels", {"fmt": "o"}),
        (0.16, "evaluation_unseen", "unseen levels", {"fmt": "D", "markerfacecolor": "none"}),
    )
    rows = rows if levels else ((0.0, "evaluation_train", "", {"fmt": "o"}),)
    colours = colours or _by_position(groups)
    for offset, metric, label, mark in rows:
        side, text_offset = ("bottom", 7) if offset <= 0 else ("top", -7)
        text_look: dict[str, Any] = {"textcoords": "offset points", "ha": "center", "va": side, "fontsize": 9}
        for place, group in enumerate(groups):
            summary = group.metrics[metric]
            if summary.mean is not None:
                where, look = (summary.mean, place + offset), {"capsize": 4, "markersize": 7, **mark}
                axis.errorbar(*where, xerr=_errors(summary), color=group_colour(colours[group.label]), **look)
                axis.annotate(metric_text(group, metric), where, (0, text_offset), **text_look)
        if label and any(group.metrics[metric].n for group in groups):
            axis.errorbar([], [], color=INK, markersize=7, label=label, **mark)
    axis.margins(x=0.12)
    axis.set_ylim(len(groups) - 0.4, -0.6)
    axis.set_xlabel(f"Mean reward per episode ({interval_label(groups, [metric for _, metric, _, _ in rows])})")
    if axis.get_legend_handles_labels()[0]:
        figure.legend(loc="outside lower center", ncols=2, frameon=False)
    return figure


def as_image(figure: "Figure", form: str = ".png") -> bytes:
    """The content of an image file of one of IMAGE_FORMATS."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format=form.removeprefix("."), dpi=_DOTS)
    return buffer.getvalue()


def new_figure(width: float, height: float) -> "Figure":
    """An empty figure of this many inches."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    layout = ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.1)
    figure = Figure(figsize=(width, height), layout=layout, facecolor="white")
    FigureCanvasAgg(figure)
    return figure


def style_axis(axis: "Axes") -> None:
    """A faint grid, and no frame on the right and on top."""
    axis.grid(color=_FAINT, linewidth=0.8)
    axis.set_axisbelow(True)
    axis.spines[["top", "right"]].set_visible(False)
    axis.tick_params(colors=INK, labelsize=9)


def _by_position(groups: Sequence[Group]) -> Colours:
    return {group.label: place for place, group in enumerate(groups)}


def group_colour(number: int) -> str:
    """The colour with this number; they repeat."""
    return COLOURS[number % len(COLOURS)]


def draw_curves(axis: "Axes", groups: Sequence[Group], name: str, label: str, colours: Colours) -> float:
    """Draw the curves of the groups with their bands; returns the end of the longest."""
    style_axis(axis)
    curves = [(colours[g.label], g, g.curves[name]) for g in groups[:MOST_CURVES] if name in g.curves]
    single = [(colours[g.label], g, curve) for g in groups[:MOST_CURVES] for _, curve in g.seed_curves.get(name, ())]
    if not curves and not single:
        axis.text(0.5, 0.5, "no data", transform=axis.transAxes, ha="center", va="center", color=GREY)
        axis.set_xticks([])
        axis.set_yticks([])
    end = max((float(curve.x[-1]) for _, _, curve in curves + single), default=0.0)
    unit, unit_name = next((scale, text) for least, scale, text in _TIME_UNITS if end >= least)
    if name.endswith("_steps"):
        unit = 1.0
        _scale_steps(axis.xaxis)
    for number, group, curve in curves + single:
        style = STYLES[number // len(COLOURS) % len(STYLES)]
        mark = "o" if len(curve.x) == 1 else ""
        look: dict[str, Any] = {"color": group_colour(number), "linestyle": style, "marker": mark}
        width = 1.7 if name in group.curves else 0.8
        axis.plot(curve.x * unit, curve.mean, label=label_text(group.label), linewidth=width, **look)
        if curve.n > 1:
            # Where all seeds have the same value there is no interval: the band has no width there.
            low, high = (np.where(np.isfinite(bound), bound, curve.mean) for bound in (curve.low, curve.high))
            axis.fill_between(curve.x * unit, low, high, color=look["color"], alpha=0.18, linewidth=0)
    axis.set_xlabel("Environment steps" if name.endswith("_steps") else f"Wall-clock time ({unit_name})")
    axis.set_ylabel(label)
    axis.set_xlim(left=0)
    return end


def _scale_steps(axis: Any) -> None:
    """Numbers of steps with k and M instead of many zeros."""
    from matplotlib.ticker import EngFormatter

    axis.set_major_formatter(EngFormatter(sep=" "))


def finish(figure: "Figure", groups: Sequence[Group], title: str, spread: str = _SPREAD) -> None:
    """Title on top, one legend for all panels below, with room for its rows; `spread`: what shows several seeds."""
    drawn = groups[:MOST_CURVES]
    longest = max((len(label_text(group.label)) for group in drawn), default=1)
    rows = -(-len(drawn) // max(1, min(4, 110 // (longest + 8))))
    figure.set_figheight(figure.get_figheight() + 0.24 * rows)
    if len(groups) > len(drawn):
        title = f"{title} (the first {len(drawn)} of {len(groups)} groups)"
    several = any(len(group.runs) > 1 for group in drawn)
    single = _SINGLE if spread == _SPREAD and any(group.seed_curves for group in drawn) else ""
    subtitle = f"\n{spread}{single}" if several else ""
    width = int(figure.get_figwidth() * 9)
    figure.suptitle(textwrap.fill(label_text(title, 300), width) + subtitle, fontsize=12, color=INK)
    found: dict[str, Any] = {}
    for axis in figure.axes:
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True):
            found.setdefault(label, handle)
    if found:
        columns = -(-len(found) // rows)
        figure.legend(list(found.values()), list(found), loc="outside lower center", ncols=columns, frameon=False)


def _bars(groups: Sequence[Group], title: str, extra: float = 0.0) -> tuple["Figure", "Axes"]:
    """A figure with a row for each group, the first on top."""
    figure = new_figure(8, 1.7 + extra + 0.55 * len(groups))
    axis = figure.subplots()
    style_axis(axis)
    axis.set_yticks(range(len(groups)), [textwrap.fill(label_text(group.label, 80), 30) for group in groups])
    axis.set_ylim(len(groups) - 0.4, -0.6)
    axis.grid(visible=False, axis="y")
    figure.suptitle(textwrap.fill(label_text(title, 300), 80), fontsize=12, color=INK)
    return figure, axis


def _errors(summary: Summary) -> Any:
    """The interval as matplotlib expects it, None where there is none."""
    if summary.interval is None or summary.mean is None:
        return None
    return [[summary.mean - summary.interval[0]], [summary.interval[1] - summary.mean]]


def label_text(label: str, longest: int = 60) -> str:
    """A label without formulas, and without the leading underscores that hide a label from a legend."""
    short = label if len(label) <= longest else label[: longest - 1] + "…"
    return short.replace("$", r"\$").lstrip("_")
