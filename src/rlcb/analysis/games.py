"""Groups over several games: values beside the published ones, and aggregates of normalised scores."""

from collections.abc import Sequence
from itertools import combinations

import numpy as np

from rlcb.analysis.aggregates import (
    Aggregates,
    aggregate,
    normalized,
    probability_of_improvement,
    profile,
    thresholds_for,
    why_no_interval,
)
from rlcb.analysis.game_records import (
    FINAL,
    LATE,
    SCORED,
    UNSEEN,
    Agreement,
    GameScores,
    GameValue,
    GroupScores,
    Improvement,
    MetricScores,
)
from rlcb.analysis.published import PublishedCurve, published_curve
from rlcb.analysis.records import ComparableSet, Group
from rlcb.analysis.run import LATE_STEPS, Run
from rlcb.analysis.statistics import Array
from rlcb.envs.families import score_range

Rewards = dict[str, dict[str, dict[int | str, float]]]  # group → game → seed → reward
_FEWEST_GAMES = 2  # that make an aggregate
# A group agrees with the published runs within so many of their standard deviations, at least this part of the range.
DEVIATIONS, PART_OF_RANGE = 3.0, 0.1


def scores_over_games(sets: Sequence[ComparableSet], seed: int) -> tuple[GameScores, ...]:
    """Scores for every collection of at least two finished sets that differ in nothing but their game."""
    collections: dict[tuple[str, str, str], list[ComparableSet]] = {}
    others: dict[tuple[str, str], list[str]] = {}
    for one in sets:
        if one.finished and one.measured and limits_of(one):
            collections.setdefault((one.levels, one.budget, one.machine), []).append(one)
        elif one.finished and one.measured:
            others.setdefault((one.budget, one.machine), []).append(one.env)
    found = []
    for (levels, budget, machine), alike in collections.items():
        if len(alike) >= _FEWEST_GAMES:
            alike.sort(key=lambda one: one.env)
            without = sorted(others.get((budget, machine), ()))
            notes = [f"not included, because they have no published reward range: {', '.join(without)}"]
            found.append(_game_scores(alike, (levels, budget, machine), notes if without else [], seed))
    return tuple(found)


def limits_of(one: ComparableSet) -> tuple[float, float] | None:
    """The rewards that count as 0 and 1 in a set's game, where they are published."""
    return score_range(one.env, one.measured[0].runs[0].distribution_mode)


def _game_scores(
    sets: Sequence[ComparableSet], task: tuple[str, str, str], notes: Sequence[str], seed: int
) -> GameScores:
    values = tuple(
        value
        for one in sets
        for group in one.measured
        for metric in SCORED
        if (value := _game_value(one, group, metric))
    )
    metrics = tuple(scores for metric in SCORED if (scores := _metric_scores(sets, metric, seed)))
    agreements = _agreements(sets, values)
    return GameScores(tuple(one.env for one in sets), *task, values, metrics, tuple(notes), agreements)


def _agreements(sets: Sequence[ComparableSet], values: Sequence[GameValue]) -> tuple[Agreement, ...]:
    """For each PPO group, the games in which its late reward is about the published one, and those where it is not."""
    groups = dict.fromkeys(group.label for one in sets for group in one.measured if group.algorithm == "ppo")
    limits = {one.env: limits_of(one) or (0.0, 1.0) for one in sets}
    found = []
    for label in groups:
        known = [one for one in values if (one.metric, one.group) == (LATE, label) and one.published_mean is not None]
        outside = [one for one in known if abs(one.difference or 0.0) > _tolerance(one, limits[one.game])]
        if known:
            found.append(Agreement(label, tuple(one.game for one in known), tuple(outside)))
    return tuple(found)


def _tolerance(value: GameValue, limits: tuple[float, float]) -> float:
    """How far from the published mean a reward may be to agree with it."""
    return max(DEVIATIONS * (value.published_std or 0.0), PART_OF_RANGE * (limits[1] - limits[0]))


def _game_value(one: ComparableSet, group: Group, metric: str) -> GameValue | None:
    summary = group.metrics[metric]
    if summary.mean is None:
        return None
    steps = group.metrics["env_steps"].mean
    curve = published_of(group.runs[0], metric)
    at = None if steps is None else steps - (LATE_STEPS / 2 if metric == LATE else 0)  # the middle of its window
    mean, std = (curve.at(at) if curve and at is not None else None) or (None, None)
    return GameValue(metric, one.env, group.label, summary.n, steps, summary.mean, summary.std, mean, std)


def published_of(run: Run, metric: str) -> PublishedCurve | None:
    """The published curve to set beside a metric of a run, if there is one for its task."""
    return published_curve(run.game, run.distribution_mode, run.num_levels, run.start_level, metric == UNSEEN)


