"""What a report consists of, and the templates that give it its form. All text is plain: each template escapes it."""

import re
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from html import escape
from typing import Any, ClassVar, Literal

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from markupsafe import Markup

from rlcb.analysis.grouping import setting_text
from rlcb.analysis.records import Card
from rlcb.analysis.text import (
    efficiency_text,
    energy_unknown,
    interval_text,
    mean_and_deviation,
    metric_title,
    number_text,
    untested_text,
)
from rlcb.words import counted, few_hours, span_text

_MARKUP = re.compile(r"([\\`*_\[\]|~])")  # characters that are markup wherever they stand in Markdown
_LINE_START = re.compile(r"^(\s*)(#|[-+=]|\d+[.)])")  # what begins a heading or a list


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
    align: str  # l or r for each column


@dataclass(frozen=True)
class Text:
    """Text in one of several forms; code with a title is folded under it."""

    kind: Literal["paragraph", "lead", "items", "terms", "code"]
    content: str | Sequence[str] | Mapping[str, str]  # items: their lines; terms: their definitions
    title: str = ""


@dataclass(frozen=True)
class Curve:
    """A line of an interactive chart, with an interval where there is one; None where a value is unknown."""

    label: str
    colour: int  # its number; negative: a published curve
    x: Sequence[float]
    mean: Sequence[float | None]
    low: Sequence[float | None] | None = None
    high: Sequence[float | None] | None = None


@dataclass(frozen=True)
class View:
    """What an interactive chart shows at a time."""

    name: str
    x: str
    y: str
    kind: Literal["number", "time"]  # time: x is in seconds
    curves: tuple[Curve, ...]


@dataclass(frozen=True)
class Picture:
    """A figure as an SVG element for a page and a PNG file for Markdown; on a screen `views` of it take its place."""

    kind: ClassVar[str] = "picture"
    name: str  # of the file, without its suffix
    alt: str
    caption: str
    svg: str  # an element whose text is escaped already
    png: Callable[[], bytes]
    views: tuple[View, ...] = ()
    covered: bool = False  # the views of the picture before it show the same


@dataclass(frozen=True)
class Cards:
    """Short answers, each with its title."""

    kind: ClassVar[str] = "cards"
    title: str
    cards: Sequence[Card]


Block = Table | Text | Picture | Cards


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
    colours: Mapping[str, int]  # the number of each group's colour, by its name
    progress: str = ""  # what runs that are in progress are doing
    refresh: float | None = None  # seconds after which the page loads itself again


def make_table(caption: str, rows: Sequence[Row], align: str = "") -> Table:
    """A table from rows that all have the same columns; by default only the first is aligned to the left."""
    content = tuple(tuple(Cell(cell) if isinstance(cell, str) else cell for cell in row.values()) for row in rows)
    head = tuple(rows[0]) if rows else ()
    return Table(caption, head, content, align or "l" + "r" * (len(head) - 1))


def render(template: str, **values: Any) -> str:
    """Fill in a template; in HTML every value is escaped, in Markdown each one passes through a filter below."""
    templates = Environment(
        loader=PackageLoader("rlcb.report"),
        autoescape=select_autoescape(["html"]),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    templates.filters |= {"number": number_text, "interval": interval_text, "mean_and_deviation": mean_and_deviation}
    templates.filters |= {"untested": untested_text, "energy_unknown": energy_unknown}
    templates.filters |= {
        "efficiency": efficiency_text,
        "metric_title": metric_title,
        "setting": setting_text,
        "counted": counted,
        "few_hours": few_hours,
        "span": span_text,
    }
    templates.filters |= {"inline": _inline, "line": _line, "fenced": _fenced, "summary": _summary}
    templates.filters |= {"asset": lambda name: Markup(PackageLoader("rlcb.report").get_source(templates, name)[0])}
    templates.filters |= {"script_hash": _script_hash, "values": _values}
    return templates.get_template(template).render(**values)


def _script_hash(text: str) -> str:
    """The source expression that allows a script with exactly this text in a page's security policy."""
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"


def _values(picture: Picture) -> dict[str, Any]:
    """The data of an interactive chart."""
    return {"views": [asdict(view) for view in picture.views]}


def _inline(text: str) -> str:
    """Text for Markdown in which nothing is taken for markup, a link or the end of a cell."""
    escaped = _MARKUP.sub(r"\\\1", escape(" ".join(text.split()), quote=False))
    return escaped.replace("://", "&#58;//").replace("www.", "www&#46;")


def _line(text: str) -> str:
    """The same for text at the start of a line, which is not taken for a heading or a list."""
    return _LINE_START.sub(lambda match: f"{match[1]}{match[2][:-1]}\\{match[2][-1]}", _inline(text))


def _fenced(text: str) -> str:
    """Code for Markdown between fences that are longer than any in the text."""
    longest = max((len(ticks) for ticks in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}\n{text.rstrip()}\n{fence}"


def _summary(text: str) -> str:
    """Text for an HTML element inside Markdown."""
    return escape(" ".join(text.split())).replace("`", "&#96;")
