"""The program of the processes in which an environment is checked: its copies are compared with each other.

It is started by `check`, which hears of every finding as soon as there is one.
"""

import time
from collections.abc import Callable, Iterator
from hashlib import blake2b
from types import SimpleNamespace
from typing import Any, TypedDict

import numpy as np
import psutil

from rlcb.envs.base import EnvSettings, EnvSpec, VectorEnv
from rlcb.envs.conformity import Finding, check_spaces, drawn, failure, play
from rlcb.envs.families import canonical_env_name, make_env
from rlcb.envs.own_code import described, load_all
from rlcb.envs.watched import connected
from rlcb.errors import CheckpointUnusable, OwnCodeFailed, RlcbError, UsageError
from rlcb.hardware import keep_freed_memory
from rlcb.words import FAILURE, GOOD, WARNING, counted, span_text

SPEED_SECONDS = 1.0
_COMPARED_STEPS, _COMPARED_SECONDS = 300, 1.5  # of episodes that are compared
_CONTINUED_STEPS = 50  # after a restored state

# At the beginning and after each step, for every copy: a hash of the observation, the reward, whether an episode ended.
_Trace = list[list[tuple[bytes, float, bool]]]


class Facts(TypedDict):
    """What the first process has found out, for those that come after it."""

    steps: int  # that were compared
    digest: bytes | None  # of these steps; None: they do not repeat themselves
    speed: float  # steps per second of one copy
    memory: int  # bytes


def _alone(settings: EnvSettings, beat: Callable[[], None]) -> Iterator[Finding | str | EnvSpec | Facts]:
    """All checks that one process can make; texts name the one that begins."""
    yield "Environment"
    began = time.monotonic()
    first = make_env(settings, 1, seed=0, num_threads=0)
    yield Finding(GOOD, "Environment", f"{settings.name}, made and reset in {span_text(time.monotonic() - began)}")
    first.close()
    yield first.spec
    yield from check_spaces(settings, first.spec)
    yield "Episodes"
    found = list(play(settings, beat))
    yield from found
    if any(finding.mark == FAILURE for finding in found):  # what comes next would fail over it
        return
    yield "Seeds"
    one = make_env(settings, 1, seed=0, num_threads=0)
    trace = _trace(one, beat, _COMPARED_STEPS, _COMPARED_SECONDS)
    other = make_env(settings, 1, seed=0, num_threads=0)
    difference = _difference(trace, _trace(other, beat, len(trace) - 1))
    if difference:
        text = f"not reproducible: two episodes with the same seed and the same actions differ {difference}; draw all "
        text += "randomness from self.np_random, which super().reset(seed=seed) seeds, and keep no state elsewhere"
        yield Finding(WARNING, "Seeds", text)
    else:
        yield Finding(GOOD, "Seeds", f"the same seed gives the same episodes ({counted(len(trace) - 1, 'step')})")
    yield "Copies"
    pair = make_env(settings, 2, seed=0, num_threads=0)
    beside = _trace(pair, beat, len(trace) - 1)
    if not difference:
        yield _copies_finding(_difference(trace, [step[:1] for step in beside]))
    yield "Resuming"
    yield _resume_finding(settings, pair, beat)
    yield "Speed"
    speed = _speed(other)
    digest = None if difference else _digest(trace)
    for env in (one, other, pair):
        env.close()
    memory = psutil.Process().memory_info().rss
    yield Facts(steps=len(trace) - 1, digest=digest, speed=speed, memory=memory)


def _trace(env: VectorEnv, beat: Callable[[], None], most_steps: int, seconds: float | None = None) -> _Trace:
    """What an environment shows when it takes steps with random actions, the same ones in every call."""
    randoms = [np.random.default_rng([1, copy]) for copy in range(env.num_envs)]
    began = time.monotonic()
    trace = [[(_mark(observation), 0.0, False) for observation in env.observe()]]
    while len(trace) <= most_steps and (seconds is None or time.monotonic() - began < seconds):
        beat()
        step = env.step(drawn(env.spec, randoms))
        rows = zip(step.observations, step.rewards, step.dones, strict=True)
        trace.append([(_mark(observation), float(reward), bool(done)) for observation, reward, done in rows])
    return trace


def _mark(observation: Any) -> bytes:
    return blake2b(np.ascontiguousarray(observation).tobytes(), digest_size=16).digest()


def _digest(trace: _Trace) -> bytes:
    return blake2b(repr([step[0] for step in trace]).encode()).digest()


