"""What the networks share: the initialisation of layers, and the heads of policy and value."""

from typing import TypeVar

from torch import nn

from rlcb.envs.base import EnvSpec
from rlcb.errors import UsageError

Layer = TypeVar("Layer", nn.Linear, nn.Conv2d)


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
    return orthogonal(nn.Linear(features, num_actions), 0.01), orthogonal(nn.Linear(features, 1), 1.0)


def refuse_unfit(name: str, spec: EnvSpec, fits: bool) -> None:
    """Raise UsageError unless the network fits these observations."""
    if not fits:
        kind = "pictures" if spec.is_image else "vectors"
        raise UsageError(f"network {name} does not fit {kind} of shape {spec.observation_shape}; use network: auto")
