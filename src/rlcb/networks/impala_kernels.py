"""Triton kernels for the residual CNN of IMPALA: 3×3 convolutions of 16 and 32 channels and their gradients.

All pictures are [B, H, W, C] in memory. A convolution is a product of matrices: a row per pixel, with the values of its
neighbours side by side (taps × channels), times the weights. Sums are fp32 whatever the type of the elements. A program
is given the same pixels whatever the GPU, and nothing is added atomically, so results repeat bit for bit.
"""

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor


class Tile(NamedTuple):
    """How a kernel is divided: rows (pixels) of a block, warps of a program, stages of its loop's pipeline."""

    block: int
    warps: int
    stages: int = 1


# By the number of input channels. The taps are those of one product: its depth is taps × channels.
CONV = {16: Tile(128, 4), 32: Tile(128, 4)}
CONV_TAPS = {16: 4, 32: 4}
WEIGHTS = {16: Tile(128, 4), 32: Tile(64, 4)}
WEIGHTS_PROGRAMS = {16: 528, 32: 264}  # at most; each leaves one partial sum of the gradient
SUM = Tile(64, 4)  # rows are partial sums
_SUMMED = 32  # elements of the gradient per program
_BLOCKS_PER_PROGRAM = 4  # at least, before another program (and another partial sum) is worth it


@triton.jit
def _relu(values: tl.tensor) -> tl.tensor:
    """Negative numbers as zero; NaN remains NaN."""
    if values.dtype == tl.float32:
        return tl.where(values < 0, 0.0, values)
    # As integers, because Triton compares bf16 only after a conversion to fp32.
    bits = values.to(tl.int16, bitcast=True)
    return tl.maximum(bits, tl.zeros_like(bits)).to(values.dtype, bitcast=True)


@triton.jit
def _neighbours(
    x: tl.tensor, start: tl.tensor, total: tl.tensor, first: tl.constexpr, height: tl.constexpr, width: tl.constexpr,
    channels: tl.constexpr, taps: tl.constexpr, block: tl.constexpr, relu: tl.constexpr,
) -> tl.tensor:  # fmt: skip
    """[block, taps · channels]: for every pixel from `start` on its neighbours at taps `first`…, zero outside."""
    rows = tl.arange(0, block)
    pixel = start + rows
    row = pixel // width % height
    column = pixel % width
    depth = tl.arange(0, taps * channels)
    tap = first + depth // channels
    down = tap // 3 - 1
    right = tap % 3 - 1
    there_row = row[:, None] + down[None, :]
    there_column = column[:, None] + right[None, :]
    inside = (there_row >= 0) & (there_row < height) & (there_column >= 0) & (there_column < width)
    inside = inside & (pixel < total)[:, None] & (tap < 9)[None, :]
    there = (rows[:, None] + (down * width + right)[None, :]) * channels + (depth % channels)[None, :]
    values = tl.load(x + start.to(tl.int64) * channels + there, mask=inside, other=0.0)
    if relu:
        values = _relu(values)
    return values


@triton.jit
def _conv_kernel(
    x: tl.tensor, weight: tl.tensor, bias: tl.tensor, sign: tl.tensor, residual: tl.tensor, out: tl.tensor,
    total: tl.tensor, height: tl.constexpr, width: tl.constexpr, channels: tl.constexpr, outputs: tl.constexpr,
    taps: tl.constexpr, block: tl.constexpr, relu: tl.constexpr, relu_out: tl.constexpr, backward: tl.constexpr,
) -> None:  # fmt: skip
    start = tl.program_id(0) * block
    depth = tl.arange(0, taps * channels)
    output = tl.arange(0, outputs)
    sums = tl.zeros([block, outputs], tl.float32)
    for first in tl.static_range(0, 9, taps):
        values = _neighbours(x, start, total, first, height, width, channels, taps, block, relu)
        tap = first + depth // channels
        if backward:  # weights [channels, 9, outputs], taps mirrored
            where = (depth % channels * 9 + 8 - tap)[:, None] * outputs + output[None, :]
        else:  # weights [outputs, 9, channels]
            where = output[None, :] * (9 * channels) + (first * channels + depth)[:, None]
        factors = tl.load(weight + where, mask=(tap < 9)[:, None], other=0.0)
        sums = tl.dot(values, factors, sums, input_precision="ieee")
    rows = tl.arange(0, block)
    here = start.to(tl.int64) * outputs + (rows[:, None] * outputs + output[None, :])
    valid = (start + rows < total)[:, None]
    if bias is not None:
        sums += tl.load(bias + output)[None, :].to(tl.float32)
    if sign is not None:
        sums = tl.where(tl.load(sign + here, mask=valid, other=0.0) > 0, sums, 0.0)
    if residual is not None:
        sums += tl.load(residual + here, mask=valid, other=0.0).to(tl.float32)
    if relu_out:
        sums = tl.where(sums < 0, 0.0, sums)  # NaN remains NaN
    tl.store(out + here, sums.to(out.dtype.element_ty), mask=valid)


