"""Any Gymnasium environment with discrete actions."""

import json
import warnings
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from rlcb.envs.base import EnvSettings, EnvSpec, Step
from rlcb.errors import CheckpointUnusable, UsageError

_TRIAL_STEPS = 50


class GymnasiumEnv:
    """`num_envs` copies of a registered environment, stepped one after the other.

    Every episode is seeded by (seed, copy, episode), so that these numbers and the actions since the episode's start
    are the whole state of a copy: `set_state` replays them. That works wherever the seed determines the episode.
    """

    def __init__(self, name: str, num_envs: int, seed: int, **options: Any):
        """`options` go to the environment's constructor, which need not know any."""
        try:
            self._envs = [gymnasium.make(name, **options) for _ in range(num_envs)]
        except Exception as error:  # a third party's constructor may raise anything
            raise UsageError(f"environment {name}: {_reason(error)}") from None
        env = self._envs[0]
        self.num_envs, self.spec = num_envs, checked_spec(name, env)
        shape = self.spec.observation_shape
        self._space: gymnasium.Space[Any] = env.observation_space
        self._image = self.spec.is_image
        self._first_action = int(getattr(env.action_space, "start", 0))
        self._identity = [[seed, index] for index in range(num_envs)]
        self._episode = [-1] * num_envs
        self._actions: list[list[int]] = [[] for _ in range(num_envs)]
        self._observations = np.empty((num_envs, *shape), self.spec.observation_dtype)
        try:
            for index in range(num_envs):
                self._observations[index] = self._restart(index)
        except Exception as error:
            raise UsageError(f"environment {name}: reset(seed=…) failed: {_reason(error)}") from None

    def observe(self) -> NDArray[Any]:
        """The current observations [B, …]."""
        return self._observations.copy()

    def step(self, actions: NDArray[np.int64]) -> Step:
        """Apply one action to each copy and restart the episodes that ended."""
        rewards = np.zeros(self.num_envs, np.float32)
        dones = np.zeros(self.num_envs, np.bool_)
        final_observations: dict[int, NDArray[Any]] = {}
        for index, env in enumerate(self._envs):
            action = int(actions[index])
            self._actions[index].append(action)
            raw, rewards[index], terminated, truncated, _ = env.step(action + self._first_action)
            observation = self._flat(raw)
            if terminated or truncated:
                dones[index] = True
                if not terminated:
                    final_observations[index] = observation.copy()  # an image may be in memory that is used again
                observation = self._restart(index)
            self._observations[index] = observation
        return Step(self._observations.copy(), rewards, dones, final_observations)

    def get_state(self) -> list[bytes]:
        """Per copy: its seed, the episode's number and the actions since it began."""
        copies = zip(self._identity, self._episode, self._actions, strict=True)
        return [json.dumps({"identity": i, "episode": e, "actions": a}).encode() for i, e, a in copies]

    def set_state(self, states: list[bytes]) -> None:
        """Replay each copy's episode up to where it was."""
        if len(states) != self.num_envs:
            raise CheckpointUnusable(f"the checkpoint holds {len(states)} environments, this run has {self.num_envs}")
        for index, state in enumerate(states):
            fields = json.loads(state)
            self._identity[index] = fields["identity"]
            self._episode[index] = fields["episode"] - 1
            self._observations[index] = self._restart(index)
            try:
                for action in fields["actions"]:
                    raw, _, terminated, truncated, _ = self._envs[index].step(action + self._first_action)
                    self._observations[index] = self._flat(raw)
                    self._actions[index].append(action)
                    if terminated or truncated:  # it does not repeat itself: its caller sees another observation
                        self._observations[index] = self._restart(index)
                        break
            except Exception as error:  # a third party's environment may raise anything
                raise CheckpointUnusable(
                    f"environment {index} cannot be brought to its saved state: {_reason(error)}"
                ) from None

    def close(self) -> None:
        """Close every copy."""
        for env in self._envs:
            env.close()

    def completed(self) -> None:
        """Gymnasium knows no levels."""

    def only(self, copies: list[int]) -> "GymnasiumEnv":
        """Continue these copies; the others are closed."""
        for index in set(range(self.num_envs)) - set(copies):
            self._envs[index].close()
        self.num_envs = len(copies)
        self._observations = self._observations[copies]
        self._envs = [self._envs[copy] for copy in copies]
        self._identity = [self._identity[copy] for copy in copies]
        self._episode = [self._episode[copy] for copy in copies]
        self._actions = [self._actions[copy] for copy in copies]
        return self

    def frame(self) -> NDArray[np.uint8]:
        """A picture of the first copy."""
        picture = np.asarray(self._envs[0].render())
        if picture.dtype != np.uint8 or picture.ndim != 3:
            raise ValueError(f"its pictures are {picture.dtype} of shape {picture.shape}")
        return picture

    def _restart(self, index: int) -> NDArray[Any]:
        self._episode[index] += 1
        self._actions[index] = []
        seed = np.random.SeedSequence([*self._identity[index], self._episode[index]]).generate_state(1)[0]
        return self._flat(self._envs[index].reset(seed=int(seed))[0])

    def _flat(self, observation: Any) -> NDArray[Any]:
        if self._image:
            return np.asarray(observation)
        return np.asarray(gymnasium.spaces.flatten(self._space, observation), np.float32)


