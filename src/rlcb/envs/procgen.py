"""Procgen through its own vectorised C++ interface."""

import contextlib
import io
import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlcb.config.schema import EnvConfig
from rlcb.envs.base import EnvSpec, Step
from rlcb.envs.families import procgen_game
from rlcb.errors import CheckpointUnusable, ResourceError

APT = "apt-get update && apt-get install -y libgl1 libglib2.0-0 (as root)"


class ProcgenEnv:
    """`num_envs` copies of one Procgen game, stepped by the game's own threads (0: in the caller's)."""

    def __init__(self, config: EnvConfig, num_envs: int, seed: int, num_threads: int):
        self._env = _make(
            num=num_envs,
            env_name=procgen_game(config.name),
            distribution_mode=config.distribution_mode,
            num_levels=config.num_levels,
            start_level=config.start_level,
            rand_seed=seed,
            num_threads=num_threads,
        )
        self.num_envs = num_envs
        self.spec = EnvSpec((64, 64, 3), np.dtype(np.uint8), int(self._env.ac_space.eltype.n))

    def observe(self) -> NDArray[Any]:
        """The current frames [B, 64, 64, 3]."""
        return self._env.observe()[1]["rgb"]  # type: ignore[no-any-return]

    def step(self, actions: NDArray[np.int64]) -> Step:
        """Apply one action to each copy; Procgen flags its time-outs as ordinary ends, and so do we."""
        self._env.act(actions)
        rewards, observation, first = self._env.observe()
        return Step(observation["rgb"], rewards, first)

    def get_state(self) -> list[bytes]:
        """The games' own serialised states, random generators included."""
        return list(self._env.callmethod("get_state"))

    def set_state(self, states: list[bytes]) -> None:
        """Restore states of the same game."""
        if len(states) != self.num_envs:
            raise CheckpointUnusable(f"the checkpoint holds {len(states)} environments, this run has {self.num_envs}")
        self._env.callmethod("set_state", states)

    def close(self) -> None:
        """End the games' threads."""
        self._env.close()


def _make(**options: Any) -> Any:
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
