"""The history of a run as arrays, read from log files that may be damaged or incomplete."""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rlcb.analysis.statistics import Array
from rlcb.analysis.untrusted import parse_json, parse_lines

# The fields of a History, and the metrics in the log that they hold.
_NAMES = {
    "step": "step",
    "time": "time",
    "reward": "rollout/ep_reward_mean",
    "reward_std": "rollout/ep_reward_std",
    "episodes": "rollout/episodes",
    "policy_loss": "loss/policy",
    "memory_gb": "resource/memory_gb",
}
_SPENT = re.compile(r"time/(\w+)_seconds")
_PIECE = 4 * 2**20  # bytes parsed at a time
_LONGEST_LINE = 2**20
_LARGEST_WHOLE = 256 * 2**20  # bytes of a metrics.json that are read at once

Columns = dict[str, list[Any]]


@dataclass(frozen=True, eq=False)
class History:
    """One entry per update, NaN where the log has no value; `spent` sums the seconds of each activity."""

    step: Array
    time: Array
    reward: Array
    reward_std: Array
    episodes: Array
    policy_loss: Array
    memory_gb: Array
    spent: dict[str, float]

    def __len__(self) -> int:
        return len(self.step)


def load_history(log: Path, whole: Path) -> tuple[History, list[str]]:
    """The history in a metrics.jsonl, and what was wrong with it.

    `whole`: the run's metrics.json. It is several times quicker to read, so it is used if it ends with the same update
    as the log; also if there is no log, and if the log is outside of the run, where a later run may have replaced it.
    """
    last = _last_step(log)
    outside = whole.parent not in log.parents
    if last is not None or outside or not os.path.isfile(log):
        columns = _read_columns(whole)
        if columns and columns["step"] and (outside or last in (None, columns["step"][-1])):
            history, problems = _checked(_as_arrays(columns), _spent(columns))
            lacks = [] if os.path.isfile(log) else [f"no {log.name}, {whole.name} is used"]
            return history, lacks + problems
    return _read_log(log)


def _last_step(log: Path) -> Any:
    """The step in the last line of a log, None if the line is not complete."""
    try:
        with log.open("rb") as file:
            file.seek(max(os.path.getsize(log) - _LONGEST_LINE, 0))
            tail = file.read(_LONGEST_LINE)
        return parse_json(tail[tail[:-1].rfind(b"\n") + 1 :])["step"] if tail.endswith(b"\n") else None
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def _read_columns(path: Path) -> Columns | None:
    """The lists of a metrics.json, None unless it is complete."""
    try:
        if not os.path.isfile(path) or os.path.getsize(path) > _LARGEST_WHOLE:
            return None
        content = parse_json(path.read_bytes())
        columns = {name: list(column) for name, column in content.items() if isinstance(column, list)}
    except (OSError, ValueError, AttributeError, RecursionError):
        return None
    whole = "step" in columns and len({len(column) for column in columns.values()}) == 1
    return columns if whole else None


def _read_log(path: Path) -> tuple[History, list[str]]:
    """Parse a log piece by piece; lines that are not JSON objects are counted and left out."""
    parts: list[dict[str, Array]] = []
    spent: dict[str, float] = {}
    problems: list[str] = []
    bad = 0
    try:
        for rows, unreadable, problem in _pieces(path):
            bad += unreadable
            problems += [problem] if problem else []
            columns = {name: [row.get(name) for row in rows] for name in _wanted(rows)}
            parts.append(_as_arrays(columns))
            for name, seconds in _spent(columns).items():
                spent[name] = spent.get(name, 0.0) + seconds
    except OSError as error:
        problems.append(f"{path.name} cannot be read: {error.strerror}" if os.path.exists(path) else f"no {path.name}")
    if bad:
        problems.append(f"{path.name}: {bad} unreadable line{'s' * (bad > 1)} left out")
    empty = np.empty(0)
    joined = {name: np.concatenate([part[name] for part in parts]) if parts else empty for name in _NAMES}
    history, more = _checked(joined, spent)
    return history, problems + more


def _pieces(path: Path) -> Iterator[tuple[list[dict[str, Any]], int, str | None]]:
    """The rows of a log, some thousands at a time: (rows, unreadable lines, problem)."""
    if not os.path.isfile(path):
        raise FileNotFoundError(path)
    rest = b""
    with path.open("rb") as file:
        while piece := file.read(_PIECE):
            piece = rest + piece
            cut = piece.rfind(b"\n") + 1
            rest = piece[cut:]
            if len(rest) > _LONGEST_LINE:
                yield *parse_lines(piece[:cut]), f"{path.name}: what follows a line of more than 1 MB is left out"
                return
            yield *parse_lines(piece[:cut]), None
    rows, unreadable = parse_lines(rest)
    yield rows, 0, f"{path.name}: its last line is cut off and left out" if unreadable else None


def _wanted(rows: list[dict[str, Any]]) -> list[str]:
    return [*_NAMES.values(), *(name for name in (rows[-1] if rows else ()) if _SPENT.fullmatch(name))]


def _as_arrays(columns: Columns) -> dict[str, Array]:
    missing = [None] * len(columns["step"])
    return {field: _numbers(columns.get(name, missing)) for field, name in _NAMES.items()}


def _spent(columns: Columns) -> dict[str, float]:
    """Seconds summed up by activity."""
    found = ((_SPENT.fullmatch(name), column) for name, column in columns.items())
    return {match[1]: float(np.nansum(_numbers(column))) for match, column in found if match}


def _numbers(values: list[Any]) -> Array:
    """Values as floats; what is not a finite number becomes NaN."""
    try:
        numbers = np.array(values, np.float64)
    except (ValueError, TypeError, OverflowError):
        numbers = np.empty((0, 0))
    if numbers.ndim != 1:
        kept = [x if isinstance(x, int | float) and abs(x) < 1e300 else None for x in values]
        numbers = np.array(kept, np.float64)
    return np.where(np.isfinite(numbers), numbers, np.nan)


def _checked(arrays: dict[str, Array], spent: dict[str, float]) -> tuple[History, list[str]]:
    """Only updates with a step and a time, and only up to where one of them decreases."""
    problems = []
    step, time = arrays["step"], arrays["time"]
    known = np.isfinite(step) & np.isfinite(time) & (step >= 0) & (time >= 0)
    if not known.all():
        problems.append(f"{int((~known).sum())} updates without a step or a time left out")
    arrays = {name: array[known] for name, array in arrays.items()}
    back = np.flatnonzero((np.diff(arrays["step"]) <= 0) | (np.diff(arrays["time"]) < 0))
    if len(back):
        problems.append(f"steps or times go back after step {arrays['step'][back[0]]:,.0f}: what follows is left out")
        arrays = {name: array[: back[0] + 1] for name, array in arrays.items()}
    return History(**arrays, spent=spent), problems
