"""CSV text that a spreadsheet shows as it is: no cell of text becomes a formula."""

import csv
import io
from collections.abc import Iterable, Sequence

_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")  # what some spreadsheet evaluates


def csv_text(rows: Iterable[Sequence[object]]) -> str:
    """Rows as CSV; text that would be read as a formula gets an apostrophe in front."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([_cell(value) for value in row] for row in rows)
    return text.getvalue()


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
