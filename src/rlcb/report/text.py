"""A comparison as plain text: what `rlcb compare` prints and writes to comparison_report.txt."""

import textwrap
from collections.abc import Iterator, Sequence

from rlcb.analysis.format import interval_text, mean_and_deviation, number_text, with_interval
from rlcb.analysis.metrics import METRICS
from rlcb.analysis.records import ComparableSet, Comparison, Group
from rlcb.report.render import render

_COLUMN = 28  # width of a group's column
_ACROSS = 3  # groups side by side


def comparison_text(comparison: Comparison) -> str:
    """The verdict, tables, pairs, and which runs are not compared."""
    tables = []
    for one in comparison.sets:
        parts = [one.groups[start : start + _ACROSS] for start in range(0, len(one.groups), _ACROSS)]
        tables.append(["\n".join(_table(one, groups)) for groups in parts])
    return render("comparison.txt", comparison=comparison, tables=tables, metrics=METRICS)


def _table(one: ComparableSet, groups: Sequence[Group]) -> Iterator[str]:
    """A row for each metric, a column for each of `groups`."""
    heads = [textwrap.wrap(group.label, _COLUMN - 2) for group in groups]
    for row in range(max(len(head) for head in heads)):
        yield _row("Metric" if row == 0 else "", [head[row] if row < len(head) else "" for head in heads])
    yield "-" * (_COLUMN * (len(groups) + 1))
    yield _row("Seeds", [_seeds(group) for group in groups])
    for metric in METRICS:
        summaries = [group.metrics[metric.name] for group in groups]
        if any(group.metrics[metric.name].n for group in one.groups) or metric.name == "final_reward":
            yield _row(metric.title, [mean_and_deviation(group, metric.name) for group in groups])
        if metric.name == "final_reward":
            iqms = [(number_text(reward.iqm, metric.form), reward.iqm_interval) for reward in summaries]
            yield _row("  95 % interval", [interval_text(reward.interval, metric.form) for reward in summaries])
            yield _row("  interquartile mean", [with_interval(*iqm, metric.form) for iqm in iqms])
    if any(group.speedup for group in one.groups):
        yield _row("Speed-up", [_speedup(group) for group in groups])
        yield _row("Efficiency per core", [_efficiency(group) for group in groups])


def _row(title: str, cells: Sequence[str]) -> str:
    return "".join(f"{text:<{_COLUMN}}" for text in (title, *cells)).rstrip()


def _seeds(group: Group) -> str:
    seeds = ", ".join(str(seed) for seed in group.seeds[:4]) + (", …" if len(group.seeds) > 4 else "")
    text = f"{len(group.runs)} ({seeds})" if group.runs else "0"
    if group.failed:
        text += f", {len(group.failed)} failed" + ("" if group.valid else ": INVALID")
    return text


def _speedup(group: Group) -> str:
    if not group.speedup:
        return "-"
    return with_interval(f"{group.speedup.value:.2f}x", group.speedup.interval, ".2f")


def _efficiency(group: Group) -> str:
    if not group.speedup or group.speedup.efficiency is None:
        return "-"
    cores = f"{group.speedup.cores} against {group.speedup.baseline_cores}"
    return f"{100 * group.speedup.efficiency:.0f} % ({cores})"
