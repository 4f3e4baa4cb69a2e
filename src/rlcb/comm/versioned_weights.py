"""A vector with a version that one process publishes and others read, whole or not at all, without locks."""

import mmap
import os

import numpy as np
import torch
from torch import Tensor

_BEGUN, _DONE = 0, 8  # words in cache lines of their own
_VERSIONS = slice(16, 18)
_HEADER = 24  # int64


class Bulletin:
    """Two copies of the vector: the next one is written beside the last, so readers always find a whole one.

    Publications are counted; the one under way and the last whole one have adjacent numbers, hence different copies.
    """

    def __init__(self, descriptor: int, length: int):
        size = 8 * _HEADER + 2 * 4 * length
        if os.fstat(descriptor).st_size < size:
            os.ftruncate(descriptor, size)  # the same length from everybody, whoever comes first
        memory = mmap.mmap(descriptor, size)
        self._words = np.frombuffer(memory, np.int64, count=_HEADER)
        self._versions = self._words[_VERSIONS]
        self._copies = torch.frombuffer(memory, dtype=torch.float32, offset=8 * _HEADER).view(2, length)

    def publish(self, version: int, *parts: Tensor) -> None:
        """Make these vectors, one behind the other, the newest version."""
        number = int(self._words[_DONE]) + 1  # a writer that died in the middle of a number did not finish it
        self._words[_BEGUN] = number
        start = 0
        for part in parts:
            self._copies[number % 2, start : start + part.numel()].copy_(part)
            start += part.numel()
        self._versions[number % 2] = version
        self._words[_DONE] = number

    def read(self, into: Tensor) -> int:
        """Copy the newest version, whole, and return its number."""
        while True:
            number = int(self._words[_DONE])
            version = int(self._versions[number % 2])
            into.copy_(self._copies[number % 2, : into.numel()])
            if int(self._words[_BEGUN]) <= number + 1:  # else this copy was being written anew meanwhile
                return version

    def read_version(self, version: int) -> Tensor:
        """A copy of this version, which must be one of the last two; nobody may be publishing."""
        return self._copies[self._number_of(version) % 2].clone()

    def go_back(self, version: int) -> Tensor:
        """The same, and it becomes the newest: what is published next, whole or broken off, spares it."""
        self._words[_DONE] = self._words[_BEGUN] = self._number_of(version)
        return self.read_version(version)

    def _number_of(self, version: int) -> int:
        whole = int(self._words[_DONE])
        numbers = [whole] if int(self._words[_BEGUN]) > whole else [whole, whole - 1]
        found = [number for number in numbers if number > 0 and int(self._versions[number % 2]) == version]
        if not found:
            raise LookupError(f"version {version} is not among the whole ones")
        return found[0]
