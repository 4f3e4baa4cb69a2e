"""IMPALA's objective (Espeholt et al. 2018): an actor-critic that V-trace corrects for the policy that acted."""

import torch
from torch import Tensor

from rlcb.algorithms import Algorithm
from rlcb.algorithms.returns import Unrolls, make_unrolls, vtrace
from rlcb.config.schema import Config, ImpalaConfig
from rlcb.networks.distributions import log_probs_and_entropy

STATISTICS = ("loss/total", "loss/policy", "loss/value", "loss/entropy", "policy/approx_kl",
              "vtrace/rho_mean", "vtrace/clip_fraction")  # fmt: skip


def impala_loss(
    outputs: Tensor, values: Tensor, batch: Unrolls, impala: ImpalaConfig, gamma: float, trace_lambda: float
) -> tuple[Tensor, Tensor]:
    """The loss to minimise and, detached, the metrics named in STATISTICS; all are means over the T × B samples.

    `outputs` [T, B, …] are the current policy's, `values` [T+1, B] its values; no gradient flows through the targets.
    """
    log_probs, entropies = log_probs_and_entropy(outputs, batch.actions)
    with torch.no_grad():
        log_rhos = log_probs - batch.log_probs
        targets, advantages = vtrace(
            log_rhos,
            batch.rewards,
            values,
            batch.dones,
            gamma,
            impala.vtrace_clip_rho_threshold,
            impala.vtrace_clip_c_threshold,
            impala.vtrace_clip_pg_rho_threshold,
            trace_lambda,
        )
    policy_loss = -(log_probs * advantages).mean()
    value_loss = 0.5 * (targets - values[:-1]).square().mean()
    entropy = entropies.mean()
    loss = policy_loss + impala.vf_coef * value_loss - impala.ent_coef * entropy
    with torch.no_grad():
        ratios = log_rhos.exp()
        approx_kl = (ratios - 1 - log_rhos).mean()
        clipped = (ratios > impala.vtrace_clip_rho_threshold).float().mean()
        statistics = torch.stack((loss, policy_loss, value_loss, entropy, approx_kl, ratios.mean(), clipped))
    return loss, statistics


def _loss(outputs: Tensor, values: Tensor, batch: Unrolls, config: Config) -> tuple[Tensor, Tensor]:
    T, B = batch.rewards.shape
    outputs, values, training = outputs[: T * B].view(T, B, -1), values.view(T + 1, B), config.training
    return impala_loss(outputs, values, batch, config.impala, training.gamma, training.gae_lambda)


ALGORITHM = Algorithm(make_unrolls, _loss, STATISTICS, summed=True)
