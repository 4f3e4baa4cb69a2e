"""The tables of the report about sets and their groups."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from rlcb.analysis.format import (
    interval_text,
    known_seeds,
    listed,
    metric_text,
    number_text,
    p_text,
    setting_text,
    signed_text,
    with_minus,
)
from rlcb.analysis.metrics import METRIC
from rlcb.analysis.records import NOT_SHOWN, ComparableSet, GameScores, Group, Pair
from rlcb.analysis.statistics import Interval
from rlcb.analysis.untrusted import plain
from rlcb.report.document import Block, Cell, Table, Text, cells

Column = tuple[str, Callable[[Group], Cell]]  # its title, and its cell for a group
_EVALUATION = ("evaluation_train", "evaluation_unseen", "generalization_gap")
_MOST_DIFFERENCES = 12  # settings beside each other


def summary_table(one: ComparableSet) -> Table:
    """A row for each group with the most important metrics."""
    evaluated = [name for name in _EVALUATION if any(group.metrics[name].n for group in one.groups)]
    speedups = [f" Speed-up of {group.label}: over {group.speedup.baseline}." for group in one.groups if group.speedup]
    columns: list[Column] = [
        ("Seeds", _seeds),
        _metric_column("final_reward"),
        ("Final reward, IQM", _iqm),
        _metric_column("average_fps"),
        *([("Speed-up", _speedup)] if speedups else []),
        *(_metric_column(name) for name in ("peak_memory_gb", *evaluated)),
    ]
    caption = "Means over seeds with 95 % intervals in brackets." + "".join(speedups)
    if evaluated:
        caption += f" Evaluation with {one.evaluation_policy} actions."
    return _group_table(caption, one.groups, columns)


def evaluation_table(one: ComparableSet) -> Table:
    """Evaluated rewards and the gap between training levels and unseen ones."""
    columns: list[Column] = [("Seeds", lambda group: Cell(str(max(group.metrics[name].n for name in _EVALUATION))))]
    titles = ("Training levels", "Unseen levels", "Gap")
    columns += [_metric_column(name, title) for name, title in zip(_EVALUATION, titles, strict=True)]
    caption = f"Mean reward per episode of the trained policies, {one.evaluation_policy} actions, with 95 % intervals "
    return _group_table(caption + "over seeds. Gap: training minus unseen levels, seed by seed.", one.groups, columns)


def reaching_table(one: ComparableSet) -> Table | None:
    """Steps and hours to the threshold."""
    if one.threshold is None:
        return None
    columns: list[Column] = [
        ("Seeds that got there", lambda group: Cell(f"{group.metrics['steps_to_reward'].n} of {len(group.runs)}")),
        _metric_column("steps_to_reward", "Steps"),
        _metric_column("hours_to_reward", "Hours"),
    ]
    caption = f"To a mean reward of {one.threshold:.2f} over 100 episodes. A mean is given only where all seeds got "
    return _group_table(caption + "there: leaving out those that did not would flatter.", one.groups, columns)


def difference_blocks(one: ComparableSet) -> Iterator[Block]:
    """The settings that distinguish the groups."""
    known = dict.fromkeys(key for group in one.groups for key in group.settings)
    keys = [key for key in known if len({_setting(group.settings, key) for group in one.groups}) > 1]
    if not keys:
        yield Text("One group: nothing to tell apart." if len(one.groups) == 1 else "The groups differ in their mode.")
        return
    columns = [_setting_column(key) for key in keys[:_MOST_DIFFERENCES]]
    yield _group_table("Settings in which groups differ.", one.groups, columns)
    if len(keys) > _MOST_DIFFERENCES:
        yield Text(f"They differ further in: {', '.join(plain(key) for key in keys[_MOST_DIFFERENCES:])}.")


def _group_table(caption: str, groups: Sequence[Group], columns: Sequence[Column]) -> Table:
    """A row for each group, its name first."""
    rows = tuple((group_name(group.label), *(make(group) for _, make in columns)) for group in groups)
    return Table(caption, ("Group", *(title for title, _ in columns)), rows)


def group_name(label: str) -> Cell:
    """The name of a group, marked with its colour."""
    return Cell(label, group=True)


def _metric_column(metric: str, title: str = "") -> Column:
    return title or METRIC[metric].title, lambda group: _metric_cell(group, metric)


def _metric_cell(group: Group, metric: str) -> Cell:
    found = _interval_cell(metric_text(group, metric), group.metrics[metric].interval, METRIC[metric].form)
    return Cell(found.text, "\n".join(part for part in (found.detail, known_seeds(group, metric)) if part))


def _interval_cell(text: str, interval: Interval | None, form: str) -> Cell:
    """A value with its interval; one that is n/a has none."""
    if text == "n/a":
        return Cell(text)
    return Cell(with_minus(text), with_minus(interval_text(interval, form)) if interval else "[n/a]")


def _seeds(group: Group) -> Cell:
    failed = f"{len(group.failed)} failed" + ("" if group.valid else ": invalid") if group.failed else ""
    return Cell(str(len(group.runs)), failed)


def _iqm(group: Group) -> Cell:
    reward = group.metrics["final_reward"]
    return _interval_cell(number_text(reward.iqm, ".2f"), reward.iqm_interval, ".2f")


def _speedup(group: Group) -> Cell:
    if not group.speedup:
        return Cell("–")
    return _interval_cell(f"{group.speedup.value:.2f}×", group.speedup.interval, ".2f")


def _setting_column(key: str) -> Column:
    return plain(key), lambda group: Cell(_setting(group.settings, key))


def _setting(settings: Mapping[str, Any], key: str) -> str:
    return setting_text(settings[key]) if key in settings else "–"


def set_table(sets: Sequence[ComparableSet]) -> Table:
    """A row for each set."""
    rows = []
    for number, one in enumerate(sets, 1):
        winners = [winner_cell(one, name) for name in ("average_fps", one.reward_metric)]
        count = sum(len(group.runs) for group in one.groups)
        rows.append(cells(f"{number}. {one.title}", str(count), *winners, METRIC[one.reward_metric].title))
    caption = "What was compared, and who is ahead where that can be told; runs of different sets are never pooled."
    heads = ("Set", "Runs", "Winner in speed", "Winner in reward", "Reward")
    return Table(caption, heads, tuple(rows), "lrlll")


def game_table(scores: GameScores) -> Table:
    """A row for each group with its normalised scores over games."""
    count = len(scores.games)
    rows = []
    for one in scores.groups:
        row = [group_name(one.group), Cell(f"{len(one.scores)} of {count}")]
        for value, interval in ((one.mean, one.mean_interval), (one.iqm, one.iqm_interval)):
            known = value is not None
            row.append(_interval_cell(f"{value:.2f}", interval, ".2f") if known else Cell("n/a", "not all games"))
        rows.append(tuple(row))
    word = "final reward" if scores.metric == "final_reward" else "evaluation on unseen levels"
    caption = f"Normalised score over {count} games ({', '.join(scores.games)}; {scores.levels}): {word}, "
    caption += "0 for a policy that sees nothing, 1 for the published maximum, with 95 % intervals. "
    caption += "Mean: of the games’ means; IQM: of all seeds of all games."
    return Table(caption, ("Group", "Games", "Mean", "IQM"), tuple(rows))


def winner_table(one: ComparableSet) -> Table:
    """The winner on each metric that pairs are tested on, where there is one."""
    rows = []
    for name in dict.fromkeys(pair.metric for pair in one.pairs):
        if best := _best(one, name):
            value = _metric_cell(best, name)
            rows.append(cells(METRIC[name].title, group_name(best.label), value, winner_cell(one, name)))
    caption = "A group wins only where the interval of its difference from every other group leaves zero out, after "
    caption += "correction for the number of pairs."
    return Table(caption, ("Metric", "Best mean", "Value", "Winner"), tuple(rows), "llrl")


def _best(one: ComparableSet, metric: str) -> Group | None:
    means = [(group.metrics[metric].mean, group) for group in one.measured]
    known = [(mean if METRIC[metric].higher_is_better else -mean, group) for mean, group in means if mean is not None]
    return max(known, key=lambda item: item[0])[1] if known else None


def winner_cell(one: ComparableSet, metric: str) -> Cell:
    """The winner on a metric, or why there is none."""
    best = _best(one, metric)
    pairs = [pair for pair in one.pairs if best and pair.metric == metric and best.label in (pair.first, pair.second)]
    if not best or not pairs:
        return Cell("n/a (nothing to compare)")
    if all(pair.winner == best.label for pair in pairs):
        return Cell(best.label, group=True, strong=True)
    level = [pair for pair in pairs if NOT_SHOWN in pair.verdict]
    untested = [pair for pair in pairs if pair.winner is None and pair not in level]
    names = [pair.other(best.label) for pair in level]
    others = listed(names) if len(names) in (1, 2) else f"{len(names)} others"
    parts = [NOT_SHOWN if len(level) == len(pairs) else f"{NOT_SHOWN} from {others}"] if level else []
    parts += [untested[0].verdict if len(untested) == len(pairs) else f"{len(untested)} not tested"] if untested else []
    return Cell("; ".join(parts))


def pair_table(one: ComparableSet, most: int) -> Table | None:
    """All pairs on all metrics; of more than `most` on a metric those with the lowest p; None without pairs."""
    shown: list[Pair] = []
    count = 0
    for name in dict.fromkeys(pair.metric for pair in one.pairs):
        pairs = [pair for pair in one.pairs if pair.metric == name]
        count = max(count, len(pairs))
        if len(pairs) > most:
            pairs = sorted(pairs, key=lambda pair: (pair.holm_p is None, pair.holm_p or 0.0))[:most]
        shown += pairs
    if not shown:
        return None
    caption = "Welch’s test on the seeds’ values, with Holm’s correction for all pairs of a metric."
    if count > most:
        caption += f" The {most} clearest of {count:,} pairs for each metric; comparison.json has all of them."
    heads = ("Metric", "First − second", "Difference", "95 % interval", "p", "p (Holm)", "Hedges’ g", "Verdict")
    return Table(caption, heads, tuple(_pair_row(pair) for pair in shown), "llrrrrrl")


def _pair_row(pair: Pair) -> tuple[Cell, ...]:
    form = METRIC[pair.metric].form
    numbers = [
        signed_text(pair.difference, form),
        interval_text(pair.interval, form).strip("[]"),
        p_text(pair.p),
        p_text(pair.holm_p),
        number_text(pair.effect, ".2f"),
    ]
    verdict = Cell(pair.verdict, strong=pair.winner is not None)
    names = f"{pair.first}\n− {pair.second}"
    return cells(METRIC[pair.metric].title, names, *(with_minus(text) for text in numbers), verdict)
