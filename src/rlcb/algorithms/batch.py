"""What an update learns from: single samples of a rollout, or its environments with all their steps."""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor


@dataclass(frozen=True)
class Samples:
    """Samples [N] in any order; `log_probs` and `values` are those of the policy that acted."""

    item_dim: ClassVar[int] = 0  # the dimension along which minibatches are drawn
    observations: Tensor
    actions: Tensor
    log_probs: Tensor
    values: Tensor
    advantages: Tensor
    returns: Tensor

    def __len__(self) -> int:
        return len(self.actions)


@dataclass(frozen=True)
class Unrolls:
    """B environments over T steps: observations [T+1, B, …] with the one to bootstrap from, all else [T, B]."""

    item_dim: ClassVar[int] = 1
    observations: Tensor
    actions: Tensor
    log_probs: Tensor
    rewards: Tensor
    dones: Tensor
    values: Tensor
    returns: Tensor

    def __len__(self) -> int:
        return self.actions.shape[1]


Batch = Samples | Unrolls
