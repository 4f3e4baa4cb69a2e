"""A3C on a cluster: a parameter server applies the gradients that workers send it and answers with weights."""

import os
from typing import Any

import numpy as np
import ray
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.optim import Optimizer

from rlcb.comm.control import Control
from rlcb.comm.process_group import vector_norm
from rlcb.comm.shared_parameters import SharedParameters, WorkCounter
from rlcb.envs.families import spec_of
from rlcb.envs.own_code import load_all
from rlcb.execution.messages import AsyncSetup
from rlcb.execution.worker import make_policy
from rlcb.hardware import prepare_process
from rlcb.learner import Learner
from rlcb.networks.layers import ScaledObservations
from rlcb.networks.policy import scaling_of

Answer = tuple[NDArray[np.float32], int, int]  # the weights; gradients applied by all workers, by the one that asks


@ray.remote(num_cpus=0, max_restarts=-1, max_task_retries=-1, allow_out_of_order_execution=True)
class ParameterServer:
    """Applies gradients in the order in which they come.

    Weights, moments and counters lie in the supervisor's memory, which this process maps too: it runs on the same
    machine. So nothing is lost with it, and another one can take its place at any moment. Ray repeats a call whose
    answer was lost; a gradient has a number, so that none is applied twice. A worker that was given up and comes back,
    with its node, is refused.
    """

    def __init__(self, setup: AsyncSetup, control: int, size: int, process: int, folder: str):
        """`control` and the set-up's descriptors are those of the supervisor, which is that process.

        `folder`: where the user's own modules are looked for.
        """
        prepare_process(1)
        torch.set_num_threads(1)
        files = (f"/proc/{process}/fd/{number}" for number in (setup.parameters, control, setup.work))
        parameters, page, work = (os.open(file, os.O_RDWR) for file in files)
        self._control = Control(page, size)
        self._shared = SharedParameters(parameters, self._control.arrivals, worker=0, work=WorkCounter(work))
        load_all(setup.config.modules, folder)
        policy = make_policy(setup.config, spec_of(setup.config.env))
        self._learner = Learner(policy, setup.config, torch.Generator(), self._shared)

    def _turn_to(self, worker: int, incarnation: int) -> None:
        """Answer this worker, unless another process has taken its place."""
        if self._control.incarnations[worker] != incarnation:
            raise PermissionError(f"worker {worker} has been replaced")
        self._shared.worker = worker

    def take(self, worker: int, incarnation: int) -> bool:
        """Take on a rollout for a worker, if there is one left to do."""
        self._turn_to(worker, incarnation)
        return self._shared.take()

    def fetch(self, worker: int, incarnation: int) -> Answer:
        """The weights as they are now."""
        self._turn_to(worker, incarnation)
        self._shared.refresh()
        return self._answer()

    def apply(self, worker: int, incarnation: int, number: int, gradient: NDArray[np.float32], rate: float) -> Answer:
        """Move the weights by a gradient, clipped already; `number`: of those of its worker that came before it."""
        self._turn_to(worker, incarnation)
        if self._shared.own() != number:
            return self.fetch(worker, incarnation)
        self._learner.gradient.copy_(torch.from_numpy(np.array(gradient)))
        self._learner.apply(rate)
        return self._answer()

    def take_in(self, worker: int, incarnation: int, moments: NDArray[np.float64]) -> Answer:
        """Add what a worker has observed; a repeated call adds it twice, which means of many rollouts hardly show."""
        self._turn_to(worker, incarnation)
        scaling = scaling_of(self._learner.policy)
        assert scaling is not None
        self._shared.take_in(scaling, torch.from_numpy(np.array(moments)))
        return self._answer()

    def _answer(self) -> Answer:
        return self._learner.weights.numpy(), self._shared.applied(), self._shared.own()


class RemoteParameters(SharedParameters):
    """The parameters as a worker on a node sees them: a copy of the weights, and a server that moves the real ones."""

    shard = slice(0, 0)  # nothing is moved here

    def __init__(self, server: Any, worker: int, incarnation: int):
        self._server, self._caller = server, (worker, incarnation)
        self.lag = 0

    def attach(self, weights: Tensor, moments: list[Tensor], steps: Tensor) -> None:
        """Compute with this copy of the weights."""
        self.weights = self.moved = weights
        self.moments, self.steps = moments, steps
        self.gradient = self.reduced = torch.zeros_like(weights)
        self.refresh()

    def refresh(self) -> None:
        """Get the weights as they are now."""
        self._take_over(self._server.fetch.remote(*self._caller))

    def _take_over(self, call: Any) -> None:
        weights, self._by_all, self._by_this = ray.get(call)
        self.weights.copy_(torch.from_numpy(np.array(weights)))

    def reduce(self) -> Tensor:
        """The norm of this worker's gradient."""
        return vector_norm(self.gradient)

    def apply(self, optimizer: Optimizer) -> None:
        """Have the server apply the gradient, and continue from what all have made of the weights."""
        rate, by_others = optimizer.param_groups[0]["lr"], self._by_all - self._by_this
        self._take_over(self._server.apply.remote(*self._caller, self._by_this, self.gradient.numpy(), rate))
        self.lag = self._by_all - self._by_this - by_others

    def take_in(self, scaling: ScaledObservations, moments: Tensor) -> None:
        """Have the server add what was observed."""
        del scaling
        self._take_over(self._server.take_in.remote(*self._caller, moments.numpy()))

    def take(self) -> bool:
        """Take on a rollout, if there is one left to do."""
        return bool(ray.get(self._server.take.remote(*self._caller)))

    def applied(self) -> int:
        """Gradients that all workers had applied when this one last heard of it."""
        return self._by_all  # type: ignore[no-any-return]
