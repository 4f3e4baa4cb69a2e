"""Any Gymnasium environment with discrete or continuous (Box) actions."""

import base64
import json
import math
import warnings
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from rlcb.console import warn
from rlcb.envs.base import Actions, EnvSettings, EnvSpec, NotFinite, Step, refuse_infinite
from rlcb.envs.own_code import described
from rlcb.envs.registered import unknown_in_worker
from rlcb.errors import CheckpointUnusable, ResourceError, UsageError
from rlcb.words import counted

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
        except gymnasium.error.UnregisteredEnv:  # where a run is begun it is known
            raise UsageError(unknown_in_worker(name)) from None
        except gymnasium.error.DependencyNotInstalled as error:
            # The extra has the versions that are known to work.
            reason = described(error).replace("gymnasium[mujoco]", "rl-cluster-benchmark[mujoco]")
            raise ResourceError(f"environment {name}: {reason}") from None
        except Exception as error:  # a third party's constructor may raise anything
            raise UsageError(f"environment {name}: {described(error)}") from None
        env = self._envs[0]
        self.num_envs = num_envs
        self.spec = spec_of_spaces(name, env.observation_space, env.action_space)
        self._space: gymnasium.Space[Any] = env.observation_space
        self._action_space: gymnasium.Space[Any] = env.action_space
        self._identity = [[seed, index] for index in range(num_envs)]
        self._episode = [-1] * num_envs
        self._actions: list[list[Any]] = [[] for _ in range(num_envs)]  # numbers, or arrays [D]
        self._observations = np.empty((num_envs, *self.spec.observation_shape), self.spec.observation_dtype)
        try:
            for index in range(num_envs):
                self._observations[index] = self._restart(index)
        except Exception as error:
            raise UsageError(f"environment {name}: reset(seed=…) failed: {described(error)}") from None

    def observe(self) -> NDArray[Any]:
        """The current observations [B, …]."""
        return self._observations.copy()

    def step(self, actions: Actions) -> Step:
        """Apply one action to each copy and restart the episodes that ended."""
        rewards = np.zeros(self.num_envs, np.float32)
        dones = np.zeros(self.num_envs, np.bool_)
        final_observations: dict[int, NDArray[Any]] = {}
        for index, env in enumerate(self._envs):
            action = actions[index].copy() if self.spec.continuous else int(actions[index])
            self._actions[index].append(action)
            raw, rewards[index], terminated, truncated, _ = env.step(raw_action(self._action_space, action))
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
        texts = ({"identity": i, "episode": e, "actions": self._saved_actions(a)} for i, e, a in copies)
        return [json.dumps(text).encode() for text in texts]

    def set_state(self, states: list[bytes]) -> None:
        """Replay each copy's episode up to where it was."""
        if len(states) != self.num_envs:
            raise CheckpointUnusable(
                f"the checkpoint has {counted(len(states), 'environment')}, but this run has {self.num_envs}"
            )
        for index, state in enumerate(states):
            fields = json.loads(state)
            self._identity[index] = fields["identity"]
            self._episode[index] = fields["episode"] - 1
            self._observations[index] = self._restart(index)
            actions = _read_actions(fields["actions"], self.spec)
            try:
                for action in actions:
                    raw, _, terminated, truncated, _ = self._envs[index].step(raw_action(self._action_space, action))
                    self._observations[index] = self._flat(raw)
                    self._actions[index].append(action)
                    if terminated or truncated:  # it does not repeat itself: its caller sees another observation
                        self._observations[index] = self._restart(index)
                        break
            except Exception as error:  # a third party's environment may raise anything
                raise CheckpointUnusable(
                    f"environment {index} cannot be restored to its saved state: {described(error)}"
                ) from None

    def close(self) -> None:
        """Close every copy."""
        for env in self._envs:
            try:
                env.close()
            except Exception as error:  # what was trained or played must not be lost over it
                warn(f"an environment could not be closed: {described(error)}")

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
            raise ValueError(f"its frames are {picture.dtype} of shape {picture.shape}")
        return picture

    def _restart(self, index: int) -> NDArray[Any]:
        self._episode[index] += 1
        self._actions[index] = []
        seed = np.random.SeedSequence([*self._identity[index], self._episode[index]]).generate_state(1)[0]
        return self._flat(self._envs[index].reset(seed=int(seed))[0])

    def _saved_actions(self, actions: list[Any]) -> list[int] | str:
        """Actions as a state holds them: numbers, or the bytes of all float32 in base64."""
        if not self.spec.continuous:
            return actions
        return base64.b64encode(b"".join(action.tobytes() for action in actions)).decode()

    def _flat(self, observation: Any) -> NDArray[Any]:
        """An observation as an array of the shape that the environment promised; numpy would stretch some others."""
        if self.spec.is_image:
            flat = np.asarray(observation)
        else:
            flat = np.asarray(gymnasium.spaces.flatten(self._space, observation), np.float32)
        if flat.shape != self.spec.observation_shape:
            promised = self.spec.observation_shape
            raise ValueError(f"an observation has shape {flat.shape}, but the observation space has {promised}")
        return flat


