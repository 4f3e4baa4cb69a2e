"""Atari games through ale-py's emulator, with the usual preprocessing."""

from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from rlcb.envs import state_trial
from rlcb.envs.base import EnvSettings, EnvSpec, Step
from rlcb.envs.families import INSTALL_ATARI, repeat_probability
from rlcb.errors import CheckpointUnusable, ResourceError
from rlcb.words import counted

try:
    import ale_py

    from rlcb.envs.atari_game import SIZE, AtariGame
except ImportError as error:
    raise ResourceError(f"Atari games need ale-py, which cannot be loaded: {error}; {INSTALL_ATARI}") from None


class AtariEnv:
    """`num_envs` copies of one game, stepped one after the other.

    Rewards are raw. `dones` also marks the ends of lives if `episodic_life` is on, `ends` only those of whole games.
    """

    def __init__(self, settings: EnvSettings, num_envs: int, seed: int):
        ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
        rom, sticky = gymnasium.registry[settings.name].kwargs["game"], repeat_probability(settings)
        self.num_envs = num_envs
        self._observations = np.zeros((num_envs, SIZE, SIZE, settings.frame_stack), np.uint8)
        self._games = [
            AtariGame(rom, settings, sticky, [seed, index], frames) for index, frames in enumerate(self._observations)
        ]
        self.spec = EnvSpec(self._observations.shape[1:], np.dtype(np.uint8), len(self._games[0].actions))

    def observe(self) -> NDArray[Any]:
        """The current observations [B, 84, 84, frame_stack], the newest frame last."""
        return self._observations.copy()

    def step(self, actions: NDArray[np.int64]) -> Step:
        """Apply one action to each copy."""
        turns = [game.step(int(action)) for game, action in zip(self._games, actions, strict=True)]
        rewards = np.array([turn.reward for turn in turns], np.float32)
        dones, ends = (np.array([turn[index] for turn in turns], np.bool_) for index in (1, 2))
        truncated = {index: turn.final for index, turn in enumerate(turns) if turn.final is not None}
        return Step(self.observe(), rewards, dones, truncated, ends)

    def get_state(self) -> list[bytes]:
        """The emulators' states and everything beside them."""
        return [game.get_state() for game in self._games]

    def set_state(self, states: list[bytes]) -> None:
        """Restore states of the same game."""
        if len(states) != self.num_envs:
            raise CheckpointUnusable(
                f"the checkpoint holds {counted(len(states), 'environment')}, this run has {self.num_envs}"
            )
        for index, (game, state) in enumerate(zip(self._games, states, strict=True)):
            try:
                game.set_state(state)
            except ValueError:
                raise CheckpointUnusable(f"envs.{index} is not the state of an Atari game") from None

    def close(self) -> None:
        """End the emulators."""
        self._games = []

    def completed(self) -> None:
        """There are no levels."""

    def only(self, copies: list[int]) -> "AtariEnv":
        """Continue these copies; the others are ended."""
        self.num_envs, self._games = len(copies), [self._games[copy] for copy in copies]
        self._observations = self._observations[copies]
        for game, frames in zip(self._games, self._observations, strict=True):
            game.frames = frames
        return self

    def frame(self) -> NDArray[np.uint8]:
        """A picture of the first copy."""
        return self._games[0].picture()


def make(settings: EnvSettings, num_envs: int, seed: int, num_threads: int, pictured: bool) -> AtariEnv:
    """Copies of a game, which are stepped by the caller and can always draw themselves."""
    del num_threads, pictured
    return AtariEnv(settings, num_envs, seed)


def trial(settings: EnvSettings) -> tuple[EnvSpec, bool]:
    """The game's spec; saved states are exact."""
    env = AtariEnv(settings, num_envs=1, seed=0)
    env.close()
    return env.spec, True


state_problem = state_trial.problem
