"""The tables of the report about sets and their groups."""

from collections.abc import Callable, Iterator, Sequence

from rlcb.analysis.best import no_winner_text, standing
from rlcb.analysis.grouping import setting_text
from rlcb.analysis.metrics import METRIC, REWARD
from rlcb.analysis.records import ComparableSet, Comparison, Group, MachineTable, Pair
from rlcb.analysis.statistics import Interval, width_of
from rlcb.analysis.text import (
    MEASURES,
    efficiency_text,
    interval_source,
    interval_text,
    known_seeds,
    means_and_intervals,
    metric_text,
    metric_title,
    number_text,
    p_text,
    sentence,
    untested_text,
    with_minus,
)
from rlcb.analysis.unjudged import speed_mark
from rlcb.analysis.untrusted import plain
from rlcb.report.document import Block, Cell, Row, Table, Text, make_table
from rlcb.words import counted

_EVALUATION = ("evaluation_train", "evaluation_unseen", "generalization_gap")
_GPU = {  # metrics of runs on a GPU, with what the caption says of each
    "peak_gpu_memory_gb": " GPU memory: peak of PyTorch’s allocator in the learner process.",
    "gpu_percent": " GPU busy: share of time during which at least one kernel was running.",
}
_LENGTHS = {
    "Episode length, training levels": "evaluation_train_length",
    "Episode length, unseen levels": "evaluation_unseen_length",
}
_LENGTH = {"Episode length": "evaluation_train_length"}  # where there are no levels
_LEVEL_TITLES = dict(zip(("Training levels", "Unseen levels", "Gap"), _EVALUATION, strict=True))
_TITLES = {"Mean reward": "evaluation_train"}
_MOST_GROUPS = 4  # named in a cell
_MOST_DIFFERENCES = 12  # settings beside each other
Columns = dict[str, str | Callable[[Group], Cell]]  # the name of a metric, or what makes the cell of a group


def summary_table(one: ComparableSet) -> Table:
    """A row for each group with the most important metrics."""
    evaluated = [name for name in _EVALUATION if any(group.metrics[name].n for group in one.groups)]
    speedups = [f" Speed-up of {group.label}: over {group.speedup.over}." for group in one.groups if group.speedup]
    columns: Columns = {"Seeds": _seeds, "Final reward": "final_reward", "Final reward, IQM": _reward_iqm}
    late = any(group.metrics["late_reward"].n for group in one.groups)
    columns |= {METRIC["late_reward"].title: "late_reward"} if late else {}
    columns |= {"Episode length": "final_episode_length", "Average FPS": "average_fps"}
    columns |= {"Speed-up": _speedup, "Efficiency per core": _efficiency} if speedups else {}
    limited = any(group.metrics["limit_percent"].n for group in one.groups)
    columns |= {METRIC["limit_percent"].title: "limit_percent"} if limited else {}
    gpu = [name for name in _GPU if any(group.metrics[name].n for group in one.groups)]
    columns |= {metric_title(one, name): name for name in ("peak_memory_gb", *gpu, *evaluated)}
    caption = f"{means_and_intervals(one.groups)} Episode length: mean of the last 100 episodes, in steps."
    caption += "".join(speedups) + (" Efficiency: speed-up per core, with the cores used by each." if speedups else "")
    caption += " Machine limit: FPS if only environment steps, inference and gradients took time." * limited
    caption += f" {sentence(MEASURES[one.memory_measure])}" if one.memory_measure in MEASURES else ""
    caption += "".join(_GPU[name] for name in gpu)
    if evaluated:
        caption += f" Evaluation with {one.evaluation_policy} actions."
    return group_table(caption, one, columns)


def evaluation_table(one: ComparableSet) -> Table:
    """Evaluated rewards, and where there are levels the gap between training levels and unseen ones."""
    columns: Columns = {"Seeds": lambda group: Cell(str(max(group.metrics[name].n for name in _EVALUATION)))}
    titles, lengths = (_LEVEL_TITLES, _LENGTHS) if one.levels else (_TITLES, _LENGTH)
    columns |= titles
    columns |= {title: name for title, name in lengths.items() if any(group.metrics[name].n for group in one.groups)}
    caption = f"Mean reward per episode of the trained policies, {one.evaluation_policy} actions. "
    caption += means_and_intervals(one.groups)
    caption += " Gap: training minus unseen levels, paired by seed." if one.levels else ""
    return group_table(caption, one, columns)