def spec_of_spaces(name: str, observations: gymnasium.Space[Any], actions: gymnasium.Space[Any]) -> EnvSpec:
    """What policies need to know of an environment's spaces; a UsageError for those that no policy here fits."""
    continuous = isinstance(actions, gymnasium.spaces.Box) and np.issubdtype(actions.dtype, np.floating)
    if not continuous and not isinstance(actions, gymnasium.spaces.Discrete):
        needed = "needs a discrete action space or a Box of floats"
        raise UsageError(f"environment {name}: {needed}, but has {actions}")
    box = isinstance(observations, gymnasium.spaces.Box)
    image = box and observations.dtype == np.uint8 and len(observations.shape or ()) == 3
    if not image and not observations.is_np_flattenable:
        raise UsageError(f"environment {name}: observations {observations} have no fixed size")
    shape = observations.shape if image else gymnasium.spaces.flatten_space(observations).shape
    assert shape is not None
    dtype = np.dtype(np.uint8 if image else np.float32)
    if isinstance(actions, gymnasium.spaces.Discrete):
        return EnvSpec(shape, dtype, int(actions.n))
    return EnvSpec(shape, dtype, math.prod(actions.shape or ()), continuous=True)


def raw_action(space: gymnasium.Space[Any], action: Any) -> Any:
    """An action as the environment takes it: discrete ones in its own numbers, others clipped to its bounds."""
    if isinstance(space, gymnasium.spaces.Box):
        return np.clip(action.reshape(space.shape), space.low, space.high).astype(space.dtype)
    assert isinstance(space, gymnasium.spaces.Discrete)
    return action + int(space.start)


def trial(settings: EnvSettings) -> tuple[EnvSpec, bool]:
    """The environment's spec, and whether it repeats itself; what fails in its first steps is a UsageError."""
    env = make(settings, num_envs=1, seed=0, num_threads=0, pictured=False)
    random = np.random.default_rng(0)
    try:
        refuse_infinite(Step(env.observe(), np.zeros(1, np.float32), np.zeros(1, np.bool_)))
        for _ in range(_TRIAL_STEPS):
            refuse_infinite(env.step(_random_actions(env.spec, random)))
        there, state = env.observe(), env.get_state()
        env.set_state(state)
        return env.spec, bool(np.array_equal(there, env.observe()))
    except CheckpointUnusable:
        return env.spec, False
    except NotFinite as error:
        raise UsageError(f"environment {settings.name} {error}") from None
    except Exception as error:  # a third party's environment may raise anything
        raise UsageError(f"environment {settings.name}: step failed: {described(error)}") from None
    finally:
        env.close()


def _random_actions(spec: EnvSpec, random: np.random.Generator) -> Actions:
    """Anything for one environment."""
    if spec.continuous:
        return random.standard_normal((1, spec.num_actions), dtype=np.float32)
    return random.integers(spec.num_actions, size=1)


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
        reason = str(error) if isinstance(error, UsageError | ResourceError) else described(error)
        reason = reason.removeprefix(f"environment {name}: ")
        raise UsageError(f"--video, --render: {name} cannot be rendered: {reason}") from None
    return env


def state_problem(settings: EnvSettings, spec: EnvSpec, states: list[bytes]) -> str | None:
    """What is wrong with saved states: each must name an episode and actions that exist."""
    del settings
    for index, state in enumerate(states):
        try:
            fields = json.loads(state)
            identity, episode, actions = (fields[name] for name in ("identity", "episode", "actions"))
            numbers = len(identity) == 2 and all(type(one) is int and 0 <= one < 2**63 for one in (*identity, episode))
            if not numbers:
                raise ValueError
            _read_actions(actions, spec)
        except (ValueError, TypeError, KeyError, RecursionError):
            return f"envs.{index} is not the state of an environment"
    return None


def _read_actions(saved: Any, spec: EnvSpec) -> list[Any]:
    """The actions of a saved state; ValueError or TypeError for what cannot be such."""
    if not spec.continuous:
        if any(type(action) is not int or not 0 <= action < spec.num_actions for action in saved):
            raise ValueError
        return list(saved)
    rows = np.frombuffer(base64.b64decode(saved, validate=True), np.float32).reshape(-1, spec.num_actions)
    if not np.isfinite(rows).all():
        raise ValueError
    return list(rows)
