"""Returns and advantages: pure functions on time-major tensors [T, B]; and the batches that an update learns from."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from rlcb.config.schema import Config
from rlcb.rollout import Rollout


@dataclass(frozen=True)
class Samples:
    """Samples [N] in any order; `log_probs` and `values` are those of the policy that acted."""

    item_dim: ClassVar[int] = 0  # the dimension along which minibatches are drawn
    observations: Tensor
    actions: Tensor
    log_probs: Tensor
    values: Tensor
    advantages: Tensor
    returns: Tensor

    def __len__(self) -> int:
        return len(self.actions)


@dataclass(frozen=True)
class Unrolls:
    """B environments over T steps: observations [T+1, B, …] with the one to bootstrap from, all else [T, B, …]."""

    item_dim: ClassVar[int] = 1
    observations: Tensor
    actions: Tensor
    log_probs: Tensor
    rewards: Tensor
    dones: Tensor
    values: Tensor
    returns: Tensor

    def __len__(self) -> int:
        return self.actions.shape[1]


Batch = Samples | Unrolls


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


def vtrace(
    log_rhos: Tensor,
    rewards: Tensor,
    values: Tensor,
    dones: Tensor,
    gamma: float,
    rho_bar: float = 1.0,
    c_bar: float = 1.0,
    pg_rho_bar: float = 1.0,
    trace_lambda: float = 1.0,
) -> tuple[Tensor, Tensor]:
    """V-trace targets v [T, B] and policy-gradient advantages [T, B] (Espeholt et al. 2018, section 4).

    `log_rhos` [T, B] are log π(a|x) − log μ(a|x): the learner's policy over the one that acted. rewards and dones are
    [T, B], the learner's values [T+1, B]. With γ_s = γ(1 − done_s) and δ_s = r_s + γ_s V_{s+1} − V_s,
    v_s − V_s = ρ_s δ_s + γ_s λ c_s (v_{s+1} − V_{s+1}), and the advantage is ρ^pg_s (r_s + γ_s v_{s+1} − V_s); beyond
    the last step v is the bootstrap value.
    """
    ratios = log_rhos.exp()
    discounts = gamma * (1.0 - dones.to(values.dtype))
    deltas = ratios.clamp(max=rho_bar) * (rewards + discounts * values[1:] - values[:-1])
    traces = trace_lambda * discounts * ratios.clamp(max=c_bar)
    corrections = torch.zeros_like(values)
    for t in reversed(range(len(deltas))):
        corrections[t] = torch.addcmul(deltas[t], traces[t], corrections[t + 1])
    targets = values + corrections
    advantages = ratios.clamp(max=pg_rho_bar) * (rewards + discounts * targets[1:] - values[:-1])
    return targets[:-1], advantages


def make_samples(rollout: Rollout, rewards: Tensor, config: Config) -> Samples:
    """The rollout's T × B samples with their advantages (GAE) and returns."""
    gamma, gae_lambda = config.training.gamma, config.training.gae_lambda
    earned = rewards + gamma * rollout.truncation_value
    advantages = gae(earned, rollout.values, rollout.dones, gamma, gae_lambda)
    values = rollout.values[:-1]
    return Samples(
        rollout.observations[:-1].flatten(0, 1),
        rollout.actions.flatten(0, 1),
        rollout.log_probs.flatten(),
        values.flatten(),
        advantages.flatten(),
        (advantages + values).flatten(),
    )


def make_unrolls(rollout: Rollout, rewards: Tensor, config: Config) -> Unrolls:
    """The rollout's B environments; their returns are those of the rewards, bootstrapped with the rollout's values."""
    gamma = config.training.gamma
    earned = rewards + gamma * rollout.truncation_value
    values = rollout.values[:-1]
    returns = gae(earned, rollout.values, rollout.dones, gamma, 1.0) + values
    return Unrolls(
        rollout.observations, rollout.actions, rollout.log_probs, earned, rollout.dones, values, returns
    )  # fmt: skip
