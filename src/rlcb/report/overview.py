"""What several comparable sets show together: one line each, and scores that can be averaged over games."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from rlcb.analysis.intervals import LEVEL
from rlcb.analysis.records import METRIC, ComparableSet, Group
from rlcb.analysis.statistics import RESAMPLES, Array, Interval, iqm, varies
from rlcb.envs.score_ranges import normalized_score
from rlcb.report.document import Block, Cell, Table, cells
from rlcb.report.tables import Colours, name_cell, winner_cell


@dataclass(frozen=True)
class GameScores:
    """A group's normalised scores over games; intervals draw the seeds of each game anew."""

    group: Group
    games: int
    mean: float | None
    mean_interval: Interval | None
    iqm: float | None
    iqm_interval: Interval | None


def overview_blocks(sets: Sequence[ComparableSet], colours: Colours, seed: int) -> Iterator[Block]:
    """A row for each set, then normalised scores for sets that differ in nothing but their game."""
    rows = []
    for number, one in enumerate(sets, 1):
        metric, _ = _metric([one])
        winners = [winner_cell(one, name, colours) for name in ("average_fps", metric)]
        count = sum(len(group.runs) for group in one.groups)
        rows.append(cells(f"{number}. {one.title}", str(count), *winners, METRIC[metric].title))
    caption = "What was compared, and who is ahead where that can be told; runs of different sets are never pooled."
    heads = ("Set", "Runs", "Winner in speed", "Winner in reward", "Reward")
    yield Table(caption, "lrlll", heads, tuple(rows))
    for family in families(sets):
        metric, word = _metric(family)
        scores = game_scores(family, metric, seed)
        rows = [
            cells(
                name_cell(one.group, colours),
                f"{one.games} of {len(family)}",
                _cell(one.mean, one.mean_interval),
                _cell(one.iqm, one.iqm_interval),
            )
            for one in scores
        ]
        caption = f"Normalised score over {len(family)} games ({', '.join(sorted(one.env for one in family))}; "
        caption += f"{family[0].levels}): {word}, 0 for a policy that sees nothing, 1 for the published maximum, with "
        caption += "95 % intervals. Mean: of the games’ means; IQM: of all seeds of all games."
        yield Table(caption, "lrrr", ("Group", "Games", "Mean", "IQM"), tuple(rows))


def families(sets: Sequence[ComparableSet]) -> list[list[ComparableSet]]:
    """Finished sets that differ in nothing but their Procgen game, at least two together."""
    found: dict[tuple[str, str, str], list[ComparableSet]] = {}
    for one in sets:
        runs = [run for group in one.groups for run in group.runs]
        if one.finished and runs and normalized_score(runs[0].env, runs[0].distribution_mode, 0.0) is not None:
            found.setdefault((one.levels, one.budget, one.machine), []).append(one)
    return [family for family in found.values() if len(family) > 1]


def _metric(family: Sequence[ComparableSet]) -> tuple[str, str]:
    """The reward that every run of a family has: on unseen levels if possible."""
    groups = [group for one in family for group in one.groups if group.runs]
    evaluated = groups and all(group.metrics["evaluation_unseen"].n == len(group.runs) for group in groups)
    return ("evaluation_unseen", "evaluation on unseen levels") if evaluated else ("final_reward", "final reward")


def game_scores(family: Sequence[ComparableSet], metric: str, seed: int) -> list[GameScores]:
    """The scores of every group of a family; only a group that has every game gets a figure."""
    found: dict[str, list[tuple[Group, Array]]] = {}
    for one in family:
        for group in one.groups:
            values = [_score(group, value) for value in group.metrics[metric].values]
            if values and group.valid:
                found.setdefault(group.label, []).append((group, np.array(values)))
    return [_summed_up(games, len(family), seed) for games in found.values()]


def _score(group: Group, reward: float) -> float:
    score = normalized_score(group.runs[0].env, group.runs[0].distribution_mode, reward)
    assert score is not None  # families have none but games with constants
    return score


def _summed_up(games: Sequence[tuple[Group, Array]], wanted: int, seed: int) -> GameScores:
    group = games[0][0]
    if len(games) < wanted:
        return GameScores(group, len(games), None, None, None, None)
    strata = [scores for _, scores in games]
    mean, middle = float(np.mean([scores.mean() for scores in strata])), float(iqm(np.concatenate(strata)))
    if not all(varies(scores) for scores in strata):
        return GameScores(group, len(games), mean, None, middle, None)
    rng = np.random.default_rng(seed)
    drawn = [scores[rng.integers(0, len(scores), (RESAMPLES, len(scores)))] for scores in strata]
    bounds = 50 * (1 - LEVEL), 50 * (1 + LEVEL)
    low, high = np.percentile(np.mean([draws.mean(axis=1) for draws in drawn], axis=0), bounds)
    low_iqm, high_iqm = np.percentile(iqm(np.concatenate(drawn, axis=1)), bounds)
    spans = (float(low), float(high)), (float(low_iqm), float(high_iqm))
    return GameScores(group, len(games), mean, spans[0], middle, spans[1])


def _cell(value: float | None, interval: Interval | None) -> Cell:
    if value is None:
        return Cell("n/a", "not all games")
    text = f"[{interval[0]:.2f}, {interval[1]:.2f}]" if interval else "[n/a]"
    return Cell(f"{value:.2f}".replace("-", "−"), text.replace("-", "−"))
