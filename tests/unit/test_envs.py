"""Environments, episodes and reward scaling."""

from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np
import pytest

from rlcb.config.schema import EnvConfig
from rlcb.envs.base import VectorEnv
from rlcb.envs.episodes import Episode, EpisodeCounter, EpisodeStatistics
from rlcb.envs.families import (
    GAMES,
    canonical_env_name,
    environment_identity,
    family_of,
    find,
    make_env,
)
from rlcb.envs.gymnasium import GymnasiumEnv
from rlcb.envs.gymnasium import make as make_gymnasium
from rlcb.envs.normalize import RewardNormalizer
from rlcb.errors import CheckpointUnusable, ResourceError, UsageError


def play(env: VectorEnv, steps: int, seed: int = 0) -> list[tuple[bytes, bytes, bytes]]:
    """Everything an env gives back under random actions."""
    random = np.random.default_rng(seed)
    taken = []
    for _ in range(steps):
        step = env.step(random.integers(env.spec.num_actions, size=env.num_envs))
        taken.append((step.observations.tobytes(), step.rewards.tobytes(), step.dones.tobytes()))
    return taken


@pytest.mark.parametrize("game", GAMES)
def test_every_game_under_every_spelling(game: str) -> None:
    for spelling in (game, f"procgen-{game}-v0", f"procgen:procgen-{game}-v0"):
        assert canonical_env_name(spelling) == f"procgen-{game}-v0"
        assert find(spelling)[1] == game
    env = make_env(EnvConfig(name=f"procgen-{game}-v0"), 2, seed=3, num_threads=0)
    assert env.observe().shape == (2, 64, 64, 3)
    assert env.spec.num_actions == 15
    before = play(env, 20)
    state = env.get_state()
    expected = play(env, 60, seed=1)
    other = make_env(EnvConfig(name=f"procgen-{game}-v0"), 2, seed=99, num_threads=0)
    other.set_state(state)
    assert play(other, 60, seed=1) == expected
    again = make_env(EnvConfig(name=f"procgen-{game}-v0"), 2, seed=3, num_threads=2)
    assert play(again, 20) == before
    with pytest.raises(CheckpointUnusable, match="1 environment,"):
        env.set_state(state[:1])
    for each in (env, other, again):
        each.close()


def test_levels_are_the_configured_ones() -> None:
    one = EnvConfig(num_levels=1, start_level=7)
    frames = [make_env(one, 3, seed=s, num_threads=0).observe() for s in (1, 2)]
    assert np.array_equal(frames[0], frames[1])
    other = make_env(EnvConfig(num_levels=1, start_level=8), 3, seed=1, num_threads=0).observe()
    assert not np.array_equal(frames[0], other)


def test_modes_of_games() -> None:
    modes_of = family_of("coinrun").distribution_modes
    assert modes_of("coinrun") == ("easy", "hard")
    assert "memory" in modes_of("maze")
    assert "extreme" in modes_of("starpilot")


def test_families_know_their_environments() -> None:
    procgen, gymnasium = family_of("coinrun"), family_of("CartPole-v1")
    assert (procgen.has_levels, gymnasium.has_levels) == (True, False)
    assert family_of("NoSuchEnv-v0") is gymnasium
    assert find("CartPole-v1")[1] == canonical_env_name("CartPole-v1") == "CartPole-v1"
    for name, close in (("procgen-coinrn-v0", "coinrun"), ("starpilt", "starpilot"), ("CartPole-v9", "CartPole-v1")):
        with pytest.raises(UsageError, match=f"did you mean {close}\\?"):
            canonical_env_name(name)
    for name in ("MyGrid-v0", "Corridor-v1", "Grid-v0"):  # near to others through the version alone
        with pytest.raises(UsageError, match=f"unknown environment '{name}'; for your own, add --import MODULE"):
            canonical_env_name(name)
    # Checkpoints of version 0.1.0 hold these lines.
    levels = {"distribution_mode": "hard", "num_levels": 500, "start_level": 3}
    maze, cartpole = (EnvConfig(name=name, num_envs=8, **levels) for name in ("procgen-maze-v0", "CartPole-v1"))
    assert environment_identity(maze) == "procgen-maze-v0 hard num_levels=500 start_level=3 num_envs=8"
    assert environment_identity(cartpole) == "CartPole-v1 num_envs=8"


