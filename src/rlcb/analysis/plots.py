"""Pictures of comparisons: curves, bars and the four panels; drawn on white for screen and paper."""

import io
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rlcb.analysis.records import Group
from rlcb.analysis.statistics import Array, Curve, Summary

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's colours, which people with any kind of colour vision can tell apart, without the yellow.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_STYLES = ("-", "--", ":", "-.")
MOST_CURVES = len(COLOURS) * len(_STYLES)
_ACTIVITIES = {
    "learning": "#0072B2", "acting": "#56B4E9", "env": "#009E73", "allreduce": "#E69F00", "waiting": "#D55E00",
    "other": "#999999",
}  # fmt: skip
IMAGE_FORMATS = (".png", ".svg", ".pdf")
_DOTS = 150  # per inch
_INK, _FAINT, _ON_BRIGHT = "#222222", "#DDDDDD", "#1A1A1A"
_DARK = ("#0072B2", "#D55E00", "#009E73", "#000000", "#666666")  # colours to write on in white


@dataclass(frozen=True, eq=False)
class Reference:
    """A curve from elsewhere to draw beside ours."""

    label: str
    steps: Array
    reward: Array


def figure_four_panels(groups: Sequence[Group], title: str) -> "Figure":
    """Reward over steps, speed over time, policy loss over steps, steps over time."""
    drawn = groups[:MOST_CURVES]
    rows = _legend_rows(drawn)
    figure = _new_figure(11, 7.6 + 0.24 * rows)
    axes = figure.subplots(2, 2)
    panels = (
        (axes[0, 0], "reward_steps", "Episode reward", "Mean reward of the last 100 episodes"),
        (axes[0, 1], "fps_hours", "Training speed", "Environment steps per second"),
        (axes[1, 0], "policy_loss_steps", "Policy loss", "Policy loss"),
        (axes[1, 1], "steps_hours", "Training progress", "Environment steps"),
    )
    for axis, curve, heading, label in panels:
        _draw_curves(axis, drawn, curve)
        axis.set_title(heading, fontsize=11, color=_INK)
        axis.set_ylabel(label)
        if curve in ("fps_hours", "steps_hours"):
            axis.set_ylim(bottom=0)
    axes[0, 1].yaxis.set_major_formatter("{x:,.0f}")
    _scale_steps(axes[1, 1], "y")
    _finish(figure, groups, title, rows)
    return figure


def figure_learning_curves(
    groups: Sequence[Group],
    title: str,
    over: str = "steps",
    reference: Reference | None = None,
    colours: Mapping[str, int] | None = None,
) -> "Figure":
    """Reward `over` steps or hours, with intervals over seeds, and a dashed reference where there is one.

    `colours`: the number of each label's colour, here and below, where it is not that of its place.
    """
    drawn = groups[:MOST_CURVES]
    rows = _legend_rows(drawn)
    figure = _new_figure(8, 4.6 + 0.24 * rows)
    axis = figure.subplots()
    _draw_curves(axis, drawn, f"reward_{over}", reference if over == "steps" else None, colours)
    axis.set_ylabel("Mean reward of the last 100 episodes")
    _finish(figure, groups, title, rows)
    return figure


def figure_fps(groups: Sequence[Group], title: str, colours: Mapping[str, int] | None = None) -> "Figure":
    """Average speed as bars, with intervals over seeds."""
    figure, axis = _bars(groups, title)
    for (place, group), number in zip(enumerate(groups), _numbers(groups, colours), strict=True):
        summary = group.metrics["average_fps"]
        if summary.mean is not None:
            axis.barh(place, summary.mean, color=_colour(number), height=0.6, alpha=0.85)
            axis.errorbar(summary.mean, place, xerr=_errors(summary), color=_INK, capsize=3)
            end = summary.interval[1] if summary.interval else summary.mean
            axis.annotate(f"{summary.mean:,.0f}", (end, place), (6, 0), textcoords="offset points", va="center")
    axis.set_xlabel("Environment steps per second (bars: mean, lines: 95 % interval over seeds)")
    axis.margins(x=0.15)
    axis.set_xlim(left=0)
    axis.xaxis.set_major_formatter("{x:,.0f}")
    return figure


