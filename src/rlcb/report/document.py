"""What a report is made of, whatever form it takes in the end. All text is plain: whoever writes it out escapes it."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Cell:
    """One cell of a table."""

    text: str
    detail: str = ""  # less important, behind the text: an interval
    colour: int | None = None  # the number of the group that it names, marked with the group's colour
    strong: bool = False


@dataclass(frozen=True)
class Table:
    """A table whose first column names the rows; `align` has a letter per column, l or r."""

    caption: str
    align: str
    head: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]


@dataclass(frozen=True)
class Text:
    """A paragraph; `lead` is what a hurried reader should read."""

    text: str
    lead: bool = False


@dataclass(frozen=True)
class Items:
    """A list of lines."""

    lines: tuple[str, ...]


@dataclass(frozen=True)
class Terms:
    """Words and what they mean."""

    pairs: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Code:
    """Text in which every character counts."""

    text: str


@dataclass(frozen=True)
class Picture:
    """A picture, drawn twice: for the page itself and as a file to lie beside a text."""

    name: str  # of the file, without its ending
    alt: str
    caption: str
    svg: str  # safe to put into a page
    png: bytes


@dataclass(frozen=True)
class Folded:
    """Something long under a line that opens it."""

    title: str
    code: Code


Block = Table | Text | Items | Terms | Code | Picture | Folded


@dataclass(frozen=True)
class Section:
    """A part of the report; `level` 1 stands for itself, 2 belongs to the one before."""

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


def cells(*texts: str | Cell) -> tuple[Cell, ...]:
    """A row of a table."""
    return tuple(Cell(text) if isinstance(text, str) else text for text in texts)
