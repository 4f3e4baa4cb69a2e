"""What a comparison finds over several games, as records; they are also part of comparison.json."""

from dataclasses import dataclass

from rlcb.analysis.aggregates import Aggregates, Estimate, Profile

FINAL, TRAIN, UNSEEN, LATE = "final_reward", "evaluation_train", "evaluation_unseen", "late_reward"
SCORED = (FINAL, TRAIN, UNSEEN, LATE)  # the metrics that are normalised and aggregated


@dataclass(frozen=True)
class GameValue:
    """A metric of a group in one game, over all its seeds, beside the published PPO after as many steps."""

    metric: str
    game: str
    group: str
    n: int
    steps: float | None  # mean over the seeds
    mean: float
    std: float | None
    published_mean: float | None  # these two: of 3 runs; None where nothing is published for the task or the steps
    published_std: float | None

    @property
    def difference(self) -> float | None:
        """Our mean minus the published one."""
        return None if self.published_mean is None else self.mean - self.published_mean


@dataclass(frozen=True)
class Agreement:
    """In how many games a PPO group reaches about what is published, by its late reward."""

    group: str
    games: tuple[str, ...]  # those that are compared
    outside: tuple[GameValue, ...]  # those whose mean is further from the published one than the tolerance


@dataclass(frozen=True, eq=False)
class GroupScores:
    """Normalised scores of one group over the games and seeds that all groups have."""

    group: str
    scores: dict[str, tuple[float, ...]]  # game → the score of each seed
    aggregates: Aggregates
    why_no_interval: str  # empty where the aggregates have intervals
    published: Aggregates | None  # of the published means of the same games; None where a game has none
    profile: Profile


@dataclass(frozen=True)
class Improvement:
    """How probable it is that a run of the first group is better than one of the second, the mean over games."""

    first: str
    second: str
    probability: Estimate


@dataclass(frozen=True, eq=False)
class MetricScores:
    """The scores on one metric."""

    metric: str
    games: tuple[str, ...]
    groups: tuple[GroupScores, ...]
    improvements: tuple[Improvement, ...]
    notes: tuple[str, ...]  # which games, seeds and groups are not part of it


@dataclass(frozen=True, eq=False)
class GameScores:
    """Sets that differ in nothing but their game: what each group reaches in each game, and over all of them."""

    games: tuple[str, ...]  # those that have published limits of their rewards
    levels: str
    budget: str
    machine: str
    values: tuple[GameValue, ...]
    metrics: tuple[MetricScores, ...]
    notes: tuple[str, ...]
    agreements: tuple[Agreement, ...] = ()  # one for each PPO group

    @property
    def task(self) -> str:
        """What the sets have in common."""
        parts = (self.levels, self.budget, f"on {self.machine or 'an unknown machine'}")
        return ", ".join(part for part in parts if part)

    @property
    def main(self) -> MetricScores | None:
        """The scores that a verdict is about: of most groups and games, on unseen levels before those of training.

        Not the late reward: recipes are chosen by it (recipe_records.py), and agreement is judged by it.
        """
        ordered = (scores for scores in reversed(self.metrics) if scores.metric != LATE)
        return max(ordered, key=lambda scores: (len(scores.groups), len(scores.games)), default=None)

    def value(self, metric: str, game: str, group: str) -> GameValue | None:
        """A group's value of a metric in a game, None where it has none."""
        wanted = (metric, game, group)
        return next((one for one in self.values if (one.metric, one.game, one.group) == wanted), None)
