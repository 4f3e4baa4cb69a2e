"""Parameters that several processes move at once without locks (Hogwild, Recht et al. 2011): A3C's.

Memory model: none is relied on beyond whole 32-bit words. Two processes that move the same weight at the same moment
may lose one of the two steps, and a copy of the weights may mix entries from before and after another's step; the
method allows for both, and for the same with what is known of observations, where these are scaled. Counters of applied
gradients have one writer each. Work is counted out under a file lock.
"""

import fcntl

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.optim import Optimizer

from rlcb.comm.process_group import vector_norm
from rlcb.comm.shared_memory import mapped
from rlcb.networks.layers import ScaledObservations


class WorkCounter:
    """How many rollouts are still to be done, in memory that several processes have mapped."""

    def __init__(self, descriptor: int):
        self.descriptor = descriptor
        self._word = np.frombuffer(mapped(descriptor, 8), np.int64)

    def offer(self, rollouts: int) -> None:
        """Set how many are to be done."""
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
    """Gradients are taken at a copy of the weights and applied to those that all share; on a cluster, by a server.

    To its learner a worker is a group of one; what a learner uses of this is the same as of `ReplicatedParameters`.
    """

    shard = slice(None)

    def __init__(
        self,
        descriptor: int,
        applied: NDArray[np.int64],
        worker: int | None,
        work: WorkCounter | None = None,
        create: bool = False,
    ):
        """`applied`: a counter per worker; `worker` None: an observer that applies nothing; `create`: first use."""
        self._descriptor, self._applied, self.worker, self._work = descriptor, applied, worker, work
        self._create, self._seen = create, 0
        self.lag = 0  # gradients of others that were applied while the last one was computed

    def attach(self, weights: Tensor, moments: list[Tensor], steps: Tensor) -> None:
        """Compute with this copy of the weights; on first use what is shared begins with these.

        `steps`: of the optimizer. They are shared, too: the moments know the gradients of all workers.
        """
        vectors, N = 1 + len(moments), weights.numel()
        memory = torch.frombuffer(mapped(self._descriptor, 4 * (N * vectors + 1)), dtype=torch.float32)
        shared, self.steps = memory[:-1].view(vectors, N), memory[-1]
        if self._create:
            for row, vector in zip((*shared, self.steps), (weights, *moments, steps), strict=True):
                row.copy_(vector)
        self.weights, self.moved, self.moments = weights, shared[0], list(shared[1:])
        self.gradient = self.reduced = torch.zeros_like(weights)
        self.refresh()

    def refresh(self) -> None:
        """Copy the weights as they are now."""
        self._seen = self.applied() - self.own()
        self.weights.copy_(self.moved)

    def publish(self) -> None:
        """Make the copy the shared weights."""
        self.moved.copy_(self.weights)

    def reduce(self) -> Tensor:
        """The norm of this worker's gradient; notes how many of the others' were applied since the copy was made."""
        self.lag = self.applied() - self.own() - self._seen
        return vector_norm(self.gradient)

    def apply(self, optimizer: Optimizer) -> None:
        """Move the shared weights by this worker's gradient and copy what all have made of them."""
        self._applied[self.worker] += 1  # before it is done, so that it is not done again after a crash
        optimizer.step()
        self.refresh()

    def take_in(self, scaling: ScaledObservations, moments: Tensor) -> None:
        """Add what a rollout says of observations to what all know of them, which is at the head of the weights."""
        head = slice(0, moments.numel())
        self.weights[head] = self.moved[head]
        scaling.take_in(scaling.known(), moments)
        self.moved[head] = self.weights[head]

    def take(self) -> bool:
        """Take on a rollout, if there is one left to do."""
        assert self._work is not None
        return self._work.take()

    def applied(self) -> int:
        """Gradients that all workers have applied; each counts its own, so no count is lost."""
        return int(self._applied.sum())

    def own(self) -> int:
        """Gradients that this worker has applied, or its predecessors."""
        return 0 if self.worker is None else int(self._applied[self.worker])
