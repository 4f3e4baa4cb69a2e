"""What the networks share: how layers are initialised, those that give outputs, and what is put around networks."""

from typing import TypeVar

import torch
from torch import Tensor, nn

from rlcb.envs.base import EnvSpec
from rlcb.errors import UsageError

Layer = TypeVar("Layer", nn.Linear, nn.Conv2d)


class OutputLayer(nn.Linear):
    """A dense layer that gives logits or values: it computes in fp32, whatever the precision of its inputs."""

    def forward(self, features: Tensor) -> Tensor:
        """The layer's outputs [B, n] for features [B, …]."""
        return super().forward(features.float())


class GaussianPolicy(nn.Module):
    """A network whose outputs are the means of continuous actions, and their deviations, which no observation changes.

    `log_std` is computed in fp32, as output layers are.
    """

    def __init__(self, network: nn.Module, num_actions: int, log_std: float):
        super().__init__()
        self.network = network
        self.log_std = nn.Parameter(torch.full((num_actions,), log_std))

    def forward(self, observations: Tensor) -> tuple[Tensor, Tensor]:
        """Means and logarithms of the standard deviations [B, 2D], and values [B]."""
        means, values = self.network(observations)
        return torch.cat((means, self.log_std.expand_as(means)), dim=-1), values


class ScaledObservations(nn.Module):
    """A network that sees observations less their mean and divided by their standard deviation, within ±10.

    What is known of the observations is among the weights, so it goes wherever they go: to actors, into checkpoints and
    evaluations. No gradient moves it: `take_in` does, between updates.
    """

    LIMIT = 10.0
    EPSILON = 1e-8

    def __init__(self, network: nn.Module, shape: tuple[int, ...]):
        super().__init__()
        self.network = network
        self.count = nn.Parameter(torch.zeros(1), requires_grad=False)
        self.mean = nn.Parameter(torch.zeros(shape), requires_grad=False)
        self.variance = nn.Parameter(torch.ones(shape), requires_grad=False)

    def forward(self, observations: Tensor) -> tuple[Tensor, Tensor]:
        """The network's outputs and values for the scaled observations [B, n]."""
        scaled = (observations - self.mean) * torch.rsqrt(self.variance + self.EPSILON)
        outputs: tuple[Tensor, Tensor] = self.network(scaled.clamp(-self.LIMIT, self.LIMIT))
        return outputs

    def known(self) -> tuple[Tensor, Tensor, Tensor]:
        """Count, mean and variance of all observations so far, as copies in float64."""
        count, mean, variance = (each.detach().double().cpu() for each in (self.count, self.mean, self.variance))
        return count, mean, variance

    @torch.no_grad()
    def take_in(self, known: tuple[Tensor, Tensor, Tensor], moments: Tensor) -> None:
        """What is known, together with `observation_moments` of further observations (Chan's formula)."""
        before, mean, variance = known
        count = moments[:1]
        first, second = (moments[1:] / count).view(2, -1)
        total, delta = before + count, first - mean
        squares = variance * before + (second - first.square()).clamp(min=0) * count
        squares += delta.square() * before * count / total
        self.count.copy_(total)
        self.mean.copy_(mean + delta * count / total)
        self.variance.copy_(squares / total)


FP32_MODULES = (OutputLayer, GaussianPolicy, ScaledObservations)  # their own parameters stay fp32 in bf16 networks


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


def heads(features: int, num_actions: int) -> tuple[nn.Linear, nn.Linear]:
    """A policy head (logits [B, A]) and a value head ([B, 1]) on features [B, …]."""
    return orthogonal(OutputLayer(features, num_actions), 0.01), orthogonal(OutputLayer(features, 1), 1.0)


def refuse_unfit(name: str, spec: EnvSpec, fits: bool) -> None:
    """Raise UsageError unless the network fits these observations."""
    if not fits:
        kind = "images" if spec.is_image else "vectors"
        raise UsageError(f"network {name} does not fit {kind} of shape {spec.observation_shape}; use network: auto")
