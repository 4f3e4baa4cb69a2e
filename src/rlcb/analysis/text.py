"""A comparison as plain text: metrics down, groups across, then the pairs and the runs that are not compared."""

import textwrap
from collections.abc import Iterator, Sequence

from rlcb.analysis.format import interval_text, mean_and_deviation, number_text, with_interval
from rlcb.analysis.metrics import METRIC, METRICS
from rlcb.analysis.records import ComparableSet, Comparison, Group, Pair
from rlcb.analysis.statistics import Summary

WIDTH = 80
RULE, LINE = "=" * WIDTH, "-" * WIDTH
_COLUMN = 28  # width of a group's column
_ACROSS = 3  # groups side by side
_MOST_PAIRS = 30  # of a metric


def comparison_text(comparison: Comparison) -> str:
    """The verdict, tables, pairs, and which runs are not compared."""
    parts = [RULE, "COMPARISON", RULE, textwrap.fill(comparison.verdict, WIDTH), ""]
    for number, one in enumerate(comparison.sets):
        parts += [*_set_lines(one, not_comparable=number > 0)]
    if comparison.excluded:
        parts += ["Not compared with the main table", LINE]
        parts += [f"{item.run} ({item.label}): {item.reason}" for item in comparison.excluded]
    return "\n".join([*parts, RULE])


def _set_lines(one: ComparableSet, not_comparable: bool) -> Iterator[str]:
    yield from (textwrap.fill(one.title, WIDTH), RULE)
    if not_comparable:
        yield from ("NOT COMPARABLE with the table above", *textwrap.wrap(one.verdict, WIDTH), LINE)
    for start in range(0, len(one.groups), _ACROSS):
        yield from (*_table(one, one.groups[start : start + _ACROSS]), "")
    yield from (f"* {line}" for line in (*_explained(one), *one.notes))
    yield ""
    for name in dict.fromkeys(pair.metric for pair in one.pairs):
        pairs = [pair for pair in one.pairs if pair.metric == name]
        yield from (f"{METRIC[name].title}: first − second [95 % interval], p, p after Holm, Hedges' g", LINE)
        yield from (_pair_line(pair) for pair in pairs[:_MOST_PAIRS])
        if len(pairs) > _MOST_PAIRS:
            yield f"… {len(pairs) - _MOST_PAIRS} more in comparison.json"
        yield ""


def _table(one: ComparableSet, groups: Sequence[Group]) -> Iterator[str]:
    """A row for each metric, a column for each of `groups`."""
    heads = [textwrap.wrap(group.label, _COLUMN - 2) for group in groups]
    for row in range(max(len(head) for head in heads)):
        yield _row("Metric" if row == 0 else "", [head[row] if row < len(head) else "" for head in heads])
    yield "-" * (_COLUMN * (len(groups) + 1))
    yield _row("Seeds", [_seeds(group) for group in groups])
    for metric in METRICS:
        if any(group.metrics[metric.name].n for group in one.groups) or metric.name == "final_reward":
            yield _row(metric.title, [mean_and_deviation(group, metric.name) for group in groups])
        if metric.name == "final_reward":
            rewards = [group.metrics[metric.name] for group in groups]
            yield _row("  95 % interval", [interval_text(reward.interval, metric.form) for reward in rewards])
            yield _row("  interquartile mean", [_iqm(reward, metric.form) for reward in rewards])
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


def _iqm(summary: Summary, form: str) -> str:
    return with_interval(number_text(summary.iqm, form), summary.iqm_interval, form)


def _speedup(group: Group) -> str:
    if not group.speedup:
        return "-"
    return with_interval(f"{group.speedup.value:.2f}x", group.speedup.interval, ".2f")


def _efficiency(group: Group) -> str:
    if not group.speedup or group.speedup.efficiency is None:
        return "-"
    cores = f"{group.speedup.cores} against {group.speedup.baseline_cores}"
    return f"{100 * group.speedup.efficiency:.0f} % ({cores})"


def _explained(one: ComparableSet) -> Iterator[str]:
    """What the names of the rows refer to."""
    if one.equal_steps is not None and one.equal_hours is not None:
        yield f"equal steps: {one.equal_steps:,.0f}; equal time: {one.equal_hours:.3g} hours (all runs reached both)"
    if one.threshold is not None:
        yield f"threshold: a mean reward of {one.threshold:.2f} over 100 episodes"
    if one.evaluated:
        yield f"evaluation: {one.evaluation_policy} actions"
    for group in one.groups:
        if group.speedup:
            yield f"speed-up of {group.label}: average FPS over that of {group.speedup.baseline}"


def _pair_line(pair: Pair) -> str:
    """A pair in one line."""
    form = METRIC[pair.metric].form
    names = f"{pair.first} − {pair.second}"
    if pair.difference is None:
        return f"{names}: {pair.verdict}"
    text = f"{names}: {pair.difference:+{form}}"
    if pair.interval is None or pair.p is None or pair.holm_p is None or pair.effect is None:
        return f"{text} [n/a]: {pair.verdict}"
    tested = f"p {pair.p:.2g}, {pair.holm_p:.2g}, g {pair.effect:.2f}"
    return f"{text} {interval_text(pair.interval, form)}, {tested}: {pair.verdict}"
