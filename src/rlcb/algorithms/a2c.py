"""The advantage actor-critic's objective (Mnih et al. 2016): A2C's and A3C's."""

import torch
from torch import Tensor

from rlcb.algorithms.batch import Samples
from rlcb.config.schema import A2cConfig


def a2c_loss(logits: Tensor, values: Tensor, batch: Samples, a2c: A2cConfig) -> tuple[Tensor, Tensor]:
    """The loss to minimise and, detached, the figures named in `STATISTICS`; all are means over the samples."""
    log_policy = torch.log_softmax(logits, dim=1)
    log_probs = log_policy.gather(1, batch.actions.unsqueeze(1)).squeeze(1)
    policy_loss = -(log_probs * batch.advantages).mean()
    value_loss = 0.5 * (values - batch.returns).square().mean()
    entropy = -(log_policy.exp() * log_policy).sum(1).mean()
    loss = policy_loss + a2c.vf_coef * value_loss - a2c.ent_coef * entropy
    return loss, torch.stack((loss, policy_loss, value_loss, entropy)).detach()


STATISTICS = ("loss/total", "loss/policy", "loss/value", "loss/entropy")
