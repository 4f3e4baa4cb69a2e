"""What an update learns from: a rollout's samples one by one, or its environments as whole columns of time."""

from dataclasses import dataclass, replace
from typing import Protocol, Self

from torch import Tensor


class Batch(Protocol):
    """Items to draw minibatches from; `returns` and `values` [T·B] are what explained variance is computed from."""

    @property
    def returns(self) -> Tensor:
        """What was earned from each step on."""

    @property
    def values(self) -> Tensor:
        """What the policy that acted expected."""

    def __len__(self) -> int:
        """The number of items."""

    def select(self, indices: Tensor) -> Self:
        """The items at these positions."""

    def split(self, size: int) -> list[Self]:
        """Pieces of at most `size` items, in order."""


@dataclass(frozen=True)
class Samples:
    """Samples [N] in any order: what was seen and done, and what the policy and value were then."""

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
