"""The games of the peers that take Procgen's own vector of environments, and a log of their episodes."""

import json
import time
from pathlib import Path
from typing import Any

import numpy as np

from peer_work import DISTRIBUTION, GAME, NUM_LEVELS


def make_games(num_envs: int, seed: int) -> Any:
    """Start so many copies of the game; `seed` picks the order of levels."""
    from procgen import ProcgenGym3Env  # in the peers' environments

    return ProcgenGym3Env(
        num=num_envs,
        env_name=GAME,
        distribution_mode=DISTRIBUTION,
        num_levels=NUM_LEVELS,
        start_level=0,
        rand_seed=seed,
    )


class EpisodeLog:
    """A monitor.csv as Stable-Baselines3 writes it, with the steps so far: a line for every episode, raw rewards."""

    def __init__(self, path: Path, num_envs: int) -> None:
        self._path = path
        self._file: Any = None
        self._rewards, self._lengths = np.zeros(num_envs), np.zeros(num_envs, np.int64)
        self._num_envs, self._steps = num_envs, 0
        self._start = 0.0

    def step(self, rewards: Any, first: Any) -> None:
        """Take in a step of all environments; `first`: whether it ended an episode."""
        if self._file is None:  # time counts from the first step: before it, processes are still being started
            self._start = time.time()
            self._file = self._path.open("w", encoding="utf-8")
            self._file.write(f"#{json.dumps({'t_start': self._start, 'env_id': GAME})}\nr,l,t,env_steps\n")
        self._rewards += rewards
        self._lengths += 1
        self._steps += self._num_envs
        for index in np.flatnonzero(first):
            line = (f"{self._rewards[index]:g}", self._lengths[index], f"{time.time() - self._start:.4f}", self._steps)
            self._file.write(",".join(map(str, line)) + "\n")
            self._file.flush()  # perf/time_to_reward.py reads it meanwhile
            self._rewards[index], self._lengths[index] = 0.0, 0
