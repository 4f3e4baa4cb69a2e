"""TensorBoard's scalars as a log: of CleanRL, Stable-Baselines3, Sample Factory, RLlib or, with a mapping, anyone's."""

import os
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from rlcb.analysis.external.beside import settings_beside
from rlcb.analysis.external.log import Log
from rlcb.analysis.external.mapping import OF_EVENTS, Mapping, choose
from rlcb.analysis.external.tfevents import Events, Series, is_events, read_events
from rlcb.analysis.statistics import Array
from rlcb.analysis.untrusted import plain
from rlcb.errors import UsageError

_SETTING = re.compile(r"^\|([^|\n]+)\|([^|\n]*)\|$", re.MULTILINE)  # a line of CleanRL's table of settings
_HINTS = {"env_id": "env", "seed": "seed", "exp_name": "algorithm"}


def read_tensorboard(files: Sequence[Path], given: Mapping | None) -> Log:
    """The rewards in event files of one run, the later ones of which continue it."""
    parts = []
    for file in files:
        events = Events()
        read_events(file, events)
        parts.append(events)
    names = {tag for events in parts for tag in events.scalars}
    where = files[0].parent if len(files) > 1 else files[0]
    mapping = choose(OF_EVENTS, names, where, given)
    problems = [problem for events in parts for problem in events.problems]
    begin = min((events.begin for events in parts if events.begin is not None), default=0.0)
    step, time, reward, length = _joined(parts, mapping, begin, problems)
    if not len(step):
        raise UsageError(f"{where}: contains no value of {plain(mapping.reward)} yet")
    texts = {tag: text for events in parts for tag, text in events.texts.items()}
    settings = dict(_SETTING.findall(texts.get("hyperparameters/text_summary", "")))
    hints = {name: plain(settings[key].strip()) for key, name in _HINTS.items() if settings.get(key, "").strip()}
    described = {"step": "the events' steps", "time": "the events' times since the log was opened"}
    return Log(
        program=mapping.program,
        format="TensorBoard events",
        kind=mapping.kind,
        step=step,
        time=time,
        reward=reward,
        length=length,
        mapping=described | mapping.to_dict(),
        averaged=mapping.averaged,
        window=mapping.window,
        hints=settings_beside(files[0].parent) | hints,
        problems=tuple(problems),
    )


def _joined(parts: Sequence[Events], mapping: Mapping, begin: float, problems: list[str]) -> tuple[Array, ...]:
    """Step, time, reward and length over all files; a file that begins at an earlier step replaces what follows it."""
    columns: tuple[Array, ...] = tuple(np.empty(0) for _ in range(4))
    for events in parts:
        if mapping.reward not in events.scalars:
            continue
        series = events.scalars[mapping.reward]
        index, reward = np.array(series.step), np.array(series.value)
        step = _at(events.scalars.get(mapping.step), index) if mapping.step else index
        seconds = _at(events.scalars.get(mapping.time), index) if mapping.time else np.array(series.time) - begin
        fresh = [step, seconds, np.where(np.isfinite(reward), reward, np.nan)]
        fresh.append(_at(events.scalars.get(mapping.length), index))
        back = np.flatnonzero(np.diff(step) < 0)
        if len(back):
            problems.append(f"steps decrease after step {step[back[0]]:,.0f}: the rest is ignored")
            fresh = [column[: back[0] + 1] for column in fresh]
        kept = columns[0] < fresh[0][0]
        if len(columns[0]):
            pause = "its time includes the pause"
            problems.append(f"continued by another file at step {fresh[0][0]:,.0f}; {pause}")
        columns = tuple(np.concatenate([old[kept], new]) for old, new in zip(columns, fresh, strict=True))
    return columns


def _at(series: Series | None, index: Array) -> Array:
    """The values of another tag at these steps of the events; where one step has several, in their order."""
    if series is None:
        return np.full(len(index), np.nan)
    if len(series.step) == len(index) and np.array_equal(np.array(series.step), index):
        return np.array(series.value)
    values = dict(zip(series.step, series.value, strict=True))
    return np.array([values.get(step, np.nan) for step in index], np.float64)


def event_files(folder: Path) -> list[Path]:
    """The event files in a folder, in the order of their names, which begin with the time of their first record."""
    return [folder / name for name in sorted(os.listdir(folder)) if is_events(name)]
