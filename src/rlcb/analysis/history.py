"""The history of a run as arrays, read from log files that may be damaged or incomplete."""

import os
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from rlcb.analysis.statistics import Array
from rlcb.analysis.untrusted import parse_json, parse_lines, read_object
from rlcb.errors import UsageError
from rlcb.files import open_regular
from rlcb.words import counted

# The fields of a History, and the metrics in the log that they hold.
FIELDS = {
    "step": "step",
    "time": "time",
    "reward": "rollout/ep_reward_mean",
    "reward_std": "rollout/ep_reward_std",
    "length": "rollout/ep_len_mean",
    "episodes": "rollout/episodes",
    "policy_loss": "loss/policy",
    "memory_gb": "resource/memory_gb",
}
_SPENT = re.compile(r"time/(\w+)_seconds")
_PIECE = 4 * 2**20  # bytes parsed at a time
_LONGEST_LINE = 2**20
_LARGEST_LOG = 4 * 2**30  # bytes of a log that are read
LARGEST_COLUMNS = 256 * 2**20  # bytes of a metrics.json that are read at once

WINDOW = 100  # episodes that a logged mean is over, once there are that many
LONG_WINDOW = 5 * WINDOW  # episodes of a mean that is compared with a level of reward

Columns = dict[str, Array]  # by the names of the log


