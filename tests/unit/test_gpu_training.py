"""Acting and learning as on a GPU, computed on the CPU: as the CPU's own way, however environments are grouped."""

import math
from contextlib import closing
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from rlcb.collector import Collector
from rlcb.config.gpu_plan import env_threads, gpu_choices
from rlcb.config.load import build_config
from rlcb.config.schema import Config
from rlcb.envs.base import NotFinite
from rlcb.envs.episodes import EpisodeCounter
from rlcb.envs.families import make_env
from rlcb.envs.groups import EnvGroups
from rlcb.errors import CheckpointUnusable, UsageError
from rlcb.execution.worker import make_policy, seeds
from rlcb.gpu.collector import GpuCollector
from rlcb.gpu.learner import GpuLearner
from rlcb.gpu.memory import make_rollout_memory
from rlcb.learner import Learner
from rlcb.networks.pooling import MaxPool
from rlcb.rmsprop import RMSprop

ENVS, STEPS, UPDATES = 8, 16, 2  # rounding can make a later action another one

pytestmark = pytest.mark.usefixtures("one_thread")


def configured(algorithm: str, env: str, **more: Any) -> Config:
    sizes = {"name": env, "num_envs": ENVS, "n_steps": STEPS, **more}
    sizes |= {} if algorithm == "a2c" else {"batch_size": 64}
    # With its usual 0.01 RMSProp makes rounding of IMPALA's summed gradients a part of its steps.
    sizes |= {"rms_eps": 1.0} if algorithm == "impala" else {}
    return build_config(None, {key: (key, value) for key, value in sizes.items()}, algorithm=algorithm)


class Run:
    """A run of some updates: with groups as on a GPU, with none as on the CPU."""

    def __init__(self, config: Config, groups: int):
        acting, learning, envs = seeds(config.env.seed, 0)
        generators = [torch.Generator().manual_seed(seed) for seed in (acting, learning)]
        counter = EpisodeCounter(ENVS)
        self.env: Any
        self.collector: Any
        self.learner: Learner
        if groups:
            self.env = EnvGroups(config.env, ENVS, envs, 1, groups)
            policy = make_policy(config, self.env.spec)
            memory = make_rollout_memory(STEPS, ENVS, self.env.spec, "cpu")
            self.learner = GpuLearner(policy, config, generators[1], memory, recorded=False)
            self.collector = GpuCollector(
                self.env, self.learner.computation, memory, generators[0], counter, lambda: None, recorded=False
            )
            self.collector.prepare()
            self.learner.prepare()
        else:
            self.env = make_env(config.env, ENVS, envs, 0)
            policy = make_policy(config, self.env.spec)
            self.learner = Learner(policy, config, generators[1])
            self.collector = Collector(self.env, self.learner.computation, STEPS, generators[0], counter, lambda: None)

    def update(self, poison: float = 0.0) -> Any:
        """One rollout and what is learned from it; `poison` is added to a reward."""
        rollout = self.collector.collect()
        rewards = rollout.rewards.clone()
        rewards[0, 0] += poison
        return self.learner.update(rollout, rewards, 1e-3)


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("env", ["coinrun", "CartPole-v1", "MountainCar-v0"])
@pytest.mark.parametrize("algorithm", ["ppo", "a2c", "impala"])
def test_groups_act_and_learn_as_one_environment_does(algorithm: str, env: str, groups: int) -> None:
    config = configured(algorithm, env)
    one, other = Run(config, 0), Run(config, groups)
    with closing(one.env), closing(other.env):
        for _ in range(UPDATES if env != "MountainCar-v0" else 14):  # its time limit is 200 steps
            expected, found = one.update(), other.update()
            assert one.collector.episodes == other.collector.episodes
            # Adam's steps are computed alike, RMSProp's by another order of operations; values of truncated episodes
            # are computed together, not one by one.
            tolerance = 0.0 if algorithm == "ppo" and env != "MountainCar-v0" else 1e-5
            assert torch.allclose(one.learner.weights, other.learner.weights, rtol=tolerance, atol=tolerance)
            assert found.metrics.keys() == expected.metrics.keys()
            for name, value in expected.metrics.items():
                # Without policy lag all ratios are 1, and rounding decides which of them count as clipped.
                chance = 0.05 if name == "vtrace/clip_fraction" else 1e-3
                assert found.metrics[name] == pytest.approx(value, rel=1e-2, abs=chance), name
        assert one.env.get_state() == other.env.get_state()
        assert np.array_equal(one.collector.observation, other.collector.observation)


