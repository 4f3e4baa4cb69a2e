"""Continuous actions and scaled observations: the Gaussian against slow transcriptions, moments, environments."""

import base64
import json
import math

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from rlcb.algorithms.a2c import a2c_loss
from rlcb.algorithms.impala import impala_loss
from rlcb.algorithms.ppo import ppo_loss
from rlcb.algorithms.returns import Samples, Unrolls, vtrace
from rlcb.config.load import build_config
from rlcb.config.schema import Config, ImpalaConfig, TrainingConfig
from rlcb.envs.base import EnvSpec
from rlcb.envs.episodes import EpisodeCounter
from rlcb.envs.groups import EnvGroups
from rlcb.envs.gymnasium import GymnasiumEnv, spec_of_spaces, state_problem
from rlcb.errors import UsageError
from rlcb.execution.worker import Worker, make_policy, seeds
from rlcb.gpu.collector import GpuCollector
from rlcb.gpu.learner import GpuLearner
from rlcb.gpu.memory import make_rollout_memory
from rlcb.networks.computation import Computation
from rlcb.networks.distributions import draw, fill_noise, likeliest, log_probs_and_entropy
from rlcb.networks.layers import ScaledObservations
from rlcb.networks.policy import make_policy_network, observation_moments, scaling_of

SPEC = EnvSpec((3,), np.dtype(np.float32), 2, continuous=True)


def slow_gaussian(mean: list[float], log_std: list[float], action: list[float]) -> tuple[float, float]:
    """Log-density and entropy of independent normal variables, from the density's definition."""
    log_density = entropy = 0.0
    for m, s, a in zip(mean, log_std, action, strict=True):
        variance = math.exp(s) ** 2
        log_density += math.log(math.exp(-((a - m) ** 2) / (2 * variance)) / math.sqrt(2 * math.pi * variance))
        entropy += 0.5 * math.log(2 * math.pi * math.e * variance)
    return log_density, entropy


def random_gaussian(n: int, d: int, seed: int) -> tuple[Tensor, Tensor]:
    """Outputs [n, 2d] of a policy and actions [n, d], in float64."""
    generator = torch.Generator().manual_seed(seed)
    means, log_stds, noise = (torch.randn((n, d), generator=generator, dtype=torch.float64) for _ in range(3))
    log_stds = 0.5 * log_stds
    return torch.cat((means, log_stds), dim=1), means + log_stds.exp() * noise


@settings(max_examples=60, deadline=None)
@given(n=st.integers(1, 8), d=st.integers(1, 6), seed=st.integers(0, 10**6))
def test_log_probabilities_entropy_and_gradients_are_those_of_the_definition(n: int, d: int, seed: int) -> None:
    outputs, actions = random_gaussian(n, d, seed)
    outputs.requires_grad_()
    log_probs, entropies = log_probs_and_entropy(outputs, actions)
    for i in range(n):
        row = outputs[i].tolist()
        log_density, entropy = slow_gaussian(row[:d], row[d:], actions[i].tolist())
        assert log_probs[i].item() == pytest.approx(log_density, rel=1e-9, abs=1e-9)
        assert entropies[i].item() == pytest.approx(entropy, rel=1e-9, abs=1e-9)
    (gradient,) = torch.autograd.grad(log_probs.sum(), outputs, retain_graph=True)
    (of_entropy,) = torch.autograd.grad(entropies.sum(), outputs)
    for i in range(n):
        for k in range(d):
            mean, log_std, action = outputs[i, k].item(), outputs[i, d + k].item(), actions[i, k].item()
            variance = math.exp(2 * log_std)
            assert gradient[i, k].item() == pytest.approx((action - mean) / variance, rel=1e-9, abs=1e-9)
            assert gradient[i, d + k].item() == pytest.approx((action - mean) ** 2 / variance - 1, rel=1e-9, abs=1e-9)
            assert of_entropy[i, k].item() == 0.0
            assert of_entropy[i, d + k].item() == 1.0


