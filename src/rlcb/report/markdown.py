"""A report as Markdown, with its pictures as files beside it."""

import re
from collections.abc import Sequence
from html import escape

from rlcb.report.document import Block, Cell, Code, Document, Items, Picture, Table, Terms, Text

_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
_MEANS_SOMETHING = re.compile(r"([\\`*_\[\]|~])")
_STARTS_SOMETHING = re.compile(r"^(\s*)(#|[-+=]|\d+[.)])")


def as_markdown(document: Document) -> str:
    """The whole text."""
    parts = [f"# {_inline(document.title)}", " · ".join(_inline(fact) for fact in document.facts)]
    for section in document.sections:
        parts.append(f"{'#' * (section.level + 1)} {_inline(section.title)}")
        parts += [_block(block) for block in section.blocks]
    return "\n\n".join(parts) + "\n"


def _block(block: Block) -> str:
    match block:
        case Table():
            return _table(block)
        case Text():
            return f"**{_inline(block.text)}**" if block.lead else _line(block.text)
        case Items():
            return "\n".join(f"- {_line(line)}" for line in block.lines)
        case Terms():
            return "\n".join(f"- **{_inline(word)}**: {_inline(meaning)}" for word, meaning in block.pairs)
        case Picture():
            return f"![{_inline(block.alt)}]({block.name}.png)\n\n*{_inline(block.caption)}*"
        case Code():
            return _code(block)


def _inline(text: str) -> str:
    """Text that shows as it is: nothing in it is taken for markup, a link or the end of a cell."""
    whole = "".join(_ENTITIES.get(letter, letter) for letter in " ".join(text.split()))
    return _MEANS_SOMETHING.sub(r"\\\1", whole).replace("://", "&#58;//").replace("www.", "www&#46;")


def _line(text: str) -> str:
    """The same for text at the start of a line, which could be taken for a heading or a list."""
    return _STARTS_SOMETHING.sub(lambda match: f"{match[1]}{match[2][:-1]}\\{match[2][-1]}", _inline(text))


def _code(block: Code) -> str:
    """Fenced, with a fence longer than any in the text; folded where it has a title."""
    longest = max((len(ticks) for ticks in re.findall(r"`+", block.text)), default=0)
    fence = "`" * max(3, longest + 1)
    code = f"{fence}\n{block.text.rstrip()}\n{fence}"
    title = escape(" ".join(block.title.split())).replace("`", "&#96;")
    return f"<details><summary>{title}</summary>\n\n{code}\n\n</details>" if title else code


def _table(table: Table) -> str:
    rule = ["---:" if side == "r" else ":---" for side in table.sides]
    rows = [[_inline(text) for text in table.head], rule, *([_cell(cell) for cell in row] for row in table.rows)]
    return f"{_line(table.caption)}\n\n" + "\n".join(_row(row) for row in rows)


def _row(texts: Sequence[str]) -> str:
    return f"| {' | '.join(texts)} |"


def _cell(cell: Cell) -> str:
    text = f"**{_inline(cell.text)}**" if cell.strong else _inline(cell.text)
    return f"{text} {_inline(cell.detail)}" if cell.detail else text
