"""A2C: its loss and its update against the same done by hand."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import nn

from helpers.in_process import rlcb_here
from rlcb.algorithms.a2c import ALGORITHM, STATISTICS, a2c_loss
from rlcb.algorithms.returns import Samples
from rlcb.config.load import build_config
from rlcb.config.schema import A2cConfig, Config
from rlcb.learner import Learner
from rlcb.rollout import Rollout

T, B, FEATURES, ACTIONS = 6, 4, 3, 5
RMS_DECAY, RMS_EPS = 0.9, 1e-5


def slow_loss(logits: torch.Tensor, values: torch.Tensor, batch: Samples, a2c: A2cConfig) -> dict[str, float]:
    """The objective, sample by sample in Python floats."""
    sums, n = dict.fromkeys(STATISTICS, 0.0), len(batch)
    for i in range(n):
        row = logits[i].tolist()
        normalizer = math.log(sum(math.exp(x) for x in row))
        log_p = [x - normalizer for x in row]
        sums["loss/policy"] -= log_p[int(batch.actions[i])] * float(batch.advantages[i]) / n
        sums["loss/value"] += 0.5 * (float(values[i]) - float(batch.returns[i])) ** 2 / n
        sums["loss/entropy"] -= sum(math.exp(x) * x for x in log_p) / n
    sums["loss/total"] = sums["loss/policy"] + a2c.vf_coef * sums["loss/value"] - a2c.ent_coef * sums["loss/entropy"]
    return sums


@settings(max_examples=60, deadline=None)
@given(
    n=st.integers(1, 12),
    num_actions=st.integers(2, 6),
    seed=st.integers(0, 10**6),
    ent_coef=st.sampled_from([0.0, 0.03, 1.0]),
    vf_coef=st.sampled_from([0.0, 0.7, 2.0]),
)
def test_loss_is_the_slow_one(n: int, num_actions: int, seed: int, ent_coef: float, vf_coef: float) -> None:
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> torch.Tensor:
        return 3 * torch.randn(*shape, generator=generator, dtype=torch.float64)

    actions, a2c = torch.randint(num_actions, (n,), generator=generator), A2cConfig(ent_coef=ent_coef, vf_coef=vf_coef)
    batch, logits, values = (
        Samples(normal(n, 3), actions, normal(n), normal(n), normal(n), normal(n)), normal(n, num_actions), normal(n)
    )  # fmt: skip
    loss, figures = a2c_loss(logits, values, batch, Config(algorithm="a2c", a2c=a2c))
    expected = slow_loss(logits, values, batch, a2c)
    assert float(loss) == pytest.approx(expected["loss/total"])
    assert dict(zip(STATISTICS, figures.tolist(), strict=True)) == pytest.approx(expected)


class Linear(nn.Module):
    """The smallest policy with a value: its gradient can be written out."""

    def __init__(self) -> None:
        super().__init__()
        self.policy_head, self.value_head = nn.Linear(FEATURES, ACTIONS), nn.Linear(FEATURES, 1)

    def forward(self, observations: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.policy_head(observations), self.value_head(observations).squeeze(1)


def make_config(**values: Any) -> Config:
    given = {"name": "CartPole-v1", "num_envs": B, "n_steps": T, "gamma": 0.9, "gae_lambda": 0.8, "ent_coef": 0.1,
             "rms_decay": RMS_DECAY, "rms_eps": RMS_EPS, **values}  # fmt: skip
    return build_config(None, {key: (key, value) for key, value in given.items()}, algorithm="a2c")


def make_rollout(seed: int) -> Rollout:
    """What nobody's policy did: the update has to take it as it is."""
    draw = torch.Generator().manual_seed(seed)
    return Rollout(
        observations=torch.randn(T + 1, B, FEATURES, generator=draw),
        actions=torch.randint(ACTIONS, (T, B), generator=draw),
        log_probs=-torch.rand(T, B, generator=draw),
        values=torch.randn(T + 1, B, generator=draw),
        rewards=torch.randn(T, B, generator=draw),
        dones=torch.rand(T, B, generator=draw) < 0.3,
        truncation_value=torch.randn(T, B, generator=draw) * (torch.rand(T, B, generator=draw) < 0.1),
        ends=torch.zeros(T, B, dtype=torch.bool),
    )


