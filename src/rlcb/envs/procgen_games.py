"""Procgen's games, from procgen_games.csv: names, distribution modes, published score ranges; without importing them.

The columns easy_0 to hard_1 are the rewards that count as 0 and 1. Source: Cobbe et al. 2020, "Leveraging Procedural
Generation to Benchmark Reinforcement Learning" (arXiv 1912.01588), appendix C. 0 is what a policy reaches that cannot
see the observations, not what random actions reach: those can score below 0. Procgen has a level generator per mode,
and not every game has all of them: a missing one ends the process.

Every game flags its levels as completed or not, but in the four without `levels_rate` that flag only marks the highest
possible score: they are about how much is caught or shot down before the agent is hit. In the other twelve each level
has something of its own to get done (an exit to reach, all orbs or stars to collect), so the share of levels done means
something.
"""

import csv
from pathlib import Path

_TEXT = Path(__file__).with_suffix(".csv").read_text(encoding="utf-8")
_ROWS = {row["game"]: row for row in csv.DictReader(_TEXT.splitlines())}
GAMES = tuple(_ROWS)


def procgen_game(name: str) -> str | None:
    """The Procgen game that `name` means in any of its spellings, or None for another kind of environment."""
    short = name.removeprefix("procgen:").removeprefix("procgen-").removesuffix("-v0")
    return short if short in GAMES else None


def modes_of(game: str) -> tuple[str, ...]:
    """The distribution modes that exist for one game."""
    return tuple(_ROWS[game]["modes"].split())


def score_range(game: str, distribution_mode: str | None) -> tuple[float, float] | None:
    """The rewards that count as 0 and 1, where they are published: in easy and hard mode."""
    if distribution_mode not in ("easy", "hard"):
        return None
    return float(_ROWS[game][f"{distribution_mode}_0"]), float(_ROWS[game][f"{distribution_mode}_1"])


def has_success(game: str) -> bool:
    """Whether the share of completed levels says something about a policy in this game."""
    return _ROWS[game]["levels_rate"] == "yes"
