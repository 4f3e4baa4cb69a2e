"""Who owns which part of the parameters: a copy in every process, or one copy of which each process moves its shard.

A learner computes its gradient into `gradient`, calls `reduce` for the mean over the group, clips `reduced` and calls
`apply`, after which `weights` are the next ones everywhere.
"""

import time

import torch
from torch import Tensor
from torch.optim import Optimizer

from rlcb.comm.process_group import GlooGroup, SharedMemoryGroup, SoloGroup, vector_norm
from rlcb.comm.shared_memory import mapped


class ReplicatedParameters:
    """Every process has a copy of its own and moves all of it, in the same way as the others."""

    def __init__(self, group: SoloGroup | GlooGroup, weights: Tensor, moments: list[Tensor]):
        self._group = group
        self.weights = self.moved = weights  # what gradients are taken at; what this process's optimizer moves
        self.moments = moments  # what the optimizer keeps for each weight
        self.shard = slice(None)  # the entries of `moved` and `moments` that this process moves
        self.gradient = self.reduced = torch.zeros_like(weights)  # this process's gradient; the shard's mean one

    def reduce(self) -> Tensor:
        """Fill `reduced` with the shard's mean over all processes; returns the norm of the whole mean gradient."""
        self._group.all_reduce_mean(self.gradient)
        return vector_norm(self.gradient)

    def apply(self, optimizer: Optimizer) -> None:
        """Move the shard by `reduced`, and wait until `weights` are new as a whole."""
        optimizer.step()


class ShardedParameters:
    """One copy in memory that all ranks have mapped, of which each rank averages and moves its own shard.

    That spares P − 1 of P optimizer steps and copies of the result, and the caches hold one set of weights, not P.
    """

    def __init__(self, group: SharedMemoryGroup, weights: Tensor, moments: list[Tensor]):
        """Every rank brings the same weights and moments; the shared ones begin with them."""
        P, N, start = group.size, weights.numel(), group.header_bytes
        vectors = P + 1 + len(moments)  # a gradient per rank, the weights, the moments
        memory = mapped(group.descriptor, start + 4 * N * vectors)
        rows = torch.frombuffer(memory, dtype=torch.float32, offset=start, count=N * vectors).view(vectors, N)
        for row, vector in zip(rows[P:], (weights, *moments), strict=True):
            row.copy_(vector)
        group.barrier()  # a rank that comes late must not overwrite what the others have begun to move
        self._group = group
        self.weights = self.moved = rows[P]
        self.moments, self.gradient = list(rows[P + 1 :]), rows[group.rank]
        self.shard = slice(N * group.rank // P, N * (group.rank + 1) // P)
        self._gradients = rows[:P, self.shard]
        self.reduced = torch.zeros(self.shard.stop - self.shard.start)

    def reduce(self) -> Tensor:
        """Average this rank's shard of all gradients; the norm is put together from those of the shards."""
        self._group.barrier()
        started = time.perf_counter()
        torch.sum(self._gradients, dim=0, out=self.reduced)
        self.reduced.div_(self._group.size)
        own = vector_norm(self.reduced)
        self._group.seconds.reduce += time.perf_counter() - started
        return self._group.norm(own)

    def apply(self, optimizer: Optimizer) -> None:
        """Move this rank's shard and wait for the others'."""
        optimizer.step()
        self._group.barrier()
