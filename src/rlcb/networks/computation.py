"""A policy's network as it is computed: in fp32 or bf16, and for some algorithms once for acting and learning."""

import copy
import math
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch
from torch import Tensor, nn

from rlcb.networks.kept_layers import KeepingLayers, KeptLayers, UsingKeptLayers
from rlcb.networks.layers import FP32_MODULES

Outputs = tuple[Tensor, Tensor]  # the policy's outputs (logits [B, A]) and values [B], both fp32
Loss = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]  # outputs and values of all samples → a loss and its metrics
Gradient = tuple[Tensor, ...]  # for each of `parameters`, as precise as the layer it belongs to
_MOST_THREADS = 4  # of Python: with more, they wait for the interpreter's lock
One = TypeVar("One")
Other = TypeVar("Other")
Result = TypeVar("Result")


class Computation:
    """The policy itself in fp32, or a copy of it whose inner layers are bf16; weights, logits and values stay fp32.

    The copy's bf16 weights are converted from the policy's, once for each of its states: `refresh` does it. Layers that
    give logits and values are the policy's own. Gradients are taken at `parameters`: those of the policy that gradients
    move, in their order.
    """

    def __init__(self, policy: nn.Module, precision: str = "fp32", keeps_layers: bool = False, compiled: bool = False):
        """`keeps_layers`: `act` keeps the outputs of the network's layers; `compiled`: by torch.compile, when used."""
        self.network, self.keeps_layers = policy, keeps_layers
        self._pool: ThreadPoolExecutor | None = None
        self._kept: list[list[Tensor]] = []  # for each layer in the order of computation: its outputs by step
        self._converted: list[Tensor] = []
        self._originals: list[Tensor] = []
        if precision == "bf16":
            self.network = _with_bf16_layers(policy)
            pairs = zip(self.network.parameters(), policy.parameters(), strict=True)
            found = [(mine, original) for mine, original in pairs if mine is not original]
            self._converted = [mine for mine, _ in found]
            self._originals = [original for _, original in found]
        self.parameters = [parameter for parameter in self.network.parameters() if parameter.requires_grad]
        self.compiled = compiled
        # What computes the network's outputs; whoever has a faster way may put it here.
        self.compute: Callable[[Tensor], Outputs] = self.network
        if compiled:
            self.compute = torch.compile(self.network, dynamic=False)

    def __call__(self, observations: Tensor, layers: KeptLayers | None = None) -> Outputs:
        """Logits and values; `layers`: what the layers have given for these observations, if that is known."""
        if layers is not None:
            with UsingKeptLayers(layers):
                return self(observations)
        return self.compute(observations)

    @torch.no_grad()
    def refresh(self) -> None:
        """Take over the policy's weights as they are now, and forget the layers' outputs, which were made by others."""
        self._kept = []
        if self._converted:
            torch._foreach_copy_(self._converted, self._originals)

    def act(self, observations: Tensor) -> Outputs:
        """Logits and values, whose layers' outputs are kept if that was asked for."""
        if not self.keeps_layers:
            return self(observations)
        with KeepingLayers() as keeping:
            outputs = self(observations)
        if not self._kept:
            self._kept = [[] for _ in keeping.outputs]
        for kept, output in zip(self._kept, keeping.outputs, strict=True):
            kept.append(output)
        return outputs

    def kept(self, sizes: list[int]) -> list[KeptLayers]:
        """What the layers gave in `act` since `refresh`, in pieces of this many samples; it is handed out once."""
        columns = []
        for outputs in self._kept:
            # `data`: as tensors of their own, not as views, which in-place operations could not be done on.
            columns.append([piece.data for piece in torch.split(torch.cat(outputs), sizes)])
            outputs.clear()  # layer by layer, so that few outputs are there twice at a time
        self._kept = []
        return [list(piece) for piece in zip(*columns, strict=True)]

    @property
    def kept_samples(self) -> int:
        """Of how many samples the layers' outputs are kept."""
        return sum(len(output) for output in self._kept[0]) if self._kept else 0

    def gradients(self, observations: Tensor, loss: Loss, as_acted: bool = False) -> tuple[list[Gradient], Tensor]:
        """The summands of the gradient of the samples' loss at `parameters`, and the loss's metrics.

        Each of several threads computes the network for samples of its own, forwards and backwards. In between there is
        one loss of all samples, so it may relate them to each other, as V-trace does with the steps of an environment.
        `as_acted`: the samples are all that was acted on since `refresh`, in that order.
        """
        pieces = torch.split(observations, max(math.ceil(len(observations) / self.threads), 1))
        sizes = [len(piece) for piece in pieces]
        kept = self.kept(sizes) if as_acted else [None] * len(pieces)
        if len(pieces) == 1:
            value, metrics = loss(*self(observations, kept[0]))
            return [torch.autograd.grad(value, self.parameters)], metrics
        computed = list(self._in_threads(self, pieces, kept))
        whole = [torch.cat(part).detach().requires_grad_() for part in zip(*computed, strict=True)]
        value, metrics = loss(*whole)
        slopes = (torch.split(slope, sizes) for slope in torch.autograd.grad(value, whole))

        def backward(of: Outputs, slope: Outputs) -> Gradient:
            return torch.autograd.grad(of, self.parameters, slope)

        return list(self._in_threads(backward, computed, zip(*slopes, strict=True))), metrics

    @property
    def threads(self) -> int:
        """In how many threads `gradients` works.

        In fp32 it is one, and torch divides each operation among its threads. In bf16 the backward pass of oneDNN's
        convolutions has threads wait for each other in a loop that does not yield the core: beside any other program a
        step then takes a hundred times as long. So there each thread gets samples of its own, or every few threads.
        """
        if not self._converted or self._converted[0].is_cuda:
            return 1
        return min(torch.get_num_threads(), _MOST_THREADS)

    def _in_threads(
        self, function: Callable[[One, Other], Result], first: Iterable[One], second: Iterable[Other]
    ) -> Iterator[Result]:
        """The function's results for pairs of arguments, in order, computed in `threads` threads."""
        if self._pool is None:
            share = torch.get_num_threads() // self.threads
            self._pool = ThreadPoolExecutor(self.threads, initializer=torch.set_num_threads, initargs=(share,))
        return self._pool.map(function, first, second)


def _with_bf16_layers(policy: nn.Module) -> nn.Module:
    """A copy whose layers are bf16, but for those of the outputs, which it shares with the policy."""
    outputs = [module for module in policy.modules() if isinstance(module, FP32_MODULES)]
    shared = {id(parameter): parameter for module in outputs for parameter in module.parameters(recurse=False)}
    network = copy.deepcopy(policy, dict(shared))
    for module in network.modules():
        if isinstance(module, FP32_MODULES):
            continue
        for parameter in module.parameters(recurse=False):
            # Convolutions take channels_last weights as they are; any others they would reorder at every call.
            layout = torch.channels_last if parameter.dim() == 4 else torch.contiguous_format
            parameter.data = parameter.data.to(torch.bfloat16, memory_format=layout)
    return network