def test_torchs_own_distribution_agrees() -> None:
    outputs, actions = random_gaussian(50, 4, seed=3)
    mean, log_std = outputs.chunk(2, dim=1)
    normal = torch.distributions.Independent(torch.distributions.Normal(mean, log_std.exp()), 1)
    log_probs, entropies = log_probs_and_entropy(outputs, actions)
    torch.testing.assert_close(log_probs, normal.log_prob(actions))
    torch.testing.assert_close(entropies, normal.entropy())


def test_actions_are_drawn_from_the_gaussian() -> None:
    n = 40_000
    outputs = torch.tensor([1.5, -2.0, math.log(0.5), math.log(2.0)]).expand(n, 4)
    noise = fill_noise(torch.empty((n, 2)), continuous=True, generator=torch.Generator().manual_seed(0))
    actions, log_probs = draw(outputs, noise, continuous=True)
    assert actions.mean(0).tolist() == pytest.approx([1.5, -2.0], abs=0.05)
    assert actions.std(0).tolist() == pytest.approx([0.5, 2.0], rel=0.03)
    torch.testing.assert_close(log_probs, log_probs_and_entropy(outputs, actions)[0])
    assert likeliest(outputs, continuous=True)[0].tolist() == [1.5, -2.0]


def samples(n: int, d: int, seed: int) -> tuple[Tensor, Tensor, Samples]:
    outputs, actions = random_gaussian(n, d, seed)
    generator = torch.Generator().manual_seed(seed + 1)
    old, values, kept, advantages, returns = (
        torch.randn(n, generator=generator, dtype=torch.float64) for _ in range(5)
    )
    old = log_probs_and_entropy(outputs, actions)[0] + 0.2 * old
    return outputs, values, Samples(torch.zeros(n, 3), actions, old, kept, advantages, returns)


def test_losses_of_ppo_and_a2c_are_those_of_the_slow_gaussian() -> None:
    n, d = 12, 3
    outputs, values, batch = samples(n, d, seed=5)
    config = Config(algorithm="ppo")
    slow = [slow_gaussian(row[:d], row[d:], batch.actions[i].tolist()) for i, row in enumerate(outputs.tolist())]
    ppo = a2c = 0.0
    for i, (log_prob, entropy) in enumerate(slow):
        advantage, error = batch.advantages[i].item(), (values[i] - batch.returns[i]).item() ** 2
        ratio = math.exp(log_prob - batch.log_probs[i].item())
        clipped = min(max(ratio, 1 - config.ppo.clip_range), 1 + config.ppo.clip_range)
        ppo += -min(ratio * advantage, clipped * advantage) + 0.5 * config.ppo.vf_coef * error
        ppo -= config.ppo.ent_coef * entropy
        a2c += -log_prob * advantage + 0.5 * config.a2c.vf_coef * error - config.a2c.ent_coef * entropy
    assert ppo_loss(outputs, values, batch, config)[0].item() == pytest.approx(ppo / n, rel=1e-9)
    assert a2c_loss(outputs, values, batch, config)[0].item() == pytest.approx(a2c / n, rel=1e-9)


def test_impalas_loss_corrects_with_ratios_of_densities() -> None:
    T, B, d = 5, 2, 3
    outputs, values, batch = samples(T * B, d, seed=8)
    outputs, actions = outputs.view(T, B, -1), batch.actions.view(T, B, d)
    rewards, behaviour = batch.returns.view(T, B), batch.log_probs.view(T, B)
    dones = torch.zeros(T, B, dtype=torch.bool)
    all_values = torch.cat((values.view(T, B), values.view(T, B)[:1]))
    slow = torch.zeros(T, B, 2, dtype=torch.float64)
    for t in range(T):
        for b in range(B):
            row = outputs[t, b].tolist()
            slow[t, b] = torch.tensor(slow_gaussian(row[:d], row[d:], actions[t, b].tolist()))
    log_probs, entropies = slow.unbind(-1)
    targets, advantages = vtrace(log_probs - behaviour, rewards, all_values, dones, 0.9)
    impala = ImpalaConfig()
    expected = -(log_probs * advantages).mean() + impala.vf_coef * 0.5 * (targets - all_values[:-1]).square().mean()
    expected -= impala.ent_coef * entropies.mean()
    unrolls = Unrolls(torch.zeros(T + 1, B, 3), actions, behaviour, rewards, dones, all_values[:-1], rewards)
    assert impala_loss(outputs, all_values, unrolls, impala, 0.9, 1.0)[0].item() == pytest.approx(expected.item())


