"""Parameters that several processes move at once, without locks: the group of an asynchronous worker."""

import fcntl
import mmap
import os

import numpy as np
import torch
from torch import Tensor

from rlcb.comm.process_group import Attached, Control


class WorkCounter:
    """How many rollouts are still to be taken on, in memory that several processes have mapped."""

    def __init__(self, descriptor: int):
        self.descriptor = descriptor
        os.ftruncate(descriptor, 8)
        self._word = np.frombuffer(mmap.mmap(descriptor, 8), np.int64)

    def offer(self, rollouts: int) -> None:
        """So many are to be done."""
        fcntl.lockf(self.descriptor, fcntl.LOCK_EX)  # the kernel drops the lock of a process that dies
        self._word[0] = rollouts
        fcntl.lockf(self.descriptor, fcntl.LOCK_UN)

    def take(self) -> bool:
        """Take one on, if there is one left; two processes never take the same."""
        fcntl.lockf(self.descriptor, fcntl.LOCK_EX)
        left = int(self._word[0])
        self._word[0] = max(left - 1, 0)
        fcntl.lockf(self.descriptor, fcntl.LOCK_UN)
        return left > 0


class SharedParameters:
    """A group that waits for nobody: gradients are taken at a copy of the weights and applied to the shared ones.

    Weights and moments lie in memory that all have mapped. Two processes that move the same entry at the same moment
    may lose one of the two moves, and a copy may hold entries from before and after another's step; the method allows
    for both (Recht et al. 2011). To its learner this is a group of one. `rank` None: an observer that moves nothing.
    """

    size = 1
    reduce_seconds = wait_seconds = learning_rate = 0.0

    def __init__(
        self,
        control: Control,
        rank: int | None,
        descriptor: int,
        create: bool = False,
        work: WorkCounter | None = None,
    ):
        """`create`: the memory is made, with the weights and moments that are attached; `work`: what `take` takes."""
        self._work = work
        self.control, self.rank = control, rank or 0
        self._descriptor, self._create, self._observes = descriptor, create, rank is None
        self.lag, self._seen = 0, 0

    def attach(self, weights: Tensor, moments: list[Tensor]) -> Attached:
        """Take the shared weights and moments, or make them if that was asked for."""
        vectors, N = 1 + len(moments), weights.numel()
        if self._create:
            os.ftruncate(self._descriptor, 4 * N * vectors)
        memory = mmap.mmap(self._descriptor, 4 * N * vectors)
        shared = torch.frombuffer(memory, dtype=torch.float32).view(vectors, N)
        if self._create:
            for row, vector in zip(shared, (weights, *moments), strict=True):
                row.copy_(vector)
        self._shared, self._local, self._gradient = shared[0], weights, torch.zeros_like(weights)
        self.refresh()
        return Attached(weights, list(shared[1:]), self._gradient, slice(None), self._gradient, moved=self._shared)

    def refresh(self) -> None:
        """Copy the shared weights."""
        self._seen = self._others()
        self._local.copy_(self._shared)

    def publish(self) -> None:
        """Make the copy the shared weights."""
        self._shared.copy_(self._local)

    def reduce(self) -> Tensor:
        """The norm of this worker's gradient; how many of the others' were applied since its weights were copied."""
        self.lag = self._others() - self._seen
        norm: Tensor = torch.linalg.vector_norm(self._gradient)
        return norm

    def settle(self) -> None:
        """This worker's gradient is applied; go on from what all have made of the weights."""
        self.control.arrivals[self.rank] += 1
        self.refresh()

    def take(self) -> bool:
        """Take on a rollout, if there is one left to do."""
        assert self._work is not None
        return self._work.take()

    @property
    def seen(self) -> int:
        """How many gradients of others were in the weights that were copied last."""
        return self._seen

    def _others(self) -> int:
        """Gradients that the others have applied; each counts its own, so no count is lost."""
        return int(self.control.arrivals.sum()) - (0 if self._observes else int(self.control.arrivals[self.rank]))

    def applied(self) -> int:
        """Gradients that all have applied."""
        return int(self.control.arrivals.sum())

    def sum(self, values: Tensor) -> Tensor:
        """The sum of one is itself."""
        return values

    def alive(self) -> None:
        """Count up this worker's sign of life."""
        if not self._observes:
            self.control.heartbeats[self.rank] += 1

    def stop_wanted(self) -> bool:
        """Whether the supervisor wants the run to end."""
        return self.control.stop
