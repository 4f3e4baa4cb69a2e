"""Stable-Baselines3's monitor.csv: a line per episode, a file per environment or one for all of them."""

import csv
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from rlcb.analysis.external.log import EPISODES, Log
from rlcb.analysis.statistics import Array
from rlcb.analysis.untrusted import number, parse_json, plain
from rlcb.errors import UsageError
from rlcb.files import read_regular
from rlcb.words import counted

_LARGEST = 256 * 2**20
_COLUMNS = ("r", "l", "t")
_STEPS = "env_steps"  # a further column that a file may have: the steps of all its environments so far
_MAPPING = {"reward": "r", "length": "l", "time": "t_start + t", "step": "sum of l over the episodes so far"}


def is_monitor(name: str) -> bool:
    """Whether a file is called as Stable-Baselines3 does."""
    return name == "monitor.csv" or name.endswith(".monitor.csv")


def read_monitors(files: Sequence[Path]) -> Log:
    """The episodes of all environments of a run, in the order in which they ended."""
    rows: list[tuple[float, float, float, float, int]] = []
    problems: list[str] = []
    starts, envs = [], set()
    for place, file in enumerate(files):
        start, env, found = _read(file, problems)
        starts.append(start)
        envs |= {env} - {""}
        rows += [(start + time, reward, length, steps, place) for reward, length, time, steps in found]
    if not rows:
        raise UsageError(f"{files[0].parent if len(files) > 1 else files[0]}: contains no finished episode yet")
    if len(envs) > 1:
        problems.append(f"its files refer to several environments: {', '.join(sorted(envs))}")
    end, reward, length, steps, origin = np.array(sorted(rows, key=lambda row: row[0])).T
    has_steps = bool(np.isfinite(steps).all())
    return Log(
        program="Stable-Baselines3",
        format="monitor.csv",
        kind=EPISODES,
        step=_summed(steps, origin, len(files)) if has_steps else np.cumsum(length),
        time=np.maximum(end - min(starts), 0.0),
        reward=reward,
        length=length,
        mapping={**_MAPPING, **({"step": f"sum of {_STEPS} over the files"} if has_steps else {})},
        hints={"env": envs.pop()} if len(envs) == 1 else {},
        problems=tuple(problems),
    )


def _summed(steps: Array, origin: Array, num_files: int) -> Array:
    """At each episode the steps of all files: of each file the latest so far."""
    latest = [np.maximum.accumulate(np.where(origin == place, steps, 0.0)) for place in range(num_files)]
    return np.asarray(np.sum(latest, axis=0), np.float64)


def _read(file: Path, problems: list[str]) -> tuple[float, str, list[tuple[float, float, float, float]]]:
    """When a file begins, its environment, and reward, length, time and steps so far (else NaN) of each episode."""
    try:
        text = read_regular(file, _LARGEST).decode(errors="replace")
    except OSError as error:
        raise UsageError(f"{file}: cannot be read: {error.strerror}") from None
    lines = text.splitlines()
    if not lines:
        raise UsageError(f"{file}: is empty; expected the output of Stable-Baselines3's Monitor")
    try:
        header = parse_json(lines[0].removeprefix("#").encode())
        start = number(header["t_start"])
    except (ValueError, KeyError, TypeError, RecursionError):
        start = None
    if start is None or not lines[0].startswith("#"):
        raise UsageError(f'{file}: line 1 is not #{{"t_start": …}}; expected what Stable-Baselines3\'s Monitor writes')
    names = next(csv.reader(lines[1:2]), [])
    missing = [name for name in _COLUMNS if name not in names]
    if missing and len(lines) > 1 and not (len(lines) == 2 and not text.endswith("\n")):
        raise UsageError(f"{file}: line 2 has no column {missing[0]}; expected r,l,t")
    places, found, bad = [names.index(name) for name in _COLUMNS if not missing], [], 0
    steps_place = names.index(_STEPS) if _STEPS in names else None
    body = lines[2:]
    if body and not text.endswith("\n"):
        body = body[:-1]
        problems.append(f"{file.name}: its last line is incomplete and ignored (still being written?)")
    for line in csv.reader(body):
        values = [_number(line[place]) for place in places] if len(line) == len(names) else []
        reward, length, time = values if len(values) == len(_COLUMNS) else (None, None, None)
        if reward is None or length is None or time is None or length < 1 or time < 0:
            bad += bool(line)
        else:
            steps = None if steps_place is None else _number(line[steps_place])
            found.append((reward, length, time, np.nan if steps is None else steps))
    if bad:
        problems.append(f"{file.name}: {counted(bad, 'unreadable line')} ignored")
    env = plain(header.get("env_id"))
    return start, "" if env == "None" else env, found


def _number(text: str) -> float | None:
    try:
        return number(float(text))
    except ValueError:
        return None


def monitor_files(folder: Path) -> list[Path]:
    """The monitor files in a folder, by the number of their environment."""
    names = sorted((name for name in os.listdir(folder) if is_monitor(name)), key=lambda name: (len(name), name))
    return [folder / name for name in names]
