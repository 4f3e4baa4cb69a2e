"""The algorithms: each is a module of pure functions on tensors, gathered in its record ALGORITHM."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from torch import Tensor

from rlcb.config.registry import ALGORITHMS
from rlcb.config.schema import Config
from rlcb.rollout import Rollout


@dataclass(frozen=True)
class Algorithm:
    """All that the learner knows about an algorithm: what it learns from, its loss, and what its metrics are called."""

    prepare: Callable[[Rollout, Tensor, Config], Any]  # a rollout and its scaled rewards → a Batch
    # the policy's outputs [N, …] and values [N] for a Batch, and that Batch → loss and metrics, as means
    loss: Callable[[Tensor, Tensor, Any, Config], tuple[Tensor, Tensor]]
    statistics: tuple[str, ...]  # the names of the metrics, in their order
    summed: bool = False  # the gradient is that of the samples' sum, not of their mean


def algorithm_named(name: str) -> Algorithm:
    """The record of an algorithm."""
    record: Algorithm = import_module(f"rlcb.algorithms.{ALGORITHMS[name].module}").ALGORITHM
    return record
