"""Policies with a value head. Every module here is a network, named after its file, but for those in `_NO_NETWORKS`.

Its function `make(spec)` builds an nn.Module that maps observations [B, …] to values [B] and logits [B, A], or for
continuous actions the means [B, D]: `spec.num_actions` is how many. `policy` adds what is not a network's concern.
"""

from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the configuration needs the names, and `--help` must not wait for torch
    from torch import nn

    from rlcb.envs.base import EnvSpec

_NO_NETWORKS = ("layers", "computation", "kept_layers", "own", "pooling", "distributions", "policy")
NAMES = tuple(sorted(module.name for module in iter_modules(__path__) if module.name not in _NO_NETWORKS))


def make_network(name: str, spec: "EnvSpec") -> "nn.Module":
    """Build the named network for these observations and actions; `auto` takes nature for images, mlp for vectors.

    `module:Class` is one of the user's own.
    """
    if name == "auto":
        name = "nature" if spec.is_image else "mlp"
    if ":" in name:
        from rlcb.networks import own

        return own.make(name, spec)
    network: nn.Module = import_module(f"rlcb.networks.{name}").make(spec)
    return network
