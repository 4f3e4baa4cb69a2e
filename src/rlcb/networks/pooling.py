"""Max pooling whose gradient is the same every time."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.nn import functional as F


def halved(x: Tensor) -> Tensor:
    """The maxima of 3×3 windows, two pixels apart: [B, C, H, W] → [B, C, ⌈H/2⌉, ⌈W/2⌉]."""
    if x.is_cuda and torch.are_deterministic_algorithms_enabled():
        return MaxPool.apply(x)  # type: ignore[no-any-return, no-untyped-call]
    return F.max_pool2d(x, 3, stride=2, padding=1)


class MaxPool(Function):
    """The same with a backward pass of nine additions in a fixed order; torch's own on a GPU adds in any order."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        """The maxima, and where they were."""
        pooled, positions = F.max_pool2d(x, 3, stride=2, padding=1, return_indices=True)
        ctx.save_for_backward(positions)
        ctx.size = x.shape
        return pooled

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        """Every maximum's gradient, at its place; a place can be the maximum of up to four windows."""
        (positions,), (gradient,), (B, C, H, W) = ctx.saved_tensors, gradients, ctx.size
        h, w = gradient.shape[2:]
        # One pixel more on every side, and one for an odd size's last window.
        padded = gradient.new_zeros((B, 2 * h + 2, 2 * w + 2, C)).permute(0, 3, 1, 2)  # channels last in memory
        rows, columns = (2 * torch.arange(n, device=gradient.device) - 1 for n in (h, w))
        for i in range(3):
            for j in range(3):
                here = (rows + i).unsqueeze(1) * W + (columns + j)
                chosen = torch.where(positions == here, gradient, torch.zeros_like(gradient))
                padded[:, :, i : i + 2 * h : 2, j : j + 2 * w : 2] += chosen
        inner: Tensor = padded[:, :, 1 : H + 1, 1 : W + 1]
        return inner
