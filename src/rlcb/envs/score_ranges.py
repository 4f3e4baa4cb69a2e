"""Facts about Procgen that turn an evaluation's figures into published ones; nothing here imports the games."""

from rlcb.envs.families import procgen_game

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

# Every game flags its levels as completed or not, but in these four that flag only marks the highest possible score:
# they are about how much is caught or shot down before the agent is hit. In the other twelve each level has something
# of its own to get done (an exit to reach, all orbs or stars to collect), so the share of levels done means something.
_SCORE_GAMES = ("bigfish", "bossfight", "plunder", "starpilot")


def score_range(env: str, distribution_mode: str | None) -> tuple[float, float] | None:
    """The rewards that count as 0 and 1, where they are published: Procgen in easy and hard mode."""
    game = procgen_game(env)
    if game is None or distribution_mode not in ("easy", "hard"):
        return None
    low_easy, high_easy, low_hard, high_hard = SCORE_RANGES[game]
    return (low_easy, high_easy) if distribution_mode == "easy" else (low_hard, high_hard)


def normalized_score(env: str, distribution_mode: str | None, reward: float) -> float | None:
    """(reward − low) / (high − low) with the game's published constants; None where there are none."""
    limits = score_range(env, distribution_mode)
    return None if limits is None else (reward - limits[0]) / (limits[1] - limits[0])


def has_success(env: str) -> bool:
    """Whether the share of completed levels says something about a policy in this environment."""
    game = procgen_game(env)
    return game is not None and game not in _SCORE_GAMES
