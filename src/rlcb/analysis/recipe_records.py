"""Which variant of an algorithm is chosen as its recipe, as records; they are also part of comparison.json."""

from dataclasses import dataclass
from typing import Any

from rlcb.analysis.statistics import Interval

EQUAL_TIME = "reward_at_equal_time"


@dataclass(frozen=True)
class Recipe:
    """A variant with what it reached in each game; the difference is from the best one."""

    group: str
    variant: str
    changes: dict[str, Any] | None  # settings that differ from those of `base`; None for that one itself
    rewards: dict[str, tuple[float, ...]]  # game → the value of each seed
    score: float
    difference: float = 0.0  # this score minus the best one
    interval: Interval | None = None  # of the difference
    p: float | None = None
    holm_p: float | None = None  # corrected for the number of recipes
    established: bool = False  # whether this one is behind the best, beyond chance


@dataclass(frozen=True)
class RecipeRanking:
    """The variants of one algorithm and mode, the best one first."""

    algorithm: str
    mode: str
    metric: str
    levels: str
    budget: str
    machine: str
    games: tuple[str, ...]
    normalized: bool  # whether scores are normalised; otherwise they are the rewards of the only game
    recipes: tuple[Recipe, ...]
    notes: tuple[str, ...]  # which variants are not ranked and why, which seeds are compared
    verdict: str

    @property
    def title(self) -> str:
        """Algorithm and mode."""
        return f"{self.algorithm.upper()} {self.mode.capitalize()}"

    @property
    def pick(self) -> Recipe:
        """The one that the rule chooses."""
        return self.recipes[0]
