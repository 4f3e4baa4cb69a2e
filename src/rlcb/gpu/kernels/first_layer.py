"""Triton kernels for what stands first in IMPALA's residual CNN: a 3×3 convolution of uint8 pixels and its max pooling.

Both are one kernel, so that the convolution's output, the largest array of the network, is never written. A pooled
pixel depends on 5×5 pixels of 3 channels: five runs of 15 bytes. Each run is a row of a matrix (16 columns) that is
multiplied by 16×64 weights: those of 16 channels at three neighbouring columns of the convolution's output, and zeros.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from rlcb.gpu.kernels.convolution import Tile, channels_last
from rlcb.gpu.kernels.weight_gradient import num_programs

CHANNELS = 3  # of the pixels
OUTPUTS = 16  # channels of the convolution
FORWARD = Tile(128, 4)
GRADIENT = Tile(64, 4)
PROGRAMS = 528  # at most; each leaves one partial sum of the gradient
_SUM = Tile(64, 4)
_SUMMED = 16  # elements of the gradient per program
_PARTIAL = 3 * 64 * 16  # numbers of a partial sum: a row of the weights, 4 columns × 16 channels, 16 inputs


@triton.jit
def _run(
    pixels: tl.tensor, picture: tl.tensor, row: tl.tensor, left: tl.tensor, valid: tl.tensor,
    height: tl.constexpr, width: tl.constexpr, element: tl.constexpr,
) -> tl.tensor:  # fmt: skip
    """[block, 16]: 5 pixels of a row from `left` on, 3 channels each, zero outside of the picture; the last is one."""
    byte = tl.arange(0, 16)
    column = left[:, None] + (byte // 3)[None, :]
    inside = (column >= 0) & (column < width) & (byte < 15)[None, :] & (valid & (row >= 0) & (row < height))[:, None]
    where = (picture + (row * width + left) * 3)[:, None] + byte[None, :]
    values = tl.load(pixels + where, mask=inside, other=0).to(tl.float32)
    return tl.where((byte == 15)[None, :], 1.0, values).to(element)


@triton.jit
def _picture(chosen: tl.tensor, number: tl.tensor, valid: tl.tensor, size: tl.constexpr) -> tl.tensor:
    """Where the pictures of these samples begin."""
    if chosen is not None:
        return tl.load(chosen + number, mask=valid, other=0).to(tl.int64) * size
    return number.to(tl.int64) * size


@triton.jit
def _factors(weight: tl.tensor, line: tl.constexpr, element: tl.constexpr) -> tl.tensor:
    """[16, 64]: weights of line `line` of the 3×3, for the convolution's output at 3 neighbouring columns."""
    byte = tl.arange(0, 16)
    output = tl.arange(0, 64)
    place = byte[:, None] - 3 * (output // 16)[None, :]
    used = (place >= 0) & (place < 9) & (byte < 15)[:, None] & (output < 48)[None, :]
    where = (output % 16 * 27)[None, :] + (line * 9) + place
    return (tl.load(weight + where, mask=used, other=0.0).to(tl.float32) * (1 / 255)).to(element)


@triton.jit
def _best(
    best: tl.tensor, winner: tl.tensor, line: tl.constexpr, sums: tl.tensor, row: tl.tensor, left: tl.tensor,
    height: tl.constexpr, width: tl.constexpr, block: tl.constexpr,
) -> tuple[tl.tensor, tl.tensor]:  # fmt: skip
    """The maxima and winning taps, also looking at line `line` of the window: 3 columns of 16 channels in `sums`."""
    tap = tl.arange(0, 64) // 16
    column = left[:, None] + tap[None, :]
    inside = (column >= 0) & (column < width) & (tap < 3)[None, :] & ((row >= 0) & (row < height))[:, None]
    sums = tl.reshape(tl.where(inside, sums, float("-inf")), [block, 4, 16])
    value, place = tl.max(sums, axis=1, return_indices=True)
    better = (value > best) | (value != value)  # noqa: PLR0124 (NaN wins)
    return tl.where(better, value, best), tl.where(better, place + line * 3, winner)


@triton.jit
def _conv_pool_kernel(
    pixels: tl.tensor, chosen: tl.tensor, weight: tl.tensor, bias: tl.tensor, out: tl.tensor, taken: tl.tensor,
    total: tl.tensor, height: tl.constexpr, width: tl.constexpr, block: tl.constexpr,
) -> None:  # fmt: skip
    half_height: tl.constexpr = (height + 1) // 2
    half_width: tl.constexpr = (width + 1) // 2
    element: tl.constexpr = weight.dtype.element_ty
    pixel = tl.program_id(0) * block + tl.arange(0, block)
    valid = pixel < total
    picture = _picture(chosen, pixel // (half_height * half_width), valid, height * width * 3)
    row = pixel // half_width % half_height * 2 - 2
    left = pixel % half_width * 2 - 2
    run0 = _run(pixels, picture, row, left, valid, height, width, element)
    run1 = _run(pixels, picture, row + 1, left, valid, height, width, element)
    run2 = _run(pixels, picture, row + 2, left, valid, height, width, element)
    run3 = _run(pixels, picture, row + 3, left, valid, height, width, element)
    run4 = _run(pixels, picture, row + 4, left, valid, height, width, element)
    factors0 = _factors(weight, 0, element)
    factors1 = _factors(weight, 1, element)
    factors2 = _factors(weight, 2, element)
    best = tl.full([block, 16], float("-inf"), tl.float32)
    winner = tl.zeros([block, 16], tl.int32)
    sums = tl.dot(run0, factors0, input_precision="ieee")
    sums = tl.dot(run1, factors1, sums, input_precision="ieee")
    sums = tl.dot(run2, factors2, sums, input_precision="ieee")
    best, winner = _best(best, winner, 0, sums, row + 1, left + 1, height, width, block)
    sums = tl.dot(run1, factors0, input_precision="ieee")
    sums = tl.dot(run2, factors1, sums, input_precision="ieee")
    sums = tl.dot(run3, factors2, sums, input_precision="ieee")
    best, winner = _best(best, winner, 1, sums, row + 2, left + 1, height, width, block)
    sums = tl.dot(run2, factors0, input_precision="ieee")
    sums = tl.dot(run3, factors1, sums, input_precision="ieee")
    sums = tl.dot(run4, factors2, sums, input_precision="ieee")
    best, winner = _best(best, winner, 2, sums, row + 3, left + 1, height, width, block)
    output = tl.arange(0, 16)
    best += tl.load(bias + output)[None, :].to(tl.float32)
    here = pixel.to(tl.int64)[:, None] * 16 + output[None, :]
    tl.store(out + here, best.to(out.dtype.element_ty), mask=valid[:, None])
    tl.store(taken + here, winner.to(tl.int8), mask=valid[:, None])


@triton.jit
def _pixel_weights_kernel(
    pixels: tl.tensor, chosen: tl.tensor, gradient: tl.tensor, taken: tl.tensor, partial: tl.tensor, total: tl.tensor,
    height: tl.constexpr, width: tl.constexpr, block: tl.constexpr, stages: tl.constexpr,
) -> None:  # fmt: skip
    """Partial sums [3, 64, 16] of a program: lines of the weights, columns of the window × channels, bytes of a run."""
    half_height: tl.constexpr = (height + 1) // 2
    half_width: tl.constexpr = (width + 1) // 2
    element: tl.constexpr = gradient.dtype.element_ty
    output = tl.arange(0, 64)
    tap = tl.where(output < 48, output // 16, -9)[None, :]  # the last 16 belong to no column, and win nothing
    sums0 = tl.zeros([64, 16], tl.float32)
    sums1 = tl.zeros([64, 16], tl.float32)
    sums2 = tl.zeros([64, 16], tl.float32)
    for number in tl.range(tl.program_id(0), tl.cdiv(total, block), tl.num_programs(0), num_stages=stages):
        pixel = number * block + tl.arange(0, block)
        valid = pixel < total
        here = pixel.to(tl.int64)[:, None] * 16 + (output % 16)[None, :]
        given = tl.load(gradient + here, mask=valid[:, None], other=0.0)
        winner = tl.load(taken + here, mask=valid[:, None], other=-1).to(tl.int32) - tap
        picture = _picture(chosen, pixel // (half_height * half_width), valid, height * width * 3)
        row = pixel // half_width % half_height * 2 - 2
        left = pixel % half_width * 2 - 2
        run0 = _run(pixels, picture, row, left, valid, height, width, element)
        run1 = _run(pixels, picture, row + 1, left, valid, height, width, element)
        run2 = _run(pixels, picture, row + 2, left, valid, height, width, element)
        run3 = _run(pixels, picture, row + 3, left, valid, height, width, element)
        run4 = _run(pixels, picture, row + 4, left, valid, height, width, element)
        routed = tl.trans(tl.where(winner == 0, given, 0.0).to(element))
        sums0 = tl.dot(routed, run0, sums0, input_precision="ieee")
        sums1 = tl.dot(routed, run1, sums1, input_precision="ieee")
        sums2 = tl.dot(routed, run2, sums2, input_precision="ieee")
        routed = tl.trans(tl.where(winner == 3, given, 0.0).to(element))
        sums0 = tl.dot(routed, run1, sums0, input_precision="ieee")
        sums1 = tl.dot(routed, run2, sums1, input_precision="ieee")
        sums2 = tl.dot(routed, run3, sums2, input_precision="ieee")
        routed = tl.trans(tl.where(winner == 6, given, 0.0).to(element))
        sums0 = tl.dot(routed, run2, sums0, input_precision="ieee")
        sums1 = tl.dot(routed, run3, sums1, input_precision="ieee")
        sums2 = tl.dot(routed, run4, sums2, input_precision="ieee")
    partial += tl.program_id(0) * 3072 + output[:, None] * 16 + tl.arange(0, 16)[None, :]
    tl.store(partial, sums0)
    tl.store(partial + 1024, sums1)
    tl.store(partial + 2048, sums2)


@triton.jit
def _pixel_weights_sum_kernel(
    partial: tl.tensor, weight: tl.tensor, bias: tl.tensor, programs: tl.tensor,
    summed: tl.constexpr, block: tl.constexpr,
) -> None:  # fmt: skip
    """Elements are 32 per output: 27 weights and the bias."""
    element = tl.program_id(0) * summed + tl.arange(0, summed)
    output = element // 32
    place = element % 32
    line = tl.where(place < 27, place // 9, 0)
    byte = tl.where(place < 27, place % 9, 15)
    shift = tl.where(place < 27, 3, 0)  # bytes of a run by which each column of the window is further to the right
    sums = tl.zeros([block, summed], tl.float32)
    for start in range(0, programs, block):
        row = start + tl.arange(0, block)
        for column in tl.static_range(3):
            where = line * 1024 + (column * 16 + output) * 16 + byte + column * shift
            used = (row < programs)[:, None] & (place < 28)[None, :]
            sums += tl.load(partial + row[:, None] * 3072 + where[None, :], mask=used, other=0.0)
    result = tl.sum(sums, axis=0)
    tl.store(weight + output * 27 + place, (result * (1 / 255)).to(weight.dtype.element_ty), mask=place < 27)
    tl.store(bias + output, result.to(bias.dtype.element_ty), mask=place == 27)


def conv_pool(pixels: Tensor, chosen: Tensor | None, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    """The pooled convolution of uint8 pictures [N, H, W, 3], all or the chosen ones, and the winning taps (int8)."""
    height, width = pixels.shape[1:3]
    batch = len(pixels) if chosen is None else len(chosen)
    out = weight.new_empty(batch, (height + 1) // 2, (width + 1) // 2, OUTPUTS)
    taken = torch.empty_like(out, dtype=torch.int8)
    total = out.numel() // OUTPUTS
    _conv_pool_kernel[(triton.cdiv(total, FORWARD.block),)](
        pixels, chosen, channels_last(weight), bias, out, taken, total, height, width, FORWARD.block,
        num_warps=FORWARD.warps, num_stages=FORWARD.stages,
    )  # fmt: skip
    return out, taken


def conv_pool_gradient(
    pixels: Tensor, chosen: Tensor | None, gradient: Tensor, taken: Tensor, weight: Tensor, bias: Tensor
) -> tuple[Tensor, Tensor]:
    """The gradients at weights and bias of `conv_pool`, in their types, for the gradient at the pooled output."""
    height, width = pixels.shape[1:3]
    total = gradient.numel() // OUTPUTS
    programs = num_programs(triton.cdiv(total, GRADIENT.block), PROGRAMS)
    partial = gradient.new_empty(programs, _PARTIAL, dtype=torch.float32)
    _pixel_weights_kernel[(programs,)](
        pixels, chosen, gradient, taken, partial, total, height, width, GRADIENT.block, GRADIENT.stages,
        num_warps=GRADIENT.warps,
    )  # fmt: skip
    weights = torch.empty_like(weight, memory_format=torch.channels_last)
    biases = torch.empty_like(bias)
    _pixel_weights_sum_kernel[(32 * OUTPUTS // _SUMMED,)](
        partial, weights, biases, programs, _SUMMED, _SUM.block, num_warps=_SUM.warps
    )
    return weights, biases
