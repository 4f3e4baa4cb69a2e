"""Whether an environment keeps its promises while whole episodes are played: spaces, observations, rewards, ends."""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium import spaces

from rlcb.envs.base import Actions, EnvSettings, EnvSpec
from rlcb.envs.families import family_of, make_env
from rlcb.envs.gymnasium import raw_action, spec_of_spaces
from rlcb.envs.own_code import described
from rlcb.errors import OwnCodeFailed
from rlcb.words import FAILURE, GOOD, WARNING, counted

CANNOT_TRAIN = 1  # exit code of a failure that is no exception
_EPISODES = 10  # that are played, as far as time allows
_ENOUGH_SECONDS, _MOST_SECONDS = 4.0, 12.0  # for them, and for the first one
_MOST_STEPS = 100_000
_SAME_LENGTHS = 5  # episodes of equal length that look like a time limit
_USUAL = 10.0  # how far from 0 the bounds of an action may be; a new policy draws from a normal distribution around 0


@dataclass(frozen=True)
class Finding:
    """What a check has found, for one line."""

    mark: str
    name: str  # what was checked
    text: str
    exit_code: int = 0

    def __str__(self) -> str:
        return f"{self.mark} {self.name}: {' '.join(self.text.split())}"


def failure(name: str, text: str, exit_code: int = CANNOT_TRAIN) -> Finding:
    """The finding that training cannot work."""
    return Finding(FAILURE, name, text, exit_code)


class Turn(NamedTuple):
    """What came of a step."""

    reward: Any
    terminated: bool
    truncated: bool


@dataclass
class Played:
    """What was seen of whole episodes."""

    steps: int = 0
    seconds: float = 0.0
    lengths: list[int] = field(default_factory=list)
    returns: list[float] = field(default_factory=list)
    rewards: tuple[float, float] = (math.inf, -math.inf)  # the lowest and the highest
    terminated: int = 0
    tells_limits: bool = True  # ends by time limits can be told from others
    found: dict[tuple[str, str], Finding] = field(default_factory=dict)  # the first of each kind

    @property
    def place(self) -> str:
        """Which step of which episode this is."""
        step = self.steps - sum(self.lengths)
        return f"{f'step {step}' if step else 'the reset'} of episode {len(self.lengths) + 1}"

    def note(self, name: str, kind: str, text: str, fails: bool) -> None:
        """Something is wrong at this place."""
        where = f"{text}, first at {self.place}"
        self.found.setdefault((name, kind), failure(name, where) if fails else Finding(WARNING, name, where))


def drawn(spec: EnvSpec, randoms: Sequence[np.random.Generator]) -> Actions:
    """An action for each copy, as a policy that has learned nothing would choose it."""
    if spec.continuous:
        rows: Actions = np.stack([random.standard_normal(spec.num_actions, np.float32) for random in randoms])
        return rows
    return np.array([random.integers(spec.num_actions) for random in randoms])


def _is_foreign(settings: EnvSettings) -> bool:
    """Whether it is somebody else's code that this program calls step by step, and not a family with its own."""
    return family_of(settings.name).module == "gymnasium"


# Spaces


def check_spaces(settings: EnvSettings, spec: EnvSpec) -> Iterator[Finding]:
    """What policies see and do, and what about it is probably not meant."""
    shape = " × ".join(map(str, spec.observation_shape))
    yield Finding(GOOD, "Spaces", f"{shape} {spec.observation_dtype} observations, {spec.action_words}")
    if not _is_foreign(settings):
        return
    registered = gymnasium.make(settings.name, disable_env_checker=True)
    observations, actions = registered.observation_space, registered.action_space
    registered.close()
    if isinstance(observations, spaces.Box) and len(observations.shape) == 3 and not spec.is_image:
        text = f"pictures must be uint8 [height, width, channels]; these {observations.dtype} numbers become a vector"
        yield Finding(WARNING, "Spaces", text)
    if spec.is_image and spec.observation_shape[0] <= 4 < spec.observation_shape[2]:
        text = f"the pictures {spec.observation_shape} look like channels first; must be [height, width, channels]"
        yield Finding(WARNING, "Spaces", text)
    if isinstance(actions, spaces.Box):
        low, high = float(actions.low.min()), float(actions.high.max())
        finite = math.isfinite(low) and math.isfinite(high)
        unusual = finite and (max(-low, high) > _USUAL or high - low < 1 / _USUAL or not low <= 0 <= high)
        if unusual:
            text = f"actions from {low:g} to {high:g}, but a new policy tries about -2 to 2; scale them to -1 to 1"
            yield Finding(WARNING, "Spaces", f"{text} (gymnasium.wrappers.RescaleAction)")


