"""The tables of one comparable set, for the report."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rlcb.analysis.pairs import NOT_SHOWN
from rlcb.analysis.records import METRIC, ComparableSet, Group, Pair
from rlcb.analysis.statistics import Interval
from rlcb.analysis.untrusted import plain
from rlcb.report.document import Block, Cell, Items, Table, Text, cells

Colours = Mapping[str, int]
_EVALUATION = ("evaluation_train", "evaluation_unseen", "generalization_gap")
_TO_REWARD = ("steps_to_reward", "hours_to_reward")
_MOST_DIFFERENCES = 12  # settings beside each other


def summary_table(one: ComparableSet, colours: Colours) -> Table:
    """A row for each group with what matters most."""
    evaluated = [name for name in _EVALUATION if _known(one, name)]
    speedups = any(group.speedup for group in one.groups)
    titles = ["Group", "Seeds", "Final reward", "Final reward, IQM", "Average FPS"]
    titles += ["Speed-up"] * speedups + ["Peak memory (GB)"] + [METRIC[name].title for name in evaluated]
    rows = []
    for group in one.groups:
        reward = group.metrics["final_reward"]
        row = [name_cell(group, colours), _seeds(group), _figure(group, "final_reward")]
        row += [_with_interval(reward.iqm, reward.iqm_interval, ".2f"), _figure(group, "average_fps")]
        row += [_speedup(group)] * speedups + [_figure(group, "peak_memory_gb")]
        rows.append(cells(*row, *(_figure(group, name) for name in evaluated)))
    caption = "Means over seeds with 95 % intervals in brackets."
    for group in one.groups:
        if group.speedup:
            caption += f" Speed-up of {group.label}: over {group.speedup.baseline}."
    if evaluated:
        caption += f" Evaluation with {one.evaluation_policy} actions."
    return Table(caption, "l" + "r" * (len(titles) - 1), tuple(titles), tuple(rows))


def winner_table(one: ComparableSet, colours: Colours) -> Table:
    """Who is ahead on each metric that pairs are tested on, where that can be told."""
    rows = []
    for name in dict.fromkeys(pair.metric for pair in one.pairs):
        best = _best(one, name)
        if best is None:
            continue
        mark = winner_cell(one, name, colours)
        rows.append(cells(METRIC[name].title, name_cell(best, colours), _figure(best, name), mark))
    caption = "A group wins only where the interval of its difference from every other group leaves zero out, after "
    caption += "correction for the number of pairs."
    return Table(caption, "llrl", ("Metric", "Best mean", "Value", "Winner"), tuple(rows))


def _best(one: ComparableSet, metric: str) -> Group | None:
    means = [(group.metrics[metric].mean, group) for group in one.groups if group.runs]
    known = [(mean if METRIC[metric].higher_is_better else -mean, group) for mean, group in means if mean is not None]
    return max(known, key=lambda item: item[0])[1] if known else None


def winner_cell(one: ComparableSet, metric: str, colours: Colours) -> Cell:
    """The winner on a metric, or in words why there is none."""
    best = _best(one, metric)
    pairs = [pair for pair in one.pairs if best and pair.metric == metric and best.label in (pair.first, pair.second)]
    if not best or not pairs:
        return Cell("n/a (nothing to compare)")
    if all(pair.winner == best.label for pair in pairs):
        return Cell(best.label, colour=colours.get(best.label), strong=True)
    level = [pair for pair in pairs if NOT_SHOWN in pair.verdict]
    untested = [pair for pair in pairs if pair.winner is None and pair not in level]
    parts = [NOT_SHOWN if len(level) == len(pairs) else f"{NOT_SHOWN} from {_others(level, best)}"] if level else []
    parts += [untested[0].verdict if len(untested) == len(pairs) else f"{len(untested)} not tested"] if untested else []
    return Cell("; ".join(parts))


def _others(pairs: Sequence[Pair], group: Group) -> str:
    names = [pair.second if pair.first == group.label else pair.first for pair in pairs]
    return " and ".join(names) if len(names) < 3 else f"{len(names)} others"


def evaluation_table(one: ComparableSet, colours: Colours) -> Table:
    """Evaluated rewards and the gap between levels that were trained on and others."""
    heads = ("Group", "Seeds", "Training levels", "Unseen levels", "Gap")
    rows = [
        cells(name_cell(group, colours), str(max(group.metrics[name].n for name in _EVALUATION)),
              *(_figure(group, name) for name in _EVALUATION))
        for group in one.groups
    ]  # fmt: skip
    caption = f"Mean reward per episode of the trained policies, {one.evaluation_policy} actions, with 95 % intervals "
    return Table(caption + "over seeds. Gap: training minus unseen levels, seed by seed.", "lrrrr", heads, tuple(rows))


def pair_tables(one: ComparableSet, room: int) -> Iterator[Block]:
    """All pairs on all metrics; where more than `room` are to show on a metric, the clearest."""
    shown: list[Pair] = []
    most = 0
    for name in dict.fromkeys(pair.metric for pair in one.pairs):
        pairs = [pair for pair in one.pairs if pair.metric == name]
        most = max(most, len(pairs))
        if len(pairs) > room:
            pairs = sorted(pairs, key=lambda pair: (pair.holm_p is None, pair.holm_p or 0.0))[:room]
        shown += pairs
    caption = "Welch’s test on the seeds’ values, with Holm’s correction for all pairs of a metric."
    if most > room:
        caption += f" The {room} clearest of {most:,} pairs for each metric; comparison.json has all of them."
    heads = ("Metric", "First − second", "Difference", "95 % interval", "p", "p (Holm)", "Hedges’ g", "Verdict")
    if shown:
        yield Table(caption, "llrrrrrl", heads, tuple(_pair_row(pair) for pair in shown))


def _pair_row(pair: Pair) -> tuple[Cell, ...]:
    form = METRIC[pair.metric].form
    signed = form.replace(",", "+,") if "," in form else f"+{form}"
    numbers = [
        "n/a" if pair.difference is None else _minus(f"{pair.difference:{signed}}"),
        _span(pair.interval, form) if pair.interval else "n/a",
        *("n/a" if p is None else _chance(p) for p in (pair.p, pair.holm_p)),
        "n/a" if pair.effect is None else _minus(f"{pair.effect:.2f}"),
    ]
    verdict = Cell(pair.verdict, strong=pair.winner is not None)
    return cells(METRIC[pair.metric].title, f"{pair.first}\n− {pair.second}", *numbers, verdict)


def _chance(p: float) -> str:
    return "< 0.0001" if p < 1e-4 else f"{p:.4f}"


def reaching_table(one: ComparableSet, colours: Colours) -> Table | None:
    """Steps and hours to the threshold."""
    if one.threshold is None:
        return None
    rows = []
    for group in one.groups:
        count = f"{group.metrics['steps_to_reward'].n} of {len(group.runs)}"
        rows.append(cells(name_cell(group, colours), count, *(_figure(group, name) for name in _TO_REWARD)))
    caption = f"To a mean reward of {one.threshold:.2f} over 100 episodes. A mean is given only where all seeds got "
    heads = ("Group", "Seeds that got there", "Steps", "Hours")
    return Table(caption + "there: leaving out those that did not would flatter.", "lrrr", heads, tuple(rows))


def difference_blocks(one: ComparableSet, colours: Colours) -> Iterator[Block]:
    """The settings that tell the groups apart."""
    known = list(dict.fromkeys(key for group in one.groups for key in group.settings))
    keys = [key for key in known if len({_value(group.settings, key) for group in one.groups}) > 1]
    if not keys:
        yield Text("One group: nothing to tell apart." if len(one.groups) == 1 else "The groups differ in their mode.")
        return
    rows = [
        cells(name_cell(group, colours), *(_value(group.settings, key) for key in keys[:_MOST_DIFFERENCES]))
        for group in one.groups
    ]
    heads = ("Group", *(plain(key) for key in keys[:_MOST_DIFFERENCES]))
    yield Table("Settings in which groups differ.", "l" + "r" * (len(heads) - 1), heads, tuple(rows))
    if len(keys) > _MOST_DIFFERENCES:
        others = ", ".join(plain(key) for key in keys[_MOST_DIFFERENCES:])
        yield Text(f"They differ further in: {others}.")


def notes(one: ComparableSet) -> Iterator[Block]:
    """What a reader should know before trusting the figures."""
    if one.notes:
        yield Items(one.notes)


def _value(settings: Mapping[str, Any], key: str) -> str:
    if key not in settings:
        return "–"
    value = settings[key]
    return f"{value:g}" if isinstance(value, float) else plain(str(value))


def _known(one: ComparableSet, metric: str) -> bool:
    return any(group.metrics[metric].n for group in one.groups)


def name_cell(group: Group, colours: Colours) -> Cell:
    """A group's name with the mark of its colour."""
    return Cell(group.label, colour=colours.get(group.label))