def figure_time_shares(groups: Sequence[Group], title: str) -> "Figure":
    """Where the time of each group went, in percent."""
    figure, axis = _bars(groups, title, extra=0.4)
    names = dict.fromkeys([*_ACTIVITIES, *(name for group in groups for name in group.time_shares)])
    left = np.zeros(len(groups))
    spare = iter(COLOURS[3:4] + COLOURS[6:])
    for name in names:
        shares = np.array([100 * group.time_shares.get(name, 0.0) for group in groups])
        if not shares.any():
            continue
        colour = _ACTIVITIES.get(name) or next(spare, "#666666")
        axis.barh(range(len(groups)), shares, left=left, color=colour, label=name, height=0.6, edgecolor="white")
        for place, share in enumerate(shares):
            if share >= 6:
                where, ink = (left[place] + share / 2, place), "white" if colour in _DARK else _ON_BRIGHT
                axis.annotate(f"{share:.0f} %", where, ha="center", va="center", color=ink, fontsize=9)
        left += shares
    axis.set_xlim(0, 100)
    axis.set_xlabel("Share of the training time (%)")
    figure.legend(loc="outside lower center", ncols=6, frameon=False)
    return figure


def figure_evaluation(groups: Sequence[Group], title: str, colours: Mapping[str, int] | None = None) -> "Figure":
    """Evaluated reward on training levels (filled) and unseen ones (hollow), with intervals over seeds."""
    figure, axis = _bars(groups, title, extra=0.4 + 0.2 * len(groups))
    rows = ((-0.16, "evaluation_train", "training levels"), (0.16, "evaluation_unseen", "unseen levels"))
    numbers = _numbers(groups, colours)
    for offset, metric, label in rows:
        mark: dict[str, Any] = {"fmt": "o"} if offset < 0 else {"fmt": "D", "markerfacecolor": "none"}
        for (place, group), number in zip(enumerate(groups), numbers, strict=True):
            summary = group.metrics[metric]
            if summary.mean is None:
                continue
            where = (summary.mean, place + offset)
            axis.errorbar(*where, xerr=_errors(summary), color=_colour(number), capsize=4, markersize=7, **mark)
            axis.annotate(
                f"{summary.mean:.2f}", where, (0, 7 if offset < 0 else -7),
                textcoords="offset points", ha="center", va="bottom" if offset < 0 else "top", fontsize=9,
            )  # fmt: skip
        if any(group.metrics[metric].n for group in groups):
            axis.errorbar([], [], color=_INK, markersize=7, label=label, **mark)
    axis.margins(x=0.12)
    axis.set_ylim(len(groups) - 0.4, -0.6)
    axis.set_xlabel("Mean reward per episode (lines: 95 % interval over seeds)")
    if axis.get_legend_handles_labels()[0]:
        figure.legend(loc="outside lower center", ncols=2, frameon=False)
    return figure


def as_image(figure: "Figure", form: str = ".png") -> bytes:
    """A figure as the bytes of a file of one of IMAGE_FORMATS."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format=form.removeprefix("."), dpi=_DOTS)
    return buffer.getvalue()


def _new_figure(width: float, height: float) -> "Figure":
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    layout = ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.1)
    figure = Figure(figsize=(width, height), layout=layout, facecolor="white")
    FigureCanvasAgg(figure)
    return figure


def _style(axis: "Axes") -> None:
    axis.grid(color=_FAINT, linewidth=0.8)
    axis.set_axisbelow(True)
    axis.spines[["top", "right"]].set_visible(False)
    axis.tick_params(colors=_INK, labelsize=9)


def _numbers(groups: Sequence[Group], colours: Mapping[str, int] | None) -> list[int]:
    """The number of each group's colour: as told, else that of its place."""
    return [(colours or {}).get(group.label, place) for place, group in enumerate(groups)]


def _colour(number: int) -> str:
    return COLOURS[number % len(COLOURS)]


