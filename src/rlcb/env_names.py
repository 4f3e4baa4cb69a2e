"""The names of environments: every accepted spelling, and what was probably meant."""

import difflib

from rlcb.errors import UsageError

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
