"""docs/troubleshooting.md quotes messages that the program has."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# A message stands in the first cell of a table's row or at the beginning of an item.
DOCUMENT = (ROOT / "docs/troubleshooting.md").read_text(encoding="utf-8")
CELLS = re.findall(r"^\| (`[^|\n]*) \||^- (`[^`\n]+`)", DOCUMENT, re.MULTILINE)
QUOTED = [text for cell in CELLS for text in re.findall(r"`([^`]+)`", "".join(cell))]


def shown(part: ast.expr) -> str:
    """A part of a formatted text: itself, a zero for a value; counts and verbs as those of several."""
    value = part.value if isinstance(part, ast.FormattedValue) else part
    if isinstance(value, ast.Constant) and isinstance(value.value, str):
        return value.value
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == "counted":
        noun = value.args[1]
        return f"\0 {noun.value}s" if isinstance(noun, ast.Constant) else "\0"
    if (
        isinstance(value, ast.IfExp)
        and isinstance(value.orelse, ast.Constant)
        and value.orelse.value in ("are", "were")
    ):
        return str(value.orelse.value)
    return "\0"


def literals() -> str:
    """All texts in the program's source, with a zero for every value that is formatted into one."""
    templates = (ROOT / "scripts/setup.sh", *(ROOT / "src").rglob("*.txt"))
    found = [path.read_text(encoding="utf-8") for path in templates]
    for path in (ROOT / "_launch.py", *(ROOT / "src").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.append(node.value)
            elif isinstance(node, ast.JoinedStr):
                found.append("".join(map(shown, node.values)))
    return "\n".join(found)


def test_there_are_messages() -> None:
    assert len(QUOTED) > 40


@pytest.fixture(scope="module")
def source() -> str:
    return literals()


@pytest.mark.parametrize("quoted", QUOTED)
def test_quoted_messages_exist(quoted: str, source: str) -> None:
    for part in re.split(r"…|\d+|'[^']*'|;", quoted):  # what is formatted into a message, and where two are joined
        assert part.strip() in source
