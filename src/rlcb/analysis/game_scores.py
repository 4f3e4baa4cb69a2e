"""Normalised scores, which can be averaged over games that were trained and measured alike."""

from collections.abc import Sequence

import numpy as np

from rlcb.analysis.records import ComparableSet, GameScores, Group, GroupScores
from rlcb.analysis.statistics import Array, bootstrap_strata, iqm
from rlcb.envs.families import score_range


def scores_over_games(sets: Sequence[ComparableSet], seed: int) -> tuple[GameScores, ...]:
    """Scores for every collection of at least two finished sets that differ in nothing but their game."""
    collections: dict[tuple[str, str, str], list[ComparableSet]] = {}
    for one in sets:
        if one.finished and one.measured and _range(one.measured[0]):
            collections.setdefault((one.levels, one.budget, one.machine), []).append(one)
    return tuple(_game_scores(alike, seed) for alike in collections.values() if len(alike) > 1)


def _game_scores(sets: Sequence[ComparableSet], seed: int) -> GameScores:
    """The scores of every group, on unseen levels if every run has been evaluated there."""
    evaluated = all(one.reward_metric == "evaluation_unseen" for one in sets)
    metric = "evaluation_unseen" if evaluated else "final_reward"
    found: dict[str, dict[str, Array]] = {}
    for one in sets:
        for group in one.measured:
            rewards, limits = group.metrics[metric].values, _range(group)
            if rewards and limits and group.valid:
                low, high = limits
                found.setdefault(group.label, {})[one.env] = (np.array(rewards) - low) / (high - low)
    games = tuple(sorted(one.env for one in sets))
    groups = tuple(_group_scores(label, scores, len(games), seed) for label, scores in found.items())
    return GameScores(games, sets[0].levels, sets[0].budget, sets[0].machine, metric, groups)


def _range(group: Group) -> tuple[float, float] | None:
    """The rewards that count as 0 and 1 in the game of a group; None where none are published."""
    return score_range(group.runs[0].env, group.runs[0].distribution_mode)


def _group_scores(label: str, scores: dict[str, Array], num_games: int, seed: int) -> GroupScores:
    """Mean and IQM with stratified bootstrap intervals: the seeds are resampled within each game."""
    by_game = {game: tuple(float(score) for score in values) for game, values in scores.items()}
    if len(scores) < num_games:
        return GroupScores(label, by_game)
    strata = list(scores.values())
    mean, middle = float(np.mean([values.mean() for values in strata])), float(iqm(np.concatenate(strata)))
    intervals = bootstrap_strata(strata, seed) or (None, None)
    return GroupScores(label, by_game, mean, intervals[0], middle, intervals[1])