def difference_blocks(one: ComparableSet) -> Iterator[Block]:
    """The settings that distinguish the groups; those of other programs' runs are not known."""
    groups = [group for group in one.groups if not group.external] or one.groups
    settings = [{key: setting_text(value) for key, value in group.settings.items()} for group in groups]
    known = dict.fromkeys(key for values in settings for key in values)
    keys = [key for key in known if len({values.get(key, "–") for values in settings}) > 1]
    if not keys:
        only = "The settings of only one group are known." if len(one.groups) > 1 else "There is only one group."
        yield Text("paragraph", only if len(groups) == 1 else "The groups differ only in their mode.")
        return
    labels = [group.label for group in groups]
    yield from _settings_blocks("Settings in which the groups differ.", dict(zip(labels, settings, strict=True)), keys)


def variant_blocks(one: ComparableSet) -> Iterator[Block]:
    """What each variant changes."""
    keys = list(dict.fromkeys(key for values in one.variants.values() for key in values))
    texts = {
        label: {key: setting_text(value) for key, value in values.items()} for label, values in one.variants.items()
    }
    if texts and not keys:
        yield Text("paragraph", "Only one variant, so there are no differences.")
    elif texts:
        yield from _settings_blocks("Settings in which variants of an algorithm and mode differ.", texts, keys)


def _settings_blocks(caption: str, groups: dict[str, dict[str, str]], keys: Sequence[str]) -> Iterator[Block]:
    """A row for each group with its values of some settings."""
    rows = []
    for label, values in groups.items():
        cells = {plain(key): Cell(values.get(key, "–")) for key in keys[:_MOST_DIFFERENCES]}
        rows.append({"Group": Cell(label, group=True), **cells})
    yield make_table(caption, rows)
    if others := keys[_MOST_DIFFERENCES:]:
        yield Text("paragraph", f"Further differences: {', '.join(map(plain, others))}.")


def machine_blocks(comparison: Comparison, table: MachineTable) -> Iterator[Block]:
    """A row for each group on each machine, without a winner, and where their work differs."""
    rows = []
    for number in table.sets:
        one = comparison.sets[number - 1]
        for group in one.measured:
            row = {"Machine": Cell(one.machine or "unknown"), "Group": Cell(group.label, group=True)}
            row |= {"Seeds": _seeds(group), "Average FPS": _deviation_cell(group, "average_fps")}
            row |= {"Speed-up": _speedup(group), "Efficiency per core": _efficiency(group)}
            row |= {"Peak memory (GB)": _deviation_cell(group, "peak_memory_gb", group.memory_measure)}
            row |= {"Final reward": _deviation_cell(group, "final_reward")}
            rows.append({**row, "Episode length": _deviation_cell(group, "final_episode_length")})
    task = ", ".join(text for text in (table.env, table.levels, table.budget) if text)
    caption = f"{task} on different machines: means ± standard deviations over seeds. {table.why}"
    yield make_table(caption, rows, "ll" + "r" * (len(rows[0]) - 2))
    if table.unequal_work:
        yield Text("items", [f"not the same work: {difference}" for difference in table.unequal_work])


def _deviation_cell(group: Group, metric: str, more: str = "") -> Cell:
    """A mean with its standard deviation over seeds."""
    text, found = with_minus(metric_text(group, metric)), group.metrics[metric]
    spread = "" if found.std is None else f"± {number_text(found.std, METRIC[metric].form, found.width)}"
    parts = (spread, known_seeds(group, metric), speed_mark(group, metric), more)
    return Cell(text, "\n".join(part for part in parts if part))


def set_table(sets: Sequence[ComparableSet]) -> Table:
    """A row for each set."""
    rows: list[Row] = [
        {
            "Set": f"{number}. {one.title}",
            "Runs": str(sum(len(group.runs) for group in one.groups)),
            "Groups": _named([group.label for group in one.measured]),
            "Winner in speed": _winner(one, "average_fps"),
            "Winner in reward": _winner(one, one.reward_metric),
            "Reward": METRIC[one.reward_metric].title,
        }
        for number, one in enumerate(sets, 1)
    ]
    caption = "What was compared, and which group is established to be ahead; runs of different sets are never pooled."
    return make_table(caption, rows, "lrllll")


def _named(labels: Sequence[str]) -> str:
    """Few groups by name, many by number."""
    return ",\n".join(labels) if 0 < len(labels) <= _MOST_GROUPS else counted(len(labels), "group")


def winner_table(one: ComparableSet) -> Table:
    """The winner on each metric that pairs are tested on, where there is one."""
    names = list(dict.fromkeys(pair.metric for pair in one.pairs))
    rows: list[Row] = []
    missing = []
    for name in names:
        found = standing(one, name)
        best = {"Best mean": Cell("–"), "Value": Cell("–")}
        if found.best:
            best = {"Best mean": Cell(found.best.label, group=True), "Value": _metric_cell(found.best, name)}
            missing += [f"{METRIC[name].title}: {found.missing}"] if found.missing else []
        rows.append({"Metric": METRIC[name].title, **best, "Winner": _winner(one, name)})
    caption = "A group wins only if the interval of its difference from every other group excludes zero after "
    caption += "correction for the number of pairs. Groups with missing seeds are not ranked."
    return make_table(caption + (f" Not ranked: {'; '.join(missing)}." if missing else ""), rows, "llrl")


