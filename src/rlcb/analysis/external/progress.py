"""RLlib's result.json and progress.csv, and Stable-Baselines3's progress.csv: a row per iteration."""

import csv
import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from rlcb.analysis.external.beside import settings_beside
from rlcb.analysis.external.log import Log
from rlcb.analysis.external.mapping import OF_TABLES, Mapping, choose
from rlcb.analysis.untrusted import number, parse_lines
from rlcb.errors import UsageError
from rlcb.files import open_regular
from rlcb.words import counted

NAMES = ("result.json", "progress.csv")  # the first that is there is read: columns that begin later are in it alone
_LARGEST = 2 * 2**30
_LONGEST_LINE = 16 * 2**20
_DEEPEST = 6  # levels of a result
_MOST_ROWS = 1_000_000

Row = dict[str, float]


def read_progress(file: Path, given: Mapping | None) -> Log:
    """The averages that were logged once per iteration."""
    problems: list[str] = []
    try:
        rows = list(islice(_rows(file, problems), _MOST_ROWS))
    except OSError as error:
        raise UsageError(f"{file}: cannot be read: {error.strerror}") from None
    if not rows:
        raise UsageError(f"{file}: contains no iteration yet")
    if len(rows) == _MOST_ROWS:
        problems.append(f"{file.name}: only the first {_MOST_ROWS:,} rows are read")
    names = dict.fromkeys(name for row in rows for name in row)
    mapping = choose(OF_TABLES, names, file, given)
    if not mapping.step:
        raise UsageError(f"{file}: the mapping has no key step, which names the column of the environment steps")
    wanted = (mapping.step, mapping.time, mapping.reward, mapping.length)
    columns = [np.array([row.get(name, np.nan) for row in rows]) for name in wanted]
    known = np.isfinite(columns[0]) & np.isfinite(columns[2])
    if not known.any():
        raise UsageError(f"{file}: contains no finished episode yet")
    step, time, reward, length = (column[known] for column in columns)
    back = np.flatnonzero(np.diff(step) < 0)
    if len(back):
        problems.append(f"steps decrease after step {step[back[0]]:,.0f}: the rest is ignored")
        step, time, reward, length = (column[: back[0] + 1] for column in (step, time, reward, length))
    return Log(
        program=mapping.program,
        format=file.name if file.name in NAMES else file.suffix.removeprefix("."),
        kind=mapping.kind,
        step=step,
        time=time,
        reward=reward,
        length=length,
        mapping=mapping.to_dict(),
        averaged=mapping.averaged,
        window=mapping.window,
        hints=settings_beside(file.parent),
        problems=tuple(problems),
    )


def _rows(file: Path, problems: list[str]) -> Iterator[Row]:
    """The numbers of each row, by their names; parts of a nested result are joined by slashes."""
    lines = _lines(file, problems)
    if file.suffix == ".csv":
        names = next(csv.reader([next(lines, "")]), [])
        bad = 0
        for line in lines:
            try:
                cells = next(csv.reader([line], strict=True), [])
            except csv.Error:
                cells = []
            found = {
                name: value for name, cell in zip(names, cells, strict=False) if (value := _cell(cell)) is not None
            }
            bad += len(cells) != len(names)
            if len(cells) == len(names):
                yield found
    else:
        bad = 0
        for line in lines:
            results, unreadable = parse_lines(line.encode())
            bad += unreadable
            yield from (dict(_flat(result)) for result in results)
    if bad:
        problems.append(f"{file.name}: {counted(bad, 'unreadable line')} ignored")


def _lines(file: Path, problems: list[str]) -> Iterator[str]:
    """The complete lines of a file; what follows one that is too long is left out, and so is one that is cut off."""
    with open_regular(file, _LARGEST) as opened:
        if not os.fstat(opened.fileno()).st_size:
            raise UsageError(f"{file}: is empty")
        while line := opened.readline(_LONGEST_LINE):
            if not line.endswith(b"\n"):
                cut = "its last line is incomplete and ignored (still being written?)"
                long = "ignored from a line of more than 16 MB on"
                problems.append(f"{file.name}: {cut if len(line) < _LONGEST_LINE else long}")
                return
            if line.strip():
                yield line.decode(errors="replace")


def _flat(result: dict[str, Any], prefix: str = "", depth: int = 0) -> Iterator[tuple[str, float]]:
    for name, value in result.items():
        if isinstance(value, dict) and depth < _DEEPEST and (prefix or name != "config"):
            yield from _flat(value, f"{prefix}{name}/", depth + 1)
        elif (found := number(value)) is not None:
            yield f"{prefix}{name}", found


def _cell(text: str) -> float | None:
    try:
        return number(float(text))
    except ValueError:
        return None
