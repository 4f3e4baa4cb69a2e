"""A3C's parameters on a cluster: one Ray actor moves them, workers send it gradients and get weights."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import ray
import torch
from numpy.typing import NDArray
from torch import Tensor

from rlcb.comm.process_group import Attached, Control
from rlcb.execution.messages import AsyncSetup

Weights = tuple[NDArray[np.float32], int, int]  # and how many gradients: of all others, of all


@ray.remote(num_cpus=0, max_restarts=-1, max_task_retries=-1)
class Keeper:
    """Applies gradients in the order in which they come.

    Weights and moments lie in the supervisor's memory, which this process maps too: it runs on the same machine. So
    nothing is lost with it, and another one can take its place at any moment.
    """

    def __init__(self, setup: AsyncSetup, control: int, size: int, process: int):
        """`control` and the set-up's descriptors are those of the supervisor, which is that process."""
        from rlcb.comm.shared_parameters import SharedParameters, WorkCounter
        from rlcb.envs.families import spec_of
        from rlcb.execution.state import make_policy
        from rlcb.hardware import prepare_process
        from rlcb.learner import Learner

        prepare_process(1)
        torch.set_num_threads(1)
        parameters, page, work = (_opened(process, number) for number in (setup.parameters, control, setup.work))
        self._group = SharedParameters(Control(page, size), 0, parameters, work=WorkCounter(work))
        policy = make_policy(setup.config, spec_of(setup.config.env))
        self._learner = Learner(policy, setup.config, torch.Generator(), self._group)

    def take(self) -> bool:
        """Take on a rollout, if there is one left to do."""
        return self._group.take()

    def fetch(self, worker: int) -> Weights:
        """The weights as they are now."""
        self._group.rank = worker
        self._group.refresh()
        return self._learner.weights.numpy(), self._group.seen, self._group.applied()

    def apply(self, worker: int, gradient: NDArray[np.float32], rate: float) -> Weights:
        """Move the weights by a gradient, clipped already; returns them."""
        self._group.rank = worker
        self._learner.gradient.copy_(torch.from_numpy(np.array(gradient)))
        self._learner.move(rate)
        return self._learner.weights.numpy(), self._group.seen, self._group.applied()


def _opened(process: int, descriptor: int) -> int:
    return os.open(Path("/proc") / str(process) / "fd" / str(descriptor), os.O_RDWR)


class RemoteParameters:
    """The group of an asynchronous worker on a cluster: it waits for the keeper, and for nobody else."""

    size = 1
    reduce_seconds = wait_seconds = learning_rate = 0.0

    def __init__(self, keeper: Any, control: Control, worker: int):
        self._keeper, self.control, self.rank = keeper, control, worker
        self.lag = self._seen = self._applied = 0

    def attach(self, weights: Tensor, moments: list[Tensor]) -> Attached:
        """The weights here are a copy, and nothing here moves them."""
        self._local, self._gradient = weights, torch.zeros_like(weights)
        self.refresh()
        nothing = slice(0, 0)
        return Attached(weights, moments, self._gradient, nothing, self._gradient)

    def refresh(self) -> None:
        """Get the weights as they are now."""
        self._take_over(ray.get(self._keeper.fetch.remote(self.rank)))

    def _take_over(self, answer: Weights) -> None:
        weights, self._seen, self._applied = answer
        self._local.copy_(torch.from_numpy(np.array(weights)))

    def reduce(self) -> Tensor:
        """The norm of this worker's gradient."""
        norm: Tensor = torch.linalg.vector_norm(self._gradient)
        return norm

    def settle(self) -> None:
        """Have the gradient applied, and go on from what all have made of the weights."""
        before = self._seen
        self._take_over(ray.get(self._keeper.apply.remote(self.rank, self._gradient.numpy(), self.learning_rate)))
        self.lag = self._seen - before

    def take(self) -> bool:
        """Take on a rollout, if there is one left to do."""
        return bool(ray.get(self._keeper.take.remote()))

    def applied(self) -> int:
        """Gradients that all have applied, when this worker last heard of it."""
        return self._applied

    def sum(self, values: Tensor) -> Tensor:
        """The sum of one is itself."""
        return values

    def alive(self) -> None:
        """Count up this worker's sign of life."""
        self.control.heartbeats[self.rank] += 1

    def stop_wanted(self) -> bool:
        """Whether the supervisor wants the run to end."""
        return self.control.stop
