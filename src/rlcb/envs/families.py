"""The names of environments: every accepted spelling, and what was probably meant."""

import difflib
from typing import TYPE_CHECKING

from rlcb.errors import UsageError

if TYPE_CHECKING:
    from rlcb.config.schema import EnvConfig
    from rlcb.envs.base import EnvSpec, VectorEnv

GAMES = (
    "bigfish", "bossfight", "caveflyer", "chaser", "climber", "coinrun", "dodgeball", "fruitbot",
    "heist", "jumper", "leaper", "maze", "miner", "ninja", "plunder", "starpilot",
)  # fmt: skip

# Procgen has a level generator per mode, and not every game has every one: asking for a missing one kills the process.
_EXTREME = ("chaser", "dodgeball", "leaper", "starpilot")
_MEMORY = ("caveflyer", "dodgeball", "heist", "jumper", "maze", "miner")


def procgen_game(name: str) -> str | None:
    """The Procgen game that `name` means in any of its spellings, or None for another kind of environment."""
    short = name.removeprefix("procgen:").removeprefix("procgen-").removesuffix("-v0")
    return short if short in GAMES else None


def canonical_env_name(name: str) -> str:
    """One spelling per environment: `procgen-<game>-v0`, or a Gymnasium id as it is registered."""
    game = procgen_game(name)
    if game:
        return f"procgen-{game}-v0"
    if ":" in name:
        raise UsageError(f"environment {name!r}: only 'procgen:' may stand before a colon{_hint(name)}")
    import gymnasium

    if name not in gymnasium.registry:
        raise UsageError(f"unknown environment {name!r}{_hint(name)}")
    return name


def modes_of(game: str) -> tuple[str, ...]:
    """The distribution modes that exist for one Procgen game."""
    modes = ["easy", "hard"]
    modes += ["extreme"] if game in _EXTREME else []
    modes += ["memory"] if game in _MEMORY else []
    return tuple(modes)


def _hint(name: str) -> str:
    import gymnasium

    short = name.removeprefix("procgen:").removeprefix("procgen-").removesuffix("-v0")
    close = difflib.get_close_matches(short, GAMES, 1) or difflib.get_close_matches(name, gymnasium.registry, 1)
    meant = f"; did you mean {close[0]}?" if close else ";"
    return f"{meant} Procgen games: {' '.join(GAMES)}; or a Gymnasium id such as CartPole-v1"


def make_env(config: "EnvConfig", num_envs: int, seed: int, num_threads: int) -> "VectorEnv":
    """Build `num_envs` copies of the configured environment."""
    if procgen_game(config.name):
        from rlcb.envs.procgen import ProcgenEnv

        return ProcgenEnv(config, num_envs, seed, num_threads)
    from rlcb.envs.gymnasium import GymnasiumEnv

    return GymnasiumEnv(config.name, num_envs, seed)


def spec_of(config: "EnvConfig") -> "EnvSpec":
    """What the configured environment's observations and actions look like."""
    env = make_env(config, num_envs=1, seed=0, num_threads=0)
    env.close()
    return env.spec
