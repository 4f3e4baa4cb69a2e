"""Triton kernels for the residual CNN of IMPALA: 3×3 convolutions of 16 and 32 channels and their input gradients.

All pictures are [B, H, W, C] in memory. A convolution is a product of matrices: a row per cell of 2×2 or 1×2 pixels,
with the values of the pixels in and around it side by side, times the weights, of which some are zero. That takes fewer
loads than a row per pixel. Sums are fp32 whatever the type of the elements. A program is given the same pixels whatever
the GPU, and nothing is added atomically, so results repeat bit for bit.
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


# By the number of input channels.
CONV = {16: Tile(64, 4), 32: Tile(128, 8)}
CONV_LINES = {16: 2, 32: 1}  # a cell has this many × 2 pixels


@triton.jit
def relu_of(values: tl.tensor) -> tl.tensor:
    """Negative numbers as zero; NaN remains NaN."""
    if values.dtype == tl.float32:
        return tl.where(values < 0, 0.0, values)
    # As integers, because Triton compares bf16 only after a conversion to fp32.
    bits = values.to(tl.int16, bitcast=True)
    return tl.maximum(bits, tl.zeros_like(bits)).to(values.dtype, bitcast=True)


@triton.jit
def _finish(
    sums: tl.tensor, bias: tl.tensor, sign: tl.tensor, residual: tl.tensor, out: tl.tensor, here: tl.tensor,
    valid: tl.tensor, output: tl.tensor, relu_out: tl.constexpr,
) -> None:  # fmt: skip
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
def _conv_kernel(
    x: tl.tensor, weight: tl.tensor, bias: tl.tensor, sign: tl.tensor, residual: tl.tensor, out: tl.tensor,
    total: tl.tensor, height: tl.constexpr, width: tl.constexpr, channels: tl.constexpr, outputs: tl.constexpr,
    lines: tl.constexpr, block: tl.constexpr, relu: tl.constexpr, relu_out: tl.constexpr, backward: tl.constexpr,
) -> None:  # fmt: skip
    columns: tl.constexpr = (width + 1) // 2
    per_picture: tl.constexpr = (height + lines - 1) // lines * columns
    cell = tl.program_id(0) * block + tl.arange(0, block)
    picture = (cell // per_picture).to(tl.int64) * (height * width)
    top = cell % per_picture // columns * lines
    left = cell % columns * 2
    depth = tl.arange(0, 4 * channels)
    across = depth // channels
    channel = depth % channels
    column = left[:, None] + across[None, :] - 1
    beside = (cell < total)[:, None] & (column >= 0) & (column < width)
    pixel = x + picture[:, None] * channels + ((top * width)[:, None] + column) * channels + channel[None, :]
    place = tl.arange(0, lines * 2 * outputs)
    output = place % outputs
    right = place // outputs % 2
    down = place // (2 * outputs)
    sums = tl.zeros([block, lines * 2 * outputs], tl.float32)
    for line in tl.static_range(lines + 2):
        row = top + (line - 1)
        inside = beside & ((row >= 0) & (row < height))[:, None]
        values = tl.load(pixel + (line - 1) * width * channels, mask=inside, other=0.0)
        if relu:
            values = relu_of(values)
        tap_row = line - down[None, :]
        tap_column = across[:, None] - right[None, :]
        used = (tap_row >= 0) & (tap_row < 3) & (tap_column >= 0) & (tap_column < 3)
        tap = tap_row * 3 + tap_column
        if backward:  # weights [channels, 9, outputs], taps mirrored
            where = (channel[:, None] * 9 + 8 - tap) * outputs + output[None, :]
        else:  # weights [outputs, 9, channels]
            where = (output[None, :] * 9 + tap) * channels + channel[:, None]
        sums = tl.dot(values, tl.load(weight + where, mask=used, other=0.0), sums, input_precision="ieee")
    there_row = top[:, None] + down[None, :]
    there_column = left[:, None] + right[None, :]
    valid = (cell < total)[:, None] & (there_row < height) & (there_column < width)
    here = picture[:, None] * outputs + (there_row * width + there_column) * outputs + output[None, :]
    _finish(sums, bias, sign, residual, out, here, valid, output, relu_out)


def conv(
    x: Tensor, weight: Tensor, bias: Tensor, residual: Tensor | None = None, relu: bool = False, relu_out: bool = False
) -> Tensor:
    """The convolution of x [B, H, W, C] or relu(x) with weights [N, C, 3, 3], plus bias and residual, or its relu."""
    return _launch_conv(x, weight, bias, None, residual, relu, relu_out, backward=False)


def conv_input_gradient(
    gradient: Tensor, weight: Tensor, sign: Tensor | None = None, residual: Tensor | None = None
) -> Tensor:
    """The gradient at a convolution's input, but zero wherever `sign` is not positive, plus `residual`."""
    return _launch_conv(gradient, weight, None, sign, residual, relu=False, relu_out=False, backward=True)


def _launch_conv(
    x: Tensor, weight: Tensor, bias: Tensor | None, sign: Tensor | None, residual: Tensor | None, relu: bool,
    relu_out: bool, backward: bool,
) -> Tensor:  # fmt: skip
    batch, height, width, channels = x.shape
    outputs = weight.shape[1 if backward else 0]
    out = x.new_empty(batch, height, width, outputs)
    tile, lines = CONV[channels], CONV_LINES[channels]
    cells = batch * triton.cdiv(height, lines) * triton.cdiv(width, 2)
    _conv_kernel[(triton.cdiv(cells, tile.block),)](
        x, channels_last(weight), bias, sign, residual, out, cells, height, width, channels, outputs,
        lines, tile.block, relu, relu_out, backward, num_warps=tile.warps,
    )  # fmt: skip
    return out


def channels_last(weight: Tensor) -> Tensor:
    """Weights [N, C, 3, 3] whose memory is [N, 3, 3, C]; those that already are so are taken as they are."""
    return weight.detach().contiguous(memory_format=torch.channels_last)
