"""The part of a report about the time to reward: to one threshold, or to several levels beside each other."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rlcb.analysis.metrics import HOURS
from rlcb.analysis.published import SOURCE
from rlcb.analysis.reaching import Reached, RewardLevel
from rlcb.analysis.records import ComparableSet
from rlcb.analysis.run import Run
from rlcb.analysis.text import number_text, sentence
from rlcb.report.csv_text import csv_text
from rlcb.report.document import Block, Cell, Text, make_table
from rlcb.report.tables import Columns, group_table
from rlcb.words import reward_text

_FEW = 5  # runs of which each is named
_LEVELS_BESIDE = 3  # in a table of text
_HEAD = (
    "set", "group", "reward", "published_steps", "runs", "reached", "mean_steps", "mean_hours", "speed_not_judged",
    "disturbed_runs", "seeds", "steps", "hours",
)  # fmt: skip
_ABOUT = "time and steps until the mean of 500 episodes first reached each reward"
_MEANS = (
    "Means over seeds only where all reached it, of times without disturbed runs. Below: seed, its time and its steps."
)


@dataclass(frozen=True)
class ReachingRow:
    """The runs of a group, and when they reached each level."""

    title: str  # of the set that the group belongs to
    label: str
    runs: Sequence[Run]
    reached: tuple[Reached, ...]
    mark: str = ""  # why its speed is not judged, in a word or two


def rows_of(one: ComparableSet) -> list[ReachingRow]:
    """A row for each group of a set; none where it has no levels."""
    if not one.reward_levels:
        return []
    return [ReachingRow(one.title, group.label, group.runs, group.reached, group.unjudged) for group in one.groups]


def reaching_blocks(one: ComparableSet) -> Iterator[Block]:
    """Times and steps to all levels, or to the threshold where there are none."""
    if one.levels_unknown:
        yield Text("paragraph", sentence(one.levels_unknown))
    if not one.reward_levels:
        yield _threshold_table(one)
        return
    titles = [level_title(level) for level in one.reward_levels]
    rows = []
    for row in rows_of(one):
        cells = [cell_lines(row, found) for found in row.reached]
        # Markdown has the lines of a cell one after the other.
        values = {title: Cell(text, ";\n".join(details)) for title, (text, *details) in zip(titles, cells, strict=True)}
        rows.append({"Group": Cell(row.label, group=True), **values})
    yield make_table(about_levels(one.reward_levels), rows)


def _threshold_table(one: ComparableSet) -> Block:
    """Steps and time to the threshold."""
    if one.threshold is None:
        return Text("paragraph", "No threshold: no group improved on the reward of the untrained policy.")
    columns: Columns = {
        "Seeds that reached it": lambda group: Cell(f"{group.metrics['steps_to_reward'].n} of {len(group.runs)}"),
        "Steps": "steps_to_reward",
        "Time": "hours_to_reward",
    }
    caption = (
        f"Time to mean reward of {reward_text(one.threshold)} over 100 episodes; means only where all seeds reached it."
    )
    return group_table(caption, one, columns)


def about_levels(levels: Sequence[RewardLevel]) -> str:
    """What a table of levels shows, as sentences."""
    published = f" (0.25 M): level of the published PPO after 0.25 M steps ({SOURCE})."
    return f"{sentence(_ABOUT)} {_MEANS}" + (published if any(level.published_steps for level in levels) else "")


def level_title(level: RewardLevel) -> str:
    """A level, and after how many million steps the published curve has it."""
    steps = ", ".join(f"{steps / 1e6:g}" for steps in level.published_steps)
    return f"{level.reward:.10g} ({steps} M)" if steps else f"{level.reward:.10g}"


def cell_lines(row: ReachingRow, found: Reached) -> list[str]:
    """Time and steps to a level, or how many seeds reached it; with few seeds also those of each."""
    count = len(row.runs)
    if not found.count:
        return ["n/a" if not count else "not reached" if count == 1 else f"0 of {count} seeds"]
    mark = f" ({row.mark})" if row.mark else ""
    lines = [f"{found.count} of {count} seeds{mark}"]
    if found.mean_steps is not None:
        time = "time unknown" if found.mean_hours is None else number_text(found.mean_hours, HOURS)
        lines = [f"{time}{mark}", f"{found.mean_steps:,.0f} steps"]
    each = zip(row.runs, found.steps, found.hours, strict=True) if 1 < count <= _FEW else ()
    return lines + [_of_seed(run, steps, hours, bool(row.mark)) for run, steps, hours in each]


def _of_seed(run: Run, steps: float | None, hours: float | None, marked: bool) -> str:
    """When one run reached a level; `marked`: it is said already that the speed of the group is not judged."""
    name = "–" if run.seed is None else str(run.seed)
    if steps is None:
        return f"{name}: not reached"
    time = "time unknown" if hours is None else number_text(hours, HOURS)
    return f"{name}: {time}, {steps:,.0f}{' (disturbed)' if run.disturbed and not marked else ''}"


def reaching_lines(rows: Sequence[ReachingRow], levels: Sequence[RewardLevel]) -> list[str]:
    """The rows as lines of text, few levels beside each other; nothing without levels."""
    lines = [f"Time to reward: {_ABOUT}; below: seed, its time, its steps"] if levels else []
    for first in range(0, len(levels), _LEVELS_BESIDE):
        shown = slice(first, first + _LEVELS_BESIDE)
        table = [["group", *(level_title(level) for level in levels[shown])]]
        for row in rows:
            columns = [[row.label], *(cell_lines(row, found) for found in row.reached[shown])]
            height = max(map(len, columns))
            table += map(list, zip(*(column + [""] * (height - len(column)) for column in columns), strict=True))
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        texts = ["  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)) for row in table]
        lines += ["-" * min(len(texts[0]), 125), *(text.rstrip() for text in texts)]
    if any(level.published_steps for level in levels):
        lines.append(f"* (0.25 M): level of the published PPO after 0.25 M steps ({SOURCE})")
    return lines


def reaching_csv(rows: Sequence[ReachingRow]) -> str:
    """One row per set, group and level; the values of single runs are separated by spaces."""
    table: list[Sequence[object]] = [_HEAD]
    for row in rows:
        disturbed = sum(run.disturbed for run in row.runs)
        for found in row.reached:
            level = (row.title, row.label, found.level.reward, _joined(found.level.published_steps))
            means = (len(row.runs), found.count, found.mean_steps, found.mean_hours, row.mark, disturbed)
            table.append((*level, *means, *map(_joined, ([run.seed for run in row.runs], found.steps, found.hours))))
    return csv_text(table)


def _joined(values: Sequence[float | None]) -> str:
    return " ".join("n/a" if value is None else f"{value:.10g}" for value in values)
