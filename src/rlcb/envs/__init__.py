"""Environments behind one small interface: many copies stepped together, finished episodes restarted at once."""

from rlcb.config import EnvConfig
from rlcb.env_names import procgen_game
from rlcb.envs.base import EnvSpec, Step, VectorEnv

__all__ = ["EnvSpec", "Step", "VectorEnv", "make_env", "spec_of"]


def make_env(config: EnvConfig, num_envs: int, seed: int, num_threads: int) -> VectorEnv:
    """Build `num_envs` copies of the configured environment."""
    if procgen_game(config.name):
        from rlcb.envs.procgen import ProcgenEnv

        return ProcgenEnv(config, num_envs, seed, num_threads)
    from rlcb.envs.gymnasium import GymnasiumEnv

    return GymnasiumEnv(config.name, num_envs, seed)


def spec_of(config: EnvConfig) -> EnvSpec:
    """What the configured environment's observations and actions look like."""
    env = make_env(config, num_envs=1, seed=0, num_threads=0)
    env.close()
    return env.spec
