"""The residual CNN of IMPALA by the Triton kernels of the other modules.

The parameters are those of an ImpalaCNN, and what is computed is the same up to rounding. Triton is imported with this
module, so import it only where Triton is installed.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rlcb.gpu.kernels import convolution as kernels
from rlcb.gpu.kernels import first_layer as first
from rlcb.gpu.kernels import max_pooling as pooling
from rlcb.gpu.kernels.weight_gradient import conv_weight_gradient
from rlcb.networks.impala import ImpalaCNN


def fast_forward(network: ImpalaCNN, observations: Tensor, chosen: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Logits [B, A] and values [B] of uint8 pictures [N, H, W, 3]: of all, or of the chosen ones (int64 [B])."""
    sections: Any = network.body["sections"]
    conv = sections[0].conv
    x = _PixelConvPool.apply(observations, chosen, conv.weight, conv.bias)  # type: ignore[no-untyped-call]
    x = _blocks(sections[0], x)
    for section in sections[1:]:
        x = _ConvPool.apply(x, section.conv.weight, section.conv.bias)  # type: ignore[no-untyped-call]
        x = _blocks(section, x)
    features = F.relu(network.body["dense"](F.relu(x).flatten(1)), inplace=True)
    return network.policy_head(features), network.value_head(features).squeeze(1)


def fits(network: nn.Module, observations: Tensor) -> bool:
    """Whether `fast_forward` can compute this network for these observations."""
    pictures = observations.dim() == 4 and observations.shape[3] == first.CHANNELS
    return isinstance(network, ImpalaCNN) and pictures and observations.dtype == torch.uint8


def _blocks(section: Any, x: Tensor) -> Tensor:
    for block in section.blocks:
        one, two = block.first, block.second
        x = _Residual.apply(x, one.weight, one.bias, two.weight, two.bias)  # type: ignore[no-untyped-call]
    return x


class _PixelConvPool(torch.autograd.Function):
    """The first convolution and its pooling."""

    @staticmethod
    def forward(ctx: Any, pixels: Tensor, chosen: Tensor | None, weight: Tensor, bias: Tensor) -> Tensor:
        out, taken = first.conv_pool(pixels, chosen, weight, bias)
        ctx.save_for_backward(pixels, chosen, taken, weight, bias)
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        pixels, chosen, taken, weight, bias = ctx.saved_tensors
        gradient = gradients[0].contiguous()
        return None, None, *first.conv_pool_gradient(pixels, chosen, gradient, taken, weight, bias)


class _ConvPool(torch.autograd.Function):
    """A convolution and its pooling."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        out, taken = pooling.pool(kernels.conv(x, weight, bias))
        ctx.save_for_backward(x, taken, weight, bias)
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, ...]:
        x, taken, weight, bias = ctx.saved_tensors
        gradient = pooling.pool_gradient(gradients[0].contiguous(), taken, x.shape[1], x.shape[2])
        parameters = conv_weight_gradient(x, gradient, weight, bias)
        return kernels.conv_input_gradient(gradient, weight), *parameters


class _Residual(torch.autograd.Function):
    """A residual block: x + conv(relu(conv(relu(x))))."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight1: Tensor, bias1: Tensor, weight2: Tensor, bias2: Tensor) -> Tensor:
        inner = kernels.conv(x, weight1, bias1, relu=True, relu_out=True)
        ctx.save_for_backward(x, inner, weight1, bias1, weight2, bias2)
        return kernels.conv(inner, weight2, bias2, residual=x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, ...]:
        x, inner, weight1, bias1, weight2, bias2 = ctx.saved_tensors
        gradient = gradients[0].contiguous()
        second = conv_weight_gradient(inner, gradient, weight2, bias2)
        at_inner = kernels.conv_input_gradient(gradient, weight2, sign=inner)
        parameters = conv_weight_gradient(x, at_inner, weight1, bias1, relu=True)
        return kernels.conv_input_gradient(at_inner, weight1, sign=x, residual=gradient), *parameters, *second
