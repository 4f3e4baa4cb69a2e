"""Where an external run comes from, as its external.json says, and what is not known of it."""

from dataclasses import asdict, dataclass
from typing import Any

from rlcb.analysis.untrusted import plain, section, whole_number

SCHEMA = 1
MARK = "external.json"
_MOST_FILES = 4096


@dataclass(frozen=True)
class SourceFile:
    """A file that was read."""

    path: str
    sha256: str
    bytes: int | None


@dataclass(frozen=True)
class External:
    """The origin of a run of another program."""

    name: str  # of its group, without the mark
    program: str
    format: str
    sources: tuple[SourceFile, ...]
    mapping: dict[str, str]  # where its steps, times, rewards and lengths come from
    rewards: str  # how they are smoothed
    same_rewards: bool  # they are means of 100 episodes, as those of our runs are
    guessed: dict[str, str]  # labels that are not given but derived, and from what
    unknown: dict[str, str]  # what the files do not say, and why

    @property
    def label(self) -> str:
        """The name with the mark that every table and legend shows."""
        return f"{self.name} (external)"

    @property
    def in_words(self) -> str:
        """Where it comes from and what is not known, for a list of remarks."""
        return f"from {self.format} of {self.program}; unknown: {', '.join(self.unknown)}"

    def to_dict(self) -> dict[str, Any]:
        """Everything, for the configuration that reports show."""
        return asdict(self) | {"sources": [asdict(source) for source in self.sources]}


def external_of(content: dict[str, Any]) -> External:
    """The origin in the content of an external.json, whatever its values are like."""
    files = content.get("sources")
    entries = [entry for entry in files if isinstance(entry, dict)] if isinstance(files, list) else []
    sources = tuple(
        SourceFile(plain(entry.get("path")), plain(entry.get("sha256")), whole_number(entry.get("bytes")))
        for entry in entries[:_MOST_FILES]
    )
    return External(
        name=plain(content.get("name")) or "unnamed run",
        program=plain(content.get("program")),
        format=plain(content.get("format")),
        sources=sources,
        mapping=_texts(section(content, "mapping")),
        rewards=plain(content.get("rewards")),
        same_rewards=content.get("same_rewards") is True,
        guessed=_texts(section(content, "guessed")),
        unknown=_texts(section(content, "unknown")),
    )


def _texts(content: dict[str, Any]) -> dict[str, str]:
    return {plain(name): plain(value) for name, value in list(content.items())[:100]}
