"""A3C on a cluster: a parameter server applies the gradients that workers send it and answers with weights."""

import os
from pathlib import Path
from typing import Any, Self

import numpy as np
import ray
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.optim import Optimizer

from rlcb.comm.process_group import vector_norm
from rlcb.execution.messages import AsyncSetup

Answer = tuple[NDArray[np.float32], int, int]  # weights; gradients applied by all other workers, and by all


@ray.remote(num_cpus=0, max_restarts=-1, max_task_retries=-1)
class ParameterServer:
    """Applies gradients in the order in which they come.

    Weights and moments lie in the supervisor's memory, which this process maps too: it runs on the same machine. So
    nothing is lost with it, and another one can take its place at any moment.
    """

    def __init__(self, setup: AsyncSetup, control: int, size: int, process: int):
        """`control` and the set-up's descriptors are those of the supervisor, which is that process."""
        from rlcb.comm.control import Control
        from rlcb.comm.shared_parameters import SharedParameters, WorkCounter
        from rlcb.envs.families import spec_of
        from rlcb.execution.worker import make_policy
        from rlcb.hardware import prepare_process
        from rlcb.learner import Learner

        prepare_process(1)
        torch.set_num_threads(1)
        parameters, page, work = (_opened(process, number) for number in (setup.parameters, control, setup.work))
        applied = Control(page, size).arrivals
        self._shared = SharedParameters(parameters, applied, worker=0, work=WorkCounter(work))
        policy = make_policy(setup.config, spec_of(setup.config.env))
        self._learner = Learner(policy, setup.config, torch.Generator(), self._shared.attach)

    def take(self) -> bool:
        """Take on a rollout for a worker, if there is one left to do."""
        return self._shared.take()

    def fetch(self, worker: int) -> Answer:
        """The weights as they are now."""
        self._shared.worker = worker
        self._shared.refresh()
        return self._answer()

    def apply(self, worker: int, gradient: NDArray[np.float32], learning_rate: float) -> Answer:
        """Move the weights by a gradient, clipped already; returns them."""
        self._shared.worker = worker
        self._learner.gradient.copy_(torch.from_numpy(np.array(gradient)))
        self._learner.apply(learning_rate)
        return self._answer()

    def _answer(self) -> Answer:
        return self._learner.weights.numpy(), self._shared.seen, self._shared.applied()


def _opened(process: int, descriptor: int) -> int:
    return os.open(Path("/proc") / str(process) / "fd" / str(descriptor), os.O_RDWR)


class RemoteParameters:
    """The parameters as a worker on a node sees them: a copy of the weights, and a server that moves the real ones."""

    shard = slice(0, 0)  # nothing is moved here

    def __init__(self, server: Any, worker: int):
        self._server, self._worker = server, worker
        self.lag = self._seen = self._applied = 0

    def attach(self, weights: Tensor, moments: list[Tensor]) -> Self:
        """Work with this copy of the weights."""
        self.weights = self.moved = weights
        self.moments = moments
        self.gradient = self.reduced = torch.zeros_like(weights)
        self.refresh()
        return self

    def refresh(self) -> None:
        """Get the weights as they are now."""
        self._take_over(ray.get(self._server.fetch.remote(self._worker)))

    def _take_over(self, answer: Answer) -> None:
        weights, self._seen, self._applied = answer
        self.weights.copy_(torch.from_numpy(np.array(weights)))

    def reduce(self) -> Tensor:
        """The norm of this worker's gradient."""
        return vector_norm(self.gradient)

    def apply(self, optimizer: Optimizer) -> None:
        """Have the server apply the gradient, and go on from what all have made of the weights."""
        before, rate = self._seen, optimizer.param_groups[0]["lr"]
        self._take_over(ray.get(self._server.apply.remote(self._worker, self.gradient.numpy(), rate)))
        self.lag = self._seen - before

    def take(self) -> bool:
        """Take on a rollout, if there is one left to do."""
        return bool(ray.get(self._server.take.remote()))

    def applied(self) -> int:
        """Gradients that all workers had applied when this one last heard of it."""
        return self._applied
