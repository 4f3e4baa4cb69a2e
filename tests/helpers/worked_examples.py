"""The worked examples of CONTRIBUTING.md: read from the document and applied to a copy of the package."""

import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from helpers.processes import ROOT

# A line that ends in a colon says what the block below it does to which file.
_BLOCK = re.compile(r"^(?:(New file|Change in) `([^`\n]+)`[^\n]*:\n\n)?```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class WorkedExample:
    """One section of "How to add …"."""

    new_files: dict[str, str]  # path → content
    changes: dict[str, str]  # path → diff
    commands: list[list[str]]  # what a reader is told to type, without `rlcb`

    @property
    def files(self) -> set[str]:
        """The files it touches."""
        return {*self.new_files, *self.changes}


def worked_examples() -> dict[str, WorkedExample]:
    """Every worked example of CONTRIBUTING.md by the title of its section."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").partition("\n## How to add …\n")[2]
    _, *parts = re.split(r"^### … (.+)$", text, flags=re.MULTILINE)
    return {title: _parsed(body) for title, body in zip(parts[::2], parts[1::2], strict=True)}


def _parsed(body: str) -> WorkedExample:
    example = WorkedExample({}, {}, [])
    for action, path, language, content in _BLOCK.findall(body):
        match action, language:
            case "New file", "python":
                example.new_files[path] = content
            case "Change in", "diff":
                example.changes[path] = content
            case "", "bash":
                example.commands.extend(line.split()[1:] for line in content.splitlines() if line.startswith("rlcb "))
            case _:
                raise AssertionError(f"a {language} block that nothing introduces: {content}")
    return example


def apply_example(example: WorkedExample, folder: Path) -> Path:
    """Copy the package into a folder, make the example's changes there; returns the copy of src/."""
    # With compiled modules, which save time, but without those that another process is writing.
    shutil.copytree(ROOT / "src", folder / "src", ignore=shutil.ignore_patterns("*.pyc.*"))
    for path, content in example.new_files.items():
        assert not (folder / path).exists(), f"{path} exists already"
        (folder / path).write_text(content, encoding="utf-8")
    for path, diff in example.changes.items():
        changed = patched((ROOT / path).read_text(encoding="utf-8"), diff)
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).write_text(changed, encoding="utf-8")
    return folder / "src"


def patched(text: str, diff: str) -> str:
    """A text after a diff without line numbers, whose hunks are separated by `@@`; each must fit exactly one place."""
    for hunk in re.split(r"^@@\n", diff, flags=re.MULTILINE):
        lines = hunk.splitlines()
        before, after = ("".join(f"{line[1:]}\n" for line in lines if line[:1] != sign) for sign in "+-")
        assert f"\n{text}".count(f"\n{before}") == 1, f"this does not stand exactly once in the file:\n{before}"
        text = f"\n{text}".replace(f"\n{before}", f"\n{after}")[1:]
    return text
