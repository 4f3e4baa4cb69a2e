"""A3C on a cluster: a parameter server applies the gradients that workers send it and answers with weights."""

import os
from dataclasses import dataclass
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


@dataclass(frozen=True)
class Caller:
    """Which worker calls, and which of the processes in its place."""

    worker: int
    incarnation: int


@dataclass(frozen=True)
class Answer:
    """The parameters as a worker gets them."""

    weights: NDArray[np.float32]
    by_others: int  # gradients that all other workers have applied
    by_all: int
    by_caller: int


@ray.remote(num_cpus=0, max_restarts=-1, max_task_retries=-1, allow_out_of_order_execution=True)
class ParameterServer:
    """Applies gradients in the order in which they come.

    Weights, moments and counters lie in the supervisor's memory, which this process maps too: it runs on the same
    machine. So nothing is lost with it, and another one can take its place at any moment. Ray repeats a call whose
    answer was lost; a gradient has a number, so that none is applied twice. A worker that was given up and comes back,
    with its node, is refused.
    """

    def __init__(self, setup: AsyncSetup, control: int, size: int, process: int):
        """`control` and the set-up's descriptors are those of the supervisor, which is that process."""
        from rlcb.hardware import prepare_process

        prepare_process(1)
        from rlcb.comm.control import Control
        from rlcb.comm.shared_parameters import SharedParameters, WorkCounter
        from rlcb.envs.families import spec_of
        from rlcb.execution.worker import make_policy
        from rlcb.learner import Learner

        torch.set_num_threads(1)
        parameters, page, work = (_opened(process, number) for number in (setup.parameters, control, setup.work))
        self._control = Control(page, size)
        self._shared = SharedParameters(parameters, self._control.arrivals, worker=0, work=WorkCounter(work))
        policy = make_policy(setup.config, spec_of(setup.config.env))
        self._learner = Learner(policy, setup.config, torch.Generator(), self._shared.attach)

    def _turn_to(self, caller: Caller) -> None:
        if self._control.incarnations[caller.worker] != caller.incarnation:
            raise PermissionError(f"worker {caller.worker} has been replaced")
        self._shared.worker = caller.worker

    def take(self, caller: Caller) -> bool:
        """Take on a rollout for a worker, if there is one left to do."""
        self._turn_to(caller)
        return self._shared.take()

    def fetch(self, caller: Caller) -> Answer:
        """The weights as they are now."""
        self._turn_to(caller)
        self._shared.refresh()
        return self._answer()

    def apply(self, caller: Caller, number: int, gradient: NDArray[np.float32], learning_rate: float) -> Answer:
        """Move the weights by a gradient, clipped already; `number`: of those of its worker that came before it."""
        self._turn_to(caller)
        if self._shared.own() == number:
            self._learner.gradient.copy_(torch.from_numpy(np.array(gradient)))
            self._learner.apply(learning_rate)
        else:
            self._shared.refresh()
        return self._answer()

    def _answer(self) -> Answer:
        shared = self._shared
        return Answer(self._learner.weights.numpy(), shared.seen, shared.applied(), shared.own())


def _opened(process: int, descriptor: int) -> int:
    return os.open(Path("/proc") / str(process) / "fd" / str(descriptor), os.O_RDWR)


class RemoteParameters:
    """The parameters as a worker on a node sees them: a copy of the weights, and a server that moves the real ones."""

    shard = slice(0, 0)  # nothing is moved here

    def __init__(self, server: Any, worker: int, incarnation: int):
        self._server, self._caller = server, Caller(worker, incarnation)
        self.lag = 0

    def attach(self, weights: Tensor, moments: list[Tensor]) -> Self:
        """Work with this copy of the weights."""
        self.weights = self.moved = weights
        self.moments = moments
        self.gradient = self.reduced = torch.zeros_like(weights)
        self.refresh()
        return self

    def refresh(self) -> None:
        """Get the weights as they are now."""
        self._take_over(ray.get(self._server.fetch.remote(self._caller)))

    def _take_over(self, answer: Answer) -> None:
        self._last = answer
        self.weights.copy_(torch.from_numpy(np.array(answer.weights)))

    def reduce(self) -> Tensor:
        """The norm of this worker's gradient."""
        return vector_norm(self.gradient)

    def apply(self, optimizer: Optimizer) -> None:
        """Have the server apply the gradient, and go on from what all have made of the weights."""
        before, rate = self._last, optimizer.param_groups[0]["lr"]
        call = self._server.apply.remote(self._caller, before.by_caller, self.gradient.numpy(), rate)
        self._take_over(ray.get(call))
        self.lag = self._last.by_others - before.by_others

    def take(self) -> bool:
        """Take on a rollout, if there is one left to do."""
        return bool(ray.get(self._server.take.remote(self._caller)))

    def applied(self) -> int:
        """Gradients that all workers had applied when this one last heard of it."""
        return self._last.by_all
