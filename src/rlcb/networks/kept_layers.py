"""Layer outputs that are kept while acting and used again for learning from the same samples with the same weights.

An algorithm that takes one gradient per rollout, at the weights that acted, would otherwise compute every sample's
forward pass twice. Elementwise operations are computed again; convolutions and dense layers, nearly all of the time,
are not. Keeping works on torch's functions, so networks need not know of it. Their in-place operations must give the
same when they are done once more, as the rectifier does: what is kept has them done already.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

KeptLayers = list[Tensor]  # outputs of a network's layers, in the order of computation
_LAYERS = (F.conv2d, F.linear)


class KeepingLayers(TorchFunctionMode):
    """While this is on, every layer's output is appended to `outputs`, in the order of computation."""

    def __init__(self) -> None:
        super().__init__()
        self.outputs: KeptLayers = []

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        if function in _LAYERS:
            self.outputs.append(result)
        return result


class UsingKeptLayers(TorchFunctionMode):
    """While this is on, layers give kept outputs, one after the other, and have the gradients of real ones."""

    def __init__(self, outputs: KeptLayers):
        super().__init__()
        self._outputs = outputs[::-1]

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function is F.conv2d:
            return _Convolution.apply(  # type: ignore[no-untyped-call]
                self._outputs, *_conv2d_arguments(*args, **(kwargs or {}))
            )
        if function is F.linear:
            return _Dense.apply(  # type: ignore[no-untyped-call]
                self._outputs, *_linear_arguments(*args, **(kwargs or {}))
            )
        return function(*args, **(kwargs or {}))


def _conv2d_arguments(
    input: Tensor, weight: Tensor, bias: Tensor, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1
) -> tuple[Any, ...]:
    """The arguments of F.conv2d in order, with those that were left out."""
    pairs = ([number] * 2 if isinstance(number, int) else list(number) for number in (stride, padding, dilation))
    return (input, weight, bias, *pairs, groups)


def _linear_arguments(input: Tensor, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The arguments of F.linear in order."""
    return input, weight, bias


class _Convolution(Function):
    """A convolution whose output is known."""

    @staticmethod
    def forward(ctx: Any, kept: list[Tensor], x: Tensor, weight: Tensor, bias: Tensor, *geometry: Any) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.geometry = geometry
        return kept.pop()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        x, weight = ctx.saved_tensors
        stride, padding, dilation, groups = ctx.geometry
        found = torch.ops.aten.convolution_backward(
            *gradients, x, weight, [len(weight)], stride, padding, dilation, False, [0, 0], groups,
            ctx.needs_input_grad[1:4],
        )  # fmt: skip
        return None, *found, None, None, None, None


class _Dense(Function):
    """A dense layer whose output is known."""

    @staticmethod
    def forward(ctx: Any, kept: list[Tensor], x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        return kept.pop()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        x, weight = ctx.saved_tensors
        (gradient,) = gradients
        wanted = ctx.needs_input_grad[1]
        return None, gradient @ weight if wanted else None, gradient.t() @ x, gradient.sum(0)
