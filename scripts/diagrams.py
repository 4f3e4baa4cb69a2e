"""Draw the Mermaid diagrams of docs/ as pictures for the site, with a headless Chromium and Mermaid's own script.

usage: npm pack mermaid@11 && tar xzf mermaid-11.*.tgz package/dist/mermaid.min.js
       python scripts/diagrams.py --mermaid package/dist/mermaid.min.js

A code host draws the diagrams itself, and the site shows these pictures. Only new and changed diagrams are drawn;
pictures of diagrams that no page has any longer are removed.
"""

import argparse
import hashlib
import html
import re
import subprocess
import sys
import tempfile
from pathlib import Path

DOCS = Path(__file__).resolve().parents[1] / "docs"
PAGE = """<html><body><pre id="diagram" class="mermaid">{source}</pre><script src="{script}"></script>
<script>mermaid.initialize({{startOnLoad: true, theme: "neutral", deterministicIds: true,
fontFamily: "sans-serif", htmlLabels: false, flowchart: {{htmlLabels: false}}}});</script></body></html>"""


def diagrams() -> dict[str, str]:
    """The sources of all diagrams, by the names of their pictures."""
    found = re.compile(r"^```mermaid\n(.*?)^```$", re.DOTALL | re.MULTILINE)
    pages = [page.read_text(encoding="utf-8") for page in sorted(DOCS.glob("*.md"))]
    sources = [source for page in pages for source in found.findall(page)]
    return {hashlib.sha256(source.encode()).hexdigest()[:12]: source for source in sources}


def draw(name: str, source: str, script: Path, browser: str) -> str:
    """The picture of one diagram."""
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "page.html"
        text = PAGE.format(source=html.escape(source), script=script.resolve().as_uri())
        page.write_text(text, encoding="utf-8")
        command = [browser, "--headless", "--no-sandbox", "--virtual-time-budget=20000", "--dump-dom", page.as_uri()]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    picture = re.search(r"<svg.*?</svg>", done.stdout, re.DOTALL)
    if done.returncode or not picture or "Syntax error" in picture[0]:
        sys.exit(f"diagrams.py: error: {browser} drew nothing for the diagram {name}: {source.splitlines()[0]} …")
    number = re.search(r'id="(mermaid-\d+)"', picture[0])  # the same in every picture, and a page has several
    return (picture[0].replace(number[1], f"diagram-{name}") if number else picture[0]) + "\n"


def main() -> None:
    """Draw what is missing."""
    parser = argparse.ArgumentParser(description="Draw the Mermaid diagrams of docs/ as pictures for the site.")
    parser.add_argument("--mermaid", type=Path, required=True, metavar="FILE", help="mermaid.min.js of the npm package")
    parser.add_argument("--browser", default="chromium", metavar="PROGRAM", help="Chromium or Chrome (chromium)")
    flags = parser.parse_args()
    wanted = diagrams()
    for name, source in wanted.items():
        picture = DOCS / "diagrams" / f"{name}.svg"
        if not picture.exists():
            picture.write_text(draw(name, source, flags.mermaid, flags.browser), encoding="utf-8")
            print(f"drawn: {picture.relative_to(DOCS.parent)}")
    for picture in (DOCS / "diagrams").glob("*.svg"):
        if picture.stem not in wanted:
            picture.unlink()
            print(f"removed: {picture.relative_to(DOCS.parent)}")


if __name__ == "__main__":
    main()
