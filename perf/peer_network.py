"""The Nature CNN for the peers that bring none of this size, written as their users would write it."""

import torch
from torch import Tensor, nn

FEATURES = 512


class NatureBody(nn.Module):
    """Three convolutions and a dense layer, from pictures to features."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, 32, 8, stride=4),
            nn.ReLU(),
            nn.Conv2d(32, 64, 4, stride=2),
            nn.ReLU(),
            nn.Conv2d(64, 64, 3, stride=1),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(64 * 4 * 4, FEATURES),
            nn.ReLU(),
        )

    def forward(self, pictures: Tensor) -> Tensor:
        """Features [B, 512] of pictures [B, 64, 64, 3] with values from 0 to 255."""
        features: Tensor = self.layers(pictures.permute(0, 3, 1, 2).to(torch.float32) / 255.0)
        return features
