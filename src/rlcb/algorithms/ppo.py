"""PPO's objective (Schulman et al. 2017)."""

import torch
from torch import Tensor

from rlcb.algorithms import Algorithm
from rlcb.algorithms.returns import Samples, make_samples
from rlcb.config.schema import Config
from rlcb.networks.distributions import log_probs_and_entropy

STATISTICS = ("loss/total", "loss/policy", "loss/value", "loss/entropy", "policy/approx_kl", "policy/clip_fraction")


def ppo_loss(outputs: Tensor, values: Tensor, batch: Samples, config: Config) -> tuple[Tensor, Tensor]:
    """The loss to minimise and, detached, the metrics named in STATISTICS; all are means over the samples."""
    ppo = config.ppo
    log_probs, entropies = log_probs_and_entropy(outputs, batch.actions)
    log_ratio = log_probs - batch.log_probs
    ratio = log_ratio.exp()
    clipped = ratio.clamp(1 - ppo.clip_range, 1 + ppo.clip_range)
    policy_loss = -torch.min(ratio * batch.advantages, clipped * batch.advantages).mean()

    errors = (values - batch.returns).square()
    if ppo.clip_value:
        moved = batch.values + (values - batch.values).clamp(-ppo.clip_range, ppo.clip_range)
        errors = torch.max(errors, (moved - batch.returns).square())
    value_loss = 0.5 * errors.mean()

    entropy = entropies.mean()
    loss = policy_loss + ppo.vf_coef * value_loss - ppo.ent_coef * entropy
    with torch.no_grad():
        approx_kl = (ratio - 1 - log_ratio).mean()
        clip_fraction = ((ratio - 1).abs() > ppo.clip_range).float().mean()
        statistics = torch.stack((loss, policy_loss, value_loss, entropy, approx_kl, clip_fraction))
    return loss, statistics


ALGORITHM = Algorithm(make_samples, ppo_loss, STATISTICS)