def _seeds(group: Group) -> Cell:
    failed = f"{len(group.failed)} failed" + ("" if group.valid else ": invalid") if group.failed else ""
    return Cell(str(len(group.runs)), failed)


def _figure(group: Group, metric: str) -> Cell:
    summary, form = group.metrics[metric], METRIC[metric].form
    some = f"({summary.n} of {len(group.runs)})" if 0 < summary.n < len(group.runs) else ""
    found = _with_interval(summary.mean, summary.interval, form)
    return Cell(found.text, "\n".join(part for part in (found.detail, some) if part))


def _with_interval(value: float | None, interval: Interval | None, form: str) -> Cell:
    if value is None:
        return Cell("n/a")
    return Cell(_minus(f"{value:{form}}"), f"[{_span(interval, form)}]" if interval else "[n/a]")


def _span(interval: Sequence[float], form: str) -> str:
    return _minus(f"{interval[0]:{form}}, {interval[1]:{form}}")


def _minus(text: str) -> str:
    """With a minus sign as wide as a plus."""
    return text.replace("-", "−")


def _speedup(group: Group) -> Cell:
    if not group.speedup:
        return Cell("–")
    interval = f"[{_span(group.speedup.interval, '.2f')}]" if group.speedup.interval else "[n/a]"
    return Cell(f"{group.speedup.value:.2f}×", interval)
