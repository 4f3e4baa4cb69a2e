"""Procgen through its own vectorised C++ interface."""

import contextlib
import io
import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlcb.envs import state_trial
from rlcb.envs.base import EnvSettings, EnvSpec, Step
from rlcb.envs.families import find
from rlcb.errors import CheckpointUnusable, ResourceError
from rlcb.words import counted

APT = "apt-get update && apt-get install -y libgl1 libglib2.0-0 (as root)"


class ProcgenEnv:
    """`num_envs` copies of one Procgen game, stepped by the game's own threads (0: in the caller's)."""

    def __init__(self, settings: EnvSettings, num_envs: int, seed: int, num_threads: int, pictured: bool = False):
        """`pictured`: the copies can also draw themselves, in 512×512."""
        self._made_with = (settings, seed, num_threads)
        self._env = _procgen(
            num=num_envs,
            env_name=find(settings.name)[1],
            distribution_mode=settings.distribution_mode,
            num_levels=settings.num_levels,
            start_level=settings.start_level,
            rand_seed=seed,
            num_threads=num_threads,
            **({"render_mode": "rgb_array"} if pictured else {}),
        )
        self.num_envs = num_envs
        self.spec = EnvSpec((64, 64, 3), np.dtype(np.uint8), int(self._env.ac_space.eltype.n))

    def observe(self) -> NDArray[Any]:
        """The current frames [B, 64, 64, 3]."""
        return self._env.observe()[1]["rgb"]  # type: ignore[no-any-return]

    def step(self, actions: NDArray[np.int64]) -> Step:
        """Apply one action to each copy."""
        self.send(actions)
        return self.receive()

    def send(self, actions: NDArray[np.int64]) -> None:
        """Begin a step; the games' threads do it."""
        self._env.act(actions)

    def receive(self) -> Step:
        """Wait for the step; Procgen does not tell its time limits from other ends of episodes."""
        rewards, observation, first = self._env.observe()
        return Step(observation["rgb"], rewards, first)

    def observation_memory(self) -> NDArray[Any]:
        """From now on all frames are given in this memory, in which the games draw them, instead of in copies."""
        self._env._reuse_arrays = True  # gym3 reads it at every step, and has no other way to set it here
        return self.observe()

    def get_state(self) -> list[bytes]:
        """The games' own serialised states, random generators included."""
        return list(self._env.callmethod("get_state"))

    def set_state(self, states: list[bytes]) -> None:
        """Restore states of the same game."""
        if len(states) != self.num_envs:
            raise CheckpointUnusable(
                f"the checkpoint has {counted(len(states), 'environment')}, but this run has {self.num_envs}"
            )
        self._env.callmethod("set_state", states)

    def close(self) -> None:
        """End the games' threads."""
        self._env.close()

    def completed(self) -> NDArray[np.bool_]:
        """Whether each copy's last finished episode completed its level [B]."""
        return np.array([info["prev_level_complete"] for info in self._env.get_info()], np.bool_)

    def only(self, copies: list[int]) -> "ProcgenEnv":
        """These copies as they are, in an environment of their own; this one is closed."""
        states = self.get_state()
        self.close()
        settings, seed, num_threads = self._made_with
        smaller = ProcgenEnv(settings, len(copies), seed, num_threads)
        smaller.set_state([states[copy] for copy in copies])
        return smaller

    def frame(self) -> NDArray[np.uint8]:
        """A picture of the first copy."""
        return np.asarray(self._env.get_info()[0]["rgb"])


make = ProcgenEnv


def _procgen(**options: Any) -> Any:
    """Procgen's own object. Every option was checked before: a wrong one would end the process inside the C++ code."""
    try:
        # gym, which procgen imports, prints a notice about itself.
        with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            from procgen import ProcgenGym3Env

            return ProcgenGym3Env(**options)
    except (ImportError, OSError) as error:
        reason = str(error).splitlines()[0]
        raise ResourceError(f"Procgen cannot be loaded: {reason}; if a system library is missing: {APT}") from None


state_problem = state_trial.problem
