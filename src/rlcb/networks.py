"""Policies with a value head: Nature CNN, IMPALA CNN and a small MLP."""

import math
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rlcb.envs.base import EnvSpec
from rlcb.errors import UsageError

Layer = TypeVar("Layer", nn.Linear, nn.Conv2d)

_SMALLEST_NATURE = 36  # pixels: below that the third convolution has nothing left to see


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
        self.policy_head = _orthogonal(nn.Linear(features, num_actions), 0.01)
        self.value_head = _orthogonal(nn.Linear(features, 1), 1.0)

    def forward(self, observations: Tensor) -> tuple[Tensor, Tensor]:
        """Logits [B, A] and values [B] of observations [B, …]."""
        features = self.body(observations)
        return self.policy_head(features), self.value_head(features).squeeze(1)


class NatureCNN(nn.Module):
    """Three convolutions and a dense layer of 512, as in Mnih et al. 2015. uint8 [B, H, W, C] in."""

    def __init__(self, height: int, width: int, channels: int):
        super().__init__()
        gain = math.sqrt(2)
        self.conv1 = _orthogonal(PixelConv(channels, 32, 8, 4), gain)
        self.conv2 = _orthogonal(nn.Conv2d(32, 64, 4, 2), gain)
        self.conv3 = _orthogonal(nn.Conv2d(64, 64, 3, 1), gain)
        size = 1
        for pixels in (height, width):
            size *= ((pixels - 8) // 4 + 1 - 4) // 2 + 1 - 2
        self.dense = _orthogonal(nn.Linear(64 * size, 512), gain)

    def forward(self, observations: Tensor) -> Tensor:
        """Features [B, 512]."""
        x = F.relu(self.conv1(observations), inplace=True)
        x = F.relu(self.conv2(x), inplace=True)
        x = F.relu(self.conv3(x), inplace=True)
        return F.relu(self.dense(flat_nhwc(x)), inplace=True)


class ImpalaCNN(nn.Module):
    """Three residual sections of 16, 32 and 32 channels and a dense layer of 256 (Espeholt et al. 2018)."""

    def __init__(self, height: int, width: int, channels: int):
        super().__init__()
        sections: list[nn.Module] = []
        for depth in (16, 32, 32):
            conv = PixelConv if not sections else nn.Conv2d
            sections.append(_ImpalaSection(conv(channels, depth, 3, padding=1), depth))
            channels, height, width = depth, (height + 1) // 2, (width + 1) // 2
        self.sections = nn.Sequential(*sections)
        self.dense = _xavier(nn.Linear(channels * height * width, 256))

    def forward(self, observations: Tensor) -> Tensor:
        """Features [B, 256]."""
        x = F.relu(self.sections(observations), inplace=True)
        return F.relu(self.dense(flat_nhwc(x)), inplace=True)


class _ImpalaSection(nn.Module):
    """A convolution, a pooling by two and two residual blocks."""

    def __init__(self, conv: nn.Conv2d, depth: int):
        super().__init__()
        self.conv = _xavier(conv)
        self.blocks = nn.Sequential(_ResidualBlock(depth), _ResidualBlock(depth))

    def forward(self, x: Tensor) -> Tensor:
        return self.blocks(F.max_pool2d(self.conv(x), 3, stride=2, padding=1))  # type: ignore[no-any-return]


class _ResidualBlock(nn.Module):
    """Two convolutions whose result is added to what came in."""

    def __init__(self, depth: int):
        super().__init__()
        self.first = _xavier(nn.Conv2d(depth, depth, 3, padding=1))
        self.second = _xavier(nn.Conv2d(depth, depth, 3, padding=1))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.second(F.relu(self.first(F.relu(x)), inplace=True))  # type: ignore[no-any-return]


class Mlp(nn.Module):
    """Two tanh layers of 64 for the policy and two more for the value: they disagree about features on small tasks."""

    def __init__(self, size: int, num_actions: int):
        super().__init__()
        self.policy = _tanh_layers(size, num_actions, 0.01)
        self.value = _tanh_layers(size, 1, 1.0)

    def forward(self, observations: Tensor) -> tuple[Tensor, Tensor]:
        """Logits [B, A] and values [B] of vectors [B, n]."""
        return self.policy(observations), self.value(observations).squeeze(1)


def make_network(name: str, spec: EnvSpec) -> nn.Module:
    """Build the named network for these observations and actions; `auto` takes nature for images, mlp for vectors."""
    if name == "auto":
        name = "nature" if spec.is_image else "mlp"
    if name == "mlp":
        return Mlp(math.prod(spec.observation_shape), spec.num_actions) if not spec.is_image else _unfit(name, spec)
    if not spec.is_image or (name == "nature" and min(spec.observation_shape[:2]) < _SMALLEST_NATURE):
        return _unfit(name, spec)
    if name == "nature":
        return ActorCritic(NatureCNN(*spec.observation_shape), 512, spec.num_actions)
    return ActorCritic(ImpalaCNN(*spec.observation_shape), 256, spec.num_actions)


def flat_nhwc(x: Tensor) -> Tensor:
    """[B, C, H, W] in channels_last memory as [B, H·W·C]: that order needs no copy, neither forward nor backward."""
    return x.permute(0, 2, 3, 1).flatten(1)


def _unfit(name: str, spec: EnvSpec) -> nn.Module:
    kind = "pictures" if spec.is_image else "vectors"
    raise UsageError(f"network {name} does not fit {kind} of shape {spec.observation_shape}; use network: auto")


def _orthogonal(layer: Layer, gain: float) -> Layer:
    nn.init.orthogonal_(layer.weight, gain)
    assert layer.bias is not None
    nn.init.zeros_(layer.bias)
    return layer


def _xavier(layer: Layer) -> Layer:
    nn.init.xavier_uniform_(layer.weight)
    assert layer.bias is not None
    nn.init.zeros_(layer.bias)
    return layer


def _tanh_layers(size: int, outputs: int, gain: float) -> nn.Sequential:
    hidden = math.sqrt(2)
    return nn.Sequential(
        _orthogonal(nn.Linear(size, 64), hidden),
        nn.Tanh(),
        _orthogonal(nn.Linear(64, 64), hidden),
        nn.Tanh(),
        _orthogonal(nn.Linear(64, outputs), gain),
    )
