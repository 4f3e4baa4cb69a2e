"""`rlcb compare`: read any number of runs, compare them, print the result and write its files."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from rlcb.analysis.comparison import compare
from rlcb.analysis.frames import facts_of
from rlcb.analysis.game_text import STATISTICS, TITLES, improvement_verdict
from rlcb.analysis.load import Warn, load_runs
from rlcb.analysis.metrics import METRIC, METRICS
from rlcb.analysis.plots import COLOURS, MOST_CURVES, as_image, figure_four_panels
from rlcb.analysis.reaching import Threshold, wanted_levels
from rlcb.analysis.records import Comparison
from rlcb.analysis.run import Run
from rlcb.analysis.statistics import Interval
from rlcb.analysis.text import MEASURES
from rlcb.analysis.untrusted import plain
from rlcb.console import say, warn
from rlcb.errors import ResourceError
from rlcb.files import write_json, write_whole
from rlcb.report.csv_text import csv_text
from rlcb.report.document import Document, Picture, render
from rlcb.report.games import (
    difference_text,
    games_csv,
    published_note,
    published_rows,
    score_notes,
    scores_csv,
    shown_pairs,
)
from rlcb.report.progress import Progress
from rlcb.report.reaching import reaching_csv, reaching_lines, rows_of
from rlcb.report.recipes import recipe_lines, recipe_title
from rlcb.report.sections import Origin, make_document
from rlcb.words import with_deviation

_MOST_SHOWN = 4  # games with tables of their own on the screen
_MOST_LISTED = 4  # pictures of sets, each with a line of its own


@dataclass(frozen=True, eq=False)
class Compared:
    """A comparison, and what was written of it."""

    comparison: Comparison
    left_out: tuple[str, ...]  # what could not be read, a line each
    files: tuple[Path, ...]  # the page last; none where nothing was to be written

    @property
    def report(self) -> Path | None:
        """The page, report.html."""
        return self.files[-1] if self.files else None

    @property
    def verdict(self) -> str:
        """What the comparison shows, in words."""
        return self.comparison.verdict

    def to_dict(self) -> dict[str, Any]:
        """The content of comparison.json."""
        return self.comparison.to_dict()

    def __str__(self) -> str:
        return comparison_text(self.comparison)

    def __repr__(self) -> str:
        return f"<Compared: {self.verdict}>"


@dataclass(frozen=True)
class Question:
    """What is compared, and how: runs that were read already, and those in directories and folders."""

    named: Sequence[Path | Run]
    threshold: Threshold = None
    seed: int = 0

    def answer(self, tell: Warn) -> tuple[Comparison, Origin]:
        """Read the runs and compare them; `tell` is told what is wrong with some of them."""
        unread: list[str] = []

        def tell_and_keep(text: str) -> None:
            tell(text)
            if text.startswith("left out"):
                unread.append(plain(text))

        runs = [one for one in self.named if isinstance(one, Run)]
        paths = [one for one in self.named if not isinstance(one, Run)]
        runs += load_runs(paths, tell_and_keep) if paths or not runs else []
        comparison = compare(runs, seed=self.seed, threshold=self.threshold)
        return comparison, Origin(runs, unread, "", datetime.now().astimezone())

    @property
    def paths(self) -> list[Path]:
        """Where the runs are."""
        return [one.path if isinstance(one, Run) else one for one in self.named]

    def command(self, output: Path) -> str:
        """The command that asks the same."""
        options = ["--output", str(output), "--seed", str(self.seed)]
        levels = [level if isinstance(level, str) else f"{level:.10g}" for level in wanted_levels(self.threshold)]
        options += ["--reward-threshold", *levels] if levels else []
        return shlex.join(["rlcb", "compare", *map(str, self.paths), *options])


def compare_any(paths: Sequence[Path], output: Path, threshold: Threshold, seed: int) -> int:
    """`rlcb compare`: any number of runs."""
    return finish_comparison(Question(paths, threshold, seed), output)


def finish_comparison(question: Question, output: Path) -> int:
    """Compare, print the result and write all its files."""
    found = compare_runs(question, output, warn)
    *files, page = found.files
    say(comparison_text(found.comparison, brief=True), *_written(files), f"Report: {page}")
    return 0


def compare_runs(question: Question, output: Path | None, tell: Warn) -> Compared:
    """Compare and write the result, unless to None."""
    comparison, origin = question.answer(tell)
    if output is None:
        return Compared(comparison, tuple(origin.warnings), ())
    make_folder(output)
    files = write_comparison(comparison, output, replace(origin, command=question.command(output)))
    return Compared(comparison, tuple(origin.warnings), tuple(files))


def write_page(question: Question, output: Path, progress: Progress) -> Path:
    """Write the page alone, while runs are in progress; returns its path."""
    comparison, origin = question.answer(lambda _: None)
    origin = replace(origin, command=question.command(output), progress=progress)
    page = output / "report.html"
    write_whole(page, page_of(make_document(comparison, origin)))
    return page


def _written(files: Sequence[Path]) -> list[str]:
    """A line for each file, but one for many pictures of sets and none for those of the page."""
    pictures = [file for file in files if file.match("comparison*.png")]
    others = [file for file in files if file not in pictures and not file.match("report_*.png")]
    names = [str(file) for file in pictures]
    if len(names) > _MOST_LISTED:
        names = [f"{names[0]} to {pictures[-1].name}"]
    return [f"Written: {name}" for name in (*names, *map(str, others))]


def write_comparison(comparison: Comparison, folder: Path, origin: Origin) -> list[Path]:
    """Write text, tables, pictures and the report into a folder; returns the files, the page last."""
    report, table, values = (folder / f"comparison{end}" for end in ("_report.txt", ".csv", ".json"))
    write_whole(report, (comparison_text(comparison) + "\n").encode())
    write_whole(table, comparison_csv(comparison).encode())
    write_json(values, comparison.to_dict())
    pictures = []
    for number, one in enumerate(comparison.sets, 1):
        picture = folder / ("comparison.png" if number == 1 else f"comparison_{number}.png")
        write_whole(picture, as_image(figure_four_panels(one.groups, one.title)))
        pictures.append(picture)
    page, *others = write_report(comparison, folder, origin)
    return [*pictures, report, values, table, *others, page]


def write_report(comparison: Comparison, folder: Path, origin: Origin) -> list[Path]:
    """Write report.html, report.md with its pictures, and runs.csv; returns the files, the page first."""
    document = make_document(comparison, origin)
    pictures = [block for section in document.sections for block in section.blocks if isinstance(block, Picture)]
    content = {
        "report.html": page_of(document),
        "report.md": render("report.md", document=document).encode(errors="replace"),
        **{f"{picture.name}.png": picture.png() for picture in pictures},
        "runs.csv": runs_csv(comparison, origin.runs).encode(errors="replace"),
    }
    if comparison.game_scores:
        content["games.csv"] = games_csv(comparison).encode(errors="replace")
        content["scores.csv"] = scores_csv(comparison).encode(errors="replace")
    if rows := [row for one in comparison.sets for row in rows_of(one)]:
        content["time_to_reward.csv"] = reaching_csv(rows).encode(errors="replace")
    for name, data in content.items():
        write_whole(folder / name, data)
    return [folder / name for name in content]


def page_of(document: Document) -> bytes:
    """The content of report.html."""
    page = render("report.html", document=document, palette=COLOURS, most_marked=MOST_CURVES)
    return page.encode(errors="replace")


def make_folder(folder: Path) -> None:
    """Make a folder to write into; ResourceError says why that is not possible."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ResourceError(f"{folder}: cannot be written to: {error.strerror}") from None