def checked_spec(name: str, env: "gymnasium.Env[Any, Any]") -> EnvSpec:
    """What observations and actions look like; spaces that no policy here can be made for are a UsageError."""
    seen, action = env.observation_space, env.action_space
    if not isinstance(action, gymnasium.spaces.Discrete):
        raise UsageError(f"environment {name}: needs a discrete action space, this one has {action}")
    if isinstance(seen, gymnasium.spaces.Box) and seen.dtype == np.uint8 and len(seen.shape) == 3:
        return EnvSpec(seen.shape, np.dtype(np.uint8), int(action.n))
    if not seen.is_np_flattenable:
        raise UsageError(f"environment {name}: observations {seen} have no fixed size")
    shape = gymnasium.spaces.flatten_space(seen).shape
    assert shape is not None
    return EnvSpec(shape, np.dtype(np.float32), int(action.n))


def trial(settings: EnvSettings) -> tuple[EnvSpec, bool]:
    """The environment's spec, and whether it repeats itself; what fails in its first steps is a UsageError."""
    env = make(settings, num_envs=1, seed=0, num_threads=0, pictured=False)
    random = np.random.default_rng(0)
    try:
        for _ in range(_TRIAL_STEPS):
            env.step(random.integers(env.spec.num_actions, size=1))
        there, state = env.observe(), env.get_state()
        env.set_state(state)
        return env.spec, bool(np.array_equal(there, env.observe()))
    except CheckpointUnusable:
        return env.spec, False
    except Exception as error:  # a third party's environment may raise anything
        raise UsageError(f"environment {settings.name}: step failed: {_reason(error)}") from None
    finally:
        env.close()


def _reason(error: Exception) -> str:
    """A third party's error in a line."""
    return next(iter(str(error).splitlines()), "") or type(error).__name__


def make(settings: EnvSettings, num_envs: int, seed: int, num_threads: int, pictured: bool) -> GymnasiumEnv:
    """Copies of a registered environment; one that cannot draw itself although it should is a UsageError."""
    del num_threads  # the copies are stepped by the caller
    name = settings.name
    if not pictured:
        return GymnasiumEnv(name, num_envs, seed)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what matters comes as an error too
            env = GymnasiumEnv(name, num_envs, seed, render_mode="rgb_array")
            env.frame()
    except Exception as error:  # a third party's drawing may raise anything, most often because a package is missing
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        reason = reason.removeprefix(f"environment {name}: ")
        raise UsageError(f"--video, --render: {name} cannot be drawn: {reason}") from None
    return env


def state_problem(settings: EnvSettings, spec: EnvSpec, states: list[bytes]) -> str | None:
    """What is wrong with saved states: each must name an episode and actions that exist."""
    del settings
    for index, state in enumerate(states):
        try:
            fields = json.loads(state)
            identity, episode, actions = (fields[name] for name in ("identity", "episode", "actions"))
            numbers = len(identity) == 2 and all(type(one) is int and 0 <= one < 2**63 for one in (*identity, episode))
            if not numbers or any(type(action) is not int or not 0 <= action < spec.num_actions for action in actions):
                raise ValueError
        except (ValueError, TypeError, KeyError, RecursionError):
            return f"envs.{index} is not the state of an environment"
    return None
