"""Returns and lengths of finished episodes, from raw rewards."""

from collections import deque
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

WINDOW = 100  # episodes in a running mean


class Episode(NamedTuple):
    """A finished episode: when in the rollout, in which env, with what result."""

    t: int
    env: int
    value: float
    length: int


class EpisodeCounter:
    """Sums one worker's rewards into episodes."""

    def __init__(self, num_envs: int, first_env: int = 0):
        self._first_env = first_env
        self._return = np.zeros(num_envs)
        self._length = np.zeros(num_envs, np.int64)

    def add(self, t: int, rewards: NDArray[np.float32], dones: NDArray[np.bool_]) -> list[Episode]:
        """Count one step of every env; returns the episodes that it ended."""
        self._return += rewards
        self._length += 1
        ended = []
        for index in map(int, np.flatnonzero(dones)):
            ended.append(Episode(t, self._first_env + index, float(self._return[index]), int(self._length[index])))
            self._return[index] = 0.0
            self._length[index] = 0
        return ended

    def state(self) -> tuple[list[float], list[int]]:
        """Returns and lengths so far of the unfinished episodes, per env."""
        return self._return.tolist(), self._length.tolist()

    def load(self, returns: list[float], lengths: list[int]) -> None:
        """Restore what `state` gave."""
        self._return = np.array(returns, np.float64)
        self._length = np.array(lengths, np.int64)


class EpisodeStatistics:
    """What a summary needs to know of all episodes of a run."""

    def __init__(self, num_envs: int):
        # Every env's first return, once it is known: one of each, so that short episodes do not bias their mean.
        self._first: list[list[float]] = [[] for _ in range(num_envs)]
        self.recent_returns: deque[float] = deque(maxlen=WINDOW)
        self.recent_lengths: deque[int] = deque(maxlen=WINDOW)
        self.num_episodes = 0
        self.best_mean: float | None = None
        self.best_episode: float | None = None

    def add(self, episodes: Iterable[Episode]) -> None:
        """Take in one rollout's episodes, in the order in which they ended."""
        for episode in sorted(episodes):
            value = episode.value
            self.num_episodes += 1
            self.recent_returns.append(value)
            self.recent_lengths.append(episode.length)
            if not self._first[episode.env]:
                self._first[episode.env].append(value)
            self.best_episode = value if self.best_episode is None else max(self.best_episode, value)
            if len(self.recent_returns) == WINDOW:
                mean = float(np.mean(self.recent_returns))
                self.best_mean = mean if self.best_mean is None else max(self.best_mean, mean)

    def initial(self) -> tuple[float, float] | None:
        """Mean and deviation of every env's first return; None until all of them are known."""
        return (float(np.mean(self._first)), float(np.std(self._first))) if all(self._first) else None

    def recent(self) -> tuple[float, float] | None:
        """Mean and deviation of the last 100 episodes' returns; None before the first has finished."""
        recent = self.recent_returns
        return (float(np.mean(recent)), float(np.std(recent))) if recent else None

    def recent_length(self) -> float | None:
        """Mean length of the same episodes in steps."""
        return sum(self.recent_lengths) / len(self.recent_lengths) if self.recent_lengths else None

    def state(self) -> dict[str, Any]:
        """Everything as plain lists and numbers."""
        return {
            "first": [list(values) for values in self._first],
            "recent_returns": list(self.recent_returns),
            "recent_lengths": list(self.recent_lengths),
            "num_episodes": self.num_episodes,
            "best_mean": self.best_mean,
            "best_episode": self.best_episode,
        }

    def load(self, state: dict[str, Any]) -> None:
        """Restore what `state` gave."""
        self._first = [list(values) for values in state["first"]]
        self.recent_returns = deque(state["recent_returns"], WINDOW)
        self.recent_lengths = deque(state["recent_lengths"], WINDOW)
        self.num_episodes = state["num_episodes"]
        self.best_mean = state["best_mean"]
        self.best_episode = state["best_episode"]
