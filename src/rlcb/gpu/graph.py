"""CUDA graphs: a fixed sequence of operations on the GPU that is recorded once and then started by a single call."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

_WARM_UP = 3  # calls before recording: libraries allocate and choose their kernels in the first ones


class Graph:
    """A function without arguments and results, on tensors that keep their places in memory.

    The first call records it, `record` does so beforehand. A recorded call repeats the operations on the GPU and none
    of the Python around them, so nothing in the function may depend on values that are on the device.
    """

    def __init__(self, function: Callable[[], None], recorded: bool, changes: Sequence[Tensor] = ()):
        """`recorded`: false calls the function itself every time; `changes`: what recording must leave as it was."""
        self._function, self._recorded, self._changes = function, recorded, changes
        self._graph: torch.cuda.CUDAGraph | None = None

    def __call__(self) -> None:
        """Do it once."""
        if not self._recorded:
            self._function()
            return
        self.record()
        assert self._graph is not None
        self._graph.replay()

    def record(self) -> None:
        """Record the function, if that is wanted and has not been done."""
        if not self._recorded or self._graph is not None:
            return
        kept = [tensor.clone() for tensor in self._changes]
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(_WARM_UP):
                self._function()
                self._restore(kept)  # so that a number of a row, for instance, stays within its table
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self._function()
        self._graph = graph

    def _restore(self, kept: list[Tensor]) -> None:
        for tensor, before in zip(self._changes, kept, strict=True):
            tensor.copy_(before)