# Episodes


def play(settings: EnvSettings, beat: Callable[[], None]) -> Iterator[Finding]:
    """Play whole episodes with random actions; `beat` is called now and then."""
    played = Played()
    turns = _raw_turns if _is_foreign(settings) else _turns
    _count(turns(settings, played), played, beat)
    names = {"Observations": _observations, "Rewards": _rewards, "Episodes": _episodes}
    for name, words in names.items():
        problems = [found for (about, _), found in played.found.items() if about == name]
        yield from problems or [words(played)]


def _count(turns: Iterator[Turn], played: Played, beat: Callable[[], None]) -> None:
    """Take turns until enough episodes have ended, or time is over."""
    began, total = time.monotonic(), 0.0
    for turn in turns:
        beat()
        reward = _number(turn.reward, played)
        total += reward
        played.rewards = min(played.rewards[0], reward), max(played.rewards[1], reward)
        played.seconds = time.monotonic() - began
        if turn.terminated or turn.truncated:
            played.terminated += turn.terminated
            played.lengths.append(played.steps - sum(played.lengths))
            played.returns.append(total)
            total = 0.0
        enough = played.seconds > (_ENOUGH_SECONDS if played.lengths else _MOST_SECONDS)
        if enough or len(played.lengths) == _EPISODES or played.steps == _MOST_STEPS:
            return


def _number(reward: Any, played: Played) -> float:
    """A reward as training takes it; 0 for what is none."""
    if not isinstance(reward, int | float | np.integer | np.floating | np.bool_):
        fails = np.size(reward) != 1 or np.asarray(reward).dtype.kind not in "biuf"
        text = f"a reward is of type {type(reward).__name__}, must be a float"
        played.note("Rewards", "type", text, fails)
        reward = 0.0 if fails else np.asarray(reward).item()
    with np.errstate(over="ignore"):
        if not np.isfinite(np.float32(reward)):
            played.note("Rewards", "finite", f"a reward is {float(reward):g}; training would stop there", True)
    return float(reward) if math.isfinite(reward) else 0.0


def _raw_turns(settings: EnvSettings, played: Played) -> Iterator[Turn]:
    """One copy as its author wrote it, every observation held against its space."""
    env = gymnasium.make(settings.name, disable_env_checker=True)  # what Gymnasium's own would find is found here
    spec = spec_of_spaces(settings.name, env.observation_space, env.action_space)
    random = np.random.default_rng(0)
    while True:
        _look(_called(played, env.reset, seed=len(played.lengths))[0], env.observation_space, spec, played)
        over = False
        while not over:
            played.steps += 1
            result = _called(played, env.step, raw_action(env.action_space, drawn(spec, [random])[0]))
            if not isinstance(result, tuple) or len(result) != 5:
                must = "step must return observation, reward, terminated, truncated and a dict"
                raise OwnCodeFailed(f"{must}; at {played.place} it returned {str(result)[:80]}")
            observation, reward, *ends, _ = result
            for name, value in zip(("terminated", "truncated"), ends, strict=True):
                if not isinstance(value, bool | np.bool_):
                    text = f"{name} is of type {type(value).__name__}, must be a bool"
                    played.note("Episodes", name, text, fails=np.size(value) != 1)
            terminated, truncated = (bool(np.any(value)) for value in ends)
            _look(observation, env.observation_space, spec, played)
            over = terminated or truncated
            yield Turn(reward, terminated, truncated)


