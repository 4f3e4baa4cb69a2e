"""What the files of another program's run hold, in one form for all formats."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from rlcb.analysis.statistics import Array
from rlcb.envs.episodes import WINDOW

MOST_ROWS = 10_000  # that a converted log has
EPISODES, AVERAGES = "episodes", "averages"  # what an entry of a log is


@dataclass(frozen=True, eq=False)
class Log:
    """One entry per episode or per logged average, in the order of their steps; NaN where a value is not known."""

    program: str
    format: str
    kind: str  # EPISODES or AVERAGES
    step: Array
    time: Array  # seconds since the log begins
    reward: Array
    length: Array
    mapping: Mapping[str, str]  # where each column comes from
    averaged: str = ""  # what is known of the averages
    window: int | None = None  # episodes that an average is over, where the user says so
    hints: Mapping[str, str] = field(default_factory=dict)  # algorithm, env and seed, as the files say
    problems: tuple[str, ...] = ()

    @property
    def rewards(self) -> str:
        """How the rewards are smoothed, in words."""
        if self.kind == EPISODES:
            return f"mean of the last {WINDOW} episodes, from the reward of each episode"
        return f"averages computed by the program, {self.averaged or 'over an unknown number of episodes'}"


def columns_of(log: Log) -> dict[str, Array]:
    """The log as columns of a metrics.jsonl: steps that grow, rewards as running means, at most MOST_ROWS rows."""
    known = np.isfinite(log.step) & np.isfinite(log.reward)
    step, time, reward, length = (column[known] for column in (log.step, log.time, log.reward, log.length))
    columns = {"step": step, "time": time, "rollout/ep_reward_mean": reward, "rollout/ep_len_mean": length}
    if log.kind == EPISODES:
        columns["rollout/ep_reward_mean"], columns["rollout/ep_reward_std"] = _running(reward)
        columns["rollout/ep_len_mean"] = _running(length)[0]
        columns["rollout/episodes"] = np.arange(1.0, len(step) + 1)
    last_of_step = np.append(np.diff(step) != 0, True) if len(step) else np.empty(0, bool)
    rows = np.flatnonzero(last_of_step)
    if len(rows) > MOST_ROWS:
        rows = rows[np.unique(np.linspace(0, len(rows) - 1, MOST_ROWS).round().astype(int))]
    return {name: column[rows] for name, column in columns.items()}


def _running(values: Array) -> tuple[Array, Array]:
    """Mean and standard deviation of the last WINDOW values at each of them; NaN where one of these is not known."""
    mean, deviation = np.full(len(values), np.nan), np.full(len(values), np.nan)
    for end in range(1, min(WINDOW, len(values) + 1)):
        mean[end - 1], deviation[end - 1] = values[:end].mean(), values[:end].std()
    if len(values) >= WINDOW:
        windows = np.lib.stride_tricks.sliding_window_view(values, WINDOW)
        mean[WINDOW - 1 :], deviation[WINDOW - 1 :] = windows.mean(axis=1), windows.std(axis=1)
    return mean, deviation
