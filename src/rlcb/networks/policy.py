"""A network as a run's policy: with a Gaussian for continuous actions and scaled observations where that is wanted."""

from typing import Protocol

import torch
from torch import Tensor, nn

from rlcb.envs.base import EnvSpec
from rlcb.errors import UsageError
from rlcb.networks import make_network
from rlcb.networks.layers import GaussianPolicy, ScaledObservations


class PolicySettings(Protocol):
    """What the configuration's `training` section says of the policy."""

    network: str
    normalize_observations: bool
    log_std_init: float


def make_policy_network(settings: PolicySettings, spec: EnvSpec) -> nn.Module:
    """The policy for these observations and actions: outputs [B, A], for continuous actions [B, 2D], and values [B]."""
    if settings.normalize_observations and spec.is_image:
        raise UsageError("normalize_observations: applies to vectors only; the networks scale images themselves")
    policy = make_network(settings.network, spec)
    if spec.continuous:
        policy = GaussianPolicy(policy, spec.num_actions, settings.log_std_init)
    if settings.normalize_observations:
        policy = ScaledObservations(policy, spec.observation_shape)
    return policy


def observation_moments(observations: Tensor) -> Tensor:
    """How many observations [..., n] there are, and their sums and sums of squares: [1 + 2n] in float64."""
    rows = observations.flatten(0, -2).double()
    return torch.cat((rows.new_tensor([len(rows)]), rows.sum(0), rows.square().sum(0))).cpu()


def scaling_of(policy: nn.Module) -> ScaledObservations | None:
    """The policy's part that scales observations, if it has one."""
    return policy if isinstance(policy, ScaledObservations) else None
