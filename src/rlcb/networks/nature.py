"""The Nature CNN (Mnih et al. 2015)."""

import math

from torch import Tensor, nn
from torch.nn import functional as F

from rlcb.envs.base import EnvSpec
from rlcb.networks.layers import ActorCritic, PixelConv, flat_nhwc, orthogonal, refuse_unfit

_SMALLEST = 36  # pixels: the third convolution needs at least one position


class NatureCNN(nn.Module):
    """Three convolutions and a dense layer of 512. uint8 [B, H, W, C] in."""

    def __init__(self, height: int, width: int, channels: int):
        super().__init__()
        gain = math.sqrt(2)
        self.conv1 = orthogonal(PixelConv(channels, 32, 8, 4), gain)
        self.conv2 = orthogonal(nn.Conv2d(32, 64, 4, 2), gain)
        self.conv3 = orthogonal(nn.Conv2d(64, 64, 3, 1), gain)
        size = 1
        for pixels in (height, width):
            size *= ((pixels - 8) // 4 + 1 - 4) // 2 + 1 - 2
        self.dense = orthogonal(nn.Linear(64 * size, 512), gain)

    def forward(self, observations: Tensor) -> Tensor:
        """Features [B, 512]."""
        x = F.relu(self.conv1(observations), inplace=True)
        x = F.relu(self.conv2(x), inplace=True)
        x = F.relu(self.conv3(x), inplace=True)
        return F.relu(self.dense(flat_nhwc(x)), inplace=True)


def make(spec: EnvSpec) -> nn.Module:
    """The network for these pictures and actions."""
    refuse_unfit("nature", spec, spec.is_image and min(spec.observation_shape[:2]) >= _SMALLEST)
    return ActorCritic(NatureCNN(*spec.observation_shape), 512, spec.num_actions)
