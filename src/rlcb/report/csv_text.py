"""CSV text that a spreadsheet shows as it is: no cell of text becomes a formula."""

import csv
import io
from collections.abc import Iterable, Sequence

_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")  # what some spreadsheet evaluates


def csv_text(rows: Iterable[Sequence[object]]) -> str:
    """Rows as CSV; text that would be read as a formula gets an apostrophe in front."""
    return "".join(_line(row) for row in rows)


def _line(row: Sequence[object]) -> str:
    text = io.StringIO()
    # The writer quotes cells with those characters that end its lines: a bare CR would begin another row.
    csv.writer(text, lineterminator="\r\n").writerow([_cell(value) for value in row])
    return text.getvalue().removesuffix("\r\n") + "\n"


def _cell(value: object) -> object:
    if not isinstance(value, str) or not value.lstrip(" ").startswith(_FORMULA) or _is_number(value):
        return value
    return f"'{value}"


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
