"""What stands in a report, in which order."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import yaml

from rlcb.analysis.plots import MOST_CURVES
from rlcb.analysis.records import ComparableSet, Comparison
from rlcb.analysis.run import Run
from rlcb.report.document import Block, Code, Document, Folded, Items, Section, Table, Terms, Text, cells
from rlcb.report.figures import evaluation_picture, fps_picture, learning_pictures, time_picture
from rlcb.report.overview import overview_blocks
from rlcb.report.runs import machine_table, runs_table
from rlcb.report.tables import (
    Colours,
    difference_blocks,
    evaluation_table,
    notes,
    pair_tables,
    reaching_table,
    summary_table,
    winner_table,
)

_MOST_DRAWN = 16  # sets with pictures: as many as there are games
_MOST_VERDICTS = 4
_MOST_NAMED = 5  # runs with the same reason
_READING = (
    ("Set, group", "A set holds runs of the same task with the same budget on the same machine; a group holds those of "
     "them that differ in nothing but their seed. Runs of different sets are not compared."),
    ("95 % interval", "A range made so that 95 of 100 repetitions of the whole experiment give one that holds the true "
     "mean; estimated by drawing the seeds anew (bootstrap). n/a with one seed, or where all seeds have the same "
     "value: then nothing is known about chance. With fewer than five seeds it is too narrow."),
    ("IQM", "Interquartile mean: the mean without the lowest and the highest quarter of the seeds."),
    ("Difference, p, Hedges’ g", "Welch’s test on the seeds’ values: the difference of two means with its 95 % "
     "interval; how often chance alone would give at least such a difference; and the difference in standard "
     "deviations."),
    ("p (Holm)", "p corrected for the number of pairs: among many comparisons some differ by chance."),
    ("No difference shown", "These runs cannot tell the groups apart. It does not mean that they are equal: more seeds "
     "may show a difference."),
    ("Generalisation gap", "Evaluated reward on the levels that were trained on, minus that on levels never seen."),
    ("Speed-up", "Average FPS of a parallel group over that of a sequential group of the same algorithm."),
)  # fmt: skip


@dataclass(frozen=True)
class Origin:
    """Where a report comes from."""

    runs: Sequence[Run]
    warnings: Sequence[str]  # about what could not be read
    command: str
    made: datetime


def make_document(comparison: Comparison, origin: Origin) -> Document:
    """The whole report."""
    labels = dict.fromkeys(group.label for one in comparison.sets for group in one.groups)
    colours = {label: number for number, label in enumerate(labels)}
    games = list(dict.fromkeys(one.env for one in comparison.sets))
    algorithms = list(dict.fromkeys(run.algorithm.upper() for run in origin.runs))
    sections = [Section("Verdict", "verdict", tuple(_verdict(comparison)))]
    if len(comparison.sets) > 1:
        blocks = tuple(overview_blocks(comparison.sets, colours, comparison.seed))
        sections.append(Section("Overview", "overview", blocks))
    room = _Room.among(comparison.sets)
    for number, one in enumerate(comparison.sets):
        sections += _set_sections(one, number, len(comparison.sets), colours, room)
    sections.append(Section("Machine", "machine", (machine_table(origin.runs),)))
    sections += _settings(comparison.sets, colours)
    sections.append(Section("Not part of the main comparison", "excluded", tuple(_excluded(comparison, origin))))
    sections.append(Section("All runs", "runs", (runs_table(comparison, origin.runs, colours),)))
    more = "docs/metrics.md, which comes with the program, defines every number."
    sections.append(Section("How to read this", "reading", (Terms(_READING), Text(more))))
    sections.append(Section("How this was made", "command", (Code(origin.command),)))
    facts = (_listed("algorithm", algorithms), f"{len(origin.runs)} runs", f"{origin.made:%Y-%m-%d %H:%M}")
    return Document(f"Benchmark report: {', '.join(games[:4])}{', …' * (len(games) > 4)}", facts, tuple(sections))


def _verdict(comparison: Comparison) -> Iterator[Block]:
    """What the main set shows; of few finished sets what each of them shows."""
    finished = [one for one in comparison.sets if one.finished]
    if not 1 < len(finished) <= _MOST_VERDICTS:
        yield Text(comparison.verdict, lead=True)
        return
    for one in finished:
        yield Text(one.verdict, lead=True)
    lost = sum(item.reason.startswith(("failed", "unfinished", "repeats")) for item in comparison.excluded)
    told = f" {lost} run{'s' * (lost != 1)} failed, did not finish or repeat another one." if lost else ""
    yield Text(f"These {len(finished)} sets of runs are not comparable with each other.{told}")


def _listed(word: str, names: Sequence[str]) -> str:
    return f"{word}{'s' * (len(names) > 1)}: {', '.join(names)}"


@dataclass(frozen=True)
class _Room:
    """How much each set may show, so that a page about very much stays small enough to open."""

    points: int  # of a curve
    pairs: int  # on a metric

    @classmethod
    def among(cls, sets: Sequence[ComparableSet]) -> "_Room":
        curves = sum(min(len(one.groups), MOST_CURVES) for one in sets[:_MOST_DRAWN])
        return cls(max(40, min(200, 9000 // max(1, curves))), max(10, min(60, 240 // len(sets))))


def _set_sections(one: ComparableSet, number: int, count: int, colours: Colours, room: _Room) -> Iterator[Section]:
    """A set's summary, then a part for each kind of figure."""
    anchor = f"set-{number + 1}"
    drawn, prefix = number < _MOST_DRAWN, f"report_{number + 1}"
    title = f"{number + 1}. {one.title}" if count > 1 else "Summary"
    lead = Text(_capital(one.verdict.removeprefix(f"{one.title}: ")) if count > 1 else one.title)
    short = f"{number + 1}. {one.env}{', unfinished' * (not one.finished)}" if count > 1 else ""
    winners = [winner_table(one, colours)] if one.pairs else []
    unsaid = [] if drawn else [Text(f"Only the first {_MOST_DRAWN} sets have pictures.")]
    yield Section(title, anchor, (lead, *unsaid, summary_table(one, colours), *winners, *notes(one)), short=short)
    level = 2 if count > 1 else 1
    evaluated = any(group.metrics["evaluation_train"].n or group.metrics["evaluation_unseen"].n for group in one.groups)
    reaching = reaching_table(one, colours)
    nobody = Text("No threshold: no reward above that of the untrained policies is known.")
    parts: list[tuple[str, str, list[Block]]] = [
        ("Learning curves", "curves", list(learning_pictures(one, prefix, colours, room.points)) if drawn else []),
        ("Speed", "speed", list(fps_picture(one, prefix, colours)) if drawn else []),
        ("Where the time went", "time", list(time_picture(one, prefix)) if drawn else []),
        ("Evaluation and generalisation gap", "evaluation",
         [*(evaluation_picture(one, prefix, colours) if drawn else ()), evaluation_table(one, colours)]
         if evaluated else [Text("No run of this set has been evaluated; rlcb evaluate does that.")]),
        ("All pairs", "pairs", list(pair_tables(one, room.pairs)) or [Text("There is no pair of groups to test.")]),
        ("Time to reward", "reaching", [reaching or nobody]),
    ]  # fmt: skip
    for heading, name, blocks in parts:
        if blocks:
            yield Section(heading, f"{anchor}-{name}" if count > 1 else name, tuple(blocks), level)


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _settings(sets: Sequence[ComparableSet], colours: Colours) -> Iterator[Section]:
    """What differs between groups, and everything of each."""
    several = len(sets) > 1
    if several:
        yield Section("Settings", "settings", ())
    for number, one in enumerate(sets, 1):
        blocks = list(difference_blocks(one, colours))
        for group in one.groups:
            if group.runs:
                text = _as_yaml(group.runs[0].config)
                blocks.append(Folded(f"{group.label}: all settings (seed {group.runs[0].seed})", Code(text)))
        title, anchor = (f"{number}. {one.title}", f"settings-{number}") if several else ("Settings", "settings")
        yield Section(title, anchor, tuple(blocks), 2 if several else 1)


def _as_yaml(config: dict[str, Any]) -> str:
    return re.sub(r"[^\n\x20-\x7e\xa0-\uffff]", "?", yaml.safe_dump(config, sort_keys=False, allow_unicode=True))


def _excluded(comparison: Comparison, origin: Origin) -> Iterator[Block]:
    """Runs that take no part in the main comparison, by reason; and what could not be read at all."""
    reasons: dict[str, list[str]] = {}
    for item in comparison.excluded:
        reasons.setdefault(item.reason, []).append(item.run)
    if reasons:
        rows = []
        for reason, runs in reasons.items():
            named = runs[:_MOST_NAMED] + [f"{len(runs) - _MOST_NAMED} more, listed below"] * (len(runs) > _MOST_NAMED)
            rows.append(cells(reason, str(len(runs)), ",\n".join(named)))
        caption = "Failed, unfinished, repeated or not comparable with the main set; sets of their own are shown above."
        yield Table(caption, "lrl", ("Reason", "Runs", "Directories"), tuple(rows))
    if origin.warnings:
        yield Text("While reading:")
        yield Items(tuple(origin.warnings))
    if not reasons and not origin.warnings:
        yield Text("Every run is part of the comparison.")
