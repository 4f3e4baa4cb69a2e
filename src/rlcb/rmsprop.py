"""RMSProp with a corrected start."""

import math

import torch
from torch import nn
from torch.optim import Optimizer


class RMSprop(Optimizer):
    """RMSProp whose mean square is corrected for its start at zero, in the way of Adam.

    Without the correction, as in torch's own, the first mean square is (1 − decay) of the first gradient's square, and
    the first step moves every weight by 1 / √(1 − decay) times the rate: 10 times with a decay of 0.99.
    """

    def __init__(self, parameter: nn.Parameter, rate: float, decay: float, eps: float):
        """Its state, `step` and `square_avg`, is the caller's to provide."""
        super().__init__([parameter], {"lr": rate, "decay": decay, "eps": eps})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Move the weights by their gradients."""
        group = self.param_groups[0]
        (parameter,) = group["params"]
        state, decay = self.state[parameter], group["decay"]
        state["step"] += 1
        mean = state["square_avg"].mul_(decay).addcmul_(parameter.grad, parameter.grad, value=1 - decay)
        # g / (√(mean / c) + eps) = √c g / (√mean + √c eps)
        root = math.sqrt(1 - decay ** float(state["step"]))
        parameter.addcdiv_(parameter.grad, mean.sqrt().add_(root * group["eps"]), value=-root * group["lr"])
