"""Advantages against the definition, summed up the slow way."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rlcb.returns import gae


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
