"""A report as one page that needs nothing but itself: no script, no font, no picture from elsewhere."""

from collections.abc import Sequence
from html import escape

from rlcb.analysis.plots import COLOURS, MOST_CURVES
from rlcb.report.document import Block, Cell, Code, Document, Folded, Items, Picture, Section, Table, Terms, Text
from rlcb.report.style import STYLE

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
_MANY_SECTIONS = 3


def as_html(document: Document) -> str:
    """The whole page."""
    title = escape(document.title)
    return "\n".join(
        [
            "<!DOCTYPE html>",
            '<html lang="en">',
            "<head>",
            '<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta name="color-scheme" content="light dark">',
            f"<title>{title}</title>",
            f"<style>{STYLE}</style>",
            "</head>",
            "<body>",
            f"<header><h1>{title}</h1>",
            "<p>" + " · ".join(f"<span>{escape(fact)}</span>" for fact in document.facts) + "</p></header>",
            "<main>",
            *_sections(document.sections),
            "</main>",
            "</body>",
            "</html>",
            "",
        ]
    )


def _sections(sections: Sequence[Section]) -> list[str]:
    """Every section, with a list of them after the first one."""
    parts = []
    for number, section in enumerate(sections):
        level = section.level + 1
        parts.append(f'<section id="{escape(section.anchor)}"><h{level}>{escape(section.title)}</h{level}>')
        parts += [_block(block) for block in section.blocks]
        parts.append("</section>")
        if number == 0 and len(sections) > _MANY_SECTIONS:
            parts.append(_contents(sections[1:]))
    return parts


def _contents(sections: Sequence[Section]) -> str:
    listed = [one for one in sections if one.level == 1]
    links = (f'<a href="#{escape(one.anchor)}">{escape(one.short or one.title)}</a>' for one in listed)
    return f'<nav aria-label="Contents">{" ".join(links)}</nav>'


def _block(block: Block) -> str:
    match block:
        case Table():
            return _table(block)
        case Text():
            kind = ' class="lead"' if block.lead else ""
            return f"<p{kind}>{escape(block.text)}</p>"
        case Items():
            return "<ul>" + "".join(f"<li>{escape(line)}</li>" for line in block.lines) + "</ul>"
        case Terms():
            pairs = (f"<dt>{escape(word)}</dt><dd>{escape(meaning)}</dd>" for word, meaning in block.pairs)
            return f"<dl>{''.join(pairs)}</dl>"
        case Picture():
            caption = f"<figcaption>{escape(block.caption)}</figcaption>"
            return f'<figure><div class="scroll picture" tabindex="0">{block.svg}</div>{caption}</figure>'
        case Code() | Folded():
            return _code(block)


def _code(block: Code | Folded) -> str:
    if isinstance(block, Folded):
        return f"<details><summary>{escape(block.title)}</summary>{_code(block.code)}</details>"
    return f'<pre tabindex="0"><code>{escape(block.text)}</code></pre>'


def _table(table: Table) -> str:
    head = "".join(
        f'<th scope="col"{_right(side)}>{escape(text)}</th>' for text, side in zip(table.head, table.align, strict=True)
    )
    rows = "\n".join(f"<tr>{_row(row, table.align)}</tr>" for row in table.rows)
    caption = f"<caption>{escape(table.caption)}</caption>"
    body = f"<thead><tr>{head}</tr></thead>\n<tbody>{rows}</tbody>"
    return f'<div class="scroll" tabindex="0"><table>{caption}{body}</table></div>'


def _row(row: Sequence[Cell], align: str) -> str:
    parts = []
    for number, (cell, side) in enumerate(zip(row, align, strict=True)):
        tag, scope = ("th", ' scope="row"') if number == 0 else ("td", "")
        parts.append(f"<{tag}{scope}{_right(side)}>{_cell(cell)}</{tag}>")
    return "".join(parts)


def _right(side: str) -> str:
    return ' class="r"' if side == "r" else ""


def _cell(cell: Cell) -> str:
    text, detail = (escape(part).replace("\n", "<br>") for part in (cell.text, cell.detail))
    if cell.strong:
        text = f"<strong>{text}</strong>"
    if cell.colour is not None and cell.colour < MOST_CURVES:
        line, colour = divmod(cell.colour, len(COLOURS))
        text = f'<i class="k{colour} l{line}"></i>{text}'
    return f"{text} <span>{detail}</span>" if detail else text
