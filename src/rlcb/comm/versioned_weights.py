"""A vector with a version that one process publishes and others read, whole or not at all, without locks.

The pattern is a double buffer guarded by a sequence lock (seqlock): the writer announces a publication, writes the
buffer that readers are not directed to, then directs them to it; a reader that was overtaken notices and reads again.
Memory model: the announcement becomes visible before the data and the data before the direction, and a reader's loads
happen in program order; `shared_memory.fence` secures that where the processor does not.
"""

import numpy as np
import torch
from torch import Tensor

from rlcb.comm.shared_memory import fence, mapped

_BEGUN, _DONE = 0, 8  # words in cache lines of their own
_VERSIONS = slice(16, 18)
_HEADER = 24  # int64


class VersionedWeights:
    """Two buffers: publication n goes into buffer n mod 2, so the last whole one and the next never share."""

    def __init__(self, descriptor: int, length: int):
        memory = mapped(descriptor, 8 * _HEADER + 2 * 4 * length)
        self._words = np.frombuffer(memory, np.int64, count=_HEADER)
        self._versions = self._words[_VERSIONS]
        self._buffers = torch.frombuffer(memory, dtype=torch.float32, offset=8 * _HEADER).view(2, length)

    def publish(self, version: int, *parts: Tensor) -> None:
        """Make these vectors, one behind the other, the newest version."""
        number = int(self._words[_DONE]) + 1  # a writer that died during a publication did not finish its number
        self._words[_BEGUN] = number
        fence()
        start = 0
        for part in parts:
            self._buffers[number % 2, start : start + part.numel()].copy_(part)
            start += part.numel()
        self._versions[number % 2] = version
        fence()
        self._words[_DONE] = number

    def newest_version(self) -> int:
        """The number of the newest version, without its content."""
        return self.read(torch.empty(0))

    def read(self, into: Tensor) -> int:
        """Copy the newest version, whole, and return its number."""
        while True:
            number = int(self._words[_DONE])
            fence()
            version = int(self._versions[number % 2])
            into.copy_(self._buffers[number % 2, : into.numel()])
            fence()
            if int(self._words[_BEGUN]) <= number + 1:  # else this buffer was being written again meanwhile
                return version

    def read_version(self, version: int) -> Tensor:
        """A copy of this version, which must be one of the last two; no process may be publishing."""
        return self._buffers[self._number_of(version) % 2].clone()

    def roll_back(self, version: int) -> Tensor:
        """The same, and it becomes the newest again: the next publication goes into the other buffer."""
        self._words[_DONE] = self._words[_BEGUN] = self._number_of(version)
        return self.read_version(version)

    def _number_of(self, version: int) -> int:
        whole = int(self._words[_DONE])
        numbers = [whole] if int(self._words[_BEGUN]) > whole else [whole, whole - 1]
        found = [number for number in numbers if number > 0 and int(self._versions[number % 2]) == version]
        if not found:
            raise LookupError(f"version {version} is not among the whole ones")
        return found[0]