# The policy


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_deviations_are_learned_and_depend_on_no_observation(precision: str) -> None:
    training = TrainingConfig(log_std_init=-0.5, normalize_observations=True)
    policy = make_policy_network(training, SPEC)
    computation = Computation(policy, precision)
    outputs, values = computation(torch.randn(7, 3))
    assert outputs.shape == (7, 4)
    assert values.shape == (7,)
    assert outputs.dtype == values.dtype == torch.float32
    assert (outputs[:, 2:] == -0.5).all()
    gradients = torch.autograd.grad(outputs.sum() + values.sum(), computation.parameters)
    assert len(gradients) == len(list(policy.parameters())) - 3  # what is known of observations gets none
    assert any(gradient.tolist() == [7.0, 7.0] for gradient in gradients if gradient.shape == (2,))


def test_a_network_for_discrete_actions_stays_as_it_is() -> None:
    spec = EnvSpec((3,), np.dtype(np.float32), 2)
    assert make_policy_network(TrainingConfig(), spec)(torch.zeros(1, 3))[0].shape == (1, 2)
    assert scaling_of(make_policy_network(TrainingConfig(), spec)) is None


def test_pictures_are_not_scaled() -> None:
    with pytest.raises(UsageError, match=r"normalize_observations: .* images"):
        make_policy_network(TrainingConfig(normalize_observations=True), EnvSpec((64, 64, 3), np.dtype(np.uint8), 15))


