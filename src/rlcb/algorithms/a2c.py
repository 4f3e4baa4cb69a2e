"""The objective of the advantage actor-critic (Mnih et al. 2016), which A2C and A3C share."""

import torch
from torch import Tensor

from rlcb.algorithms import Algorithm
from rlcb.algorithms.returns import Samples, make_samples
from rlcb.config.schema import Config
from rlcb.networks.distributions import log_probs_and_entropy

STATISTICS = ("loss/total", "loss/policy", "loss/value", "loss/entropy")


def a2c_loss(outputs: Tensor, values: Tensor, batch: Samples, config: Config) -> tuple[Tensor, Tensor]:
    """The loss to minimise and, detached, the metrics named in STATISTICS; all are means over the samples."""
    a2c = config.a2c
    log_probs, entropies = log_probs_and_entropy(outputs, batch.actions)
    policy_loss = -(log_probs * batch.advantages).mean()
    value_loss = 0.5 * (values - batch.returns).square().mean()
    entropy = entropies.mean()
    loss = policy_loss + a2c.vf_coef * value_loss - a2c.ent_coef * entropy
    return loss, torch.stack((loss, policy_loss, value_loss, entropy)).detach()


ALGORITHM = Algorithm(make_samples, a2c_loss, STATISTICS)
