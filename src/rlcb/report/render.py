"""Documents and texts from the templates beside this file."""

import re
from html import escape
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

from rlcb.analysis.format import interval_text, number_text
from rlcb.analysis.plots import COLOURS, MOST_CURVES
from rlcb.report.document import Document

_MARKUP = re.compile(r"([\\`*_\[\]|~])")  # characters that are markup wherever they stand in Markdown
_LINE_START = re.compile(r"^(\s*)(#|[-+=]|\d+[.)])")  # what begins a heading or a list


def as_html(document: Document) -> str:
    """A report as one page that loads nothing: no script, font or picture from elsewhere."""
    return render("report.html", document=document, palette=COLOURS, most_marked=MOST_CURVES)


def as_markdown(document: Document) -> str:
    """A report as Markdown, with its pictures as files beside it."""
    return render("report.md", document=document)


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
    templates.filters |= {"number": number_text, "interval": interval_text}
    templates.filters |= {"inline": _inline, "line": _line, "fenced": _fenced, "summary": _summary}
    return templates.get_template(template).render(**values)


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
