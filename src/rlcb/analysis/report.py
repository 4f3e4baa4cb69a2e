"""The report: one page that needs nothing else, the same as Markdown with pictures beside it, and a table of runs."""

from pathlib import Path

from rlcb.analysis.records import Comparison
from rlcb.analysis.report_blocks import Picture
from rlcb.analysis.report_html import as_html
from rlcb.analysis.report_markdown import as_markdown
from rlcb.analysis.report_runs import runs_csv
from rlcb.analysis.report_sections import Origin, make_document
from rlcb.files import write_whole


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
