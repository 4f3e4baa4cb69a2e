"""IMPALA's loss and what it is computed from against slow transcriptions."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rlcb.algorithms.impala import ALGORITHM, STATISTICS, impala_loss
from rlcb.algorithms.returns import Unrolls, make_unrolls, vtrace
from rlcb.config.schema import Config, ImpalaConfig, TrainingConfig
from rlcb.learner import select, split
from rlcb.rollout import Rollout

UNEVEN = ImpalaConfig(
    vtrace_clip_rho_threshold=1.1,
    vtrace_clip_c_threshold=0.8,
    vtrace_clip_pg_rho_threshold=1.4,
    ent_coef=0.03,
    vf_coef=0.7,
)


def normal(generator: torch.Generator, *shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def random_columns(
    T: int, B: int, num_actions: int, seed: int, p_done: float = 0.2
) -> tuple[torch.Tensor, torch.Tensor, Unrolls]:
    """A policy's logits and values, and a rollout by another one."""
    generator = torch.Generator().manual_seed(seed)
    actions = torch.randint(num_actions, (T, B), generator=generator)
    acted = torch.log_softmax(normal(generator, T, B, num_actions), 2).gather(2, actions[:, :, None])[:, :, 0]
    dones = torch.rand(T, B, generator=generator) < p_done
    batch = Unrolls(
        normal(generator, T + 1, B, 3), actions, acted, normal(generator, T, B), dones,
        normal(generator, T, B), normal(generator, T, B),
    )  # fmt: skip
    return normal(generator, T, B, num_actions), normal(generator, T + 1, B), batch


def slow_targets(
    ratios: list[float], rewards: list[float], values: list[float], dones: list[bool], impala: ImpalaConfig,
    gamma: float, trace_lambda: float,
) -> tuple[list[float], list[float]]:  # fmt: skip
    """One environment's value targets and advantages, by remark 1 of the paper: v_s from v_{s+1}, in Python floats."""
    T = len(rewards)
    targets, advantages = [0.0] * T + [values[T]], [0.0] * T
    for s in range(T - 1, -1, -1):
        going_on = 0.0 if dones[s] else gamma
        rho = min(impala.vtrace_clip_rho_threshold, ratios[s])
        c = trace_lambda * min(impala.vtrace_clip_c_threshold, ratios[s])
        surprise = rho * (rewards[s] + going_on * values[s + 1] - values[s])
        targets[s] = values[s] + surprise + going_on * c * (targets[s + 1] - values[s + 1])
        weight = min(impala.vtrace_clip_pg_rho_threshold, ratios[s])
        advantages[s] = weight * (rewards[s] + going_on * targets[s + 1] - values[s])
    return targets[:T], advantages


def slow_loss(
    logits: torch.Tensor, values: torch.Tensor, batch: Unrolls, impala: ImpalaConfig, gamma: float, trace_lambda: float
) -> dict[str, float]:
    """The same objective, sample by sample in Python floats."""
    sums = dict.fromkeys(STATISTICS, 0.0)
    T, B = batch.actions.shape
    for b in range(B):
        log_policies = []
        for t in range(T):
            row = logits[t, b].tolist()
            normalizer = math.log(sum(math.exp(x) for x in row))
            log_policies.append([x - normalizer for x in row])
        log_probs = [log_policies[t][int(batch.actions[t, b])] for t in range(T)]
        ratios = [math.exp(log_probs[t] - float(batch.log_probs[t, b])) for t in range(T)]
        rewards, dones = batch.rewards[:, b].tolist(), batch.dones[:, b].tolist()
        column = values[:, b].tolist()
        targets, advantages = slow_targets(ratios, rewards, column, dones, impala, gamma, trace_lambda)
        for t in range(T):
            sums["loss/policy"] -= log_probs[t] * advantages[t] / (T * B)
            sums["loss/value"] += 0.5 * (targets[t] - column[t]) ** 2 / (T * B)
            sums["loss/entropy"] -= sum(math.exp(x) * x for x in log_policies[t]) / (T * B)
            sums["policy/approx_kl"] += (ratios[t] - 1 - math.log(ratios[t])) / (T * B)
            sums["vtrace/rho_mean"] += ratios[t] / (T * B)
            sums["vtrace/clip_fraction"] += (ratios[t] > impala.vtrace_clip_rho_threshold) / (T * B)
    sums["loss/total"] = (
        sums["loss/policy"] + impala.vf_coef * sums["loss/value"] - impala.ent_coef * sums["loss/entropy"]
    )
    return sums


