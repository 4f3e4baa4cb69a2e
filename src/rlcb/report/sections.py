"""The content of a report: which sections it has, in which order."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import yaml

from rlcb.analysis.format import counted
from rlcb.analysis.plots import MOST_CURVES
from rlcb.analysis.records import ComparableSet, Comparison
from rlcb.analysis.run import Run
from rlcb.report.document import Block, Code, Document, Items, Section, Terms, Text, make_table
from rlcb.report.figures import SetPictures
from rlcb.report.runs import machine_table, runs_table
from rlcb.report.tables import (
    difference_blocks,
    evaluation_table,
    game_table,
    pair_table,
    reaching_table,
    set_table,
    summary_table,
    winner_table,
)

_MOST_DRAWN = 16  # sets with pictures: as many as there are games
_MOST_VERDICTS = 4
_MOST_NAMED = 5  # runs with the same reason
_GLOSSARY = Path(__file__).with_name("templates") / "glossary.yaml"


@dataclass(frozen=True)
class Origin:
    """Where a report comes from."""

    runs: Sequence[Run]
    warnings: Sequence[str]  # about what could not be read
    command: str
    made: datetime


def make_document(comparison: Comparison, origin: Origin) -> Document:
    """The whole report."""
    sets = comparison.sets
    labels = dict.fromkeys(group.label for one in sets for group in one.groups)
    colours = {label: number for number, label in enumerate(labels)}
    sections = [Section("Verdict", "verdict", tuple(_verdict(comparison)))]
    if len(sets) > 1:
        tables = (set_table(sets), *(game_table(scores) for scores in comparison.game_scores))
        sections.append(Section("Overview", "overview", tables))
    # With more curves and sets each one shows less, so that the page stays small enough to open.
    num_curves = sum(min(len(one.groups), MOST_CURVES) for one in sets[:_MOST_DRAWN])
    points = max(40, min(200, 9000 // max(1, num_curves)))
    most_pairs = max(10, min(60, 240 // len(sets)))
    for number, one in enumerate(sets, 1):
        pictures = SetPictures(one, f"report_{number}", colours, points) if number <= _MOST_DRAWN else None
        sections += _set_sections(one, number if len(sets) > 1 else None, pictures, most_pairs)
    terms = Terms(tuple(yaml.safe_load(_GLOSSARY.read_text(encoding="utf-8")).items()))
    more = Text("docs/metrics.md, which comes with the program, defines every number.")
    sections += [
        Section("Machine", "machine", (machine_table(origin.runs),)),
        *_settings(sets),
        Section("Not part of the main comparison", "excluded", tuple(_excluded(comparison, origin))),
        Section("All runs", "runs", (runs_table(comparison, origin.runs),)),
        Section("How to read this", "reading", (terms, more)),
        Section("How this was made", "command", (Code(origin.command),)),
    ]
    games = list(dict.fromkeys(one.env for one in sets))
    algorithms = list(dict.fromkeys(run.algorithm.upper() for run in origin.runs))
    facts = (
        f"algorithm{'s' if len(algorithms) > 1 else ''}: {', '.join(algorithms)}",
        f"{len(origin.runs)} runs",
        f"{origin.made:%Y-%m-%d %H:%M}",
    )
    title = f"Benchmark report: {', '.join(games[:4])}{', …' if len(games) > 4 else ''}"
    return Document(title, facts, tuple(sections), colours)


def _verdict(comparison: Comparison) -> Iterator[Block]:
    """What the main set shows; with few finished sets, what each of them shows."""
    finished = [one for one in comparison.sets if one.finished]
    if not 1 < len(finished) <= _MOST_VERDICTS:
        yield Text(comparison.verdict, lead=True)
        return
    for one in finished:
        yield Text(one.verdict, lead=True)
    lost = sum(item.reason.startswith(("failed", "unfinished", "repeats")) for item in comparison.excluded)
    also = f" {counted(lost, 'run')} failed, did not finish or repeat another one." if lost else ""
    yield Text(f"These {len(finished)} sets of runs are not comparable with each other.{also}")


def _set_sections(
    one: ComparableSet, number: int | None, pictures: SetPictures | None, most_pairs: int
) -> Iterator[Section]:
    """A set's summary, then a section for each aspect; `number` is None for the only set of a report."""
    evaluation: list[Block] = [Text("No run of this set has been evaluated; rlcb evaluate does that.")]
    if one.evaluated:
        evaluation = [*(pictures.evaluation() if pictures else ()), evaluation_table(one)]
    no_pair = Text("There is no pair of groups to test.")
    no_threshold = Text("No threshold: no reward above that of the untrained policies is known.")
    parts: list[tuple[str, str, Iterable[Block]]] = [
        ("Learning curves", "curves", pictures.learning() if pictures else ()),
        ("Speed", "speed", pictures.fps() if pictures else ()),
        ("Where the time went", "time", pictures.time() if pictures else ()),
        ("Evaluation and generalisation gap", "evaluation", evaluation),
        ("All pairs", "pairs", [pair_table(one, most_pairs) or no_pair]),
        ("Time to reward", "reaching", [reaching_table(one) or no_threshold]),
    ]
    yield _summary(one, number, drawn=pictures is not None)
    prefix, level = (f"set-{number}-", 2) if number else ("", 1)
    for heading, anchor, content in parts:
        blocks = tuple(content)
        if blocks:
            yield Section(heading, prefix + anchor, blocks, level)


