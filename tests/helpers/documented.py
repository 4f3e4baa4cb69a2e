"""The commands that README, CONTRIBUTING.md, docs/*.md and the Makefile tell a reader to type."""

import re
import shlex

from helpers.processes import ROOT

DOCUMENTS = (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md")))
_FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_INLINE = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
_ASSIGNMENT = re.compile(r"[A-Z_]+=\S*$")
# Words with which an inline code begins that is a command and not a name, a value or a file.
_PROGRAMS = ("rlcb", "python", "make", "bash", "sudo", "nohup", "ray", "pip", "tensorboard", "source")


def documented_commands() -> dict[str, list[str]]:
    """Every documented command without its comment, and the documents that have it."""
    found: dict[str, list[str]] = {}
    for document in DOCUMENTS:
        for command in commands_in(document.read_text(encoding="utf-8")):
            places = found.setdefault(command, [])
            places += [] if document.name in places else [document.name]
    return found


def commands_in(text: str) -> list[str]:
    """The commands in a document: the lines of its bash blocks, and inline code that begins with a program's name."""
    found = []
    for language, block in _FENCED.findall(text):
        lines = block.replace("\\\n", " ").splitlines() if language == "bash" else ()
        found += [command for line in lines if (command := without_comment(line))]
    for code in _INLINE.findall(_FENCED.sub("", text)):
        words = [word for word in code.split() if not _ASSIGNMENT.match(word)]
        if len(words) > 1 and words[0] in _PROGRAMS:
            found.append(code.replace("\\|", "|"))  # as a table has it
    return found


def without_comment(line: str) -> str:
    """A line of a shell script without its comment."""
    return re.sub(r"(^|\s+)#.*$", "", line).strip()


def make_targets() -> dict[str, str]:
    """The targets that `make help` lists, and what it says of them."""
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    rules = re.findall(r"^([a-z0-9 -]+):.*?## (.*)$", text, re.MULTILINE)
    return {target: words for targets, words in rules for target in targets.split()}


def split(command: str) -> tuple[dict[str, str], list[str]]:
    """The variables that a command sets, and its words."""
    words = shlex.split(command)
    count = next((index for index, word in enumerate(words) if not _ASSIGNMENT.match(word)), len(words))
    return dict(word.split("=", 1) for word in words[:count]), words[count:]
