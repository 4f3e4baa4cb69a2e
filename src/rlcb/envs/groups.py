"""Environments in groups: while one group's actions are computed, the others' environments step."""

from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from rlcb.envs.base import Actions, EnvSettings, Step, VectorEnv
from rlcb.envs.families import make_env


@runtime_checkable
class StepsInBackground(Protocol):
    """An environment that steps in threads of its own and gives all observations in the memory of the first."""

    def send(self, actions: Actions) -> None:
        """Begin a step."""

    def receive(self) -> Step:
        """Wait for the step that was begun; its arrays are overwritten by the next one."""


class EnvGroup:
    """Some of a run's environments, which begin a step together and are waited for later."""

    def __init__(self, env: VectorEnv, columns: slice):
        """`columns`: which of the run's environments these are."""
        self.env, self.columns = env, columns
        self._actions: Actions | None = None  # of a step that was begun
        self.memory = env.observe()

    def send(self, actions: Actions) -> None:
        """Begin a step; environments without threads of their own do it when they are waited for."""
        if isinstance(self.env, StepsInBackground):
            self.env.send(actions)
        else:
            self._actions = actions

    def receive(self) -> Step:
        """Wait for the step; its observations are in `memory`."""
        if isinstance(self.env, StepsInBackground):
            return self.env.receive()
        assert self._actions is not None
        step = self.env.step(self._actions)
        self.memory[...] = step.observations
        return step

    def observe(self) -> NDArray[Any]:
        """The current observations, put into `memory`."""
        self.memory[...] = self.env.observe()
        return self.memory


class EnvGroups:
    """All environments of a run, in groups of equal size. How many groups there are does not change what they do."""

    def __init__(self, settings: EnvSettings, num_envs: int, seed: int, num_threads: int, num_groups: int):
        """`num_threads`: of each group."""
        whole = make_env(settings, num_envs, seed, num_threads)
        self.num_envs, self.spec, each = num_envs, whole.spec, num_envs // num_groups
        envs = [whole]
        if num_groups > 1:
            # Groups that were seeded by themselves would begin with other levels than all environments together.
            states = whole.get_state()
            whole.close()
            envs = [make_env(settings, each, seed, num_threads) for _ in range(num_groups)]
            for number, env in enumerate(envs):
                env.set_state(states[number * each : (number + 1) * each])
        self.groups = [EnvGroup(env, slice(number * each, (number + 1) * each)) for number, env in enumerate(envs)]

    def observe(self) -> NDArray[Any]:
        """The current observations [B, …]."""
        return np.concatenate([group.observe() for group in self.groups])

    def step(self, actions: Actions) -> Step:
        """Apply one action to each copy."""
        for group in self.groups:
            group.send(actions[group.columns].copy())
        steps = [group.receive() for group in self.groups]
        truncated = {
            group.columns.start + index: final
            for group, step in zip(self.groups, steps, strict=True)
            for index, final in step.truncated.items()
        }
        rewards, dones = (np.concatenate([getattr(step, name) for step in steps]) for name in ("rewards", "dones"))
        ends = np.concatenate([step.episode_ends for step in steps])
        return Step(np.concatenate([group.memory for group in self.groups]), rewards, dones, truncated, ends)

    def get_state(self) -> list[bytes]:
        """Everything needed to continue exactly here, one entry per copy."""
        return [state for group in self.groups for state in group.env.get_state()]

    def set_state(self, states: list[bytes]) -> None:
        """Continue exactly where `get_state` was called."""
        for number, group in enumerate(self.groups):
            last = number == len(self.groups) - 1  # gets any that are too many, and refuses them
            group.env.set_state(states[group.columns.start : None if last else group.columns.stop])

    def close(self) -> None:
        """Release what the environments hold."""
        for group in self.groups:
            group.env.close()
