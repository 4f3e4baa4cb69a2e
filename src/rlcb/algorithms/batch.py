"""What an update learns from: single samples of a rollout, or its environments with all their steps."""

from dataclasses import dataclass, replace
from typing import ClassVar, Self

from torch import Tensor

from rlcb.algorithms.returns import gae
from rlcb.config.schema import Config
from rlcb.rollout import Rollout


class Batch:
    """Tensors with the items of a rollout along one dimension, to draw minibatches from."""

    item_dim: ClassVar[int]
    actions: Tensor
    values: Tensor  # predicted by the policy that acted
    returns: Tensor  # from each step on

    def __len__(self) -> int:
        return self.actions.shape[self.item_dim]

    def select(self, indices: Tensor) -> Self:
        """The items at these positions."""
        return type(self)(*(tensor.index_select(self.item_dim, indices) for tensor in vars(self).values()))

    def split(self, size: int) -> list[Self]:
        """Pieces of at most `size` items, in order."""
        pieces = (tensor.split(size, dim=self.item_dim) for tensor in vars(self).values())
        return [type(self)(*tensors) for tensors in zip(*pieces, strict=True)]


@dataclass(frozen=True)
class Samples(Batch):
    """Samples [N] in any order; `log_probs` and `values` are those of the policy that acted."""

    item_dim = 0
    observations: Tensor
    actions: Tensor
    log_probs: Tensor
    values: Tensor
    advantages: Tensor
    returns: Tensor

    def scaled(self, mean: Tensor, deviation: Tensor) -> "Samples":
        """The same samples with their advantages shifted and scaled."""
        return replace(self, advantages=(self.advantages - mean) / deviation)


@dataclass(frozen=True)
class Unrolls(Batch):
    """B environments over T steps: observations [T+1, B, …] with the one to bootstrap from, all else [T, B]."""

    item_dim = 1
    observations: Tensor
    actions: Tensor
    log_probs: Tensor
    rewards: Tensor
    dones: Tensor
    values: Tensor
    returns: Tensor


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
