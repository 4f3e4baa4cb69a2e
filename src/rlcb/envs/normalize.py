"""Scaling rewards by the deviation of the discounted return."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

CLIP = 10.0
EPSILON = 1e-8


class RewardNormalizer:
    """Divides rewards by the running standard deviation of the discounted return, a rollout at a time."""

    def __init__(self, num_envs: int, gamma: float):
        self._gamma = gamma
        self._return = np.zeros(num_envs)
        self._count, self._mean, self._m2 = 0.0, 0.0, 0.0

    def __call__(self, rewards: NDArray[np.float32], dones: NDArray[np.bool_]) -> NDArray[np.float32]:
        """Take in a rollout's rewards [T, B] and return them scaled by all that was seen so far."""
        returns = np.empty(rewards.shape)
        for t in range(len(rewards)):
            self._return = self._return * self._gamma + rewards[t]
            returns[t] = self._return
            self._return[dones[t]] = 0.0
        self._merge(returns.size, float(returns.mean()), float(returns.var()) * returns.size)
        scaled: NDArray[np.float32] = (rewards / np.sqrt(self.variance + EPSILON)).astype(np.float32)
        return np.clip(scaled, -CLIP, CLIP)

    @property
    def variance(self) -> float:
        """Variance of all discounted returns so far."""
        return self._m2 / self._count if self._count else 1.0

    def _merge(self, count: float, mean: float, m2: float) -> None:
        """Join a batch's moments to the running ones (Chan's formula)."""
        total, delta = self._count + count, mean - self._mean
        self._mean += delta * count / total
        self._m2 += m2 + delta * delta * self._count * count / total
        self._count = total

    def state(self) -> dict[str, Any]:
        """Everything as plain lists and numbers."""
        return {"return": self._return.tolist(), "count": self._count, "mean": self._mean, "m2": self._m2}

    def load(self, state: dict[str, Any]) -> None:
        """Restore what `state` gave."""
        self._return = np.array(state["return"], np.float64)
        self._count, self._mean, self._m2 = state["count"], state["mean"], state["m2"]
