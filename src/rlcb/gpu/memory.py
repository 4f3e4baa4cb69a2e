"""Host memory that a GPU reads and writes directly, without the processor waiting for it."""

import weakref
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from rlcb.envs.base import EnvSpec
from rlcb.rollout import Rollout, make_rollout


def pinned(shape: tuple[int, ...], dtype: torch.dtype, device: str) -> Tensor:
    """New memory, pinned if the device is a GPU."""
    return torch.zeros(shape, dtype=dtype, pin_memory=device == "cuda")


def registered(memory: NDArray[Any], device: str) -> Tensor:
    """An array's own memory as a tensor, pinned where it is if the device is a GPU, for as long as the array lives."""
    tensor = torch.from_numpy(memory)
    if device == "cuda" and not tensor.is_pinned():
        runtime: Any = torch.cuda.cudart()  # type: ignore[no-untyped-call]
        torch.cuda.check_error(int(runtime.cudaHostRegister(tensor.data_ptr(), tensor.nbytes, 0)))
        weakref.finalize(memory, runtime.cudaHostUnregister, tensor.data_ptr())
    return tensor


@dataclass(frozen=True)
class RolloutMemory:
    """A rollout on a device with one more entry for every step, so that all tensors are written in the same way."""

    observations: Tensor  # [T+1, B, …]
    actions: Tensor  # [T+1, B, …]
    log_probs: Tensor  # [T+1, B], as the next
    values: Tensor
    rewards: Tensor  # [T, B]: those to learn from; as the three that follow
    dones: Tensor
    truncation_value: Tensor
    ends: Tensor

    @property
    def rollout(self) -> Rollout:
        """What learning sees of it."""
        return Rollout(**{**vars(self), "actions": self.actions[:-1], "log_probs": self.log_probs[:-1]})

    def load(self, rollout: Rollout, rewards: Tensor) -> None:
        """Take over a rollout as far as it is not in this memory already, and the rewards to learn from."""
        given = replace(rollout, rewards=rewards)
        for here, there in zip(vars(self.rollout).values(), vars(given).values(), strict=True):
            if here.data_ptr() != there.data_ptr():
                here.copy_(there, non_blocking=True)

    def load_beside(self, rollouts: Sequence[Rollout]) -> Rollout:
        """Take over rollouts of some environments each, side by side; it may continue after this returns.

        Memory that is pinned must stay as it is until the device has been waited for.
        """
        whole, first = self.rollout, 0
        for rollout in rollouts:
            columns = slice(first, first + rollout.rewards.shape[1])
            for here, there in zip(vars(whole).values(), vars(rollout).values(), strict=True):
                here[:, columns].copy_(there, non_blocking=True)
            first = columns.stop
        return whole


def make_rollout_memory(n_steps: int, num_envs: int, spec: EnvSpec, device: str) -> RolloutMemory:
    """A rollout's memory on a device."""
    tensors = vars(make_rollout(n_steps, num_envs, spec, "meta"))
    longer = vars(make_rollout(n_steps + 1, num_envs, spec, "meta"))
    tensors |= {name: longer[name] for name in ("actions", "log_probs")}
    return RolloutMemory(**{name: torch.zeros_like(tensor, device=device) for name, tensor in tensors.items()})