def _difference(one: _Trace, other: _Trace) -> str:
    """From where on two traces differ, and in what; empty if they are equal."""
    begun = 0  # at which step the episode began
    for number, steps in enumerate(zip(one, other, strict=True)):
        for (seen, reward, done), (seen_too, reward_too, done_too) in zip(*steps, strict=True):
            place = f"from step {number - begun} on" if number > begun else "from the start"
            if reward != reward_too:
                return f"{place} (rewards {reward:g} and {reward_too:g})"
            if done != done_too:
                return f"{place} (one of them ends)"
            if seen != seen_too:
                return f"{place} (observations)"
        begun = number if one[number][0][2] else begun
    return ""


def _copies_finding(difference: str) -> Finding:
    if not difference:
        return Finding(GOOD, "Copies", "two in a process do not influence each other")
    text = f"two in a process influence each other: beside another one, an episode is different {difference}; "
    return Finding(WARNING, "Copies", f"{text}keep what changes in the object, not in its class or module")


def _resume_finding(settings: EnvSettings, env: VectorEnv, beat: Callable[[], None]) -> Finding:
    """Whether a restored copy continues as the original does."""
    states = env.get_state()
    continued = _trace(env, beat, _CONTINUED_STEPS, _COMPARED_SECONDS)
    restored = make_env(settings, env.num_envs, seed=1, num_threads=0)
    try:
        restored.set_state(states)
        difference = _difference(continued, _trace(restored, beat, len(continued) - 1))
    except CheckpointUnusable as error:
        return Finding(WARNING, "Resuming", f"not exact: {error}; a resumed run trains, but plays other episodes")
    finally:
        restored.close()
    if not difference:
        text = f"exact: restored copies continue as the originals ({counted(len(continued) - 1, 'step')})"
        return Finding(GOOD, "Resuming", text)
    text = f"not exact: restored copies differ {difference}, so a resumed run plays other episodes; reset(seed=…) must "
    return Finding(WARNING, "Resuming", f"{text}determine the whole episode, whatever was played before")


def _speed(env: VectorEnv) -> float:
    """Steps per second with random actions."""
    randoms = [np.random.default_rng(copy) for copy in range(env.num_envs)]
    actions = [drawn(env.spec, randoms) for _ in range(200)]
    began, steps = time.monotonic(), 0
    while (seconds := time.monotonic() - began) < SPEED_SECONDS:
        env.step(actions[steps % len(actions)])
        steps += 1
    return steps * env.num_envs / seconds


def _beside_others(settings: EnvSettings, steps: int, channel: Any) -> None:
    """What each of several processes does: show that it plays the same, and measure its speed when told to."""
    env = make_env(settings, 1, seed=0, num_threads=0)
    channel.send(_digest(_trace(env, lambda: None, steps)))
    channel.recv()
    channel.send(_speed(env))
    channel.recv()  # until it is ended: while it is there, its processor time can be read


def main() -> None:
    """Import the modules and make the checks that the first message asks for; what is found is sent."""
    channel = connected()
    keep_freed_memory()
    setup = channel.recv()
    settings, doing, last = SimpleNamespace(**setup["settings"]), "", time.monotonic()

    def beat() -> None:
        nonlocal last
        if time.monotonic() - last > 1:
            last = time.monotonic()
            channel.send("")

    try:
        _prepare(settings, setup["modules"])
        if "steps" in setup:
            _beside_others(settings, setup["steps"], channel)
            return
        for message in _alone(settings, beat):
            channel.send(message)
            doing = message if isinstance(message, str) else doing
    except RlcbError as error:
        if not doing or "steps" in setup:
            channel.send(error)
            return
        raised = isinstance(error, UsageError) and error.__context__ is not None  # by the environment's code
        text = str(error).removeprefix(f"environment {settings.name}: ")
        channel.send(failure(doing, text, OwnCodeFailed.exit_code if raised else error.exit_code))
    except (Exception, SystemExit) as error:  # somebody else's code may raise anything
        text = f"raised {described(error)}"
        channel.send(OwnCodeFailed(text) if "steps" in setup else failure(doing, text, OwnCodeFailed.exit_code))
    channel.send(None)


def _prepare(settings: SimpleNamespace, modules: list[str]) -> None:
    """Import the modules and give the environment its full name."""
    load_all(modules)
    try:
        settings.name = canonical_env_name(settings.name)
    except UsageError as error:
        raise UsageError(f"--env: {error}") from None


if __name__ == "__main__":
    main()
