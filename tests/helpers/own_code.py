"""The examples of docs/own_environments.md as files."""

import re
from pathlib import Path

from helpers.processes import ROOT

PAGE = ROOT / "docs" / "own_environments.md"
_FILE = re.compile(r"^New file `([^`\n]+)`:\n\n```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def write_own_code(folder: Path) -> Path:
    """Write the page's files below a folder."""
    found = _FILE.findall(PAGE.read_text(encoding="utf-8"))
    assert len(found) == 3
    for name, content in found:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(content, encoding="utf-8")
    return folder
