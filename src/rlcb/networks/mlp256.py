"""A wider multi-layer perceptron for vectors, as published settings for MuJoCo use it."""

import math

from torch import Tensor, nn

from rlcb.envs.base import EnvSpec
from rlcb.networks.layers import OutputLayer, refuse_unfit

_WIDTH = 256


class Mlp256(nn.Module):
    """Two rectified layers of 256 for the policy and two more for the value, initialised as PyTorch does it."""

    def __init__(self, size: int, num_actions: int):
        super().__init__()
        self.policy = _rectified_layers(size, num_actions)
        self.value = _rectified_layers(size, 1)

    def forward(self, observations: Tensor) -> tuple[Tensor, Tensor]:
        """Logits or means [B, A] and values [B] of vectors [B, n]."""
        first = self.policy[0]
        assert isinstance(first, nn.Linear)
        x = observations.to(first.weight.dtype)
        return self.policy(x), self.value(x).squeeze(1)


def _rectified_layers(size: int, outputs: int) -> nn.Sequential:
    inner = (nn.Linear(size, _WIDTH), nn.ReLU(), nn.Linear(_WIDTH, _WIDTH), nn.ReLU())
    return nn.Sequential(*inner, OutputLayer(_WIDTH, outputs))


def make(spec: EnvSpec) -> nn.Module:
    """The network for these vectors and actions."""
    refuse_unfit("mlp256", spec, not spec.is_image)
    return Mlp256(math.prod(spec.observation_shape), spec.num_actions)
