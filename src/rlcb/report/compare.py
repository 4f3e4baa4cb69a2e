"""`rlcb compare`: read any number of runs, compare them, print the result and write its files."""

import shlex
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from rlcb.analysis.comparison import compare
from rlcb.analysis.load import load_runs
from rlcb.analysis.metrics import METRICS
from rlcb.analysis.plots import as_image, figure_four_panels
from rlcb.analysis.records import Comparison
from rlcb.analysis.untrusted import plain
from rlcb.console import warn
from rlcb.errors import ResourceError
from rlcb.files import write_json, write_whole
from rlcb.report.csv_text import csv_text
from rlcb.report.document import Picture
from rlcb.report.render import as_html, as_markdown
from rlcb.report.runs import runs_csv
from rlcb.report.sections import Origin, make_document
from rlcb.report.text import comparison_text

_COLUMNS = ("set", "group", "valid", "metric", "n", "mean", "std", "low95", "high95", "iqm", "iqm_low95", "iqm_high95")


def compare_any(paths: Sequence[Path], output: Path, threshold: float | None, seed: int) -> int:
    """`rlcb compare`: any number of runs."""
    unread: list[str] = []

    def warn_and_keep(text: str) -> None:
        warn(text)
        if text.startswith("left out"):
            unread.append(plain(text))

    runs = load_runs(paths, warn_and_keep)
    make_folder(output)
    comparison = compare(runs, seed=seed, threshold=threshold)
    options = ["--output", str(output), "--seed", str(seed)]
    options += [] if threshold is None else ["--reward-threshold", f"{threshold:g}"]
    command = shlex.join(["rlcb", "compare", *map(str, paths), *options])
    *files, page = write_comparison(comparison, output, Origin(runs, unread, command, datetime.now().astimezone()))
    written = (f"Written: {file}" for file in files if not file.match("report_*.png"))
    print(comparison_text(comparison), *written, f"Report: {page}", sep="\n", flush=True)
    return 0


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
        "report.html": as_html(document).encode(errors="replace"),
        "report.md": as_markdown(document).encode(errors="replace"),
        **{f"{picture.name}.png": picture.png for picture in pictures},
        "runs.csv": runs_csv(comparison, origin.runs).encode(errors="replace"),
    }
    for name, data in content.items():
        write_whole(folder / name, data)
    return [folder / name for name in content]


def make_folder(folder: Path) -> None:
    """Make a folder to write into; ResourceError says why that is not possible."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ResourceError(f"{folder}: cannot be written to: {error.strerror}") from None


def comparison_csv(comparison: Comparison) -> str:
    """One row per set, group and metric."""
    rows: list[Sequence[object]] = [_COLUMNS]
    for one in comparison.sets:
        for group in one.groups:
            for name in (metric.name for metric in METRICS):
                summary = group.metrics[name]
                row = [one.title, group.label, group.valid, name, summary.n, summary.mean, summary.std]
                row += [*(summary.interval or (None, None)), summary.iqm, *(summary.iqm_interval or (None, None))]
                rows.append(row)
    return csv_text(rows)
