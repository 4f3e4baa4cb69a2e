"""A small multi-layer perceptron for vectors."""

import math

from torch import Tensor, nn

from rlcb.envs.base import EnvSpec
from rlcb.networks.layers import OutputLayer, orthogonal, refuse_unfit


class Mlp(nn.Module):
    """Two tanh layers of 64 for the policy and two more for the value: on small tasks shared features suit neither."""

    def __init__(self, size: int, num_actions: int):
        super().__init__()
        self.policy = _tanh_layers(size, num_actions, 0.01)
        self.value = _tanh_layers(size, 1, 1.0)

    def forward(self, observations: Tensor) -> tuple[Tensor, Tensor]:
        """Logits [B, A] and values [B] of vectors [B, n]."""
        first = self.policy[0]
        assert isinstance(first, nn.Linear)
        x = observations.to(first.weight.dtype)
        return self.policy(x), self.value(x).squeeze(1)


def _tanh_layers(size: int, outputs: int, gain: float) -> nn.Sequential:
    hidden = math.sqrt(2)
    return nn.Sequential(
        orthogonal(nn.Linear(size, 64), hidden),
        nn.Tanh(),
        orthogonal(nn.Linear(64, 64), hidden),
        nn.Tanh(),
        orthogonal(OutputLayer(64, outputs), gain),
    )


def make(spec: EnvSpec) -> nn.Module:
    """The network for these vectors and actions."""
    refuse_unfit("mlp", spec, not spec.is_image)
    return Mlp(math.prod(spec.observation_shape), spec.num_actions)
