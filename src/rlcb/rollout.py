"""What acting leaves for learning."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from rlcb.envs.base import EnvSpec

Allocate = Callable[[tuple[int, ...], torch.dtype], Tensor]


@dataclass(frozen=True)
class Rollout:
    """T steps of B envs, time-major; observations and values have one entry more, to bootstrap from."""

    observations: Tensor  # [T+1, B, …]
    actions: Tensor  # [T, B] int64
    log_probs: Tensor  # [T, B] of the policy that acted
    values: Tensor  # [T+1, B]
    rewards: Tensor  # [T, B] raw; the value beyond a time limit is in `truncation_value`
    dones: Tensor  # [T, B] bool
    truncation_value: Tensor  # [T, B] value of what a time limit cut off, 0 elsewhere


def make_rollout(n_steps: int, num_envs: int, spec: EnvSpec, allocate: Allocate, allocate_host: Allocate) -> Rollout:
    """A rollout to fill; what environments give comes from `allocate_host`, all else from `allocate`."""
    T, B = n_steps, num_envs
    pixels = torch.uint8 if spec.observation_dtype == np.uint8 else torch.float32
    return Rollout(
        observations=allocate((T + 1, B, *spec.observation_shape), pixels),
        actions=allocate((T, B), torch.int64),
        log_probs=allocate((T, B), torch.float32),
        values=allocate((T + 1, B), torch.float32),
        rewards=allocate_host((T, B), torch.float32),
        dones=allocate_host((T, B), torch.bool),
        truncation_value=allocate_host((T, B), torch.float32),
    )
