"""The games of the peers that take Procgen's own vector of environments."""

from typing import Any

from procgen import ProcgenGym3Env

from peer_work import DISTRIBUTION, GAME, NUM_LEVELS


def make_games(num_envs: int, seed: int) -> Any:
    """Start so many copies of the game; `seed` picks the order of levels."""
    return ProcgenGym3Env(
        num=num_envs,
        env_name=GAME,
        distribution_mode=DISTRIBUTION,
        num_levels=NUM_LEVELS,
        start_level=0,
        rand_seed=seed,
    )
