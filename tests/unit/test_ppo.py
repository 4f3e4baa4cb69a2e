"""PPO's loss and update against slow transcriptions."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rlcb.algorithms.ppo import STATISTICS, ppo_loss
from rlcb.algorithms.returns import Samples, make_samples
from rlcb.config.load import build_config
from rlcb.config.schema import Config, PpoConfig
from rlcb.execution.worker import Worker
from rlcb.learner import Learner, pieces_of


def random_batch(n: int, num_actions: int, seed: int) -> tuple[torch.Tensor, torch.Tensor, Samples]:
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    actions = torch.randint(num_actions, (n,), generator=generator)
    old = torch.log_softmax(normal(n, num_actions), 1).gather(1, actions[:, None])[:, 0]
    return normal(n, num_actions), normal(n), Samples(normal(n, 3), actions, old, normal(n), normal(n), normal(n))


def slow_loss(logits: torch.Tensor, values: torch.Tensor, batch: Samples, ppo: PpoConfig) -> dict[str, float]:
    """The same objective, sample by sample in Python floats."""
    sums = dict.fromkeys(STATISTICS, 0.0)
    n = len(batch)
    for i in range(n):
        row = logits[i].tolist()
        normalizer = math.log(sum(math.exp(x) for x in row))
        log_p = [x - normalizer for x in row]
        ratio = math.exp(log_p[int(batch.actions[i])] - float(batch.log_probs[i]))
        advantage, low, high = float(batch.advantages[i]), 1 - ppo.clip_range, 1 + ppo.clip_range
        sums["loss/policy"] -= min(ratio * advantage, min(max(ratio, low), high) * advantage) / n
        value, old, target = float(values[i]), float(batch.values[i]), float(batch.returns[i])
        error = (value - target) ** 2
        if ppo.clip_value:
            moved = old + min(max(value - old, -ppo.clip_range), ppo.clip_range)
            error = max(error, (moved - target) ** 2)
        sums["loss/value"] += 0.5 * error / n
        sums["loss/entropy"] -= sum(math.exp(x) * x for x in log_p) / n
        sums["policy/approx_kl"] += (ratio - 1 - math.log(ratio)) / n
        sums["policy/clip_fraction"] += float(abs(ratio - 1) > ppo.clip_range) / n
    sums["loss/total"] = sums["loss/policy"] + ppo.vf_coef * sums["loss/value"] - ppo.ent_coef * sums["loss/entropy"]
    return sums


@settings(max_examples=60, deadline=None)
@given(
    n=st.integers(1, 12),
    num_actions=st.integers(2, 6),
    seed=st.integers(0, 10**6),
    clip_value=st.booleans(),
    clip_range=st.sampled_from([0.05, 0.2, 1.0]),
)
def test_loss_is_the_slow_one(n: int, num_actions: int, seed: int, clip_value: bool, clip_range: float) -> None:
    ppo = PpoConfig(clip_value=clip_value, clip_range=clip_range, ent_coef=0.03, vf_coef=0.7)
    logits, values, batch = random_batch(n, num_actions, seed)
    loss, statistics = ppo_loss(logits, values, batch, Config(ppo=ppo))
    expected = slow_loss(logits, values, batch, ppo)
    assert float(loss) == pytest.approx(expected["loss/total"])
    assert dict(zip(STATISTICS, statistics.tolist(), strict=True)) == pytest.approx(expected)


def test_clipping_stops_the_gradient_of_ratios_that_went_too_far() -> None:
    logits, values, batch = random_batch(4, 3, 0)
    logits.requires_grad_()
    far = Samples(**{**vars(batch), "log_probs": batch.log_probs - 5, "advantages": torch.ones(4, dtype=torch.float64)})
    ppo_loss(logits, values, far, Config(ppo=PpoConfig(ent_coef=0.0, vf_coef=0.0)))[0].backward()
    assert logits.grad is not None
    assert float(logits.grad.abs().max()) == 0.0


def make_worker(**values: object) -> Worker:
    defaults = {"num_envs": 8, "n_steps": 32, "batch_size": 128, "n_epochs": 2, "num_threads": 1}
    config = build_config(None, {key: (key, value) for key, value in {**defaults, **values}.items()})
    return Worker(config)


def learner_and_batch(**values: object) -> tuple[Learner, Samples]:
    worker = make_worker(**values)
    rollout = worker.collector.collect()
    rewards = torch.randn(rollout.rewards.shape, generator=torch.Generator().manual_seed(5))
    batch = make_samples(rollout, rewards, worker.config)
    worker.env.close()
    return worker.learner, batch


@pytest.mark.parametrize("micro", [1, 17, 128, 256, 1000])
def test_micro_batches_leave_the_gradient_unchanged(micro: int) -> None:
    whole, batch = learner_and_batch()
    pieces, _ = learner_and_batch(micro_batch_size=micro)
    whole_figures = whole.gradient_of(batch)
    piece_figures = pieces.gradient_of(batch)
    assert torch.equal(whole.weights, pieces.weights)
    assert float((whole.gradient - pieces.gradient).norm() / whole.gradient.norm()) < 1e-5
    assert piece_figures.tolist() == pytest.approx(whole_figures.tolist(), rel=1e-3, abs=1e-6)


def test_flat_gradient_is_what_autograd_gives_each_parameter() -> None:
    learner, batch = learner_and_batch(normalize_advantages=False)
    learner.gradient_of(batch)
    flat = learner.gradient.clone()
    loss, _ = ppo_loss(*learner.policy(batch.observations), batch, learner.config)
    apart = torch.autograd.grad(loss, list(learner.policy.parameters()))
    assert torch.allclose(torch.cat([g.flatten() for g in apart]), flat, atol=1e-6)


def test_step_clips_the_norm_and_moves_all_weights() -> None:
    learner, batch = learner_and_batch()
    before = learner.weights.clone()
    learner.gradient_of(batch)
    norm = learner.gradient.norm()
    learner.step(norm)
    limit = learner.config.ppo.max_grad_norm
    assert float(learner.gradient.norm()) == pytest.approx(min(limit, float(norm)), rel=1e-4)
    named = torch.cat([parameter.detach().flatten() for parameter in learner.policy.parameters()])
    assert torch.equal(named, learner.weights)
    assert not torch.equal(before, learner.weights)


def test_adam_on_the_flat_vector_is_adam_on_the_parts() -> None:
    learner, batch = learner_and_batch()
    other, _ = learner_and_batch()
    parts = [torch.nn.Parameter(parameter.detach().clone()) for parameter in other.policy.parameters()]
    training = learner.config.training
    adam = torch.optim.Adam(parts, training.learning_rate, eps=training.adam_eps)
    for _ in range(3):
        learner.gradient_of(batch)
        norm = learner.gradient.norm()
        grads = pieces_of(learner.gradient.clone(), parts)
        for part, grad in zip(parts, grads, strict=True):
            part.grad = grad
        torch.nn.utils.clip_grad_norm_(parts, learner.config.ppo.max_grad_norm)
        adam.step()
        learner.step(norm)
    assert torch.allclose(torch.cat([part.detach().flatten() for part in parts]), learner.weights, atol=1e-6)


def test_pieces_of_a_vector_are_views_in_the_shapes_of_the_parameters() -> None:
    module, vector = torch.nn.Linear(3, 2), torch.arange(8.0)
    weight, bias = pieces_of(vector, list(module.parameters()))
    assert weight.tolist() == [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]
    assert bias.tolist() == [6.0, 7.0]
    vector.fill_(9.0)
    assert weight.unique().tolist() == bias.unique().tolist() == [9.0]


def test_a_gradient_that_is_not_finite_is_left_out() -> None:
    worker = make_worker()
    rollout = worker.collector.collect()
    before = worker.learner.weights.clone()
    update = worker.learner.update(rollout, torch.full_like(rollout.rewards, float("nan")), 1e-3)
    worker.env.close()
    assert update.skipped_steps == 4
    assert update.metrics["loss/total"] is None
    assert torch.equal(before, worker.learner.weights)


def test_advantages_are_normalised_per_minibatch() -> None:
    learner, batch = learner_and_batch()
    indices = torch.randperm(256, generator=torch.Generator().manual_seed(1)).view(2, 128)
    scales = learner._advantage_scales(batch, indices)
    assert scales is not None
    for row, (mean, deviation) in zip(indices, scales, strict=True):
        scaled = (batch.advantages[row] - mean) / deviation
        assert float(scaled.mean()) == pytest.approx(0, abs=1e-5)
        assert float(scaled.std()) == pytest.approx(1, abs=1e-4)
    plain, _ = learner_and_batch(normalize_advantages=False)
    assert plain._advantage_scales(batch, indices) is None


def test_explained_variance_of_an_update() -> None:
    worker = make_worker(normalize_rewards=False, n_epochs=1)
    rollout = worker.collector.collect()
    rewards = torch.randn(rollout.rewards.shape, generator=torch.Generator().manual_seed(5))
    batch = make_samples(rollout, rewards, worker.config)
    expected = 1 - float((batch.returns - batch.values).var() / batch.returns.var())
    assert worker.learner.update(rollout, rewards, 1e-4).metrics["value/explained_variance"] == pytest.approx(
        expected, abs=1e-4
    )
    worker.env.close()