THRESHOLDS = st.sampled_from([0.0, 0.4, 0.9, 1.0, 1.7, 20.0])


@settings(max_examples=80, deadline=None)
@given(
    shape=st.tuples(st.integers(1, 8), st.integers(1, 3), st.integers(2, 5)),
    seed=st.integers(0, 10**6),
    p_done=st.sampled_from([0.0, 0.2, 1.0]),
    bars=st.tuples(THRESHOLDS, THRESHOLDS, THRESHOLDS),
    gamma=st.sampled_from([0.0, 0.9, 0.999, 1.0]),
    trace_lambda=st.sampled_from([0.0, 0.6, 0.95, 1.0]),
)
def test_loss_is_the_slow_one(
    shape: tuple[int, int, int],
    seed: int,
    p_done: float,
    bars: tuple[float, float, float],
    gamma: float,
    trace_lambda: float,
) -> None:
    impala = ImpalaConfig(
        vtrace_clip_rho_threshold=bars[0], vtrace_clip_c_threshold=bars[1], vtrace_clip_pg_rho_threshold=bars[2],
        ent_coef=0.03, vf_coef=0.7,
    )  # fmt: skip
    logits, values, batch = random_columns(*shape, seed, p_done)
    loss, statistics = impala_loss(logits, values, batch, impala, gamma, trace_lambda)
    expected = slow_loss(logits, values, batch, impala, gamma, trace_lambda)
    assert float(loss) == pytest.approx(expected["loss/total"])
    # The fraction that was cut is counted in float32.
    assert dict(zip(STATISTICS, statistics.tolist(), strict=True)) == pytest.approx(expected, rel=1e-6, abs=1e-9)


def tiny_policy() -> torch.nn.Module:
    """Logits and values of vectors of 3, in float64."""
    torch.manual_seed(3)
    return Tiny().double()