@pytest.mark.parametrize("name", ["CartPole-v1", "Acrobot-v1", "FrozenLake-v1", "Blackjack-v1"])
def test_gymnasium_envs_replay_to_the_same_state(name: str) -> None:
    env = GymnasiumEnv(name, 3, seed=5)
    play(env, 70)
    state = env.get_state()
    expected = play(env, 100, seed=1)
    other = GymnasiumEnv(name, 3, seed=5)
    other.set_state(state)
    assert other.observe().dtype == np.float32
    assert play(other, 100, seed=1) == expected


def test_gymnasium_episodes_restart_and_time_limits_are_told_apart() -> None:
    env = GymnasiumEnv("MountainCar-v0", 2, seed=0)  # a car that stands still runs into the limit of 200 steps
    for step_number in range(1, 401):
        step = env.step(np.array([1, 1]))
        assert step.dones.all() == (step_number % 200 == 0)
        assert set(step.truncated) == ({0, 1} if step_number % 200 == 0 else set())
    cartpole = GymnasiumEnv("CartPole-v1", 1, seed=0)
    while not (step := cartpole.step(np.array([0]))).dones[0]:
        pass
    assert not step.truncated
    assert abs(step.observations[0]).max() < 0.06  # the next episode's first observation


def test_copies_and_seeds_differ() -> None:
    first = GymnasiumEnv("CartPole-v1", 2, seed=1).observe()
    assert not np.array_equal(first[0], first[1])
    assert not np.array_equal(first, GymnasiumEnv("CartPole-v1", 2, seed=2).observe())
    assert np.array_equal(first, GymnasiumEnv("CartPole-v1", 2, seed=1).observe())


def test_an_env_that_cannot_be_made_says_why() -> None:
    with pytest.raises(ResourceError, match="LunarLanderContinuous-v3"):
        GymnasiumEnv("LunarLanderContinuous-v3", 1, seed=0)


@pytest.mark.parametrize(("pictured", "kind"), [(False, ResourceError), (True, UsageError)])
def test_a_missing_package_is_named_with_what_installs_it(pictured: bool, kind: type[Exception]) -> None:
    def lacking(render_mode: str | None = None) -> gymnasium.Env[Any, Any]:
        raise gymnasium.error.DependencyNotInstalled('MuJoCo is not installed, run `pip install "gymnasium[mujoco]"`')

    gymnasium.register("Lacking-v0", lacking)
    try:
        with pytest.raises(kind, match=r'Lacking-v0.*pip install "rl-cluster-benchmark\[mujoco\]"`'):
            make_gymnasium(EnvConfig(name="Lacking-v0"), 1, 0, 0, pictured)
    finally:
        del gymnasium.registry["Lacking-v0"]


def test_initial_reward_is_not_biased_by_short_episodes() -> None:
    counter, statistics = EpisodeCounter(2), EpisodeStatistics(2)
    rewards = np.array([1.0, 2.0], np.float32)
    for step in range(1, 11):  # env 0 ends every second step, env 1 after ten
        statistics.add(counter.add(step, rewards, np.array([step % 2 == 0, step == 10])))
        if step < 10:
            assert statistics.initial() is None
    assert statistics.num_episodes == 6
    assert statistics.initial() == (11.0, 9.0)  # 2 and 20, not five times 2 and 20
    assert statistics.recent() == (pytest.approx(5.0), pytest.approx(np.std([2, 2, 2, 2, 2, 20])))
    assert statistics.best_episode == 20.0
    assert statistics.best_mean is None
    assert list(statistics.recent_lengths) == [2, 2, 2, 2, 2, 10]


