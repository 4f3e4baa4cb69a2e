"""What a report consists of, independent of its format. All text is plain: each output format escapes it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(frozen=True)
class Cell:
    """One cell of a table."""

    text: str
    detail: str = ""  # shown after the text and less prominent: an interval
    group: bool = False  # the text is the name of a group, marked with the colour of the group
    strong: bool = False


Row = Mapping[str, str | Cell]  # the titles of the columns and their cells


@dataclass(frozen=True)
class Table:
    """A table whose first column names the rows."""

    kind: ClassVar[str] = "table"
    caption: str
    head: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    align: str = ""  # l or r for each column; by default only the first column is aligned to the left

    @property
    def sides(self) -> str:
        """The alignment of each column, l or r."""
        return self.align or "l" + "r" * (len(self.head) - 1)


@dataclass(frozen=True)
class Text:
    """A paragraph; a `lead` paragraph is emphasised."""

    kind: ClassVar[str] = "text"
    text: str
    lead: bool = False


@dataclass(frozen=True)
class Items:
    """A list of lines."""

    kind: ClassVar[str] = "items"
    lines: tuple[str, ...]


@dataclass(frozen=True)
class Terms:
    """Terms with their definitions."""

    kind: ClassVar[str] = "terms"
    pairs: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Code:
    """Preformatted text; where it has a title, it is folded under the title."""

    kind: ClassVar[str] = "code"
    text: str
    title: str = ""


@dataclass(frozen=True)
class Picture:
    """A figure in two formats: an SVG element for a page, a PNG file for Markdown."""

    kind: ClassVar[str] = "picture"
    name: str  # of the file, without its suffix
    alt: str
    caption: str
    svg: str  # an element whose text is escaped already
    png: bytes


Block = Table | Text | Items | Terms | Code | Picture


@dataclass(frozen=True)
class Section:
    """A part of the report; one of level 2 belongs to the last one of level 1."""

    title: str
    anchor: str
    blocks: tuple[Block, ...]
    level: int = 1
    short: str = ""  # in the list of sections, where the title is long


@dataclass(frozen=True)
class Document:
    """A whole report."""

    title: str
    facts: tuple[str, ...]  # below the title
    sections: tuple[Section, ...]
    colours: Mapping[str, int] = field(default_factory=dict)  # the number of each group's colour, by its name


def make_table(caption: str, rows: Sequence[Row], align: str = "") -> Table:
    """A table from rows that all have the same columns."""
    content = tuple(tuple(Cell(cell) if isinstance(cell, str) else cell for cell in row.values()) for row in rows)
    return Table(caption, tuple(rows[0]) if rows else (), content, align)
