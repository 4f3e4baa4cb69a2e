"""What the networks are made of: layers, their first weights, and the heads of policy and value."""

from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rlcb.envs.base import EnvSpec
from rlcb.errors import UsageError

Layer = TypeVar("Layer", nn.Linear, nn.Conv2d)


class PixelConv(nn.Conv2d):
    """A convolution of uint8 pictures [B, H, W, C], taken as numbers from 0 to 1."""

    def forward(self, observations: Tensor) -> Tensor:
        """Features [B, C, H, W]. Frames with their channels last are what oneDNN likes: no copy is made of them."""
        pixels = observations.permute(0, 3, 1, 2).to(torch.float32)
        # Scaling the few weights spares a pass over all pixels.
        return F.conv2d(pixels, self.weight * (1 / 255), self.bias, self.stride, self.padding)


class ActorCritic(nn.Module):
    """A body of features under a policy head (logits [B, A]) and a value head ([B])."""

    def __init__(self, body: nn.Module, features: int, num_actions: int):
        super().__init__()
        self.body = body
        self.policy_head = orthogonal(nn.Linear(features, num_actions), 0.01)
        self.value_head = orthogonal(nn.Linear(features, 1), 1.0)

    def forward(self, observations: Tensor) -> tuple[Tensor, Tensor]:
        """Logits [B, A] and values [B] of observations [B, …]."""
        features = self.body(observations)
        return self.policy_head(features), self.value_head(features).squeeze(1)


def flat_nhwc(x: Tensor) -> Tensor:
    """[B, C, H, W] in channels_last memory as [B, H·W·C]: that order needs no copy, neither forward nor backward."""
    return x.permute(0, 2, 3, 1).flatten(1)


def orthogonal(layer: Layer, gain: float) -> Layer:
    """The layer with orthogonal weights and biases of zero."""
    nn.init.orthogonal_(layer.weight, gain)
    assert layer.bias is not None
    nn.init.zeros_(layer.bias)
    return layer


def xavier(layer: Layer) -> Layer:
    """The layer with Xavier's uniform weights and biases of zero."""
    nn.init.xavier_uniform_(layer.weight)
    assert layer.bias is not None
    nn.init.zeros_(layer.bias)
    return layer


def refuse_unfit(name: str, spec: EnvSpec, fits: bool) -> None:
    """Raise UsageError unless the network fits these observations."""
    if not fits:
        kind = "pictures" if spec.is_image else "vectors"
        raise UsageError(f"network {name} does not fit {kind} of shape {spec.observation_shape}; use network: auto")
