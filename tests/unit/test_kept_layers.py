"""The forward pass of acting used again for learning: the same outputs and gradients as computed anew."""

import numpy as np
import pytest
import torch

from rlcb.config.load import build_config
from rlcb.envs.base import EnvSpec
from rlcb.learner import Learner
from rlcb.networks import make_network
from rlcb.networks.computation import Computation
from rlcb.rollout import Rollout, make_rollout

FRAMES = EnvSpec((64, 64, 3), np.dtype(np.uint8), 15)
VECTOR = EnvSpec((4,), np.dtype(np.float32), 2)
T, B = 3, 4


def observations_of(spec: EnvSpec, *shape: int) -> torch.Tensor:
    whole = (*shape, *spec.observation_shape)
    return torch.randint(0, 256, whole, dtype=torch.uint8) if spec.is_image else torch.randn(whole)


@torch.inference_mode()
def act(computation: Computation, observations: torch.Tensor) -> list[torch.Tensor]:
    computation.refresh()
    return [torch.cat(parts) for parts in zip(*(computation.act(step) for step in observations), strict=True)]


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize(("name", "spec"), [("nature", FRAMES), ("impala", FRAMES), ("mlp", VECTOR)])
def test_outputs_and_gradients_are_those_of_a_forward_pass(name: str, spec: EnvSpec, precision: str) -> None:
    torch.manual_seed(0)
    computation = Computation(make_network(name, spec), precision, keeps_layers=True)
    observations = observations_of(spec, T, B)
    shown = act(computation, observations)
    assert computation.kept_samples == T * B
    (layers,) = computation.kept([T * B])
    kept = computation(observations.flatten(0, 1), layers)
    assert computation.kept_samples == 0  # once only
    anew = computation(observations.flatten(0, 1))
    tolerance = 1e-5 if precision == "fp32" else 0.02
    gradients = []
    for (logits, values), acted in ((kept, True), (anew, False)):
        if acted:
            assert torch.equal(logits, shown[0])
            assert torch.equal(values, shown[1])
        loss = torch.log_softmax(logits, 1)[:, 0].mean() + (values - 1).square().mean()
        found = torch.autograd.grad(loss, computation.parameters)
        gradients.append(torch.cat([gradient.float().flatten() for gradient in found]))
    for one, other in (*zip(kept, anew, strict=True), gradients):
        assert float((one - other).detach().norm()) <= tolerance * float(other.detach().norm())


def rollout_of(computation: Computation) -> tuple[Rollout, torch.Tensor]:
    rollout = make_rollout(T, B, FRAMES, "cpu")
    rollout.observations.copy_(observations_of(FRAMES, T + 1, B))
    rollout.actions.copy_(torch.randint(0, 15, (T, B)))
    shown = act(computation, rollout.observations[:-1])
    rollout.values.zero_()
    rollout.values[:-1] = shown[1].view(T, B)
    rollout.truncation_value.zero_()
    rollout.dones.zero_()
    return rollout, torch.randn(T, B)


def test_an_update_moves_the_weights_as_one_that_computes_everything_anew() -> None:
    given = {"num_envs": ("x", B), "n_steps": ("x", T)}
    learners = []
    for more in ({}, {"micro_batch_size": ("x", T * B)}):  # a backward pass in pieces, here one, keeps nothing
        torch.manual_seed(0)
        learner = Learner(
            make_network("nature", FRAMES), build_config(None, given | more, algorithm="a2c"), torch.Generator()
        )
        rollout, rewards = rollout_of(learner.computation)
        assert learner.computation.kept_samples == (0 if more else T * B)
        learner.update(rollout, rewards, 1e-3)
        learners.append(learner)
    kept, anew = (learner.gradient for learner in learners)
    assert float(kept.norm()) > 0
    assert float((kept - anew).norm()) <= 1e-4 * float(anew.norm())


def test_what_was_kept_of_other_weights_is_never_used() -> None:
    learner = Learner(make_network("nature", FRAMES), build_config(None, {}, algorithm="a2c"), torch.Generator())
    observations = observations_of(FRAMES, T, B)
    act(learner.computation, observations)
    learner.computation.refresh()
    assert learner.computation.kept_samples == 0


def test_algorithms_with_several_minibatches_keep_nothing() -> None:
    for algorithm in ("ppo", "impala"):
        config = build_config(None, {}, algorithm=algorithm)
        computation = Learner(make_network("nature", FRAMES), config, torch.Generator()).computation
        act(computation, observations_of(FRAMES, 1, B))
        assert computation.kept_samples == 0
