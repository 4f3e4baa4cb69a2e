"""Groups of workers: sums over all of them, through shared memory or sockets; a group of one does nothing.

Every rank calls the same operations in the same order and gets bit-identical results: sums always run from rank 0 up.
"""

import mmap
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

_SMALL = 512  # float64 values that cross at a time in `sum`
_SPINS = 100  # looks at the barrier before the core is offered to others
_LINE = 8  # int64 per cache line: neighbours must not write to the same one


class GroupBroken(Exception):
    """A member of the group is gone; what was under way has to be done again."""


@dataclass(frozen=True)
class Attached:
    """Where the group keeps what it works on, and which part of it this rank has to move."""

    weights: Tensor
    moments: list[Tensor]
    gradient: Tensor  # to compute this rank's gradient into
    part: slice  # of the weights and moments: the entries that this rank's optimizer moves
    reduced: Tensor  # the mean gradient of this part, after `reduce`
    moved: Tensor | None = None  # what the optimizer moves, where that is not the weights that gradients are taken at


def _private(weights: Tensor, moments: list[Tensor]) -> Attached:
    """Everything stays where it is and this rank moves all of it."""
    gradient = torch.zeros_like(weights)
    return Attached(weights, moments, gradient, slice(None), gradient)


def _norm(vector: Tensor) -> Tensor:
    norm: Tensor = torch.linalg.vector_norm(vector)
    return norm


class Group(Protocol):
    """What a worker needs of the others."""

    rank: int
    size: int
    reduce_seconds: float
    wait_seconds: float
    learning_rate: float  # of the steps to come

    def attach(self, weights: Tensor, moments: list[Tensor]) -> Attached:
        """Say what the group will work on: the weights and what the optimizer keeps for each of them."""

    def reduce(self) -> Tensor:
        """Fill `reduced` with my part of the mean of all gradients; returns the norm of the whole mean."""

    def settle(self) -> None:
        """Wait until every rank's part of the weights is new."""

    def sum(self, values: Tensor) -> Tensor:
        """The sum of a float64 tensor over all ranks."""

    def alive(self) -> None:
        """Give a sign of life to whoever watches."""

    def stop_wanted(self) -> bool:
        """Whether the run was asked to end."""


class SoloGroup:
    """A group of one; `stop` says whether the run was asked to end."""

    rank, size = 0, 1
    reduce_seconds = wait_seconds = learning_rate = 0.0

    def __init__(self, stop: Callable[[], bool] = lambda: False):
        self.stop_wanted = stop

    def attach(self, weights: Tensor, moments: list[Tensor]) -> Attached:
        """Everything stays this process's own."""
        self._attached = _private(weights, moments)
        return self._attached

    def reduce(self) -> Tensor:
        """The mean of one is itself."""
        return _norm(self._attached.gradient)

    def settle(self) -> None:
        """Nobody to wait for."""

    def sum(self, values: Tensor) -> Tensor:
        """The sum of one is itself."""
        return values

    def alive(self) -> None:
        """Nobody watches."""


class Control:
    """A page of shared memory between supervisor and workers: generation, wish to stop, signs of life, arrivals."""

    def __init__(self, descriptor: int, size: int):
        self.descriptor, self.size = descriptor, size
        length = 8 * _LINE * (2 + 2 * size)
        os.ftruncate(descriptor, max(os.fstat(descriptor).st_size, length))
        self._memory = mmap.mmap(descriptor, length)
        words = np.frombuffer(self._memory, np.int64).reshape(-1, _LINE)[:, 0]
        self._common, self.heartbeats, self.arrivals = words[:2], words[2 : 2 + size], words[2 + size :]

    @property
    def generation(self) -> int:
        """How often the group was put together; a change tells workers that somebody is gone."""
        return int(self._common[0])

    def next_generation(self) -> int:
        """Break off what is under way."""
        self._common[0] += 1
        return self.generation

    @property
    def stop(self) -> bool:
        """Whether the run was asked to end after its current update."""
        return bool(self._common[1])

    def request_stop(self) -> None:
        """Ask the run to end after its current update."""
        self._common[1] = 1


class _Watched:
    """What groups of several processes share: a supervisor watches them through the control page."""

    def __init__(self, control: Control, rank: int):
        self.control, self.rank, self.size = control, rank, control.size
        self.reduce_seconds = self.wait_seconds = self.learning_rate = 0.0

    def attach(self, weights: Tensor, moments: list[Tensor]) -> Attached:
        """Everything stays this process's own: every rank moves all weights, in the same way."""
        self._attached = _private(weights, moments)
        return self._attached

    def settle(self) -> None:
        """Nobody to wait for: the weights are this rank's own."""

    def alive(self) -> None:
        """Count up this worker's sign of life."""
        self.control.heartbeats[self.rank] += 1

    def stop_wanted(self) -> bool:
        """Whether the supervisor wants the run to end."""
        return self.control.stop

    def leave(self) -> None:
        """Take leave of the group, broken or not."""


class Waiting(_Watched):
    """The group of a worker that has not been told to go yet: it has a rank and nothing to average with."""

    def reduce(self) -> Tensor:
        """Nobody is there yet."""
        raise GroupBroken

    def sum(self, values: Tensor) -> Tensor:
        """Nobody is there yet."""
        raise GroupBroken