@triton.jit
def _weights_kernel(
    x: tl.tensor, gradient: tl.tensor, partial: tl.tensor, total: tl.tensor,
    height: tl.constexpr, width: tl.constexpr, channels: tl.constexpr, outputs: tl.constexpr, block: tl.constexpr,
    relu: tl.constexpr, stages: tl.constexpr,
) -> None:  # fmt: skip
    """Partial sums [12 · channels, outputs] of a program; the row of tap 9 and channel 0 is that of the bias."""
    rows = tl.arange(0, block)
    output = tl.arange(0, outputs)
    depth = tl.arange(0, 4 * channels)
    sums0 = tl.zeros([4 * channels, outputs], tl.float32)
    sums1 = tl.zeros([4 * channels, outputs], tl.float32)
    sums2 = tl.zeros([4 * channels, outputs], tl.float32)
    for number in tl.range(tl.program_id(0), tl.cdiv(total, block), tl.num_programs(0), num_stages=stages):
        start = number * block
        here = start.to(tl.int64) * outputs + (rows[:, None] * outputs + output[None, :])
        given = tl.load(gradient + here, mask=(start + rows < total)[:, None], other=0.0)
        taps0 = _neighbours(x, start, total, 0, height, width, channels, 4, block, relu)
        taps1 = _neighbours(x, start, total, 4, height, width, channels, 4, block, relu)
        taps2 = _neighbours(x, start, total, 8, height, width, channels, 4, block, relu)
        taps2 = tl.where((depth == channels)[None, :], 1.0, taps2).to(given.dtype)  # a factor of one at tap 9
        sums0 = tl.dot(tl.trans(taps0), given, sums0, input_precision="ieee")
        sums1 = tl.dot(tl.trans(taps1), given, sums1, input_precision="ieee")
        sums2 = tl.dot(tl.trans(taps2), given, sums2, input_precision="ieee")
    size: tl.constexpr = 4 * channels * outputs
    partial += tl.program_id(0) * (3 * size) + depth[:, None] * outputs + output[None, :]
    tl.store(partial, sums0)
    tl.store(partial + size, sums1)
    tl.store(partial + 2 * size, sums2)


@triton.jit
def _weights_sum_kernel(
    partial: tl.tensor, weight: tl.tensor, bias: tl.tensor, programs: tl.tensor,
    channels: tl.constexpr, outputs: tl.constexpr, summed: tl.constexpr, block: tl.constexpr,
) -> None:  # fmt: skip
    element = tl.program_id(0) * summed + tl.arange(0, summed)
    sums = tl.zeros([block, summed], tl.float32)
    for start in range(0, programs, block):
        row = start + tl.arange(0, block)
        where = row[:, None] * (12 * channels * outputs) + element[None, :]
        sums += tl.load(partial + where, mask=(row < programs)[:, None], other=0.0)
    result = tl.sum(sums, axis=0)
    depth = element // outputs
    output = element % outputs
    mine = weight + output * (9 * channels) + depth
    tl.store(mine, result.to(weight.dtype.element_ty), mask=depth < 9 * channels)
    tl.store(bias + output, result.to(bias.dtype.element_ty), mask=depth == 9 * channels)


def conv(
    x: Tensor, weight: Tensor, bias: Tensor, residual: Tensor | None = None, relu: bool = False, relu_out: bool = False
) -> Tensor:
    """The convolution of x [B, H, W, C] or relu(x) with weights [N, C, 3, 3], plus bias and residual, or its relu."""
    return _launch_conv(x, weight, bias, None, residual, relu, relu_out, backward=False)


def conv_input_gradient(
    gradient: Tensor, weight: Tensor, sign: Tensor | None = None, residual: Tensor | None = None
) -> Tensor:
    """The gradient at a convolution's input; where `sign` is not positive zero, then `residual` is added."""
    return _launch_conv(gradient, weight, None, sign, residual, relu=False, relu_out=False, backward=True)


def _launch_conv(
    x: Tensor, weight: Tensor, bias: Tensor | None, sign: Tensor | None, residual: Tensor | None, relu: bool,
    relu_out: bool, backward: bool,
) -> Tensor:  # fmt: skip
    batch, height, width, channels = x.shape
    outputs = weight.shape[1 if backward else 0]
    out = x.new_empty(batch, height, width, outputs)
    tile, total = CONV[channels], batch * height * width
    _conv_kernel[(triton.cdiv(total, tile.block),)](
        x, channels_last(weight), bias, sign, residual, out, total, height, width, channels, outputs,
        CONV_TAPS[channels], tile.block, relu, relu_out, backward, num_warps=tile.warps, num_stages=tile.stages,
    )  # fmt: skip
    return out


def conv_weight_gradient(
    x: Tensor, gradient: Tensor, weight: Tensor, bias: Tensor, relu: bool = False
) -> tuple[Tensor, Tensor]:
    """The gradients at a convolution's weights and bias, for the gradient [B, H, W, N] at its output."""
    batch, height, width, channels = x.shape
    outputs = gradient.shape[3]
    tile, total = WEIGHTS[channels], batch * height * width
    programs = num_programs(triton.cdiv(total, tile.block), WEIGHTS_PROGRAMS[channels])
    partial = x.new_empty(programs, 12 * channels * outputs, dtype=torch.float32)
    _weights_kernel[(programs,)](
        x, gradient, partial, total, height, width, channels, outputs, tile.block, relu, tile.stages,
        num_warps=tile.warps,
    )  # fmt: skip
    weights = torch.empty_like(weight, memory_format=torch.channels_last)
    biases = torch.empty_like(bias)
    _weights_sum_kernel[(12 * channels * outputs // _SUMMED,)](
        partial, weights, biases, programs, channels, outputs, _SUMMED, SUM.block, num_warps=SUM.warps
    )
    return weights, biases


def num_programs(blocks: int, most: int) -> int:
    """How many programs share so many blocks, each leaving a partial sum."""
    return max(1, min(most, blocks // _BLOCKS_PER_PROGRAM))


def channels_last(weight: Tensor) -> Tensor:
    """Weights [N, C, 3, 3] whose memory is [N, 3, 3, C]; those that already are so are taken as they are."""
    return weight.detach().contiguous(memory_format=torch.channels_last)
