"""`rlcb compare`: read any number of runs, compare them, print the result and write its files."""

import csv
import io
import shlex
import textwrap
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from rlcb.analysis.comparison import compare
from rlcb.analysis.load import load_runs
from rlcb.analysis.metrics import METRIC, METRICS
from rlcb.analysis.plots import COLOURS, MOST_CURVES, as_image, figure_four_panels
from rlcb.analysis.records import ComparableSet, Comparison, Group
from rlcb.analysis.run import Run
from rlcb.analysis.statistics import Interval
from rlcb.analysis.text import interval_text, mean_and_deviation, number_text, with_interval
from rlcb.analysis.untrusted import plain
from rlcb.console import warn
from rlcb.errors import ResourceError
from rlcb.files import write_json, write_whole
from rlcb.report.document import Picture, render
from rlcb.report.sections import Origin, make_document

_COLUMN = 28  # width of a group's column
_ACROSS = 3  # groups side by side


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
    page = render("report.html", document=document, palette=COLOURS, most_marked=MOST_CURVES)
    content = {
        "report.html": page.encode(errors="replace"),
        "report.md": render("report.md", document=document).encode(errors="replace"),
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
    rows = []
    for one in comparison.sets:
        for group in one.groups:
            for name in METRIC:
                found = group.metrics[name]
                row = {"set": one.title, "group": group.label, "valid": group.valid, "metric": name, "n": found.n}
                row |= {"mean": found.mean, "std": found.std, **_bounds("", found.interval)}
                rows.append({**row, "iqm": found.iqm, **_bounds("iqm_", found.iqm_interval)})
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
        row: dict[str, Any] = {"run": run.name, "set": order or "", "group": label}
        row |= {"algorithm": run.algorithm, "mode": run.mode, "env": run.env, "levels": run.task.levels}
        row |= {"seed": run.seed, "status": run.status, "reason": run.reason, **vars(run.metrics)}
        for levels in ("train", "unseen"):
            row[f"evaluation_{levels}"] = run.evaluations.mean_reward(run.env, levels, policy)
        rows.append({**row, "problems": "; ".join(run.problems)})
    return _csv(rows)


def _csv(rows: Sequence[dict[str, Any]]) -> str:
    """A table whose columns are the keys of its rows."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def comparison_text(comparison: Comparison) -> str:
    """The verdict, tables, pairs, and which runs are not compared."""
    tables = []
    for one in comparison.sets:
        parts = [one.groups[start : start + _ACROSS] for start in range(0, len(one.groups), _ACROSS)]
        tables.append(["\n".join(_table(one, groups)) for groups in parts])
    return render("comparison.txt", comparison=comparison, tables=tables, metrics=METRICS)


def _table(one: ComparableSet, groups: Sequence[Group]) -> Iterator[str]:
    """A row for each metric, a column for each of `groups`."""
    heads = [textwrap.wrap(group.label, _COLUMN - 2) for group in groups]
    for row in range(max(len(head) for head in heads)):
        yield _row("Metric" if row == 0 else "", [head[row] if row < len(head) else "" for head in heads])
    yield "-" * (_COLUMN * (len(groups) + 1))
    yield _row("Seeds", [_seeds(group) for group in groups])
    for metric in METRICS:
        summaries = [group.metrics[metric.name] for group in groups]
        if any(group.metrics[metric.name].n for group in one.groups) or metric.name == "final_reward":
            yield _row(metric.title, [mean_and_deviation(group, metric.name) for group in groups])
        if metric.name == "final_reward":
            iqms = [(number_text(reward.iqm, metric.form), reward.iqm_interval) for reward in summaries]
            yield _row("  95 % interval", [interval_text(reward.interval, metric.form) for reward in summaries])
            yield _row("  interquartile mean", [with_interval(*iqm, metric.form) for iqm in iqms])
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


def _speedup(group: Group) -> str:
    if not group.speedup:
        return "-"
    return with_interval(f"{group.speedup.value:.2f}x", group.speedup.interval, ".2f")


def _efficiency(group: Group) -> str:
    if not group.speedup or group.speedup.efficiency is None:
        return "-"
    cores = f"{group.speedup.cores} against {group.speedup.baseline_cores}"
    return f"{100 * group.speedup.efficiency:.0f} % ({cores})"