def _draw_curves(
    axis: "Axes",
    groups: Sequence[Group],
    name: str,
    reference: Reference | None = None,
    colours: Mapping[str, int] | None = None,
) -> None:
    """Every group's curve with its band; the horizontal axis gets a unit that suits its length."""
    _style(axis)
    numbered = zip(_numbers(groups, colours), groups, strict=True)
    curves = [(number, group, group.curves[name]) for number, group in numbered if name in group.curves]
    if not curves:
        axis.text(0.5, 0.5, "no data", transform=axis.transAxes, ha="center", va="center", color="#777777")
    steps = name.endswith("_steps")
    end = max((float(curve.x[-1]) for _, _, curve in curves), default=0.0)
    unit, label = (1.0, "Environment steps") if steps else _time_unit(end)
    for number, group, curve in curves:
        style = _STYLES[number // len(COLOURS) % len(_STYLES)]
        look: dict[str, Any] = {"color": _colour(number), "linestyle": style}
        mark = "o" if len(curve.x) == 1 else ""
        axis.plot(curve.x * unit, curve.mean, linewidth=1.7, marker=mark, label=_text(group.label), **look)
        if curve.n > 1:
            _band(axis, curve, unit, look["color"])
    if reference is not None and curves:
        near = reference.steps <= 1.02 * end
        axis.plot(reference.steps[near], reference.reward[near], "--", color="#777777", label=_text(reference.label))
    axis.set_xlabel(label)
    axis.set_xlim(left=0)
    if steps:
        _scale_steps(axis, "x")


def _band(axis: "Axes", curve: Curve, unit: float, colour: str) -> None:
    # Where all seeds agree exactly there is no interval; the band then is as thin as the line.
    low, high = (np.where(np.isfinite(bound), bound, curve.mean) for bound in (curve.low, curve.high))
    axis.fill_between(curve.x * unit, low, high, color=colour, alpha=0.18, linewidth=0)


def _time_unit(hours: float) -> tuple[float, str]:
    if hours >= 2:
        return 1.0, "Wall-clock time (hours)"
    if hours >= 1 / 20:
        return 60.0, "Wall-clock time (minutes)"
    return 3600.0, "Wall-clock time (seconds)"


def _scale_steps(axis: "Axes", which: str) -> None:
    """Steps with k and M instead of many zeros."""
    from matplotlib.ticker import EngFormatter

    (axis.xaxis if which == "x" else axis.yaxis).set_major_formatter(EngFormatter(sep=" "))


def _legend_rows(groups: Sequence[Group]) -> int:
    longest = max((len(_text(group.label)) for group in groups), default=1)
    return -(-len(groups) // max(1, min(4, 110 // (longest + 8))))


def _finish(figure: "Figure", groups: Sequence[Group], title: str, rows: int) -> None:
    """Title on top, one legend for all panels below."""
    drawn = groups[:MOST_CURVES]
    if len(groups) > len(drawn):
        title = f"{title} (the first {len(drawn)} of {len(groups)} groups)"
    several = any(len(group.runs) > 1 for group in drawn)
    subtitle = "\nlines: mean over seeds, bands: 95 % interval" if several else ""
    width = int(figure.get_figwidth() * 9)
    figure.suptitle(textwrap.fill(_text(title, 300), width) + subtitle, fontsize=12, color=_INK)
    found: dict[str, Any] = {}
    for axis in figure.axes:
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True):
            found.setdefault(label, handle)
    if found:
        figure.legend(
            list(found.values()), list(found), loc="outside lower center", ncols=-(-len(found) // rows), frameon=False
        )


def _bars(groups: Sequence[Group], title: str, extra: float = 0.0) -> tuple["Figure", "Axes"]:
    """A figure with a row for each group, the first on top."""
    figure = _new_figure(8, 1.7 + extra + 0.55 * len(groups))
    axis = figure.subplots()
    _style(axis)
    axis.set_yticks(range(len(groups)), [textwrap.fill(_text(group.label, 80), 30) for group in groups])
    axis.set_ylim(len(groups) - 0.4, -0.6)
    axis.grid(visible=False, axis="y")
    figure.suptitle(textwrap.fill(_text(title, 300), 80), fontsize=12, color=_INK)
    return figure, axis


def _errors(summary: Summary) -> Any:
    """The interval as matplotlib wants it, None where there is none."""
    if summary.interval is None or summary.mean is None:
        return None
    return [[summary.mean - summary.interval[0]], [summary.interval[1] - summary.mean]]


def _text(label: str, longest: int = 60) -> str:
    """A label that matplotlib shows as it is: no formulas, and nothing that would hide it from a legend."""
    short = label if len(label) <= longest else label[: longest - 1] + "…"
    return short.replace("$", r"\$").lstrip("_")
