"""A report as one HTML page that loads nothing: no script, font or picture from elsewhere."""

from jinja2 import Environment, PackageLoader, StrictUndefined

from rlcb.analysis.plots import COLOURS, MOST_CURVES
from rlcb.report.document import Document


def as_html(document: Document) -> str:
    """The whole page, from templates/report.html and templates/style.css; the template engine escapes all text."""
    templates = Environment(
        loader=PackageLoader("rlcb.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    page = templates.get_template("report.html")
    return page.render(document=document, palette=COLOURS, most_marked=MOST_CURVES)