def _metric_scores(sets: Sequence[ComparableSet], metric: str, seed: int) -> MetricScores | None:
    """The aggregates on one metric over what all groups have; None where that is less than two games."""
    rewards: Rewards = {}
    for one in sets:
        for group in one.measured:
            named = ((run.name if run.seed is None else run.seed, _reward(run, metric, one)) for run in group.runs)
            known = {name: value for name, value in named if value is not None}
            if known and group.valid:
                rewards.setdefault(group.label, {})[one.env] = known
    kept, notes = _in_common(rewards, [one.env for one in sets])
    if not kept:
        return None
    games = [one for one in sets if one.env in next(iter(kept.values()))]
    limits = {one.env: limits_of(one) or (0.0, 1.0) for one in games}
    strata = {label: _strata(by_game, limits) for label, by_game in kept.items()}
    thresholds = thresholds_for(list(strata.values()))
    groups = tuple(
        GroupScores(
            group=label,
            scores={game: tuple(scores.tolist()) for game, scores in zip(limits, mine, strict=True)},
            aggregates=aggregate(mine, seed),
            why_no_interval=why_no_interval(mine),
            published=_published_aggregates(games, label, metric, limits),
            profile=profile(mine, thresholds, seed),
        )
        for label, mine in strata.items()
    )
    pairs = tuple(
        Improvement(first, second, probability_of_improvement(strata[first], strata[second], seed))
        for first, second in combinations(strata, 2)
    )
    labels = dict.fromkeys(group.label for one in sets for group in one.measured)
    without = [label for label in labels if label not in rewards]
    notes += [f"no values for {', '.join(without)}"] if without else []
    return MetricScores(metric, tuple(limits), groups, pairs, tuple(notes))


def _reward(run: Run, metric: str, one: ComparableSet) -> float | None:
    """One run's value of a metric."""
    if metric in (FINAL, LATE):
        return run.compared_reward if metric == FINAL else run.metrics.late_reward
    played = run.evaluations.find(run.env, "unseen" if metric == UNSEEN else "train", one.evaluation_policy)
    return played.mean_reward if played else None


def _in_common(rewards: Rewards, games: Sequence[str]) -> tuple[Rewards, list[str]]:
    """The rewards in the games, and of the seeds, that all groups have; and what is left out, in words."""
    notes: list[str] = []
    if not rewards:
        return {}, notes
    most = max(len(by_game) for by_game in rewards.values())
    if len(_shared_games(rewards, games)) < _FEWEST_GAMES:
        left_out = [label for label, by_game in rewards.items() if len(by_game) < most]
        rewards = {label: by_game for label, by_game in rewards.items() if label not in left_out}
        notes += [f"not included, because fewer than two games are common to all groups: {', '.join(left_out)}"]
    shared = _shared_games(rewards, games)
    if len(shared) < _FEWEST_GAMES:
        return {}, []
    missing = [game for game in games if game not in shared]
    if missing:
        notes.append(f"over the {len(shared)} games that all groups have; not included: {', '.join(missing)}")
    kept: Rewards = {label: {} for label in rewards}
    fewer = []
    for game in shared:
        common = set.intersection(*(set(by_game[game]) for by_game in rewards.values()))
        for label, by_game in rewards.items():
            known = by_game[game]
            # A seed is only a name: where the groups have none in common, each keeps its own.
            kept[label][game] = {name: value for name, value in known.items() if name in common or not common}
        if any(len(kept[label][game]) < len(by_game[game]) for label, by_game in rewards.items()):
            fewer.append(game)
    if fewer:
        notes.append(f"only seeds that all groups have are used; some groups have more in {', '.join(fewer)}")
    return kept, notes


def _shared_games(rewards: Rewards, games: Sequence[str]) -> list[str]:
    return [game for game in games if all(game in by_game for by_game in rewards.values())]


def _strata(by_game: dict[str, dict[int | str, float]], limits: dict[str, tuple[float, float]]) -> list[Array]:
    return [normalized(np.array(list(by_game[game].values())), limits[game]) for game in limits]


def _published_aggregates(
    games: Sequence[ComparableSet], label: str, metric: str, limits: dict[str, tuple[float, float]]
) -> Aggregates | None:
    """The aggregates of the published means after as many steps as the group has; None where a game has none."""
    strata = []
    for one in games:
        group = next(group for group in one.measured if group.label == label)
        value = _game_value(one, group, metric)
        if value is None or value.published_mean is None:
            return None
        strata.append(normalized(np.array([value.published_mean]), limits[one.env]))
    return aggregate(strata, 0)
