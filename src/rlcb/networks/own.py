"""Networks of the user's own: `module:Class`, made with the environment's EnvSpec and checked before they are used."""

import difflib
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from rlcb.envs.own_code import described, load
from rlcb.errors import UsageError
from rlcb.networks.computation import Computation

if TYPE_CHECKING:
    from rlcb.envs.base import EnvSpec

_BATCH = 3  # observations that a network is tried with


def make(name: str, spec: "EnvSpec") -> nn.Module:
    """An object of the class that `module:Class` names, made as `Class(spec)`; anything but a module is refused."""
    module_name, _, class_name = name.partition(":")
    found = getattr(module := load(module_name), class_name, None)
    if not callable(found):
        close = difflib.get_close_matches(class_name, vars(module), 1)
        meant = f"; did you mean {module_name}:{close[0]}?" if close else ""
        raise UsageError(f"network {name}: {module_name} has no class {class_name}{meant}")
    try:
        with torch.device("cpu"):  # also where only the shapes of other networks are asked for
            network = found(spec)
    except Exception as error:  # somebody else's code may raise anything
        raise UsageError(f"network {name}: {class_name}(spec) failed: {described(error)}") from None
    if not isinstance(network, nn.Module):
        raise UsageError(f"network {name}: must be a torch.nn.Module, is a {type(network).__name__}")
    _check_weights(name, network)
    return network


def _check_weights(name: str, network: nn.Module) -> None:
    """Refuse weights that could not be exchanged between processes and saved as one vector of float32."""
    kept, parameters = network.state_dict(), dict(network.named_parameters())
    if not parameters:
        raise UsageError(f"network {name}: has no parameters to train")
    if buffers := [key for key in kept if key not in parameters]:
        raise UsageError(
            f"network {name}: {buffers[0]} is a persistent buffer that is not trained, so other processes "
            "would not receive it; avoid running statistics; for constants use register_buffer(…, persistent=False)"
        )
    for key, parameter in parameters.items():
        if parameter.dtype != torch.float32 or not parameter.requires_grad:
            raise UsageError(f"network {name}: {key} must be float32 and trained (requires_grad)")


def check_outputs(name: str, network: nn.Module, spec: "EnvSpec", precision: str) -> None:
    """Refuse a network that does not map observations to logits [B, A] and values [B], always the same ones."""
    shape = (_BATCH, *spec.observation_shape)
    pictures = np.random.default_rng(0).integers(256, size=shape) if spec.is_image else np.ones(shape)
    observations = torch.from_numpy(pictures.astype(spec.observation_dtype))
    computation = Computation(network, precision)
    try:
        outputs, again = (computation(observations) for _ in range(2))
    except Exception as error:
        raise UsageError(f"network {name}: forward failed for {_words(observations)}: {described(error)}") from None
    wanted = (("logits", (_BATCH, spec.num_actions)), ("values", (_BATCH,)))
    if not isinstance(outputs, tuple) or len(outputs) != len(wanted):
        raise UsageError(f"network {name}: forward must return (logits, values), but returns {type(outputs).__name__}")
    for (what, size), first, second in zip(wanted, outputs, again, strict=True):
        if not isinstance(first, Tensor) or tuple(first.shape) != size or first.dtype != torch.float32:
            found = _words(first) if isinstance(first, Tensor) else type(first).__name__
            raise UsageError(f"network {name}: {what} must be float32 of shape {size}, is {found}")
        if not torch.equal(first, second):
            raise UsageError(f"network {name}: {what} differ for the same observations; dropout is not supported")
    total = outputs[0].square().sum() + outputs[1].square().sum()
    gradients = torch.autograd.grad(total, computation.parameters, allow_unused=True)
    for (key, _), gradient in zip(network.named_parameters(), gradients, strict=True):
        if gradient is None:
            raise UsageError(f"network {name}: {key} has no influence on logits or values; remove it")


def _words(tensor: Tensor) -> str:
    return f"{tensor.dtype} of shape {tuple(tensor.shape)}".removeprefix("torch.")