def _winner(one: ComparableSet, metric: str) -> Cell:
    """The winner on a metric, or why there is none."""
    found = standing(one, metric)
    if found.winner:
        return Cell(found.winner.label, group=True, strong=True)
    return Cell(no_winner_text(one, metric, found))


def pair_table(one: ComparableSet, most: int) -> Block:
    """The tested pairs on all metrics, of more than `most` on a metric those with the lowest p; and why none was."""
    shown: list[Pair] = []
    untested: list[str] = []
    count = 0
    for name in dict.fromkeys(pair.metric for pair in one.pairs):
        pairs = [pair for pair in one.pairs if pair.metric == name]
        if reason := untested_text(pairs):
            untested.append(f"{METRIC[name].title} ({reason})")
            continue
        count = max(count, len(pairs))
        if len(pairs) > most:
            pairs = sorted(pairs, key=lambda pair: (pair.holm_p is None, pair.holm_p or 0.0))[:most]
        shown += pairs
    without = f"Not tested: {', '.join(untested)}." if untested else ""
    if not shown:
        return Text("paragraph", without or "There is no pair of groups to test.")
    caption = (
        "Welch’s test on the values of the seeds; speeds: ratios paired by seed or, with fewer than three, within "
    )
    caption += "each run. Holm’s correction covers all pairs of a metric."
    if count > most:
        caption += f" The {most} pairs with the smallest p of {count:,} for each metric; comparison.json lists all."
    return make_table(f"{caption} {without}".rstrip(), [_pair_row(pair) for pair in shown], "llrrrrrl")


def _pair_row(pair: Pair) -> Row:
    form = METRIC[pair.metric].form
    return {
        "Metric": METRIC[pair.metric].title,
        "First − second": f"{pair.first}\n− {pair.second}",
        "Difference": with_minus(number_text(pair.difference, f"+{form}", width_of(pair.interval))),
        "95 % interval": with_minus(interval_text(pair.interval, form).strip("[]")),
        "p": p_text(pair.p),
        "p (Holm)": p_text(pair.holm_p),
        "Hedges’ g": with_minus(number_text(pair.effect, ".2f")),
        "Verdict": Cell(pair.verdict, strong=pair.winner is not None),
    }


def group_table(caption: str, one: ComparableSet, columns: Columns) -> Table:
    """A row for each group."""
    rows = []
    for group in one.groups:
        row = {"Group": Cell(group.label, group=True)}
        for title, cell in columns.items():
            row[title] = _metric_cell(group, cell) if isinstance(cell, str) else cell(group)
        rows.append(row)
    empty = [title for title in columns if all(row[title].text in ("n/a", "–") for row in rows)]
    if empty:
        caption += f" Unknown for all groups: {', '.join(empty)}."
    return make_table(caption, [{title: cell for title, cell in row.items() if title not in empty} for row in rows])


def _metric_cell(group: Group, metric: str) -> Cell:
    found = _interval_cell(metric_text(group, metric), group.metrics[metric].interval, METRIC[metric].form)
    source = interval_source(group, metric)
    parts = (found.detail, source, known_seeds(group, metric), speed_mark(group, metric))
    return Cell(found.text, "\n".join(part for part in parts if part))


def _interval_cell(text: str, interval: Interval | None, form: str, width: float | None = None) -> Cell:
    """A value with its interval; one that is n/a has none."""
    if text == "n/a":
        return Cell(text)
    return Cell(with_minus(text), with_minus(interval_text(interval, form, width)) if interval else "[n/a]")


def _seeds(group: Group) -> Cell:
    failed = f"{len(group.failed)} failed" + ("" if group.valid else ": invalid") if group.failed else ""
    return Cell(str(len(group.runs)), failed)


def _reward_iqm(group: Group) -> Cell:
    reward = group.metrics["final_reward"]
    return _interval_cell(number_text(reward.iqm, REWARD, reward.width), reward.iqm_interval, REWARD, reward.width)


def _efficiency(group: Group) -> Cell:
    text, _, cores = efficiency_text(group.speedup).partition(" (")
    return Cell("–" if text == "-" else text, f"({cores}" if cores else "")


def _speedup(group: Group) -> Cell:
    if not group.speedup:
        return Cell("–")
    return _interval_cell(f"{group.speedup.value:.2f}×", group.speedup.interval, ".2f")