def test_best_hundred_is_remembered_and_survives_saving() -> None:
    statistics = EpisodeStatistics(1)
    for value in [1.0] * 100 + [3.0] * 100 + [0.0] * 50:
        statistics.add([Episode(0, 0, value, 1)])
    assert statistics.best_mean == 3.0
    assert statistics.recent() == (1.5, 1.5)
    copy = EpisodeStatistics(1)
    copy.load(statistics.state())
    assert copy.state() == statistics.state()


def test_a_counter_goes_on_where_it_was_saved_and_numbers_envs_across_workers() -> None:
    counter = EpisodeCounter(2, first_env=6)
    counter.add(0, np.array([1.0, 2.0], np.float32), np.array([False, False]))
    copy = EpisodeCounter(2, first_env=6)
    copy.load(*counter.state())
    assert copy.add(1, np.array([1.0, 2.0], np.float32), np.array([False, True])) == [Episode(1, 7, 4.0, 2)]


def alone(values: np.ndarray) -> np.ndarray:
    return values


def test_normalizer_divides_by_the_deviation_of_the_discounted_return() -> None:
    random = np.random.default_rng(0)
    normalizer = RewardNormalizer(3, gamma=0.9)
    returns: list[float] = []
    running = [0.0] * 3
    for _ in range(4):
        rewards = random.normal(size=(16, 3)).astype(np.float32)
        dones = random.random((16, 3)) < 0.1
        scaled = normalizer(rewards, dones, alone)
        for t in range(16):
            for b in range(3):
                running[b] = 0.9 * running[b] + float(rewards[t, b])
                returns.append(running[b])
                running[b] = 0.0 if dones[t, b] else running[b]
        assert normalizer.variance == pytest.approx(np.var(returns))
        assert scaled == pytest.approx(np.clip(rewards / np.sqrt(np.var(returns) + 1e-8), -10, 10), rel=1e-5)


def test_normalizer_divides_in_float32_whatever_the_numpy() -> None:
    rewards = np.random.default_rng(0).normal(size=(64, 8)).astype(np.float32)
    normalizer = RewardNormalizer(8, gamma=0.9)
    scaled = normalizer(rewards, np.zeros((64, 8), np.bool_), alone)
    deviation = np.full(rewards.shape, np.sqrt(normalizer.variance + 1e-8), np.float32)
    assert scaled.dtype == np.float32
    assert scaled.tobytes() == (rewards / deviation).tobytes()


def test_normalizer_takes_no_reward_at_all() -> None:
    assert not RewardNormalizer(2, 0.99)(np.zeros((5, 2), np.float32), np.zeros((5, 2), np.bool_), alone).any()


class OneBuffer(gymnasium.Env[Any, Any]):
    """Draws every picture into the same memory: what it gave before changes with the next one."""

    observation_space = gymnasium.spaces.Box(0, 255, (2, 2, 3), np.uint8)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self) -> None:
        self._picture = np.zeros((2, 2, 3), np.uint8)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self._picture[:] = 1
        return self._picture, {}

    def step(self, action: Any) -> Any:
        self._picture[:] = 9
        return self._picture, 0.0, False, True, {}


@pytest.fixture
def one_buffer() -> Iterator[str]:
    gymnasium.register("OneBuffer-v0", OneBuffer, disable_env_checker=True)
    yield "OneBuffer-v0"
    del gymnasium.registry["OneBuffer-v0"]


def test_the_last_picture_of_an_episode_is_kept_from_the_next_one(one_buffer: str) -> None:
    env = GymnasiumEnv(one_buffer, 2, seed=1)
    step = env.step(np.zeros(2, np.int64))
    assert [int(picture.max()) for picture in step.truncated.values()] == [9, 9]
    assert int(step.observations.max()) == 1
