"""Atari games: the preprocessing against a slow transcription, exact states, and what is refused."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("ale_py", reason="ale-py is not installed: pip install 'rl-cluster-benchmark[atari]'")

import gymnasium

from helpers.atari_wrappers import (
    EpisodicLife,
    FireReset,
    MaxAndSkip,
    NoopReset,
    Scores,
    Sticky,
    Warp,
    area_means,
)
from rlcb.config.environment import EnvConfig
from rlcb.config.load import build_config
from rlcb.envs import atari_game
from rlcb.envs.area import AreaResizer
from rlcb.envs.base import Step
from rlcb.envs.families import canonical_env_name, environment_identity, family_of, make_env, state_problem, tried_out
from rlcb.envs.groups import EnvGroups
from rlcb.errors import CheckpointUnusable, UsageError

BREAKOUT, PACMAN = "BreakoutNoFrameskip-v4", "ALE/MsPacman-v5"


def steps_of(env, count: int, seed: int = 0) -> list[Step]:
    """What random actions lead to."""
    actions = np.random.default_rng(seed).integers(env.spec.num_actions, size=(count, env.num_envs))
    return [env.step(row) for row in actions]


def assert_equal(ones: list[Step], others: list[Step]) -> None:
    for one, other in zip(ones, others, strict=True):
        for name in ("observations", "rewards", "dones", "ends"):
            assert np.array_equal(getattr(one, name), getattr(other, name)), name
        assert one.truncated.keys() == other.truncated.keys()


class Transcription:
    """One game through wrappers of Gymnasium, seeded as copy 0 of ours is."""

    def __init__(self, settings: EnvConfig, seed: int, sticky: float, most_frames: int):
        game = gymnasium.spec(settings.name).kwargs["game"]
        made = gymnasium.make(
            f"ALE/{game.title().replace('_', '')}-v5", frameskip=1, repeat_action_probability=0.0,
            obs_type="grayscale", max_num_frames_per_episode=most_frames, disable_env_checker=True,
        )  # fmt: skip
        self.random = np.random.default_rng([seed, 0])
        made.unwrapped.ale.setInt("random_seed", int(self.random.integers(2**31)))
        made.unwrapped.load_game()
        self.scores = Scores(made.unwrapped)
        env = NoopReset(Sticky(self.scores, self.random, sticky), self.random, settings.noop_max)
        env = MaxAndSkip(env, settings.frame_skip)
        self.lives = EpisodicLife(env) if settings.episodic_life else None
        env = Warp(FireReset(self.lives or env))
        self.env = gymnasium.wrappers.FrameStackObservation(env, settings.frame_stack)
        self.observation = self.env.reset()[0]

    def step(self, action: int) -> tuple[float, bool, bool, np.ndarray | None]:
        self.observation, _, terminated, truncated, _ = self.env.step(action)
        done, over = terminated or truncated, self.lives.over if self.lives else terminated or truncated
        final = self.observation if truncated else None
        score = self.scores.take() if over else 0.0
        if done:
            self.observation = self.env.reset()[0]
        return score if over else self.scores.take(), done, over, final


@pytest.mark.parametrize(
    ("name", "changes", "most_frames"),
    [
        ("PongNoFrameskip-v4", {}, 108_000),
        (BREAKOUT, {}, 108_000),
        (BREAKOUT, {"episodic_life": False, "frame_skip": 2}, 108_000),
        ("ALE/Breakout-v5", {"noop_max": 0}, 108_000),  # with sticky actions
        (PACMAN, {"repeat_action_probability": 0.5, "frame_stack": 3}, 108_000),
        ("SpaceInvadersNoFrameskip-v4", {"frame_skip": 3}, 900),  # often cut off by the limit of frames
        ("ALE/AirRaid-v5", {"frame_skip": 1, "noop_max": 100}, 108_000),  # a screen of another height
    ],
)
def test_frames_lives_and_rewards_are_those_of_slow_wrappers(
    monkeypatch: pytest.MonkeyPatch, name: str, changes: dict, most_frames: int
) -> None:
    monkeypatch.setattr(atari_game, "_MOST_FRAMES", most_frames)
    settings = EnvConfig(name=name, **changes)
    sticky = changes.get("repeat_action_probability", 0.25 if name.endswith("-v5") else 0.0)
    env, slow = make_env(settings, 2, seed=5, num_threads=0), Transcription(settings, 5, sticky, most_frames)
    assert env.spec.num_actions == slow.env.action_space.n
    assert env.spec.observation_shape == (84, 84, settings.frame_stack)
    random, ended, cut = np.random.default_rng(1), 0, 0
    assert np.array_equal(env.observe()[0], slow.observation.transpose(1, 2, 0))
    for number in range(600):
        actions = random.integers(env.spec.num_actions, size=2)
        step, (reward, done, over, final) = env.step(actions), slow.step(int(actions[0]))
        assert (step.rewards[0], step.dones[0], step.ends[0]) == (reward, done, over), number
        assert np.array_equal(step.observations[0], slow.observation.transpose(1, 2, 0)), number
        assert (0 in step.truncated) == (final is not None)
        if final is not None:
            assert np.array_equal(step.truncated[0], final.transpose(1, 2, 0))
        ended, cut = ended + done, cut + (final is not None)
    if name == BREAKOUT:
        assert ended
    assert bool(cut) == (most_frames < 1000)
    env.close()


@pytest.mark.parametrize("height", [210, 214, 230, 250, 84, 100])
def test_pictures_shrink_by_area_means(height: int) -> None:
    resize, random = AreaResizer(height, 160, 84), np.random.default_rng(height)
    for picture in (random.integers(256, size=(height, 160)), random.integers(2, size=(height, 160)) * 255):
        shrunk = resize(picture.astype(np.uint8))
        assert np.array_equal(shrunk, area_means(picture, 84))
    assert np.array_equal(resize(np.full((height, 160), 255, np.uint8)), np.full((84, 84), 255))


@pytest.mark.parametrize("name", ["PongNoFrameskip-v4", "ALE/Breakout-v5", PACMAN, "ALE/Seaquest-v5"])
def test_another_process_would_go_on_exactly(name: str) -> None:
    settings = EnvConfig(name=name)
    env, other = (make_env(settings, 3, seed, num_threads=0) for seed in (1, 2))
    steps_of(env, 70)
    states, there = env.get_state(), env.observe()
    assert all(len(state) < family_of(name).state_bytes for state in states)
    ones = steps_of(env, 250, seed=7)
    other.set_state(states)
    assert np.array_equal(other.observe(), there)
    assert other.get_state() == states
    assert_equal(ones, steps_of(other, 250, seed=7))
    env.set_state(states)
    smaller = env.only([2, 0])
    again = steps_of(smaller, 1)[0]
    assert again.observations.shape[0] == smaller.num_envs == 2
    assert np.array_equal(smaller.observe(), again.observations)
    assert len({step.observations.tobytes() for step in ones}) == len(ones)  # no view of memory that goes on changing


def test_groups_are_the_environments_together() -> None:
    settings = EnvConfig(name="ALE/Breakout-v5")
    whole, groups = make_env(settings, 4, 3, 0), EnvGroups(settings, 4, 3, 0, num_groups=2)
    actions = np.random.default_rng(0).integers(4, size=(150, 4))
    assert_equal([whole.step(row) for row in actions], [groups.step(row) for row in actions])


def test_copies_and_seeds_differ() -> None:
    seen = [make_env(EnvConfig(name="ALE/Pong-v5"), 4, seed, 0) for seed in (1, 2)]
    ends = [steps_of(env, 30)[-1].observations for env in seen]
    assert len({picture.tobytes() for end in ends for picture in end}) == 8


# States that are none


def test_broken_states_are_refused() -> None:
    settings = EnvConfig(name="ALE/Pong-v5", num_envs=2)
    env = make_env(settings, 2, 0, 0)
    good = env.get_state()
    assert state_problem(settings, env.spec, good) is None
    line, _, rest = good[1].partition(b"\n")
    foreign = make_env(EnvConfig(name="ALE/Breakout-v5"), 1, 0, 0).get_state()[0]
    broken = [b"", b"\n", b"{}\n", good[1][:5000], line + b"\n" + b"\xff" * len(rest), foreign, b"[]\n" + rest]
    for state in broken:
        with pytest.raises(CheckpointUnusable):
            env.set_state([good[0], state])
    with pytest.raises(CheckpointUnusable, match="3 environments"):
        env.set_state([*good, good[0]])
    for state in (broken[3], foreign):
        assert "are not states of ALE/Pong-v5" in str(state_problem(settings, env.spec, [good[0], state]))


# Names and settings


def test_names() -> None:
    for name in ("ALE/Pong-v5", "PongNoFrameskip-v4", "PongNoFrameskip-v0", "ALE/MsPacman-v5"):
        assert family_of(name).module == "atari"
        assert canonical_env_name(name) == name
    for name in ("CartPole-v1", "coinrun", "Pong-v4", "ALE/Pong-ram-v5", "my:ALE/Pong-v5"):
        assert family_of(name).module != "atari"
    with pytest.raises(UsageError, match=r"unknown environment 'ALE/Pomg-v5'; did you mean ALE/Pong-v5\?"):
        canonical_env_name("ALE/Pomg-v5")
    with pytest.raises(UsageError, match=r"^'Pong-v4' skips frames at random.*; use ALE/Pong-v5 or PongNoFra"):
        canonical_env_name("Pong-v4")  # also after ale-py has registered it
    with pytest.raises(UsageError, match=r"unknown environment 'Walker2d-v0'; did you mean Walker2d-v"):
        canonical_env_name("Walker2d-v0")


def test_the_id_decides_on_sticky_actions_unless_told() -> None:
    given = {("ALE/Pong-v5", 0.0): "no sticky actions", ("PongNoFrameskip-v4", 0.1): "sticky actions 0.1"}
    registered = {name: gymnasium.spec(name).kwargs["repeat_action_probability"] for name in gymnasium.registry
                  if family_of(name).module == "atari"}  # fmt: skip
    assert len(registered) > 200
    for name, probability in registered.items():
        assert (f"sticky actions {probability:g};" in family_of(name).described(EnvConfig(name=name))) == (
            probability > 0
        )
    for (name, probability), expected in given.items():
        settings = EnvConfig(name=name, repeat_action_probability=probability)
        assert expected in family_of(name).described(settings)


def test_settings_of_atari_are_in_files_of_atari_alone(tmp_path: Path) -> None:
    atari = build_config(None, {"name": ("--env", "ALE/Pong-v5"), "noop_max": ("--noop-max", 10)})
    other = build_config(None, {})
    keys = family_of("ALE/Pong-v5").keys
    assert {key: atari.as_used()["env"][key] for key in keys}["noop_max"] == 10
    assert not set(keys) & set(other.as_used()["env"])
    file = tmp_path / "saved.yaml"
    for config in (atari, other):
        file.write_text(config.to_yaml())
        assert build_config(file, {}) == config
    changed = atari.env.model_copy(update={"episodic_life": False})
    assert environment_identity(changed) != environment_identity(atari.env)
    for key, value in (("frame_skip", 2), ("clip_rewards", True)):
        with pytest.raises(UsageError, match="is for Atari games, this is CartPole-v1"):
            build_config(None, {"name": ("--env", "CartPole-v1"), key: ("--flag", value)})


def test_spec_before_a_run() -> None:
    found = tried_out(EnvConfig(name="ALE/Pong-v5", frame_stack=2))
    assert found is not None
    spec, exact = found
    assert (spec.observation_shape, spec.num_actions, spec.is_image, exact) == ((84, 84, 2), 6, True, True)


def test_pictures_are_in_colour() -> None:
    env = make_env(EnvConfig(name="ALE/Pong-v5"), 1, 0, 0, pictured=True)
    frames = [env.frame() for _ in range(30) if steps_of(env, 1)]
    assert frames[0].shape == (420, 320, 3)
    assert frames[0].dtype == np.uint8
    assert any((one != two).any() for one, two in pairwise(frames))
    assert (frames[-1][..., 0] != frames[-1][..., 2]).any()
