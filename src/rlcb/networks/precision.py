"""The precision in which a network is computed: fp32, or bf16 inside while weights, outputs and losses stay fp32."""

import copy

import torch
from torch import Tensor, nn

from rlcb.networks.layers import OutputLayer


class Computation:
    """A policy's network as it is computed: the policy itself in fp32, or a copy of it whose inner layers are bf16.

    The copy's bf16 weights are converted from the policy's, once for each of its states: `refresh` does it. Layers that
    give logits and values are the policy's own. Gradients are taken at `parameters`, in the order of the policy's.
    """

    def __init__(self, policy: nn.Module, precision: str):
        self.network = policy
        self._converted: list[Tensor] = []
        self._originals: list[Tensor] = []
        if precision == "bf16":
            self.network = _with_bf16_layers(policy)
            pairs = zip(self.network.parameters(), policy.parameters(), strict=True)
            found = [(mine, original) for mine, original in pairs if mine is not original]
            self._converted = [mine for mine, _ in found]
            self._originals = [original for _, original in found]
        self.parameters = list(self.network.parameters())

    def __call__(self, observations: Tensor) -> tuple[Tensor, Tensor]:
        """Logits [B, A] and values [B], both fp32."""
        outputs: tuple[Tensor, Tensor] = self.network(observations)
        return outputs

    @torch.no_grad()
    def refresh(self) -> None:
        """Take over the policy's weights as they are now; in fp32 there is nothing to do."""
        if self._converted:
            torch._foreach_copy_(self._converted, self._originals)


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
