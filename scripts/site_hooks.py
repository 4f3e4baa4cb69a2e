"""What MkDocs does beyond its defaults to make a site of the repository's Markdown files (`make docs`).

The files stay as a code host shows them. README.md becomes the front page, and the other documents of the root pages
beside those of docs/; links between them are rewritten. Diagrams in Mermaid become the pictures of docs/diagrams/, so
that a reader's browser needs no script and no other host for them.
"""

import hashlib
import logging
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parents[1]
PAGES = {"README.md": "index.md", **{name: name for name in ("CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")}}
_log = logging.getLogger("mkdocs.hooks.rlcb")
_LINK = re.compile(r"\[([^\]\n]*)\]\(([^)#\s:]+)(#[^)\s]*)?\)")
_MERMAID = re.compile(r"^```mermaid\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_CODE = re.compile(r"(?<!`)`[^`\n]+`(?!`)")


def on_files(files: Any, config: Any) -> Any:
    """Add the documents of the repository's root."""
    for name, page in PAGES.items():
        files.append(File.generated(config, page, content=(ROOT / name).read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """A page's text with diagrams as pictures and with links that fit the site."""
    del config
    folder = ROOT if page.file.src_uri in PAGES.values() else ROOT / "docs"
    markdown = _MERMAID.sub(lambda found: diagram(found[1], page.file.src_uri), markdown)
    markdown = _LINK.sub(lambda found: link(found, folder, page.file.src_uri, files), markdown)
    return _CODE.sub(lambda found: found[0].replace("\\|", "|"), markdown)  # on GitHub a table needs the backslash


def link(found: re.Match[str], folder: Path, page: str, files: Any) -> str:
    """A link as the site has it; one to a file of the repository that is no page becomes its text."""
    text, target, anchor = found[1], found[2], found[3] or ""
    path = (folder / target).resolve()
    if not path.exists():
        _log.warning("%s: the link to %s leads nowhere", page, target)
        return found[0]
    name = path.relative_to(ROOT).as_posix()
    name = PAGES.get(name, name.removeprefix("docs/"))
    return f"[{text}]({name}{anchor})" if files.get_file_from_path(name) else text


def diagram(source: str, page: str) -> str:
    """The picture of a diagram, or its source where the picture was not made."""
    picture = ROOT / "docs/diagrams" / f"{digest(source)}.svg"
    if not picture.exists():
        _log.warning("%s: a diagram has no picture; make it with: python scripts/diagrams.py", page)
        return f"```\n{source}```"
    return f'<div class="diagram">{picture.read_text(encoding="utf-8")}</div>'


def digest(source: str) -> str:
    """The name of a diagram's picture: it changes with the diagram."""
    return hashlib.sha256(source.encode()).hexdigest()[:12]
