"""A policy's network as it is computed: in fp32 or bf16, and for some algorithms once for acting and learning."""

import copy

import torch
from torch import Tensor, nn

from rlcb.networks.kept_layers import KeepingLayers, UsingKeptLayers
from rlcb.networks.layers import OutputLayer

Outputs = tuple[Tensor, Tensor]  # logits [B, A] and values [B], both fp32


class Computation:
    """The policy itself in fp32, or a copy of it whose inner layers are bf16; weights, logits and values stay fp32.

    The copy's bf16 weights are converted from the policy's, once for each of its states: `refresh` does it. Layers that
    give logits and values are the policy's own. Gradients are taken at `parameters`, in the order of the policy's.
    """

    def __init__(self, policy: nn.Module, precision: str = "fp32", keeps_layers: bool = False):
        """`keeps_layers`: `act` keeps what `acted` needs."""
        self.network, self._keeps_layers = policy, keeps_layers
        self._kept: list[list[Tensor]] = []  # for each layer in the order of computation: its outputs by step
        self._converted: list[Tensor] = []
        self._originals: list[Tensor] = []
        if precision == "bf16":
            self.network = _with_bf16_layers(policy)
            pairs = zip(self.network.parameters(), policy.parameters(), strict=True)
            found = [(mine, original) for mine, original in pairs if mine is not original]
            self._converted = [mine for mine, _ in found]
            self._originals = [original for _, original in found]
        self.parameters = list(self.network.parameters())

    def __call__(self, observations: Tensor) -> Outputs:
        """Logits and values."""
        outputs: Outputs = self.network(observations)
        return outputs

    @torch.no_grad()
    def refresh(self) -> None:
        """Take over the policy's weights as they are now, and forget the layers' outputs, which were made by others."""
        self._kept = []
        if self._converted:
            torch._foreach_copy_(self._converted, self._originals)

    def act(self, observations: Tensor) -> Outputs:
        """Logits and values, whose layers' outputs are kept if that was asked for."""
        if not self._keeps_layers:
            return self(observations)
        with KeepingLayers() as keeping:
            outputs = self(observations)
        if not self._kept:
            self._kept = [[] for _ in keeping.outputs]
        for kept, output in zip(self._kept, keeping.outputs, strict=True):
            kept.append(output)
        return outputs

    def acted(self, observations: Tensor) -> Outputs:
        """Logits and values of all that `act` has seen since `refresh`, these very observations in this order.

        They have gradients as if they had been computed by the network here and now; it can be done once.
        """
        outputs = []
        for kept in self._kept:
            outputs.append(torch.cat(kept))
            kept.clear()  # layer by layer, so that few outputs are there twice at a time
        self._kept = []
        with UsingKeptLayers(outputs):
            return self(observations)

    @property
    def kept_samples(self) -> int:
        """How many samples `acted` would give."""
        return sum(len(output) for output in self._kept[0]) if self._kept else 0


def _with_bf16_layers(policy: nn.Module) -> nn.Module:
    """A copy whose layers are bf16, but for those of the outputs, which it shares with the policy."""
    outputs = [module for module in policy.modules() if isinstance(module, OutputLayer)]
    shared = {id(parameter): parameter for module in outputs for parameter in module.parameters()}
    network = copy.deepcopy(policy, dict(shared))
    for module in network.modules():
        if isinstance(module, OutputLayer):
            continue
        for parameter in module.parameters(recurse=False):
            # Convolutions take channels_last weights as they are; any others they would reorder at every call.
            layout = torch.channels_last if parameter.dim() == 4 else torch.contiguous_format
            parameter.data = parameter.data.to(torch.bfloat16, memory_format=layout)
    return network