def comparison_csv(comparison: Comparison) -> str:
    """One row per set, group and metric."""
    rows = []
    for one in comparison.sets:
        for group in one.groups:
            for name in METRIC:
                found = group.metrics[name]
                row = {
                    "set": one.title,
                    "group": group.label,
                    "variant": group.variant,
                    "valid": group.valid,
                    "metric": name,
                    "n": found.n,
                }
                row |= {"mean": found.mean, "std": found.std, **_bounds("", found.interval)}
                row |= {"iqm": found.iqm, **_bounds("iqm_", found.iqm_interval)}
                rows.append({**row, "jobs_beside": group.jobs_beside, "disturbed_runs": len(group.disturbed)})
    return _csv(rows)


def _bounds(prefix: str, interval: Interval | None) -> dict[str, float | None]:
    low, high = interval or (None, None)
    return {f"{prefix}low95": low, f"{prefix}high95": high}


def runs_csv(comparison: Comparison, runs: Sequence[Run]) -> str:
    """One row per run, with everything that is known of it as a whole."""
    places, rows = comparison.places(), []
    for run in runs:
        order, label = places.get(run.name, (0, run.label))
        policy = comparison.sets[order - 1].evaluation_policy if order else "sampled"
        rows.append({"run": run.name, "set": order or "", "group": label, **facts_of(run, policy)})
    return _csv(rows)


def _csv(rows: Sequence[dict[str, Any]]) -> str:
    """A table whose columns are the keys of its rows."""
    return csv_text([list(rows[0]), *(list(row.values()) for row in rows)])


def comparison_text(comparison: Comparison, brief: bool = False) -> str:
    """The verdict, tables, pairs, and which runs are not compared; `brief`: of many games only what all show."""
    return render(
        "comparison.txt",
        comparison=comparison,
        metrics=METRICS,
        measures=MEASURES,
        shortened=lambda scores: brief and scores is not None and len(scores.games) > _MOST_SHOWN,
        titles=TITLES,
        statistics=list(STATISTICS),
        published_note=published_note,
        score_notes=score_notes,
        published_rows=published_rows,
        shown_pairs=shown_pairs,
        with_deviation=with_deviation,
        difference_text=difference_text,
        improvement_verdict=improvement_verdict,
        recipe_title=recipe_title,
        recipe_lines=recipe_lines,
        reaching_lines=lambda one: reaching_lines(rows_of(one), one.reward_levels),
    )
