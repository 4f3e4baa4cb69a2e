"""RMSProp with a corrected start."""

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer


class RMSprop(Optimizer):
    """RMSProp whose mean square is corrected for its start at zero, in the way of Adam.

    Without the correction, as in torch's own, the first mean square is (1 − decay) of the first gradient's square, and
    the first step moves every weight by 1 / √(1 − decay) times the rate: 10 times with a decay of 0.99.
    """

    found_inf: Tensor | None = None  # on a GPU: 1 where the gradient is not finite, and nothing is to be changed

    def __init__(self, parameter: nn.Parameter, rate: float | Tensor, decay: float, eps: float):
        """Its state, `step` and `square_avg`, is the caller's to provide."""
        super().__init__([parameter], {"lr": rate, "decay": decay, "eps": eps})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Move the weights by their gradients."""
        group = self.param_groups[0]
        (parameter,) = group["params"]
        state, decay = self.state[parameter], group["decay"]
        if self.found_inf is not None:
            self._step_on_device(parameter, state, self.found_inf)
            return
        state["step"] += 1
        mean = state["square_avg"].mul_(decay).addcmul_(parameter.grad, parameter.grad, value=1 - decay)
        # g / (√(mean / c) + eps) = √c g / (√mean + √c eps)
        root = math.sqrt(1 - decay ** float(state["step"]))
        parameter.addcdiv_(parameter.grad, mean.sqrt().add_(root * group["eps"]), value=-root * group["lr"])

    def _step_on_device(self, parameter: nn.Parameter, state: dict[str, Any], found_inf: Tensor) -> None:
        """The same without the processor looking at any number, so that a CUDA graph can repeat it."""
        group, skip, gradient = self.param_groups[0], found_inf.bool(), parameter.grad
        assert gradient is not None
        decay, step, mean = group["decay"], state["step"], state["square_avg"]
        step.add_(1 - found_inf)
        mean.copy_(torch.where(skip, mean, decay * mean + (1 - decay) * gradient.square()))
        root = (1 - torch.pow(decay, step.double())).sqrt().float()
        change = (root * group["lr"]) * gradient / (mean.sqrt() + root * group["eps"])
        parameter.sub_(torch.where(skip, torch.zeros_like(change), change))
