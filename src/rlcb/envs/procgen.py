"""Procgen through its own engine, `rlcb.envs.libenv`."""

from ctypes import CDLL
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlcb.envs import engine, state_trial
from rlcb.envs.base import EnvSettings, EnvSpec, Step
from rlcb.envs.families import GAMES, find, missing_mode
from rlcb.envs.libenv import Games, load
from rlcb.errors import CheckpointUnusable, ResourceError, UsageError
from rlcb.words import counted, typed

APT = "apt-get update && apt-get install -y libgl1 libglib2.0-0 (as root)"
_MODES = {"easy": 0, "hard": 1, "extreme": 2, "memory": 10}  # as the engine counts them
_NUM_ACTIONS = 15
# What published results were made with; the engine has no defaults of its own.
_USUAL = {
    "center_agent": True,
    "use_backgrounds": True,
    "use_generated_assets": False,
    "use_monochrome_assets": False,
    "restrict_themes": False,
    "paint_vel_info": False,
    "use_sequential_levels": False,
    "debug_mode": 0,
}


class ProcgenEnv:
    """`num_envs` copies of one Procgen game, stepped by the game's own threads (0: in the caller's)."""

    def __init__(self, settings: EnvSettings, num_envs: int, seed: int, num_threads: int, pictured: bool = False):
        """`pictured`: the copies can also draw themselves, in 512×512."""
        self._made_with = (settings, seed, num_threads)
        self._games = _games(settings, num_envs, seed, num_threads, pictured)
        self.num_envs = num_envs
        self.spec = EnvSpec((64, 64, 3), np.dtype(np.uint8), _NUM_ACTIONS)

    def observe(self) -> NDArray[Any]:
        """The current frames [B, 64, 64, 3], in the memory that the games draw in: every step overwrites them."""
        self._games.observe()
        return self._games.frames

    def step(self, actions: NDArray[np.int64]) -> Step:
        """Apply one action to each copy."""
        self.send(actions)
        return self.receive()

    def send(self, actions: NDArray[np.int64]) -> None:
        """Begin a step; the games' threads do it."""
        self._games.act(actions)

    def receive(self) -> Step:
        """Wait for the step; Procgen does not tell its time limits from other ends of episodes."""
        self._games.observe()
        return Step(self._games.frames, self._games.rewards, self._games.firsts)

    def get_state(self) -> list[bytes]:
        """The games' own serialised states, random generators included."""
        return self._games.get_state()

    def set_state(self, states: list[bytes]) -> None:
        """Restore states of the same game."""
        if len(states) != self.num_envs:
            raise CheckpointUnusable(
                f"the checkpoint has {counted(len(states), 'environment')}, but this run has {self.num_envs}"
            )
        self._games.set_state(states)

    def close(self) -> None:
        """End the games' threads and free what they hold."""
        self._games.close()

    def completed(self) -> NDArray[np.bool_]:
        """Whether each copy's last finished episode completed its level [B]."""
        return self._games.infos["prev_level_complete"].astype(np.bool_)

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
        self._games.observe()
        picture: NDArray[np.uint8] = self._games.infos["rgb"][0].copy()
        return picture


make = ProcgenEnv
state_problem = state_trial.problem


def make_ready() -> None:
    """Have an engine here that loads, if need be by fetching it."""
    engine.make_ready()
    _engine()


def _engine() -> tuple[CDLL, Path]:
    """The engine and the folder that it is in."""
    folder = engine.find()
    if folder is None:
        raise ResourceError(f"Procgen's engine is not on this machine; get it with: {typed('rlcb doctor --fix')}")
    try:
        return load(engine.library(folder)), folder
    except OSError as error:
        reason = str(error).splitlines()[0]
        raise ResourceError(
            f"Procgen's engine cannot be loaded: {reason}; if a system library is missing: {APT}"
        ) from None


def _games(settings: EnvSettings, num: int, seed: int, num_threads: int, pictured: bool) -> Games:
    """The games in the engine, once everything has been checked that the engine would end the process over."""
    game = find(settings.name)[1]
    if game not in GAMES:
        raise UsageError(f"{settings.name!r} is not a Procgen game; valid: {' '.join(GAMES)}")
    if problem := missing_mode(settings):
        raise UsageError(problem)
    numbers = {"seed": seed, "start_level": settings.start_level, "num_levels": settings.num_levels}
    for name, value in {**numbers, "num_envs": num, "num_threads": num_threads}.items():
        if not (name == "num_envs") <= value < 2**31:
            raise UsageError(f"Procgen's {name} is {value}, which is out of range")
    library, folder = _engine()
    return Games(
        library,
        num,
        {
            **_USUAL,
            "env_name": game,
            "distribution_mode": _MODES[settings.distribution_mode],
            "num_levels": settings.num_levels,
            "start_level": settings.start_level,
            "num_actions": _NUM_ACTIONS,
            "rand_seed": seed,
            "num_threads": num_threads,
            "render_human": pictured,
            "resource_root": f"{engine.pictures(folder)}/",  # read when the process makes its first game
        },
    )
