"""Procgen's games: their names, distribution modes and published score ranges. Nothing here imports the games."""

# Rewards that count as 0 and 1, per game: (easy 0, easy 1, hard 0, hard 1). Source: Cobbe et al. 2020, "Leveraging
# Procedural Generation to Benchmark Reinforcement Learning" (arXiv 1912.01588), appendix C. 0 is what a policy reaches
# that cannot see the observations, not what random actions reach: those can score below 0.
SCORE_RANGES: dict[str, tuple[float, float, float, float]] = {
    "bigfish": (1, 40, 0, 40),
    "bossfight": (0.5, 13, 0.5, 13),
    "caveflyer": (3.5, 12, 2, 13.4),
    "chaser": (0.5, 13, 0.5, 14.2),
    "climber": (2, 12.6, 1, 12.6),
    "coinrun": (5, 10, 5, 10),
    "dodgeball": (1.5, 19, 1.5, 19),
    "fruitbot": (-1.5, 32.4, -0.5, 27.2),
    "heist": (3.5, 10, 2, 10),
    "jumper": (1, 10, 1, 10),
    "leaper": (1.5, 10, 1.5, 10),
    "maze": (5, 10, 4, 10),
    "miner": (1.5, 13, 1.5, 20),
    "ninja": (3.5, 10, 2, 10),
    "plunder": (4.5, 30, 3, 30),
    "starpilot": (2.5, 64, 1.5, 35),
}
GAMES = tuple(SCORE_RANGES)

# Procgen has a level generator per mode, and not every game has all of them: a missing one ends the process.
_EXTREME = ("chaser", "dodgeball", "leaper", "starpilot")
_MEMORY = ("caveflyer", "dodgeball", "heist", "jumper", "maze", "miner")

# Every game flags its levels as completed or not, but in these four that flag only marks the highest possible score:
# they are about how much is caught or shot down before the agent is hit. In the other twelve each level has something
# of its own to get done (an exit to reach, all orbs or stars to collect), so the share of levels done means something.
_SCORE_GAMES = ("bigfish", "bossfight", "plunder", "starpilot")


def procgen_game(name: str) -> str | None:
    """The Procgen game that `name` means in any of its spellings, or None for another kind of environment."""
    short = name.removeprefix("procgen:").removeprefix("procgen-").removesuffix("-v0")
    return short if short in GAMES else None


def modes_of(game: str) -> tuple[str, ...]:
    """The distribution modes that exist for one game."""
    modes = ["easy", "hard"]
    modes += ["extreme"] if game in _EXTREME else []
    modes += ["memory"] if game in _MEMORY else []
    return tuple(modes)


def score_range(game: str, distribution_mode: str | None) -> tuple[float, float] | None:
    """The rewards that count as 0 and 1, where they are published: in easy and hard mode."""
    if distribution_mode not in ("easy", "hard"):
        return None
    low_easy, high_easy, low_hard, high_hard = SCORE_RANGES[game]
    return (low_easy, high_easy) if distribution_mode == "easy" else (low_hard, high_hard)


def has_success(game: str) -> bool:
    """Whether the share of completed levels says something about a policy in this game."""
    return game not in _SCORE_GAMES
