"""Advantages and V-trace targets against their definitions, summed up the slow way."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rlcb.algorithms.returns import gae, vtrace


def slow_gae(
    rewards: list[float], values: list[float], dones: list[bool], gamma: float, gae_lambda: float
) -> list[float]:
    """A_t = Σ_l (γλ)^l δ_{t+l}, the sum ending with the episode: straight from the paper, for one env."""
    advantages = []
    for t in range(len(rewards)):
        total, weight = 0.0, 1.0
        for k in range(t, len(rewards)):
            following = 0.0 if dones[k] else values[k + 1]
            total += weight * (rewards[k] + gamma * following - values[k])
            if dones[k]:
                break
            weight *= gamma * gae_lambda
        advantages.append(total)
    return advantages


@settings(max_examples=100, deadline=None)
@given(
    T=st.integers(1, 20),
    B=st.integers(1, 4),
    gamma=st.floats(0, 1),
    gae_lambda=st.floats(0, 1),
    seed=st.integers(0, 10**6),
    p_done=st.sampled_from([0.0, 0.2, 1.0]),
)
def test_gae_is_the_sum_of_the_paper(T: int, B: int, gamma: float, gae_lambda: float, seed: int, p_done: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    rewards = torch.randn(T, B, generator=generator, dtype=torch.float64)
    values = torch.randn(T + 1, B, generator=generator, dtype=torch.float64)
    dones = torch.rand(T, B, generator=generator) < p_done
    fast = gae(rewards, values, dones, gamma, gae_lambda)
    for b in range(B):
        columns = rewards[:, b].tolist(), values[:, b].tolist(), dones[:, b].tolist()
        slow = slow_gae(*columns, gamma, gae_lambda)
        assert fast[:, b].tolist() == pytest.approx(slow, abs=1e-9)


def test_gae_by_hand() -> None:
    rewards, values = torch.tensor([[1.0], [2.0]]), torch.tensor([[0.5], [0.25], [4.0]])
    dones = torch.tensor([[False], [False]])
    last = 2.0 + 0.9 * 4.0 - 0.25
    first = 1.0 + 0.9 * 0.25 - 0.5 + 0.9 * 0.8 * last
    assert gae(rewards, values, dones, 0.9, 0.8).flatten().tolist() == pytest.approx([first, last])


def slow_vtrace(
    ratios: list[float], rewards: list[float], values: list[float], dones: list[bool], gamma: float, bars: list[float]
) -> tuple[list[float], list[float]]:
    """v_s = V_s + Σ_t γ^{t−s} (Π_{i=s}^{t−1} c_i) ρ_t δ_t, the paper's sum for one env, cut by the episode's end."""
    rho_bar, c_bar, pg_rho_bar = bars
    T = len(rewards)
    targets = []
    for s in range(T):
        total = values[s]
        for t in range(s, T):
            following = 0.0 if dones[t] else gamma * values[t + 1]
            delta = min(rho_bar, ratios[t]) * (rewards[t] + following - values[t])
            product = math.prod(min(c_bar, ratios[i]) for i in range(s, t))
            total += gamma ** (t - s) * product * delta
            if dones[t]:
                break
        targets.append(total)
    after = [*targets[1:], values[T]]
    advantages = [
        min(pg_rho_bar, ratios[s]) * (rewards[s] + (0.0 if dones[s] else gamma * after[s]) - values[s])
        for s in range(T)
    ]
    return targets, advantages


def random_case(T: int, B: int, seed: int, p_done: float) -> tuple[torch.Tensor, ...]:
    """Log-ratios, rewards, values and ends of episodes."""
    generator = torch.Generator().manual_seed(seed)
    log_rhos, rewards = (torch.randn(T, B, generator=generator, dtype=torch.float64) for _ in range(2))
    values = torch.randn(T + 1, B, generator=generator, dtype=torch.float64)
    return log_rhos, rewards, values, torch.rand(T, B, generator=generator) < p_done


@settings(max_examples=100, deadline=None)
@given(
    T=st.integers(1, 16),
    gamma=st.floats(0, 1),
    bars=st.lists(st.sampled_from([0.3, 0.7, 1.0, 1.5, 10.0]), min_size=3, max_size=3),
    seed=st.integers(0, 10**6),
    p_done=st.sampled_from([0.0, 0.2, 1.0]),
)
def test_vtrace_is_the_sum_of_the_paper(T: int, gamma: float, bars: list[float], seed: int, p_done: float) -> None:
    log_rhos, rewards, values, dones = random_case(T, 3, seed, p_done)
    targets, advantages = vtrace(log_rhos, rewards, values, dones, gamma, *bars)
    for b in range(3):
        columns = (x[:, b].tolist() for x in (log_rhos.exp(), rewards, values, dones))
        expected = slow_vtrace(*columns, gamma, bars)  # type: ignore[arg-type]
        assert targets[:, b].tolist() == pytest.approx(expected[0], abs=1e-9)
        assert advantages[:, b].tolist() == pytest.approx(expected[1], abs=1e-9)


def test_vtrace_on_policy_gives_n_step_returns() -> None:
    log_rhos, rewards, values, dones = random_case(12, 4, 3, 0.2)
    targets, _ = vtrace(torch.zeros_like(log_rhos), rewards, values, dones, 0.97)
    for b in range(4):
        following = float(values[12, b])
        for t in reversed(range(12)):
            following = float(rewards[t, b]) + (0.0 if dones[t, b] else 0.97 * following)
            assert float(targets[t, b]) == pytest.approx(following, abs=1e-9)


def test_vtrace_on_policy_is_gae_with_lambda_one() -> None:
    log_rhos, rewards, values, dones = random_case(12, 4, 4, 0.2)
    targets, advantages = vtrace(torch.zeros_like(log_rhos), rewards, values, dones, 0.97)
    expected = gae(rewards, values, dones, 0.97, 1.0)
    assert torch.allclose(targets - values[:-1], expected, atol=1e-9)
    assert torch.allclose(advantages, expected, atol=1e-9)


def test_vtrace_that_trusts_no_step_keeps_the_values() -> None:
    log_rhos, rewards, values, dones = random_case(12, 4, 5, 0.2)
    targets, _ = vtrace(log_rhos, rewards, values, dones, 0.97, rho_bar=0.0)
    assert torch.equal(targets, values[:-1])