class SharedMemoryGroup(_Watched):
    """Works in memory that all ranks have mapped: one copy of the weights, of which each rank moves its own part.

    That spares P − 1 of P optimizer steps and copies of the result, and the caches hold one set of weights, not P.
    """

    def __init__(self, control: Control, rank: int, descriptor: int, generation: int):
        super().__init__(control, rank)
        self._descriptor, self._generation = descriptor, generation
        self._arrived = generation << 32  # arrivals of an earlier generation can never be mistaken for this one's

    def attach(self, weights: Tensor, moments: list[Tensor]) -> Attached:
        """Move weights, moments and gradient into shared memory; every rank brings the same weights and moments."""
        P, N = self.size, weights.numel()
        small, vectors = 8 * _SMALL * P, P + 1 + len(moments)
        length = small + 4 * N * vectors
        if os.fstat(self._descriptor).st_size < length:
            os.ftruncate(self._descriptor, length)  # the same length from every rank, whoever comes first
        memory = mmap.mmap(self._descriptor, length)
        self._small = torch.frombuffer(memory, dtype=torch.float64, count=_SMALL * P).view(P, _SMALL)
        rows = torch.frombuffer(memory, dtype=torch.float32, offset=small, count=N * vectors).view(vectors, N)
        part = slice(N * self.rank // P, N * (self.rank + 1) // P)
        for row, vector in zip(rows[P:], (weights, *moments), strict=True):
            row.copy_(vector)
        self._barrier()  # who comes late must not overwrite what the others have begun to move
        self._gradients, self._reduced = rows[:P, part], torch.zeros(part.stop - part.start)
        return Attached(rows[P], list(rows[P + 1 :]), rows[self.rank], part, self._reduced)

    def reduce(self) -> Tensor:
        """Average my part of all gradients; the norm comes together from those of the parts."""
        self._barrier()
        started = time.perf_counter()
        torch.sum(self._gradients, dim=0, out=self._reduced)
        self._reduced.div_(self.size)
        self._small[self.rank, 0] = _norm(self._reduced)
        self.reduce_seconds += time.perf_counter() - started
        self._barrier()  # also: nobody computes the next gradient before all have read this one
        return _norm(self._small[:, 0]).float()

    def settle(self) -> None:
        """Wait until every rank's part of the weights is new."""
        self._barrier()

    def sum(self, values: Tensor) -> Tensor:
        """Everybody writes, everybody adds up."""
        pieces = []
        for piece in torch.split(values.flatten(), _SMALL):
            self._small[self.rank, : len(piece)] = piece
            self._barrier()
            total = self._small[0, : len(piece)].clone()
            for rank in range(1, self.size):
                total += self._small[rank, : len(piece)]
            self._barrier()  # nobody may write again before all have read
            pieces.append(total)
        return torch.cat(pieces).view_as(values)

    def _barrier(self) -> None:
        """Wait for all ranks. Arrivals are looked at before the generation: who was let through is let through."""
        started = time.perf_counter()
        self._arrived += 1
        arrivals, wanted, spins = self.control.arrivals, self._arrived, 0
        arrivals[self.rank] = wanted
        while int(arrivals.min()) < wanted:
            spins += 1
            if spins > _SPINS:
                self.alive()
                os.sched_yield()
            if self.control.generation != self._generation and int(arrivals.min()) < wanted:
                raise GroupBroken
        self.wait_seconds += time.perf_counter() - started


class GlooGroup(_Watched):
    """Averages through torch.distributed's gloo: sockets, so it reaches beyond one machine."""

    def __init__(self, control: Control, rank: int, store: Any, timeout: float):
        """`store`: where the ranks find each other, one of torch.distributed's."""
        import torch.distributed as dist

        super().__init__(control, rank)
        self._dist = dist
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        patience = timedelta(seconds=10 * timeout)
        self._run(dist.init_process_group, "gloo", store=store, rank=rank, world_size=self.size, timeout=patience)

    def reduce(self) -> Tensor:
        """One all-reduce of the whole vector."""
        started = time.perf_counter()
        gradient = self._attached.gradient
        self._run(self._dist.all_reduce, gradient)
        gradient.div_(self.size)
        self.reduce_seconds += time.perf_counter() - started
        return _norm(gradient)

    def sum(self, values: Tensor) -> Tensor:
        """Gather and add in rank order, so that the result does not depend on how gloo routes."""
        started = time.perf_counter()
        parts = [torch.empty_like(values) for _ in range(self.size)]
        self._run(self._dist.all_gather, parts, values)
        total = parts[0]
        for part in parts[1:]:
            total = total + part
        self.wait_seconds += time.perf_counter() - started
        return total

    def leave(self) -> None:
        """Take leave of the group, broken or not."""
        self._dist.destroy_process_group()

    @staticmethod
    def _run(function: Any, *arguments: Any, **options: Any) -> None:
        try:
            function(*arguments, **options)
        except RuntimeError as error:  # gloo reports a lost peer as one
            raise GroupBroken from error
