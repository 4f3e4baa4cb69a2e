"""What the networks share: the initialisation of layers, and the layers that give logits and values."""

from typing import TypeVar

from torch import Tensor, nn

from rlcb.envs.base import EnvSpec
from rlcb.errors import UsageError

Layer = TypeVar("Layer", nn.Linear, nn.Conv2d)


class OutputLayer(nn.Linear):
    """A dense layer that gives logits or values: it computes in fp32, whatever the precision of its inputs."""

    def forward(self, features: Tensor) -> Tensor:
        """The layer's outputs [B, n] for features [B, …]."""
        return super().forward(features.float())


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
        kind = "pictures" if spec.is_image else "vectors"
        raise UsageError(f"network {name} does not fit {kind} of shape {spec.observation_shape}; use network: auto")