class ByHand:
    """A2C on the linear policy in double precision: advantages, gradient, clipping and RMSProp, step by step."""

    def __init__(self, policy: Linear, config: Config):
        self.config = config
        heads = (policy.policy_head.weight, policy.policy_head.bias, policy.value_head.weight, policy.value_head.bias)
        self.weights = [head.detach().double().numpy().copy() for head in heads]
        self.squares = [np.zeros_like(weight) for weight in self.weights]
        self.steps = 0

    def advantages(self, rollout: Rollout, rewards: torch.Tensor) -> NDArray[np.float64]:
        gamma, gae_lambda = self.config.training.gamma, self.config.training.gae_lambda
        found = np.zeros((T, B))
        for b in range(B):
            following = 0.0
            for t in range(T - 1, -1, -1):
                going_on = 0.0 if rollout.dones[t, b] else gamma
                reward = float(rewards[t, b]) + gamma * float(rollout.truncation_value[t, b])
                surprise = reward + going_on * float(rollout.values[t + 1, b]) - float(rollout.values[t, b])
                following = surprise + going_on * gae_lambda * following
                found[t, b] = following
        return found

    def update(self, rollout: Rollout, rewards: torch.Tensor, learning_rate: float) -> float:
        """Returns the gradient's norm before it was clipped."""
        a2c, found = self.config.a2c, self.advantages(rollout, rewards)
        returns = found + rollout.values[:-1].double().numpy()
        if a2c.normalize_advantages:
            found = (found - found.mean()) / (found.std(ddof=1) + 1e-8)
        gradient = [np.zeros_like(weight) for weight in self.weights]
        W, w, U, u = self.weights
        for t in range(T):
            for b in range(B):
                x = rollout.observations[t, b].double().numpy()
                logits, value = W @ x + w, float((U @ x + u)[0])
                log_p = logits - np.log(np.exp(logits).sum())
                p, entropy = np.exp(log_p), -float((np.exp(log_p) * log_p).sum())
                taken = np.eye(ACTIONS)[int(rollout.actions[t, b])]
                # −A log p(a): A (p − taken); −c H: c p (log p + H)
                to_logits = found[t, b] * (p - taken) + a2c.ent_coef * p * (log_p + entropy)
                to_value = np.array([a2c.vf_coef * (value - returns[t, b])])
                parts = (np.outer(to_logits, x), to_logits, np.outer(to_value, x), to_value)
                gradient = [total + part / (T * B) for total, part in zip(gradient, parts, strict=True)]
        norm = math.sqrt(sum(float((part**2).sum()) for part in gradient))
        scale = min(1.0, a2c.max_grad_norm / (norm + 1e-6))
        self.steps += 1
        known = 1 - RMS_DECAY**self.steps  # the part of a mean square that is not its start at zero
        for weight, square, part in zip(self.weights, self.squares, gradient, strict=True):
            clipped = scale * part
            square[:] = RMS_DECAY * square + (1 - RMS_DECAY) * clipped**2
            weight[:] = weight - learning_rate * clipped / (np.sqrt(square / known) + RMS_EPS)
        return norm


@pytest.mark.parametrize("clipped", [True, False])
@pytest.mark.parametrize("settings", [{}, {"normalize_advantages": True}, {"gae_lambda": 1.0, "micro_batch_size": 5}])
def test_whole_updates_are_those_done_by_hand(settings: dict[str, Any], clipped: bool) -> None:
    config = make_config(max_grad_norm=0.05 if clipped else 1e3, **settings)
    torch.manual_seed(3)
    policy = Linear()
    by_hand, learner = ByHand(policy, config), Learner(policy, config, torch.Generator().manual_seed(1))
    for number, learning_rate in enumerate((0.01, 0.007, 0.002), start=1):
        rollout = make_rollout(number)
        rewards = 0.5 * rollout.rewards  # scaled, as a normaliser would
        before = learner.weights.clone()
        norm = by_hand.update(rollout, rewards, learning_rate)
        update = learner.update(rollout, rewards, learning_rate)
        assert (norm > config.a2c.max_grad_norm) == clipped
        assert update.metrics["gradient/norm"] == pytest.approx(norm, rel=1e-5)
        assert (update.skipped_steps, update.metrics["learning_rate"]) == (0, learning_rate)
        expected = torch.cat([torch.from_numpy(weight).flatten() for weight in by_hand.weights])
        assert float((learner.weights.double() - expected).abs().max()) < 1e-6
        assert float((learner.weights - before).abs().max()) > 1e-3
        assert int(learner.state()[1]["step"]) == number  # the whole rollout in a single step


def test_with_lambda_1_returns_are_n_step_returns() -> None:
    config, rollout = make_config(gae_lambda=1.0), make_rollout(7)
    batch = ALGORITHM.prepare(rollout, rollout.rewards, config)
    expected = np.zeros((T, B))
    for b in range(B):
        for t in range(T):
            discount, ended = 1.0, False
            for k in range(t, T):
                expected[t, b] += discount * float(rollout.rewards[k, b] + 0.9 * rollout.truncation_value[k, b])
                discount, ended = 0.9 * discount, bool(rollout.dones[k, b])
                if ended:
                    break
            expected[t, b] += 0.0 if ended else discount * float(rollout.values[T, b])
    assert batch.returns.tolist() == pytest.approx(expected.flatten().tolist(), abs=1e-5)


@pytest.mark.parametrize("flag", ["--batch-size", "--n-epochs"])
@pytest.mark.parametrize("algorithm", ["a2c", "a3c"])
def test_there_are_no_minibatches_to_choose(algorithm: str, flag: str) -> None:
    rlcb_here("train", algorithm, flag, "64").assert_one_line_error(2, flag, algorithm)