class Tiny(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = torch.nn.Linear(3, 4), torch.nn.Linear(4, 5)

    def forward(self, observations: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        out = self.head(torch.tanh(self.body(observations)))
        return out[:, :4], out[:, 4]


def loss_with_frozen_targets(policy: torch.nn.Module, batch: Unrolls, frozen: tuple[torch.Tensor, ...]) -> float:
    """The loss as its gradient sees it: targets and advantages stay what they were with other weights."""
    T, B = batch.actions.shape
    with torch.no_grad():
        logits, values = policy(batch.observations.flatten(0, 1))
        log_policy = torch.log_softmax(logits[: T * B].view(T, B, -1), 2)
        chosen = log_policy.gather(2, batch.actions[:, :, None])[:, :, 0]
        targets, advantages = frozen
        value_loss = 0.5 * (targets - values.view(T + 1, B)[:-1]).square().mean()
        entropy = -(log_policy.exp() * log_policy).sum(2).mean()
        return float(-(chosen * advantages).mean() + UNEVEN.vf_coef * value_loss - UNEVEN.ent_coef * entropy)


def test_no_gradient_flows_through_the_targets() -> None:
    policy, (_, _, batch) = tiny_policy(), random_columns(6, 3, 4, seed=1)
    T, B = batch.actions.shape
    config = Config(algorithm="impala", impala=UNEVEN)
    loss, _ = ALGORITHM.loss(*policy(batch.observations.flatten(0, 1)), batch, config)
    parameters = list(policy.parameters())
    found = torch.cat([gradient.flatten() for gradient in torch.autograd.grad(loss, parameters)])
    with torch.no_grad():
        logits, values = policy(batch.observations.flatten(0, 1))
        log_policy = torch.log_softmax(logits[: T * B].view(T, B, -1), 2)
        log_rhos = log_policy.gather(2, batch.actions[:, :, None])[:, :, 0] - batch.log_probs
        frozen = vtrace(
            log_rhos, batch.rewards, values.view(T + 1, B), batch.dones, config.training.gamma,
            1.1, 0.8, 1.4, config.training.gae_lambda,
        )  # fmt: skip
    assert float(loss.detach()) == pytest.approx(loss_with_frozen_targets(policy, batch, frozen))
    expected, step = [], 1e-6
    for parameter in parameters:
        flat = parameter.data.view(-1)
        for index in range(len(flat)):
            kept = float(flat[index])
            flat[index] = kept + step
            above = loss_with_frozen_targets(policy, batch, frozen)
            flat[index] = kept - step
            below = loss_with_frozen_targets(policy, batch, frozen)
            flat[index] = kept
            expected.append((above - below) / (2 * step))
    assert found.tolist() == pytest.approx(expected, rel=1e-5, abs=1e-8)


def test_the_policy_that_acted_has_ratios_of_one() -> None:
    logits, values, batch = random_columns(7, 3, 4, seed=2)
    own = torch.log_softmax(logits, 2).gather(2, batch.actions[:, :, None])[:, :, 0]
    same = Unrolls(**{**vars(batch), "log_probs": own})
    _, statistics = impala_loss(logits, values, same, ImpalaConfig(), 0.99, 1.0)
    named = dict(zip(STATISTICS, statistics.tolist(), strict=True))
    assert named["vtrace/rho_mean"] == pytest.approx(1.0)
    assert named["policy/approx_kl"] == pytest.approx(0.0, abs=1e-12)
    assert named["vtrace/clip_fraction"] == 0.0


def test_columns_stay_whole() -> None:
    _, _, batch = random_columns(5, 7, 4, seed=3)
    chosen = torch.tensor([6, 0, 3])
    selected = select(batch, chosen)
    assert (len(batch), len(selected)) == (7, 3)
    pieces = split(batch, 3)
    assert [len(piece) for piece in pieces] == [3, 3, 1]
    for name, tensor in vars(batch).items():
        for position, b in enumerate(chosen.tolist()):
            assert torch.equal(vars(selected)[name][:, position], tensor[:, b])
        assert len(vars(selected)[name]) == len(tensor), "all steps are there, and what is bootstrapped from"
        assert torch.equal(torch.cat([vars(piece)[name] for piece in pieces], dim=1), tensor)


def test_columns_of_a_rollout() -> None:
    generator, T, B = torch.Generator().manual_seed(4), 6, 2
    rewards, values, truncation_value = normal(generator, T, B), normal(generator, T + 1, B), normal(generator, T, B)
    dones = torch.rand(T, B, generator=generator) < 0.3
    actions, log_probs = torch.zeros(T, B, dtype=torch.int64), normal(generator, T, B)
    rollout = Rollout(
        normal(generator, T + 1, B, 3), actions, log_probs, values, 100 * rewards, dones, truncation_value, dones
    )
    columns = make_unrolls(rollout, rewards, Config(training=TrainingConfig(gamma=0.9)))
    assert columns.observations is rollout.observations
    assert torch.equal(columns.values, values[:-1])
    for b in range(B):
        following = float(values[T, b])
        for t in reversed(range(T)):
            earned = float(rewards[t, b]) + 0.9 * float(truncation_value[t, b])
            following = earned + (0.0 if dones[t, b] else 0.9 * following)
            assert float(columns.rewards[t, b]) == pytest.approx(earned)
            assert float(columns.returns[t, b]) == pytest.approx(following)
