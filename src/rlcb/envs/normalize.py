"""Scaling rewards by the deviation of the discounted return."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

CLIP = 10.0
EPSILON = 1e-8
Moments = tuple[float, float, float]  # count, mean, sum of squared deviations
Sum = Callable[[NDArray[np.float64]], NDArray[np.float64]]


class RewardNormalizer:
    """Divides rewards by the running standard deviation of the discounted return, a rollout at a time.

    The running moments are the whole group's; the returns of unfinished episodes are this worker's.
    """

    def __init__(self, num_envs: int, gamma: float):
        self._gamma = gamma
        self.running_return = np.zeros(num_envs)
        self.moments: Moments = (0.0, 0.0, 0.0)

    def __call__(
        self, rewards: NDArray[np.float32], dones: NDArray[np.bool_], total: Sum, envs: slice = slice(None)
    ) -> NDArray[np.float32]:
        """Take in these envs' rewards of a rollout [T, B] and return them scaled; `total` adds up over the group."""
        returns = np.empty(rewards.shape)
        running = self.running_return[envs]
        for t in range(len(rewards)):
            running = running * self._gamma + rewards[t]
            returns[t] = running
            running[dones[t]] = 0.0
        self.running_return[envs] = running
        count, first, second = map(float, total(np.array([returns.size, returns.sum(), np.square(returns).sum()])))
        rollout = (count, first / count, max(second - first * first / count, 0.0))
        self.moments = joined_moments(self.moments, rollout)
        # A float64 deviation would make NumPy 2 divide in float64, and round otherwise than NumPy 1.26.
        scaled: NDArray[np.float32] = rewards / np.float32(np.sqrt(self.variance + EPSILON))
        return np.clip(scaled, -CLIP, CLIP)

    @property
    def variance(self) -> float:
        """Variance of all discounted returns so far."""
        count, _, m2 = self.moments
        return m2 / count if count else 1.0


def joined_moments(one: Moments, other: Moments) -> Moments:
    """Count, mean and sum of squared deviations of two sets of numbers together (Chan's formula)."""
    count, delta = one[0] + other[0], other[1] - one[1]
    if count == 0:
        return one
    return count, one[1] + delta * other[0] / count, one[2] + other[2] + delta * delta * one[0] * other[0] / count
