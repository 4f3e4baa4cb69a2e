"""Comparisons as text: the table of two runs, their report, and the tables of any number of groups."""

import textwrap
from collections.abc import Iterator, Sequence

from rlcb.analysis.records import METRIC, METRICS, ComparableSet, Comparison, Group, Pair

WIDTH = 80
_RULE, _LINE = "=" * WIDTH, "-" * WIDTH
_COLUMN = 28  # width of a group's column
_ACROSS = 3  # groups side by side
_MOST_PAIRS = 30  # of a metric, on screen


def comparison_text(comparison: Comparison) -> str:
    """Everything for a person: what it shows, tables, pairs, and which runs are not compared."""
    parts = [_RULE, "COMPARISON", _RULE, textwrap.fill(comparison.verdict, WIDTH), ""]
    for number, one in enumerate(comparison.sets):
        parts += [_set_text(one, not_comparable=number > 0)]
    if comparison.excluded:
        parts += ["Not compared with the main table", _LINE]
        parts += [f"{item.run} ({item.label}): {item.reason}" for item in comparison.excluded]
    return "\n".join([*parts, _RULE])


def _set_text(one: ComparableSet, not_comparable: bool) -> str:
    parts = [textwrap.fill(one.title, WIDTH), _RULE]
    if not_comparable:
        parts += ["NOT COMPARABLE with the table above", *textwrap.wrap(one.verdict, WIDTH), _LINE]
    for start in range(0, len(one.groups), _ACROSS):
        parts += [*_block(one, one.groups[start : start + _ACROSS]), ""]
    parts += [f"* {line}" for line in _explained(one)]
    parts += [f"* {note}" for note in one.notes] + [""]
    for name in dict.fromkeys(pair.metric for pair in one.pairs):
        pairs = [pair for pair in one.pairs if pair.metric == name]
        parts += [f"{METRIC[name].title}: first − second [95 % interval], p, p after Holm, Hedges' g", _LINE]
        parts += [pair_line(pair) for pair in pairs[:_MOST_PAIRS]]
        parts += [f"… {len(pairs) - _MOST_PAIRS} more in comparison.json"] if len(pairs) > _MOST_PAIRS else []
        parts += [""]
    return "\n".join(parts)


def _block(one: ComparableSet, groups: Sequence[Group]) -> Iterator[str]:
    """Metrics down, groups across."""
    heads = [textwrap.wrap(group.label, _COLUMN - 2) for group in groups]
    for row in range(max(len(head) for head in heads)):
        yield _row("Metric" if row == 0 else "", [head[row] if row < len(head) else "" for head in heads])
    yield "-" * (_COLUMN * (len(groups) + 1))
    yield _row("Seeds", [_seeds(group) for group in groups])
    for metric in METRICS:
        cells = [cell(group, metric.name) for group in groups]
        if any(group.metrics[metric.name].n for group in one.groups) or metric.name == "final_reward":
            yield _row(metric.title, cells)
        if metric.name == "final_reward":
            yield _row("  95 % interval", [_interval(group.metrics["final_reward"].interval) for group in groups])
            yield _row("  interquartile mean", [_iqm(group) for group in groups])
    if any(group.speedup for group in one.groups):
        yield _row("Speed-up", [_speedup(group) for group in groups])
        yield _row("Efficiency per core", [_efficiency(group) for group in groups])


def _row(title: str, cells: Sequence[str]) -> str:
    return "".join(f"{text:<{_COLUMN}}" for text in (title, *cells)).rstrip()


def cell(group: Group, metric: str) -> str:
    """One group's figure: mean ± deviation over seeds, and how many seeds have it if not all do."""
    summary, form = group.metrics[metric], METRIC[metric].form
    count = len(group.runs)
    some = f" ({summary.n} of {count})" if 0 < summary.n < count else ""
    if summary.mean is None:
        return f"n/a{some}"
    spread = f" ± {summary.std:{form}}" if summary.std is not None else ""
    return f"{summary.mean:{form}}{spread}{some}"


def _seeds(group: Group) -> str:
    seeds = ", ".join(str(seed) for seed in group.seeds[:4]) + (", …" if len(group.seeds) > 4 else "")
    text = f"{len(group.runs)} ({seeds})" if group.runs else "0"
    if group.failed:
        text += f", {len(group.failed)} failed" + ("" if group.valid else ": INVALID")
    return text


def _interval(interval: tuple[float, float] | None) -> str:
    return f"[{interval[0]:.2f}, {interval[1]:.2f}]" if interval else "n/a"


def _iqm(group: Group) -> str:
    summary = group.metrics["final_reward"]
    if summary.iqm is None:
        return "n/a"
    return f"{summary.iqm:.2f} {_interval(summary.iqm_interval) if summary.iqm_interval else ''}".rstrip()


def _speedup(group: Group) -> str:
    speedup = group.speedup
    if not speedup:
        return "-"
    return f"{speedup.value:.2f}x" + (f" {_interval(speedup.interval)}" if speedup.interval else "")


def _efficiency(group: Group) -> str:
    if not group.speedup or group.speedup.efficiency is None:
        return "-"
    cores = f"{group.speedup.cores} against {group.speedup.baseline_cores}"
    return f"{100 * group.speedup.efficiency:.0f} % ({cores})"


def _explained(one: ComparableSet) -> Iterator[str]:
    """What the table's words refer to."""
    if one.equal_steps is not None and one.equal_hours is not None:
        yield f"equal steps: {one.equal_steps:,.0f}; equal time: {one.equal_hours:.3g} hours (all runs reached both)"
    if one.threshold is not None:
        yield f"threshold: a mean reward of {one.threshold:.2f} over 100 episodes"
    if any(group.metrics[name].n for group in one.groups for name in ("evaluation_train", "evaluation_unseen")):
        yield f"evaluation: {one.evaluation_policy} actions"
    for group in one.groups:
        if group.speedup:
            yield f"speed-up of {group.label}: average FPS over that of {group.speedup.baseline}"


def pair_line(pair: Pair) -> str:
    """A pair in one line."""
    form = METRIC[pair.metric].form
    names = f"{pair.first} − {pair.second}"
    if pair.difference is None:
        return f"{names}: {pair.verdict}"
    signed = form.replace(",", "+,") if "," in form else f"+{form}"
    text = f"{names}: {pair.difference:{signed}}"
    if pair.interval is None or pair.p is None or pair.holm_p is None or pair.effect is None:
        return f"{text} [n/a]: {pair.verdict}"
    low, high = pair.interval
    tested = f"[{low:{form}}, {high:{form}}], p {pair.p:.2g}, {pair.holm_p:.2g}, g {pair.effect:.2f}"
    return f"{text} {tested}: {pair.verdict}"
