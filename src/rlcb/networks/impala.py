"""The residual CNN of IMPALA (Espeholt et al. 2018)."""

from torch import Tensor, nn
from torch.nn import functional as F

from rlcb.envs.base import EnvSpec
from rlcb.networks.layers import ActorCritic, PixelConv, flat_nhwc, refuse_unfit, xavier


class ImpalaCNN(nn.Module):
    """Three residual sections of 16, 32 and 32 channels and a dense layer of 256. uint8 [B, H, W, C] in."""

    def __init__(self, height: int, width: int, channels: int):
        super().__init__()
        sections: list[nn.Module] = []
        for depth in (16, 32, 32):
            conv = PixelConv if not sections else nn.Conv2d
            sections.append(_ImpalaSection(conv(channels, depth, 3, padding=1), depth))
            channels, height, width = depth, (height + 1) // 2, (width + 1) // 2
        self.sections = nn.Sequential(*sections)
        self.dense = xavier(nn.Linear(channels * height * width, 256))

    def forward(self, observations: Tensor) -> Tensor:
        """Features [B, 256]."""
        x = F.relu(self.sections(observations), inplace=True)
        return F.relu(self.dense(flat_nhwc(x)), inplace=True)


class _ImpalaSection(nn.Module):
    """A convolution, a pooling by two and two residual blocks."""

    def __init__(self, conv: nn.Conv2d, depth: int):
        super().__init__()
        self.conv = xavier(conv)
        self.blocks = nn.Sequential(_ResidualBlock(depth), _ResidualBlock(depth))

    def forward(self, x: Tensor) -> Tensor:
        return self.blocks(F.max_pool2d(self.conv(x), 3, stride=2, padding=1))  # type: ignore[no-any-return]


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
    return ActorCritic(ImpalaCNN(*spec.observation_shape), 256, spec.num_actions)
