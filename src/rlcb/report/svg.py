"""Pictures for a page: drawings without a background that take the page's own colour of text, light or dark."""

import io
import re
from typing import TYPE_CHECKING
from xml.etree import ElementTree

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_LINK = "{http://www.w3.org/1999/xlink}href"
_DROPPED = ("metadata", "style", "title")
# Ink and grid follow the page; the colours that mean something stay what they are.
_THEMED = {"#222222": "currentColor", "#000000": "currentColor", "#dddddd": "var(--grid)"}
_COLOUR = re.compile(r"#[0-9a-f]{6}\b")
_FONT = re.compile(r"font-family: [^;]*;? ?")
_AROUND_LETTERS = re.compile(r"\s*([MLCQzZ])\s*")
_DECIMAL = re.compile(r"-?\d+\.\d+")
_REFERENCE = re.compile(r"#([\w-]+)")


def inline_svg(figure: "Figure", name: str, alt: str) -> str:
    """A figure as an <svg> element to put into a page; `name` keeps its ids apart from other pictures'."""
    import matplotlib as mpl

    buffer = io.BytesIO()
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": name}):
        figure.savefig(buffer, format="svg", transparent=True)
    root = ElementTree.fromstring(buffer.getvalue())
    _drop(root)
    linked = {found for node in root.iter() for value in node.attrib.values() for found in _REFERENCE.findall(value)}
    for node in root.iter():
        node.tag = node.tag.rpartition("}")[2]
        node.tail = None
        if node.tag != "text":
            node.text = None
        node.attrib = {key: _tidy(key, value) for key, value in _attributes(node, linked).items()}
    root.attrib = {"viewBox": root.attrib["viewBox"], "role": "img", "aria-label": alt}
    return ElementTree.tostring(_flat(root), encoding="unicode")


def _drop(node: ElementTree.Element) -> None:
    """Take out what a page has no use for; a picture's style would apply to the whole page."""
    for child in list(node):
        if child.tag.rpartition("}")[2] in _DROPPED:
            node.remove(child)
        else:
            _drop(child)


def _attributes(node: ElementTree.Element, linked: set[str]) -> dict[str, str]:
    found = {"href" if key == _LINK else key: value for key, value in node.attrib.items()}
    if found.get("id") not in linked:
        found.pop("id", None)
    if found.get("transform", "").startswith("rotate(-0 "):
        del found["transform"]
    return found


def _tidy(key: str, value: str) -> str:
    """Shorter numbers, and the page's font and colours."""
    if key in ("d", "x", "y", "width", "height", "transform", "viewBox"):
        value = _DECIMAL.sub(lambda match: f"{float(match[0]):.1f}".removesuffix(".0"), value)
        return _AROUND_LETTERS.sub(r"\1", value) if key == "d" else value
    if key == "style":
        value = _COLOUR.sub(lambda match: _THEMED.get(match[0], match[0]), value)
        return _FONT.sub("", value).replace(": ", ":").replace("; ", ";")
    return value


def _flat(node: ElementTree.Element) -> ElementTree.Element:
    """Without groups that say nothing about what is in them."""
    inside: list[ElementTree.Element] = []
    for child in node:
        flat = _flat(child)
        empty = flat.tag == "defs" and not len(flat)
        inside += list(flat) if flat.tag == "g" and not flat.attrib else [] if empty else [flat]
    node[:] = inside
    return node