@settings(max_examples=30, deadline=None)
@given(parts=st.lists(st.integers(1, 40), min_size=1, max_size=6), seed=st.integers(0, 10**6))
def test_moments_in_parts_are_those_of_the_whole(parts: list[int], seed: int) -> None:
    generator = np.random.default_rng(seed)
    seen = [generator.normal(3.0, 5.0, (size, 3)).astype(np.float32) for size in parts]
    scaling = ScaledObservations(torch.nn.Identity(), (3,))
    for part in seen:
        scaling.take_in(scaling.known(), observation_moments(torch.from_numpy(part)))
    whole = np.concatenate(seen).astype(np.float64)
    count, mean, variance = scaling.known()
    assert count.item() == len(whole)
    np.testing.assert_allclose(mean, whole.mean(0), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(variance, whole.var(0), rtol=1e-4, atol=1e-4)


def test_observations_are_scaled_and_limited() -> None:
    scaling = ScaledObservations(torch.nn.Identity(), (2,))
    row = torch.tensor([[3.0, -1e9]])
    assert scaling(row).tolist() == [[3.0, -10.0]]
    scaling.take_in(scaling.known(), observation_moments(torch.tensor([[1.0, 0.0], [5.0, 2.0]])))
    torch.testing.assert_close(scaling(torch.tensor([[5.0, 1.0]])), torch.tensor([[1.0, 0.0]]))


def test_a_rollout_is_learned_from_with_the_scale_it_was_acted_with() -> None:
    given = {
        "name": ("", "Pendulum-v1"),
        "num_envs": ("", 2),
        "n_steps": ("", 16),
        "normalize_observations": ("", True),
    }
    worker = Worker(build_config(None, given))
    scaling = scaling_of(worker.learner.policy)
    assert scaling is not None
    for _ in range(2):
        rollout = worker.collector.collect()
        outputs, _ = worker.learner.computation(rollout.observations[:-1].flatten(0, 1))
        again, _ = log_probs_and_entropy(outputs, rollout.actions.flatten(0, 1))
        torch.testing.assert_close(again.detach(), rollout.log_probs.flatten())
        before = scaling.count.item()
        worker.learner.update(rollout, rollout.rewards, 1e-3)
        assert scaling.count.item() == before  # no gradient moves it
        worker.learner.observe(rollout)
        assert scaling.count.item() == before + 32
    worker.env.close()


def test_the_gpus_collector_and_learner_do_the_same() -> None:
    """They run on a CPU here, operation by operation: the same rollouts and weights, up to rounding."""
    given = {"name": ("", "Pendulum-v1"), "num_envs": ("", 4), "n_steps": ("", 16), "batch_size": ("", 32),
             "n_epochs": ("", 1), "normalize_observations": ("", True)}  # fmt: skip
    config = build_config(None, given)
    worker = Worker(config)
    acting, learning, envs = seeds(config.env.seed, 0)
    env = EnvGroups(config.env, 4, envs, 1, 2)
    memory = make_rollout_memory(16, 4, env.spec, "cpu")
    learner = GpuLearner(
        make_policy(config, env.spec), config, torch.Generator().manual_seed(learning), memory, recorded=False
    )
    generator, counter = torch.Generator().manual_seed(acting), EpisodeCounter(4)
    collector = GpuCollector(env, learner.computation, memory, generator, counter, lambda: None, recorded=False)
    for _ in range(3):
        mine, other = worker.collector.collect(), collector.collect()
        torch.testing.assert_close(mine.actions, other.actions, rtol=1e-3, atol=1e-3)
        torch.testing.assert_close(mine.log_probs, other.log_probs, rtol=1e-3, atol=1e-3)
        worker.learner.update(mine, mine.rewards.clone(), 1e-3)
        learner.update(other, other.rewards.clone(), 1e-3)
        worker.learner.observe(mine)
        learner.observe(other)
    torch.testing.assert_close(worker.learner.weights, learner.weights, rtol=1e-3, atol=1e-3)
    worker.env.close()
    env.close()


# Environments


def test_actions_are_clipped_for_the_environment_alone() -> None:
    wide, edge = (GymnasiumEnv("Pendulum-v1", 1, seed=1) for _ in range(2))
    for _ in range(5):
        there, here = wide.step(np.array([[7.5]], np.float32)), edge.step(np.array([[2.0]], np.float32))
        assert there.observations.tolist() == here.observations.tolist()
        assert there.rewards == here.rewards


def test_a_saved_state_replays_continuous_actions() -> None:
    env, random = GymnasiumEnv("Pendulum-v1", 2, seed=4), np.random.default_rng(0)
    for _ in range(230):  # beyond the time limit of 200
        env.step(random.standard_normal((2, 1), np.float32))
    other = GymnasiumEnv("Pendulum-v1", 2, seed=9)
    states = env.get_state()
    assert state_problem(None, env.spec, states) is None  # type: ignore[arg-type]
    other.set_state(states)
    assert other.observe().tolist() == env.observe().tolist()
    for _ in range(20):
        actions = random.standard_normal((2, 1), np.float32)
        assert env.step(actions).observations.tolist() == other.step(actions).observations.tolist()


@pytest.mark.parametrize(
    "actions", [[0], 3, "?", "AAAA", base64.b64encode(np.array([np.nan], np.float32).tobytes()).decode()]
)
def test_states_that_hold_no_actions_are_refused(actions: object) -> None:
    state = json.dumps({"identity": [1, 0], "episode": 0, "actions": actions}).encode()
    assert state_problem(None, EnvSpec((3,), np.dtype(np.float32), 1, True), [state]) is not None  # type: ignore[arg-type]


def test_what_spaces_can_be_used() -> None:
    box = spaces.Box(-1.0, 1.0, (3,))
    assert spec_of_spaces("x", box, spaces.Box(-2.0, 2.0, (2, 3))) == EnvSpec((3,), np.dtype(np.float32), 6, True)
    assert spec_of_spaces("x", box, spaces.Discrete(4)) == EnvSpec((3,), np.dtype(np.float32), 4)
    unfit: list[gymnasium.Space] = [spaces.MultiDiscrete([2, 3]), spaces.Box(0, 9, (2,), np.int64), spaces.Dict()]
    for actions in unfit:
        with pytest.raises(UsageError, match="environment x: needs a discrete action space or a Box of floats"):
            spec_of_spaces("x", box, actions)
