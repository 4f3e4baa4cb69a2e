"""Rollouts: what the collector hands to the learner."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from rlcb.envs.base import EnvSpec


@dataclass(frozen=True)
class Rollout:
    """T steps of B envs, time-major; observations and values have one entry more, to bootstrap from."""

    observations: Tensor  # [T+1, B, …]
    actions: Tensor  # [T, B] int64; continuous: [T, B, D] float32, as drawn
    log_probs: Tensor  # [T, B] of the policy that acted
    values: Tensor  # [T+1, B]
    rewards: Tensor  # [T, B] raw; the value beyond a time limit is in `truncation_value`
    dones: Tensor  # [T, B] bool
    truncation_value: Tensor  # [T, B] value of what a time limit cut off, 0 elsewhere
    ends: Tensor  # [T, B] bool: whole episodes that ended; `dones` may also mark ends of parts, such as lives


def make_rollout(n_steps: int, num_envs: int, spec: EnvSpec, device: str = "cpu") -> Rollout:
    """A rollout to fill; what environments give is in this machine's memory, all else on the device."""
    T, B = n_steps, num_envs
    pixels = torch.uint8 if spec.observation_dtype == np.uint8 else torch.float32
    actions = torch.float32 if spec.continuous else torch.int64
    return Rollout(
        observations=torch.empty((T + 1, B, *spec.observation_shape), dtype=pixels, device=device),
        actions=torch.empty((T, B, *spec.action_shape), dtype=actions, device=device),
        log_probs=torch.empty((T, B), dtype=torch.float32, device=device),
        values=torch.empty((T + 1, B), dtype=torch.float32, device=device),
        rewards=torch.empty((T, B), dtype=torch.float32),
        dones=torch.empty((T, B), dtype=torch.bool),
        truncation_value=torch.empty((T, B), dtype=torch.float32),
        ends=torch.empty((T, B), dtype=torch.bool),
    )
