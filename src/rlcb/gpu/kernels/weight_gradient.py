"""Triton kernels for the gradients at the weights and bias of the 3×3 convolutions of `convolution`.

Every program sums over some blocks of pixels and leaves a partial sum; a second kernel adds those, always in one order.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from rlcb.gpu.kernels.convolution import Tile, relu_of

# By the number of input channels.
WEIGHTS = {16: Tile(64, 8), 32: Tile(64, 8)}
PROGRAMS = {16: 528, 32: 132}  # at most; each leaves one partial sum of the gradient
SUM = Tile(64, 4)  # rows are partial sums
_SUMMED = 32  # elements of the gradient per program
_BLOCKS_PER_PROGRAM = 4  # at least, before another program (and another partial sum) is worth it


@triton.jit
def _weights_kernel(
    x: tl.tensor, gradient: tl.tensor, partial: tl.tensor, total: tl.tensor,
    height: tl.constexpr, width: tl.constexpr, channels: tl.constexpr, outputs: tl.constexpr, block: tl.constexpr,
    relu: tl.constexpr, stages: tl.constexpr,
) -> None:  # fmt: skip
    """Partial sums of a program, whose rows are pairs of pixels side by side, so that the 4 × 3 around them serve both.

    They are [3 lines, 4 columns · channels, 2 pixels · outputs], and [2 pixels · outputs] for the bias.
    """
    columns: tl.constexpr = (width + 1) // 2
    place = tl.arange(0, 2 * outputs)
    depth = tl.arange(0, 4 * channels)
    across = depth // channels - 1
    sums0 = tl.zeros([4 * channels, 2 * outputs], tl.float32)
    sums1 = tl.zeros([4 * channels, 2 * outputs], tl.float32)
    sums2 = tl.zeros([4 * channels, 2 * outputs], tl.float32)
    of_bias = tl.zeros([block, 2 * outputs], tl.float32)
    for number in tl.range(tl.program_id(0), tl.cdiv(total, block), tl.num_programs(0), num_stages=stages):
        pair = number * block + tl.arange(0, block)
        line = pair // columns  # of all pictures
        row = line % height
        left = pair % columns * 2
        pixel = line.to(tl.int64) * width + left
        valid = pair < total
        there = (left[:, None] + (place // outputs)[None, :] < width) & valid[:, None]
        given = tl.load(gradient + pixel[:, None] * outputs + place[None, :], mask=there, other=0.0)
        of_bias += given.to(tl.float32)
        column = left[:, None] + across[None, :]
        inside = (column >= 0) & (column < width) & valid[:, None]
        here = x + pixel[:, None] * channels + (depth - channels)[None, :]
        values0 = tl.load(here - width * channels, mask=inside & (row > 0)[:, None], other=0.0)
        values1 = tl.load(here, mask=inside, other=0.0)
        values2 = tl.load(here + width * channels, mask=inside & (row < height - 1)[:, None], other=0.0)
        if relu:
            values0 = relu_of(values0)
            values1 = relu_of(values1)
            values2 = relu_of(values2)
        sums0 = tl.dot(tl.trans(values0), given, sums0, input_precision="ieee")
        sums1 = tl.dot(tl.trans(values1), given, sums1, input_precision="ieee")
        sums2 = tl.dot(tl.trans(values2), given, sums2, input_precision="ieee")
    size: tl.constexpr = 8 * channels * outputs
    partial += tl.program_id(0) * (3 * size + 2 * outputs)
    here = partial + depth[:, None] * (2 * outputs) + place[None, :]
    tl.store(here, sums0)
    tl.store(here + size, sums1)
    tl.store(here + 2 * size, sums2)
    tl.store(partial + 3 * size + place, tl.sum(of_bias, axis=0))


@triton.jit
def _weights_sum_kernel(
    partial: tl.tensor, weight: tl.tensor, bias: tl.tensor, programs: tl.tensor,
    channels: tl.constexpr, outputs: tl.constexpr, summed: tl.constexpr, block: tl.constexpr,
) -> None:  # fmt: skip
    element = tl.program_id(0) * summed + tl.arange(0, summed)
    depth = element // outputs
    output = element % outputs
    of_weight = depth < 9 * channels
    size: tl.constexpr = 24 * channels * outputs + 2 * outputs
    tap = depth // channels
    rows_before = tl.where(of_weight, (tap // 3 * 4 + tap % 3) * channels + depth % channels, 12 * channels)
    first = rows_before * (2 * outputs) + output
    step = tl.where(of_weight, channels * 2 * outputs, 0) + outputs  # to the second pixel of the pair
    sums = tl.zeros([block, summed], tl.float32)
    for start in range(0, programs, block):
        row = start + tl.arange(0, block)
        used = (row < programs)[:, None] & (depth <= 9 * channels)[None, :]
        where = partial + row[:, None] * size + first[None, :]
        sums += tl.load(where, mask=used, other=0.0)
        sums += tl.load(where + step[None, :], mask=used, other=0.0)
    result = tl.sum(sums, axis=0)
    tl.store(weight + output * (9 * channels) + depth, result.to(weight.dtype.element_ty), mask=of_weight)
    tl.store(bias + output, result.to(bias.dtype.element_ty), mask=depth == 9 * channels)


def conv_weight_gradient(
    x: Tensor, gradient: Tensor, weight: Tensor, bias: Tensor, relu: bool = False
) -> tuple[Tensor, Tensor]:
    """The gradients at a convolution's weights and bias, for the gradient [B, H, W, N] at its output."""
    batch, height, width, channels = x.shape
    outputs = gradient.shape[3]
    tile, pairs = WEIGHTS[channels], batch * height * triton.cdiv(width, 2)
    programs = num_programs(triton.cdiv(pairs, tile.block), PROGRAMS[channels])
    partial = x.new_empty(programs, 24 * channels * outputs + 2 * outputs, dtype=torch.float32)
    _weights_kernel[(programs,)](
        x, gradient, partial, pairs, height, width, channels, outputs, tile.block, relu, tile.stages,
        num_warps=tile.warps,
    )  # fmt: skip
    weights = torch.empty_like(weight, memory_format=torch.channels_last)
    biases = torch.empty_like(bias)
    _weights_sum_kernel[(triton.cdiv((9 * channels + 1) * outputs, _SUMMED),)](
        partial, weights, biases, programs, channels, outputs, _SUMMED, SUM.block, num_warps=SUM.warps
    )
    return weights, biases


def num_programs(blocks: int, most: int) -> int:
    """How many programs share this many blocks, each leaving a partial sum."""
    return max(1, min(most, blocks // _BLOCKS_PER_PROGRAM))
