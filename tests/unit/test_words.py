"""Counts with their nouns, times in units that fit and commands to copy: one function each, in every message."""

import re
import sys
from pathlib import Path
from typing import Any

import pytest

from helpers.processes import ROOT, run
from rlcb.commands.overview import VERBS
from rlcb.suite.directory import store
from rlcb.suite.settings import build_suite
from rlcb.words import counted, few_hours, span_text, typed


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


# Commands that are printed


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A virtual environment's folder of programs in the current folder, which is not active."""
    programs = tmp_path / "my env" / "bin"
    programs.mkdir(parents=True)
    for name in ("python", "rlcb"):
        (programs / name).write_text("#!/bin/sh\n")
        (programs / name).chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "executable", str(programs / "python"))
    monkeypatch.setattr(sys, "argv", ["elsewhere.py"])
    monkeypatch.setenv("PATH", str(tmp_path / "none"))
    return programs


def test_a_command_names_this_program_where_the_shell_finds_it(
    environment: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert typed("rlcb train --resume run") == "'my env/bin/rlcb' train --resume run"
    assert typed("train_timed.py --resume run") == "'my env/bin/python' train_timed.py --resume run"
    monkeypatch.chdir("/")
    assert typed("rlcb status") == f"'{str(environment).lstrip('/')}/rlcb' status"
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert typed("rlcb status") == f"'{environment}/rlcb' status"
    (tmp_path / "none").mkdir()
    (tmp_path / "none" / "rlcb").symlink_to("/bin/sh")  # another program of this name
    assert typed("rlcb status") == f"'{environment}/rlcb' status"
    monkeypatch.setenv("PATH", str(environment))  # it is active
    assert typed("rlcb status") == "rlcb status"
    assert typed("train_timed.py --resume run") == "python train_timed.py --resume run"
    (tmp_path / "none" / "rlcb").unlink()
    (tmp_path / "none" / "rlcb").symlink_to(environment / "rlcb")
    monkeypatch.setenv("PATH", str(tmp_path / "none"))
    assert typed("rlcb status") == "rlcb status"
    (environment / "rlcb").unlink()
    assert typed("rlcb status") == f"'{environment}/python' -m rlcb status"


def test_a_printed_command_works_where_no_environment_is_active(tmp_path: Path) -> None:
    values: dict[str, Any] = {"games": ["CartPole-v1"], "modes": ["sequential"], "seeds": [1], "total_timesteps": 8192}
    store(tmp_path / "suite", build_suite(None, {key: (key, value) for key, value in values.items()}))
    bare = {"PATH": "/usr/bin:/bin"}
    shown = run([sys.executable, "-m", "rlcb", "status", "."], env=bare, cwd=tmp_path).stdout
    command = next(line for line in shown.splitlines() if "resume with: " in line).partition("resume with: ")[2]
    assert not command.startswith("rlcb ")
    planned = run(["sh", "-c", f"{command} --dry-run"], env=bare, cwd=tmp_path).stdout
    assert "ppo sequential CartPole-v1 seed 1" in planned


def test_no_message_makes_its_own_command() -> None:
    """A command with values in it is to be copied, and `typed` knows how it begins."""
    verbs = "|".join(VERBS)
    own = re.compile(rf"""(: |f")rlcb ({verbs})\b[^"]*\{{""")
    found = [
        f"{path.name}: {line.strip()}"
        for path in ROOT.glob("src/rlcb/**/*.py")
        for line in path.read_text(encoding="utf-8").splitlines()
        if own.search(line) and "typed(" not in line and "usage" not in line
    ]
    assert not found