def _called(played: Played, function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    """What a function of the environment returns; OwnCodeFailed says where it raised an exception."""
    try:
        return function(*arguments, **named)
    except (Exception, SystemExit) as error:  # somebody else's code may raise anything
        raise OwnCodeFailed(f"{played.place} raised {described(error)}") from error


def _turns(settings: EnvSettings, played: Played) -> Iterator[Turn]:
    """The same of an environment of this program."""
    env = make_env(settings, 1, seed=0, num_threads=0)
    random = np.random.default_rng(0)
    played.tells_limits = False
    while True:
        played.steps += 1
        step = env.step(drawn(env.spec, [random]))
        if not np.isfinite(step.observations).all():
            played.note("Observations", "finite", "an observation is not finite; training would stop there", True)
        over = bool(step.episode_ends[0])
        yield Turn(step.rewards[0], over and not step.truncated, bool(step.truncated))


def _look(observation: Any, space: gymnasium.Space[Any], spec: EnvSpec, played: Played) -> None:
    """Hold an observation against the space that promised it."""
    fails = False
    for kind, text, fatal in _problems(observation, space, spec.is_image):
        played.note("Observations", kind, text, fatal)
        fails = fails or fatal
    if not fails and not np.isfinite(np.asarray(spaces.flatten(space, observation), np.float32)).all():
        played.note("Observations", "finite", "an observation is not finite; training would stop there", True)


def _problems(observation: Any, space: gymnasium.Space[Any], is_image: bool) -> Iterator[tuple[str, str, bool]]:
    """What is wrong with an observation: a word for the kind, a text, and whether training fails over it."""
    if isinstance(space, spaces.Dict | spaces.Tuple):
        for key, inner in space.spaces.items() if isinstance(space, spaces.Dict) else enumerate(space.spaces):
            try:
                part = observation[key]
            except (KeyError, IndexError, TypeError):
                yield f"{key} missing", f"an observation has no {key!r}, which the observation space has", True
                continue
            for kind, text, fails in _problems(part, inner, is_image=False):
                yield f"{key} {kind}", f"{key!r}: {text}", fails
    elif isinstance(space, spaces.Box):
        yield from _array_problems(observation, space, is_image)
    elif observation not in space:
        yield "other", f"{str(observation)[:60]!r} is not in the observation space {space}", True


def _array_problems(observation: Any, space: spaces.Box, is_image: bool) -> Iterator[tuple[str, str, bool]]:
    promised = f"but the observation space has {space.dtype}"
    try:
        array = np.asarray(observation)
    except ValueError:  # lists of different lengths
        yield "shape", f"an observation is no array: {str(observation)[:60]!r}", True
        return
    if array.shape != space.shape:
        yield "shape", f"an observation has shape {array.shape}, but the observation space has {space.shape}", True
    elif array.dtype.kind not in "biuf":
        yield "type", f"an observation is of type {array.dtype}, {promised}", True
    elif is_image and array.dtype != space.dtype:
        yield "type", f"pictures are {array.dtype}, {promised}; fractions would be cut off", True
    else:
        if array.dtype != space.dtype:
            yield "type", f"observations are {array.dtype}, {promised}; they are converted", False
        wrong = (array < space.low) | (array > space.high)
        if wrong.any():
            index = tuple(int(one) for one in np.argwhere(wrong)[0])
            where = f" at index {', '.join(map(str, index))}" if index else ""
            bounds = f"{space.low[index]:g} to {space.high[index]:g}"
            text = f"an observation is outside its space: {array[index]:g}{where}, where the bounds are {bounds}"
            yield "bounds", f"{text}; training works, but correct the bounds", False


# In words, where nothing is wrong


def _observations(played: Played) -> Finding:
    return Finding(GOOD, "Observations", f"finite and inside their space in {counted(played.steps, 'step')}")


def _rewards(played: Played) -> Finding:
    low, high = played.rewards
    mean = f"; an episode of random actions returns {np.mean(played.returns):.4g} on average" if played.returns else ""
    return Finding(GOOD, "Rewards", f"finite, {low:.4g} to {high:.4g}{mean}")


def _episodes(played: Played) -> Finding:
    lengths = played.lengths
    if not lengths:
        text = f"none ended in {counted(played.steps, 'step')} ({played.seconds:.0f} s); without ends no reward is "
        text += "reported; end episodes, or limit them: gymnasium.register(…, max_episode_steps=1000)"
        return Finding(WARNING, "Episodes", text)
    shortest, longest = min(lengths), max(lengths)
    spread = counted(longest, "step")
    spread = f"{shortest:,} to {spread}" if shortest < longest else spread
    if not played.tells_limits:
        return Finding(GOOD, "Episodes", f"{len(lengths)} of {spread}")
    counts = f"{played.terminated} terminated, {len(lengths) - played.terminated} truncated"
    if 1 < shortest == longest and played.terminated == len(lengths) >= _SAME_LENGTHS:
        text = f"all {len(lengths)} terminated after exactly {spread}; if that is a time limit, step must return it as "
        return Finding(WARNING, "Episodes", f"{text}truncated, so that returns continue beyond it")
    return Finding(GOOD, "Episodes", f"{len(lengths)} of {spread}: {counts}")
