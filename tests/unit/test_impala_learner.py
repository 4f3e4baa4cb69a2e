"""How IMPALA's learner moves the weights, against the same done by hand."""

from typing import Any

import pytest
import torch

from rlcb.algorithms.impala import STATISTICS
from rlcb.algorithms.returns import Unrolls
from rlcb.config.load import build_config
from rlcb.execution.worker import Worker
from rlcb.learner import Learner, pieces_of, select
from rlcb.rollout import Rollout


def learner_and_batch(**values: Any) -> tuple[Learner, Unrolls]:
    """A learner and a rollout of its policy, whose rewards are random."""
    defaults = {"name": "CartPole-v1", "num_envs": 8, "n_steps": 16, "batch_size": 128, "num_threads": 1}
    overrides = {key: (key, value) for key, value in {**defaults, **values}.items()}
    worker = Worker(build_config(None, overrides, algorithm="impala"))
    rollout = worker.collector.collect()
    rewards = torch.randn(rollout.rewards.shape, generator=torch.Generator().manual_seed(5))
    batch = worker.learner.algorithm.prepare(rollout, rewards, worker.config)
    worker.env.close()
    return worker.learner, batch


@pytest.mark.parametrize("name", ["CartPole-v1", "coinrun"])
def test_the_gradient_is_that_of_the_sum_over_the_samples(name: str) -> None:
    learner, batch = learner_and_batch(name=name)
    assert learner.config.minibatch_size == 128 == batch.actions.numel()
    figures = learner.gradient_of(batch)
    loss, statistics = learner.algorithm.loss(*learner.policy(batch.observations.flatten(0, 1)), batch, learner.config)
    mean = torch.autograd.grad(loss, list(learner.policy.parameters()))
    expected = 128 * torch.cat([gradient.flatten() for gradient in mean])
    assert float((learner.gradient - expected).norm() / expected.norm()) < 1e-5
    assert figures.tolist() == pytest.approx(statistics.tolist(), rel=1e-4, abs=1e-6)
    named = dict(zip(STATISTICS, figures.tolist(), strict=True))
    assert named["vtrace/rho_mean"] == pytest.approx(1.0, abs=1e-4)
    assert named["policy/approx_kl"] == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize("micro", [1, 16, 48, 100, 128, 1000])
def test_micro_batches_leave_the_gradient_unchanged(micro: int) -> None:
    whole, batch = learner_and_batch()
    pieces, _ = learner_and_batch(micro_batch_size=micro)
    whole_figures, piece_figures = whole.gradient_of(batch), pieces.gradient_of(batch)
    assert torch.equal(whole.weights, pieces.weights)
    assert float((whole.gradient - pieces.gradient).norm() / whole.gradient.norm()) < 1e-5
    assert piece_figures.tolist() == pytest.approx(whole_figures.tolist(), rel=1e-3, abs=1e-6)


def test_the_first_step_of_rmsprop_moves_no_weight_by_more_than_the_rate() -> None:
    learner, batch = learner_and_batch(learning_rate=1e-3, max_grad_norm=2.0)
    before = learner.weights.clone()
    learner.gradient_of(batch)
    learner.step(learner.gradient.norm())
    assert 0.5e-3 < float((learner.weights - before).abs().max()) <= 1.0001e-3


def test_rmsprop_on_the_flat_vector_is_rmsprop_on_the_parts() -> None:
    learner, batch = learner_and_batch(learning_rate=1e-3, max_grad_norm=2.0)
    training, limit = learner.config.training, learner.config.impala.max_grad_norm
    parts = [torch.nn.Parameter(parameter.detach().clone()) for parameter in learner.policy.parameters()]
    squares, before = [torch.zeros_like(part) for part in parts], learner.weights.clone()
    for number in range(1, 4):
        learner.gradient_of(batch)
        norm = learner.gradient.norm()
        assert float(norm) > limit
        for part, gradient in zip(parts, pieces_of(learner.gradient.clone(), parts), strict=True):
            part.grad = gradient
        torch.nn.utils.clip_grad_norm_(parts, limit)
        for part, square in zip(parts, squares, strict=True):
            square.copy_(training.rms_decay * square + (1 - training.rms_decay) * part.grad**2)
            corrected = square / (1 - training.rms_decay**number)
            part.data -= 1e-3 * part.grad / (corrected.sqrt() + training.rms_eps)
        learner.step(norm)
        assert float(learner.gradient.norm()) == pytest.approx(limit, rel=1e-4)
    assert torch.allclose(torch.cat([part.detach().flatten() for part in parts]), learner.weights, atol=1e-6)
    assert float((learner.weights - before).abs().max()) > 1e-4


def test_an_update_takes_every_environment_once_per_epoch() -> None:
    learner, batch = learner_and_batch(batch_size=32, n_epochs=2)
    rollout = Rollout(
        batch.observations, batch.actions, batch.log_probs, torch.cat((batch.values, torch.zeros(1, 8))),
        batch.rewards, batch.dones, torch.zeros_like(batch.rewards), batch.dones,
    )  # fmt: skip
    other, _ = learner_and_batch(batch_size=32, n_epochs=2)
    prepared = other.algorithm.prepare(rollout, rollout.rewards, other.config)
    orders = [torch.randperm(8, generator=other.generator) for _ in range(2)]
    for chosen in torch.cat(orders).split(2):
        other.gradient_of(select(prepared, chosen))
        other.step(other.parameters.reduce())
    update = learner.update(rollout, rollout.rewards, learner.config.training.learning_rate)
    assert update.skipped_steps == 0
    assert torch.equal(learner.weights, other.weights)
