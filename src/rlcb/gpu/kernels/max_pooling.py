"""Triton kernels for max pooling by 3×3 with stride 2 and padding 1, of pictures [B, H, W, C], and for its gradient."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from rlcb.gpu.kernels.convolution import Tile

POOL = Tile(64, 4)
UNPOOL = Tile(64, 4)


@triton.jit
def _pool_kernel(
    x: tl.tensor, out: tl.tensor, taken: tl.tensor, total: tl.tensor,
    height: tl.constexpr, width: tl.constexpr, channels: tl.constexpr, block: tl.constexpr,
) -> None:  # fmt: skip
    half_height: tl.constexpr = (height + 1) // 2
    half_width: tl.constexpr = (width + 1) // 2
    pixel = tl.program_id(0) * block + tl.arange(0, block)
    channel = tl.arange(0, channels)
    top = pixel // half_width % half_height * 2 - 1
    left = pixel % half_width * 2 - 1
    picture = (pixel // (half_width * half_height)).to(tl.int64) * (height * width * channels)
    valid = pixel < total
    best = tl.full([block, channels], float("-inf"), tl.float32)
    winner = tl.zeros([block, channels], tl.int32)
    for tap in tl.static_range(9):
        row = top + tap // 3
        column = left + tap % 3
        inside = valid & (row >= 0) & (row < height) & (column >= 0) & (column < width)
        where = (picture + (row * width + column) * channels)[:, None] + channel[None, :]
        value = tl.load(x + where, mask=inside[:, None], other=float("-inf")).to(tl.float32)
        better = (value > best) | (value != value)  # noqa: PLR0124 (as torch: the first of equals, and NaN)
        best = tl.where(better, value, best)
        winner = tl.where(better, tap, winner)
    here = pixel.to(tl.int64)[:, None] * channels + channel[None, :]
    tl.store(out + here, best.to(out.dtype.element_ty), mask=valid[:, None])
    tl.store(taken + here, winner.to(tl.int8), mask=valid[:, None])


@triton.jit
def _windows(
    gradient: tl.tensor, taken: tl.tensor, where: tl.tensor, valid: tl.tensor, channel: tl.tensor,
    channels: tl.constexpr,
) -> tuple[tl.tensor, tl.tensor]:  # fmt: skip
    """Gradients and winning taps of the windows at these pooled pixels, [block, channels] each; -1 wins nothing."""
    here = where.to(tl.int64)[:, None] * channels + channel[None, :]
    values = tl.load(gradient + here, mask=valid[:, None], other=0.0).to(tl.float32)
    return values, tl.load(taken + here, mask=valid[:, None], other=-1).to(tl.int32)


@triton.jit
def _unpool_kernel(
    gradient: tl.tensor, taken: tl.tensor, out: tl.tensor, total: tl.tensor,
    height: tl.constexpr, width: tl.constexpr, channels: tl.constexpr, block: tl.constexpr,
) -> None:  # fmt: skip
    """Each row gives the 2×2 pixels that only its own window, the one to the right, below and diagonally cover."""
    half_height: tl.constexpr = (height + 1) // 2
    half_width: tl.constexpr = (width + 1) // 2
    pixel = tl.program_id(0) * block + tl.arange(0, block)
    channel = tl.arange(0, channels)
    row = pixel // half_width % half_height
    column = pixel % half_width
    picture = (pixel // (half_width * half_height)).to(tl.int64) * (height * width)
    valid = pixel < total
    right = valid & (column + 1 < half_width)
    below = valid & (row + 1 < half_height)
    own, own_tap = _windows(gradient, taken, pixel, valid, channel, channels)
    east, east_tap = _windows(gradient, taken, pixel + 1, right, channel, channels)
    south, south_tap = _windows(gradient, taken, pixel + half_width, below, channel, channels)
    corner, corner_tap = _windows(gradient, taken, pixel + half_width + 1, right & below, channel, channels)
    here = out + (picture + (row * 2 * width + column * 2)).to(tl.int64)[:, None] * channels + channel[None, :]
    element: tl.constexpr = out.dtype.element_ty
    has_right = valid & (column * 2 + 1 < width)
    has_below = valid & (row * 2 + 1 < height)
    sums = tl.where(own_tap == 4, own, 0.0)
    tl.store(here, sums.to(element), mask=valid[:, None])
    sums = tl.where(own_tap == 5, own, 0.0) + tl.where(east_tap == 3, east, 0.0)
    tl.store(here + channels, sums.to(element), mask=has_right[:, None])
    sums = tl.where(own_tap == 7, own, 0.0) + tl.where(south_tap == 1, south, 0.0)
    tl.store(here + width * channels, sums.to(element), mask=has_below[:, None])
    sums = tl.where(own_tap == 8, own, 0.0) + tl.where(east_tap == 6, east, 0.0)
    sums += tl.where(south_tap == 2, south, 0.0) + tl.where(corner_tap == 0, corner, 0.0)
    tl.store(here + (width + 1) * channels, sums.to(element), mask=(has_right & has_below)[:, None])


def pool(x: Tensor) -> tuple[Tensor, Tensor]:
    """Max pooling by 3×3, stride 2, padding 1: the maxima, and which of the 9 taps each of them was (int8)."""
    batch, height, width, channels = x.shape
    out = x.new_empty(batch, (height + 1) // 2, (width + 1) // 2, channels)
    taken = torch.empty_like(out, dtype=torch.int8)
    total = out.numel() // channels
    _pool_kernel[(triton.cdiv(total, POOL.block),)](
        x, out, taken, total, height, width, channels, POOL.block, num_warps=POOL.warps
    )
    return out, taken


def pool_gradient(gradient: Tensor, taken: Tensor, height: int, width: int) -> Tensor:
    """The gradient at the input, of this height and width, of a max pooling."""
    channels = gradient.shape[3]
    out = gradient.new_empty(len(gradient), height, width, channels)
    total = gradient.numel() // channels
    _unpool_kernel[(triton.cdiv(total, UNPOOL.block),)](
        gradient, taken, out, total, height, width, channels, UNPOOL.block, num_warps=UNPOOL.warps
    )
    return out
