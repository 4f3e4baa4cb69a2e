"""Scaling rewards by the deviation of the discounted return."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

CLIP = 10.0
EPSILON = 1e-8
Sum = Callable[[NDArray[np.float64]], NDArray[np.float64]]


class RewardNormalizer:
    """Divides rewards by the running standard deviation of the discounted return, a rollout at a time.

    The running moments are the whole group's; the returns under way are this worker's.
    """

    def __init__(self, num_envs: int, gamma: float):
        self._gamma = gamma
        self.running_return = np.zeros(num_envs)
        self.moments = (0.0, 0.0, 0.0)  # count, mean, sum of squared deviations

    def __call__(self, rewards: NDArray[np.float32], dones: NDArray[np.bool_], total: Sum) -> NDArray[np.float32]:
        """Take in a rollout's rewards [T, B] and return them scaled; `total` adds up over the group."""
        returns = np.empty(rewards.shape)
        for t in range(len(rewards)):
            self.running_return = self.running_return * self._gamma + rewards[t]
            returns[t] = self.running_return
            self.running_return[dones[t]] = 0.0
        count, first, second = map(float, total(np.array([returns.size, returns.sum(), np.square(returns).sum()])))
        self._merge(count, first / count, max(second - first * first / count, 0.0))
        scaled: NDArray[np.float32] = (rewards / np.sqrt(self.variance + EPSILON)).astype(np.float32)
        return np.clip(scaled, -CLIP, CLIP)

    @property
    def variance(self) -> float:
        """Variance of all discounted returns so far."""
        count, _, m2 = self.moments
        return m2 / count if count else 1.0

    def _merge(self, count: float, mean: float, m2: float) -> None:
        """Join a batch's moments to the running ones (Chan's formula)."""
        old_count, old_mean, old_m2 = self.moments
        new_count, delta = old_count + count, mean - old_mean
        joined = old_m2 + m2 + delta * delta * old_count * count / new_count
        self.moments = (new_count, old_mean + delta * count / new_count, joined)
