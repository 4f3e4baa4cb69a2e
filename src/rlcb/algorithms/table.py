"""The algorithms as records of functions: all that the learner knows about them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from rlcb.algorithms import a2c, impala, ppo
from rlcb.algorithms.batch import Samples, Unrolls
from rlcb.config.schema import Config
from rlcb.rollout import Rollout


@dataclass(frozen=True)
class Algorithm:
    """What makes an algorithm: what it learns from, its loss, and what its figures are called."""

    statistics: tuple[str, ...]
    prepare: Callable[[Rollout, Tensor, Config], Any]  # a rollout and its scaled rewards → a Batch
    loss: Callable[[nn.Module, Any, Config], tuple[Tensor, Tensor]]  # policy and Batch → loss and figures, as means
    summed: bool  # the gradient is that of the samples' sum, not of their mean


def _samples(rollout: Rollout, rewards: Tensor, config: Config) -> Samples:
    return ppo.make_samples(rollout, rewards, config.training.gamma, config.training.gae_lambda)


def _ppo_loss(policy: nn.Module, batch: Samples, config: Config) -> tuple[Tensor, Tensor]:
    logits, values = policy(batch.observations)
    return ppo.ppo_loss(logits, values, batch, config.ppo)


def _impala_unrolls(rollout: Rollout, rewards: Tensor, config: Config) -> Unrolls:
    return impala.make_unrolls(rollout, rewards, config.training.gamma)


def _impala_loss(policy: nn.Module, batch: Unrolls, config: Config) -> tuple[Tensor, Tensor]:
    T, B = batch.actions.shape
    logits, values = policy(batch.observations.flatten(0, 1))
    training = config.training
    return impala.impala_loss(
        logits[: T * B].view(T, B, -1), values.view(T + 1, B), batch, config.impala, training.gamma, training.gae_lambda
    )


def _a2c_loss(policy: nn.Module, batch: Samples, config: Config) -> tuple[Tensor, Tensor]:
    logits, values = policy(batch.observations)
    return a2c.a2c_loss(logits, values, batch, config.a2c)


TABLE = {
    "ppo": Algorithm(ppo.STATISTICS, _samples, _ppo_loss, summed=False),
    "a2c": Algorithm(a2c.STATISTICS, _samples, _a2c_loss, summed=False),
    "a3c": Algorithm(a2c.STATISTICS, _samples, _a2c_loss, summed=False),
    "impala": Algorithm(impala.STATISTICS, _impala_unrolls, _impala_loss, summed=True),
}