def test_a_gradient_that_is_not_finite_changes_nothing() -> None:
    for algorithm in ("ppo", "impala"):
        config = configured(algorithm, "CartPole-v1", normalize_rewards=False)
        one, other = Run(config, 0), Run(config, 2)
        with closing(one.env), closing(other.env):
            for poison in (0.0, math.nan, 0.0):
                before = other.learner.weights.clone(), other.learner.state()[1]
                expected, found = one.update(poison), other.update(poison)
                assert found.skipped_steps == expected.skipped_steps
                assert (found.bad_batch is None) == (expected.bad_batch is None)
                if algorithm == "ppo" and poison:  # normalised advantages spread it over all minibatches that have it
                    assert found.skipped_steps > 0
                if found.skipped_steps == len(other.learner._indices):  # type: ignore[attr-defined]
                    assert torch.equal(before[0], other.learner.weights)
                    after = other.learner.state()[1]
                    assert all(np.array_equal(before[1][name], after[name]) for name in after)
            assert torch.allclose(one.learner.weights, other.learner.weights, atol=1e-5)
            assert torch.isfinite(other.learner.weights).all()


def test_groups_continue_each_others_states() -> None:
    settings = configured("ppo", "coinrun").env
    actions = np.random.default_rng(0).integers(15, size=(40, ENVS))
    with closing(EnvGroups(settings, ENVS, 5, 1, 4)) as four, closing(EnvGroups(settings, ENVS, 6, 1, 2)) as two:
        for row in actions[:20]:
            four.step(row)
        two.set_state(four.get_state())
        assert np.array_equal(two.observe(), four.observe())
        for row in actions[20:]:
            here, there = four.step(row), two.step(row)
            for name in ("observations", "rewards", "dones"):
                assert np.array_equal(getattr(here, name), getattr(there, name)), name
        with pytest.raises(CheckpointUnusable, match="environments"):
            two.set_state(four.get_state() * 2)


def test_a_reward_that_is_not_finite_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(configured("ppo", "CartPole-v1"), 2)
    env = run.env.groups[1].env
    step = env.step

    def broken(actions: Any) -> Any:
        result = step(actions)
        result.rewards[1] = math.inf
        return result

    monkeypatch.setattr(env, "step", broken)
    with closing(run.env), pytest.raises(NotFinite, match="reward that is not finite"):
        run.collector.collect()


def test_rmsprop_on_a_device_takes_the_same_steps() -> None:
    torch.manual_seed(0)
    start, gradients = torch.randn(100), torch.randn(5, 100)
    results = []
    for skipped in (None, torch.zeros(())):
        parameter = nn.Parameter(start.clone())
        optimizer = RMSprop(parameter, 0.01, 0.99, 1e-3)
        state = {"step": torch.zeros(()), "square_avg": torch.zeros(100)}
        optimizer.state[parameter] = state
        optimizer.found_inf = skipped
        for number, gradient in enumerate(gradients):
            if skipped is not None and number == 2:
                skipped.fill_(1)
                parameter.grad = torch.full_like(gradient, math.nan)
                optimizer.step()
                skipped.fill_(0)
            parameter.grad = gradient.clone()
            optimizer.step()
        results.append((parameter.detach(), state["square_avg"], state["step"]))
    for here, there in zip(*results, strict=True):
        assert torch.allclose(here, there, rtol=1e-5)


@pytest.mark.parametrize(("height", "width"), [(8, 8), (7, 9), (5, 6), (64, 64)])
def test_pooling_with_a_fixed_order_has_torchs_gradient(height: int, width: int) -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 4, height, width).round(decimals=1).requires_grad_()  # rounded: with ties
    theirs = F.max_pool2d(x, 3, stride=2, padding=1)
    mine = MaxPool.apply(x)  # type: ignore[no-untyped-call]
    assert torch.equal(mine, theirs)
    weight = torch.randn_like(theirs)
    expected, found = (torch.autograd.grad(pooled, x, weight)[0] for pooled in (theirs, mine))
    assert torch.allclose(expected, found, atol=1e-6)


def test_what_auto_means_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    missing: list[str | None] = [None]
    monkeypatch.setattr("rlcb.config.gpu_plan.missing_compiler", lambda: missing[0])

    def chosen(**more: Any) -> tuple[Any, Any]:
        given = {"num_envs": 64, "n_steps": 16, **more}
        choices = gpu_choices(build_config(None, {key: (key, value) for key, value in given.items()}))
        return choices["compile"], choices["env_groups"]

    assert chosen() == (True, 2)
    assert chosen(num_envs=9, batch_size=9) == (True, 1)
    assert chosen(total_timesteps=2048) == ("graphs", 2)
    assert chosen(duration_hours=0.01) == ("graphs", 2)
    assert chosen(duration_hours=1.0, compile=False, env_groups=4) == (False, 4)
    missing[0] = "there is no C compiler"
    assert chosen() == ("graphs", 2)
    with pytest.raises(UsageError, match="--compile true: there is no C compiler; use --compile graphs"):
        chosen(compile=True)
    with pytest.raises(UsageError, match="--env-groups 3: must divide num_envs, 64"):
        chosen(env_groups=3)
    assert [env_threads(groups, cores) for groups, cores in ((2, 16), (1, 16), (2, 5), (2, 1))] == [6, 12, 2, 1]
