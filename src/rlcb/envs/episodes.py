"""Returns and lengths of finished episodes, from raw rewards."""

from collections import deque
from typing import Any

import numpy as np
from numpy.typing import NDArray

WINDOW = 100  # episodes in a running mean
FIRST_PER_ENV = 1  # episodes of each env that make up the initial reward: a fixed quota, so short ones do not bias it


class EpisodeTracker:
    """Adds rewards up to episodes and keeps what a summary needs."""

    def __init__(self, num_envs: int):
        self._return = np.zeros(num_envs)
        self._length = np.zeros(num_envs, np.int64)
        self._finished_by_env = np.zeros(num_envs, np.int64)
        self._first: list[float] = []
        self.recent_returns: deque[float] = deque(maxlen=WINDOW)
        self.recent_lengths: deque[int] = deque(maxlen=WINDOW)
        self.num_episodes = 0
        self.best_mean: float | None = None
        self.best_episode: float | None = None

    def add(self, rewards: NDArray[np.float32], dones: NDArray[np.bool_]) -> None:
        """Count one step of every env."""
        self._return += rewards
        self._length += 1
        for index in np.flatnonzero(dones):
            self._finish(int(index))

    def _finish(self, index: int) -> None:
        value, length = float(self._return[index]), int(self._length[index])
        self._return[index], self._length[index] = 0.0, 0
        self.num_episodes += 1
        self.recent_returns.append(value)
        self.recent_lengths.append(length)
        if self._finished_by_env[index] < FIRST_PER_ENV:
            self._first.append(value)
        self._finished_by_env[index] += 1
        self.best_episode = value if self.best_episode is None else max(self.best_episode, value)
        if len(self.recent_returns) == WINDOW:
            mean = float(np.mean(self.recent_returns))
            self.best_mean = mean if self.best_mean is None else max(self.best_mean, mean)

    def initial(self) -> tuple[float, float] | None:
        """Mean and deviation of every env's first episodes; None until all of them have finished."""
        if len(self._first) < FIRST_PER_ENV * len(self._return):
            return None
        return float(np.mean(self._first)), float(np.std(self._first))

    def recent(self) -> tuple[float, float] | None:
        """Mean and deviation of the last 100 episodes' returns; None before the first has finished."""
        if not self.recent_returns:
            return None
        return float(np.mean(self.recent_returns)), float(np.std(self.recent_returns))

    def state(self) -> dict[str, Any]:
        """Everything as plain lists and numbers."""
        return {
            "return": self._return.tolist(),
            "length": self._length.tolist(),
            "finished_by_env": self._finished_by_env.tolist(),
            "first": list(self._first),
            "recent_returns": list(self.recent_returns),
            "recent_lengths": list(self.recent_lengths),
            "num_episodes": self.num_episodes,
            "best_mean": self.best_mean,
            "best_episode": self.best_episode,
        }

    def load(self, state: dict[str, Any]) -> None:
        """Restore what `state` gave."""
        self._return = np.array(state["return"], np.float64)
        self._length = np.array(state["length"], np.int64)
        self._finished_by_env = np.array(state["finished_by_env"], np.int64)
        self._first = list(state["first"])
        self.recent_returns = deque(state["recent_returns"], WINDOW)
        self.recent_lengths = deque(state["recent_lengths"], WINDOW)
        self.num_episodes = state["num_episodes"]
        self.best_mean = state["best_mean"]
        self.best_episode = state["best_episode"]
