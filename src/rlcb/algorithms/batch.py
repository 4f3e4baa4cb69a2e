"""What an update learns from: single samples of a rollout, or its environments with all their steps."""

from dataclasses import dataclass, replace
from typing import Protocol, Self

from torch import Tensor

from rlcb.algorithms.returns import gae
from rlcb.config.schema import Config
from rlcb.rollout import Rollout


class Batch(Protocol):
    """Items to draw minibatches from; `returns` and `values` [T·B] are what explained variance is computed from."""

    @property
    def returns(self) -> Tensor:
        """The return from each step on."""

    @property
    def values(self) -> Tensor:
        """The values that the policy which acted predicted."""

    def __len__(self) -> int:
        """The number of items."""

    def select(self, indices: Tensor) -> Self:
        """The items at these positions."""

    def split(self, size: int) -> list[Self]:
        """Pieces of at most `size` items, in order."""


@dataclass(frozen=True)
class Samples:
    """Samples [N] in any order; `log_probs` and `values` are those of the policy that acted."""

    observations: Tensor
    actions: Tensor
    log_probs: Tensor
    values: Tensor
    advantages: Tensor
    returns: Tensor

    def select(self, indices: Tensor) -> "Samples":
        """The samples at these positions."""
        return Samples(*(tensor.index_select(0, indices) for tensor in vars(self).values()))

    def split(self, size: int) -> "list[Samples]":
        """Pieces of at most `size` samples, in order."""
        columns = (tensor.split(size) for tensor in vars(self).values())
        return [Samples(*pieces) for pieces in zip(*columns, strict=True)]

    def scaled(self, mean: Tensor, deviation: Tensor) -> "Samples":
        """The same samples with their advantages shifted and scaled."""
        return replace(self, advantages=(self.advantages - mean) / deviation)

    def __len__(self) -> int:
        return len(self.actions)


@dataclass(frozen=True)
class Unrolls:
    """B environments over T steps: observations [T+1, B, …] with the one to bootstrap from, all else [T, B]."""

    observations: Tensor
    actions: Tensor
    log_probs: Tensor
    rewards: Tensor
    dones: Tensor
    values: Tensor
    returns: Tensor

    def select(self, indices: Tensor) -> "Unrolls":
        """The environments at these positions."""
        return Unrolls(*(tensor.index_select(1, indices) for tensor in vars(self).values()))

    def split(self, size: int) -> "list[Unrolls]":
        """Pieces of at most `size` environments, in order."""
        columns = (tensor.split(size, dim=1) for tensor in vars(self).values())
        return [Unrolls(*pieces) for pieces in zip(*columns, strict=True)]

    def __len__(self) -> int:
        return self.actions.shape[1]


def make_samples(rollout: Rollout, rewards: Tensor, config: Config) -> Samples:
    """The rollout's T × B samples with their advantages (GAE) and returns."""
    gamma, gae_lambda = config.training.gamma, config.training.gae_lambda
    earned = rewards + gamma * rollout.truncation_value
    advantages = gae(earned, rollout.values, rollout.dones, gamma, gae_lambda)
    values = rollout.values[:-1]
    return Samples(
        rollout.observations[:-1].flatten(0, 1),
        rollout.actions.flatten(),
        rollout.log_probs.flatten(),
        values.flatten(),
        advantages.flatten(),
        (advantages + values).flatten(),
    )


def make_unrolls(rollout: Rollout, rewards: Tensor, config: Config) -> Unrolls:
    """The rollout's B environments; their returns are those of the rewards, bootstrapped with the rollout's values."""
    gamma = config.training.gamma
    earned = rewards + gamma * rollout.truncation_value
    values = rollout.values[:-1]
    returns = gae(earned, rollout.values, rollout.dones, gamma, 1.0) + values
    return Unrolls(
        rollout.observations, rollout.actions, rollout.log_probs, earned, rollout.dones, values, returns
    )  # fmt: skip
