"""Shrinking pictures by area averages, exactly."""

import math

import numpy as np
from numpy.typing import NDArray


class AreaResizer:
    """Pictures [H, W] to `size` × `size` pixels, each the mean of the area that it covers, rounded.

    Weights and sums are whole numbers that float32 holds exactly, so the order in which a machine adds them does not
    matter. Both sides repeat after a few pixels (210 to 84: five become two), which leaves small products of matrices.
    """

    def __init__(self, height: int, width: int, size: int):
        rows, columns = _weights(height, size), _weights(width, size)
        self._size, self._rows, self._columns = size, rows, np.ascontiguousarray(columns.T)
        self._total = np.float32(rows.shape[1] * columns.shape[1])  # the weights of a pixel add up to this
        self._picture = np.empty((height // rows.shape[1], rows.shape[1], width), np.float32)
        self._lower = np.empty((len(self._picture), len(rows), width), np.float32)
        self._smaller = np.empty((size * width // columns.shape[1], len(columns)), np.float32)

    def __call__(self, picture: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """The smaller picture, new memory."""
        np.copyto(self._picture, picture.reshape(self._picture.shape))
        np.matmul(self._rows, self._picture, out=self._lower)
        np.matmul(self._lower.reshape(len(self._smaller), -1), self._columns, out=self._smaller)
        np.divide(self._smaller, self._total, out=self._smaller)
        np.rint(self._smaller, out=self._smaller)
        return self._smaller.reshape(self._size, self._size).astype(np.uint8)


def _weights(before: int, after: int) -> NDArray[np.float32]:
    """How much of each of the first pixels each new one covers, up to where both begin together again."""
    common = math.gcd(before, after)
    old, new = before // common, after // common
    ends = np.minimum.outer(np.arange(1, new + 1) * old, np.arange(1, old + 1) * new)
    begins = np.maximum.outer(np.arange(new) * old, np.arange(old) * new)
    weights: NDArray[np.float32] = np.maximum(ends - begins, 0).astype(np.float32)
    return weights
