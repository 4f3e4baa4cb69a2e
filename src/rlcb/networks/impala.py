"""The residual CNN of IMPALA (Espeholt et al. 2018)."""

from torch import Tensor, nn
from torch.nn import functional as F

from rlcb.envs.base import EnvSpec
from rlcb.networks.layers import heads, refuse_unfit, xavier
from rlcb.networks.pooling import halved


class ImpalaCNN(nn.Module):
    """Three residual sections of 16, 32 and 32 channels and a dense layer of 256, under policy and value heads."""

    def __init__(self, shape: tuple[int, ...], num_actions: int):
        super().__init__()
        height, width, channels = shape
        sections: list[nn.Module] = []
        for depth in (16, 32, 32):
            conv = _PixelConv if not sections else nn.Conv2d
            sections.append(_ImpalaSection(conv(channels, depth, 3, padding=1), depth))
            channels, height, width = depth, (height + 1) // 2, (width + 1) // 2
        dense = xavier(nn.Linear(channels * height * width, 256))
        self.body = nn.ModuleDict({"sections": nn.Sequential(*sections), "dense": dense})
        self.policy_head, self.value_head = heads(256, num_actions)

    def forward(self, observations: Tensor) -> tuple[Tensor, Tensor]:
        """Logits [B, A] and values [B] of uint8 pictures [B, H, W, C]."""
        x = F.relu(self.body["sections"](observations), inplace=True)
        # [B, C, H, W] in channels_last memory as [B, H·W·C]: that order needs no copy, neither forward nor backward.
        features = F.relu(self.body["dense"](x.permute(0, 2, 3, 1).flatten(1)), inplace=True)
        return self.policy_head(features), self.value_head(features).squeeze(1)


class _PixelConv(nn.Conv2d):
    """A convolution of uint8 pictures [B, H, W, C], taken as numbers from 0 to 1."""

    def forward(self, observations: Tensor) -> Tensor:
        pixels = observations.permute(0, 3, 1, 2).to(self.weight.dtype)  # no copy but the conversion: channels are last
        # Scaling the few weights spares a pass over all pixels.
        return F.conv2d(pixels, self.weight * (1 / 255), self.bias, self.stride, self.padding)


class _ImpalaSection(nn.Module):
    """A convolution, a pooling by two and two residual blocks."""

    def __init__(self, conv: nn.Conv2d, depth: int):
        super().__init__()
        self.conv = xavier(conv)
        self.blocks = nn.Sequential(_ResidualBlock(depth), _ResidualBlock(depth))

    def forward(self, x: Tensor) -> Tensor:
        return self.blocks(halved(self.conv(x)))  # type: ignore[no-any-return]


class _ResidualBlock(nn.Module):
    """Two convolutions whose result is added to what came in."""

    def __init__(self, depth: int):
        super().__init__()
        self.first = xavier(nn.Conv2d(depth, depth, 3, padding=1))
        self.second = xavier(nn.Conv2d(depth, depth, 3, padding=1))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.second(F.relu(self.first(F.relu(x)), inplace=True))  # type: ignore[no-any-return]


def make(spec: EnvSpec) -> nn.Module:
    """The network for these pictures and actions."""
    refuse_unfit("impala", spec, spec.is_image)
    return ImpalaCNN(spec.observation_shape, spec.num_actions)
