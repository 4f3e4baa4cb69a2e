"""Estimates of the return: pure functions on time-major tensors [T, B]."""

import torch
from torch import Tensor


def gae(rewards: Tensor, values: Tensor, dones: Tensor, gamma: float, gae_lambda: float) -> Tensor:
    """Generalised advantages [T, B] of rewards [T, B], values [T+1, B] and ends of episodes dones [T, B].

    A_t = δ_t + γλ(1 − done_t) A_{t+1} with δ_t = r_t + γ(1 − done_t) V_{t+1} − V_t (Schulman et al. 2016).
    """
    discounts = gamma * (1.0 - dones.to(values.dtype))
    deltas = rewards + discounts * values[1:] - values[:-1]
    advantages = torch.empty_like(deltas)
    carried = torch.zeros_like(deltas[0])
    for t in reversed(range(len(deltas))):
        carried = torch.addcmul(deltas[t], discounts[t] * gae_lambda, carried)
        advantages[t] = carried
    return advantages