def _summary(one: ComparableSet, number: int | None, drawn: bool) -> Section:
    """The verdict on a set, its groups and its winners."""
    blocks: list[Block] = [] if drawn else [Text(f"Only the first {_MOST_DRAWN} sets have pictures.")]
    blocks += [summary_table(one), *([winner_table(one)] if one.pairs else [])]
    blocks += [Items(one.notes)] if one.notes else []
    if not number:
        return Section("Summary", "set-1", (Text(one.title), *blocks))
    verdict = one.verdict.removeprefix(f"{one.title}: ")
    lead = Text(verdict[:1].upper() + verdict[1:])
    short = f"{number}. {one.env}" + ("" if one.finished else ", unfinished")
    return Section(f"{number}. {one.title}", f"set-{number}", (lead, *blocks), short=short)


def _settings(sets: Sequence[ComparableSet]) -> Iterator[Section]:
    """The settings in which groups differ, and all settings of each group."""
    several = len(sets) > 1
    if several:
        yield Section("Settings", "settings", ())
    for number, one in enumerate(sets, 1):
        blocks = list(difference_blocks(one))
        for group in one.measured:
            config = yaml.safe_dump(group.runs[0].config, sort_keys=False, allow_unicode=True)
            text = re.sub(r"[^\n\x20-\x7e\xa0-\uffff]", "?", config)
            blocks.append(Code(text, f"{group.label}: all settings (seed {group.runs[0].seed})"))
        title, anchor = (f"{number}. {one.title}", f"settings-{number}") if several else ("Settings", "settings")
        yield Section(title, anchor, tuple(blocks), 2 if several else 1)


def _excluded(comparison: Comparison, origin: Origin) -> Iterator[Block]:
    """Runs that take no part in the main comparison, by reason; and what could not be read at all."""
    reasons: dict[str, list[str]] = {}
    for item in comparison.excluded:
        reasons.setdefault(item.reason, []).append(item.run)
    if reasons:
        rows = []
        for reason, runs in reasons.items():
            more = [f"{len(runs) - _MOST_NAMED} more, listed below"] if len(runs) > _MOST_NAMED else []
            named = ",\n".join(runs[:_MOST_NAMED] + more)
            rows.append({"Reason": reason, "Runs": str(len(runs)), "Directories": named})
        caption = "Failed, unfinished, repeated or not comparable with the main set; sets of their own are shown above."
        yield make_table(caption, rows, "lrl")
    if origin.warnings:
        yield Text("While reading:")
        yield Items(tuple(origin.warnings))
    if not reasons and not origin.warnings:
        yield Text("Every run is part of the comparison.")