@dataclass(frozen=True, eq=False)
class History:
    """One entry per update, NaN where the log has no value; `spent` sums the seconds of each activity."""

    step: Array
    time: Array
    reward: Array
    reward_std: Array
    length: Array
    episodes: Array
    policy_loss: Array
    memory_gb: Array
    spent: dict[str, float]

    def __len__(self) -> int:
        return len(self.step)

    @property
    def settled_reward(self) -> Array:
        """The mean rewards that can be compared: NaN until it is known that they are over a full window of episodes.

        Episodes that end early are often the successful, or the unsuccessful ones: a mean over the first of them is
        not that of the policy. A log that does not count episodes is taken as it is.
        """
        return np.where(self.episodes < WINDOW, np.nan, self.reward)

    @cached_property
    def long_mean_reward(self) -> Array:
        """The mean reward of 500 episodes, the newest that the log has apart; NaN until there are as many.

        A mean of 100 episodes is too noisy for a level: the highest of the first dozens of them reaches it by chance
        long before the policy does. The log has means of 100, so this is the mean of five of them, each the newest
        that shares no episode with the one after it. Where an update ends more than 100 episodes, the log has those
        of its end alone, so the five are of five updates: one counted twice would be as noisy as fewer episodes.
        A log that does not count episodes is taken as it is.
        """
        if not np.isfinite(self.episodes).any():
            return self.reward
        counts = np.nan_to_num(np.fmax.accumulate(self.episodes))  # 0 before the first count
        before = np.searchsorted(counts, counts - WINDOW, side="right") - 1  # -1 where there is none
        index, known, means = np.arange(len(counts)), np.ones(len(counts), bool), []
        for _ in range(LONG_WINDOW // WINDOW):
            known &= (index >= 0) & (counts[index] >= WINDOW)
            means.append(self.reward[index])
            index = before[index]
        return np.where(known, np.mean(means, axis=0), np.nan)


def load_history(log: Path, whole: Path) -> tuple[History, list[str]]:
    """The history in a metrics.jsonl, else in the run's metrics.json (`whole`), and what was wrong with it."""
    # metrics.json, made when a run ends, is several times quicker to read, so it is used if it ends with the same
    # update as the log; also if there is no log, and if the log is outside of the run and not this run's, because a
    # later run has replaced it.
    columns = _read_columns(whole)
    if columns and not os.path.isfile(log):
        return as_history(columns, [f"no {log.name}; using {whole.name}"])
    outside = whole.parent not in log.parents
    if columns and (_agrees(columns, -1, _last_line(log)) or (outside and not _agrees(columns, 0, _first_line(log)))):
        return as_history(columns, [])
    return as_history(*read_log(log))


def _agrees(columns: Columns, index: int, line: bytes) -> bool:
    """Whether a line of a log is the update at this index, which no two runs measure alike."""
    try:
        row = parse_json(line)
        found = [_numbers([row.get(name)])[0] for name in columns]
    except (ValueError, AttributeError, RecursionError):
        return False
    return np.array_equal(found, [column[index] for column in columns.values()], equal_nan=True)


def _first_line(log: Path) -> bytes:
    """The first line of a log, empty if there is none."""
    try:
        with open_regular(log) as file:
            return file.readline(_LONGEST_LINE)
    except OSError:
        return b""


def _last_line(log: Path) -> bytes:
    """The last line of a log, empty if it is not complete."""
    try:
        with open_regular(log) as file:
            file.seek(max(os.fstat(file.fileno()).st_size - _LONGEST_LINE, 0))
            tail = file.read(_LONGEST_LINE)
    except OSError:
        return b""
    return tail[tail[:-1].rfind(b"\n") + 1 :] if tail.endswith(b"\n") else b""


def _read_columns(path: Path) -> Columns | None:
    """The columns of a metrics.json, None unless it is complete and has any update."""
    try:
        content = read_object(path, LARGEST_COLUMNS)
    except UsageError:
        return None
    columns = {name: column for name, column in content.items() if isinstance(column, list)}
    lengths = {len(column) for column in columns.values()}
    if "step" not in columns or len(lengths) != 1 or 0 in lengths:
        return None
    wanted = [name for name in columns if name in FIELDS.values() or _SPENT.fullmatch(name)]
    return {name: _numbers(columns[name]) for name in wanted}


def read_log(path: Path) -> tuple[Columns, list[str]]:
    """Parse a log piece by piece; lines that are not JSON objects are counted and left out."""
    parts: dict[str, list[Array]] = {}
    problems: list[str] = []
    bad, rest = 0, b""
    try:
        with open_regular(path) as file:
            while (piece := file.read(_PIECE)) or rest:
                if file.tell() > _LARGEST_LOG:
                    problems.append(f"{path.name}: only the first {_LARGEST_LOG // 2**30} GB are read")
                    break
                text = rest + piece
                cut = text.rfind(b"\n") + 1 if piece else len(text)
                rows, unreadable = parse_lines(text[:cut])
                spent = [name for name in rows[-1] if _SPENT.fullmatch(name)] if rows else []
                for name in (*FIELDS.values(), *spent):
                    parts.setdefault(name, []).append(_numbers([row.get(name) for row in rows]))
                rest = text[cut:]
                if piece:
                    bad += unreadable
                elif unreadable:
                    problems.append(f"{path.name}: its last line is incomplete and ignored")
                if len(rest) > _LONGEST_LINE:
                    problems.append(f"{path.name}: ignored from a line of more than 1 MB on")
                    break
    except OSError as error:
        problems.append(f"{path.name} cannot be read: {error.strerror}" if os.path.lexists(path) else f"no {path.name}")
    if bad:
        problems.append(f"{path.name}: {counted(bad, 'unreadable line')} ignored")
    return {name: np.concatenate(arrays) for name, arrays in parts.items()}, problems


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


def as_history(columns: Columns, problems: list[str], timed: bool = True) -> tuple[History, list[str]]:
    """Only updates with a step and, if `timed`, a time, and only up to where one of them decreases."""
    spent = {match[1]: float(np.nansum(columns[name])) for name in columns if (match := _SPENT.fullmatch(name))}
    missing = np.full(len(columns.get("step", ())), np.nan)
    arrays = {field: columns.get(name, missing) for field, name in FIELDS.items()}
    known = (arrays["step"] >= 0) & ((arrays["time"] >= 0) | (not timed))
    if not known.all():
        problems.append(f"{counted(int((~known).sum()), 'update')} without a step or a time ignored")
    arrays = {field: array[known] for field, array in arrays.items()}
    back = np.flatnonzero((np.diff(arrays["step"]) <= 0) | (np.diff(arrays["time"]) < 0))
    if len(back):
        problems.append(f"steps or times decrease after step {arrays['step'][back[0]]:,.0f}: the rest is ignored")
        arrays = {field: array[: back[0] + 1] for field, array in arrays.items()}
    return History(**arrays, spent=spent), problems
