"""Counts with their nouns and times in units that fit: one function each, in every message."""

import re

import pytest

from helpers.processes import ROOT
from rlcb.words import counted, few_hours, span_text


@pytest.mark.parametrize(
    ("count", "noun", "text"),
    [(1, "worker", "1 worker"), (2, "worker", "2 workers"), (0, "run", "0 runs"), (1, "process", "1 process"),
     (2, "process", "2 processes"), (1.0, "hour", "1 hour"), (0.5, "hour", "0.5 hours"), (12000, "run", "12,000 runs"),
     (2_000_000, "step", "2,000,000 steps")],
)  # fmt: skip
def test_counts(count: float, noun: str, text: str) -> None:
    assert counted(count, noun) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.25, "0.25 s"), (1.94, "1.9 s"), (9.96, "10 s"), (42, "42 s"), (60, "1 min"), (100, "1 min 40 s"),
     (621, "10 min"), (3599, "60 min"), (3600, "1 h"), (4830, "1 h 20 min"), (90_000, "25 h")],
)  # fmt: skip
def test_times(seconds: float, text: str) -> None:
    assert span_text(seconds) == text


def test_few_hours_have_a_better_unit_beside_them() -> None:
    assert few_hours(30 / 3600) == " (30 s)"
    assert few_hours(0.5) == " (30 min)"
    assert few_hours(1.0) == few_hours(None) == ""


def test_no_message_makes_its_own_plural() -> None:
    """An s behind a condition on a number is what `counted` is for."""
    own = re.compile(r"""[a-z]\{\{?\s*['"]s?['"] (if|\*) [^}]*(== 1|> 1)""")
    files = [*ROOT.glob("src/rlcb/**/*.py"), *ROOT.glob("src/rlcb/**/*.txt")]
    assert len(files) > 200
    found = [
        f"{path.name}: {line.strip()}"
        for path in files
        if path.name != "words.py"
        for line in path.read_text(encoding="utf-8").splitlines()
        if own.search(line)
    ]
    allowed = ("algorithm{", "set{'s' if len(setting) == 1")  # a noun before a list, and a verb
    assert [line for line in found if not any(part in line for part in allowed)] == []
