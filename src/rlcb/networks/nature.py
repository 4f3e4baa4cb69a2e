"""The Nature CNN (Mnih et al. 2015)."""

import math

from torch import Tensor, nn
from torch.nn import functional as F

from rlcb.envs.base import EnvSpec
from rlcb.networks.layers import heads, orthogonal, refuse_unfit

_SMALLEST = 36  # pixels: the third convolution needs at least one position


class NatureCNN(nn.Module):
    """Three convolutions and a dense layer of 512 under a policy head and a value head."""

    def __init__(self, shape: tuple[int, ...], num_actions: int):
        super().__init__()
        height, width, channels = shape
        gain = math.sqrt(2)
        conv1 = orthogonal(nn.Conv2d(channels, 32, 8, 4), gain)
        conv2 = orthogonal(nn.Conv2d(32, 64, 4, 2), gain)
        conv3 = orthogonal(nn.Conv2d(64, 64, 3, 1), gain)
        size = 1
        for pixels in (height, width):
            size *= ((pixels - 8) // 4 + 1 - 4) // 2 + 1 - 2
        dense = orthogonal(nn.Linear(64 * size, 512), gain)
        self.body = nn.ModuleDict({"conv1": conv1, "conv2": conv2, "conv3": conv3, "dense": dense})
        self.policy_head, self.value_head = heads(512, num_actions)

    def forward(self, observations: Tensor) -> tuple[Tensor, Tensor]:
        """Logits [B, A] and values [B] of uint8 pictures [B, H, W, C], taken as numbers from 0 to 1."""
        conv1 = self.body["conv1"]
        assert isinstance(conv1, nn.Conv2d)
        # Frames with their channels last are what oneDNN likes, so this makes no copy but the conversion.
        x = observations.permute(0, 3, 1, 2).to(conv1.weight.dtype)
        # Scaling the few weights spares a pass over all pixels.
        x = F.relu(F.conv2d(x, conv1.weight * (1 / 255), conv1.bias, conv1.stride), inplace=True)
        x = F.relu(self.body["conv2"](x), inplace=True)
        x = F.relu(self.body["conv3"](x), inplace=True)
        # [B, C, H, W] in channels_last memory as [B, H·W·C]: that order needs no copy, neither forward nor backward.
        features = F.relu(self.body["dense"](x.permute(0, 2, 3, 1).flatten(1)), inplace=True)
        return self.policy_head(features), self.value_head(features).squeeze(1)


def make(spec: EnvSpec) -> nn.Module:
    """The network for these pictures and actions."""
    refuse_unfit("nature", spec, spec.is_image and min(spec.observation_shape[:2]) >= _SMALLEST)
    return NatureCNN(spec.observation_shape, spec.num_actions)
