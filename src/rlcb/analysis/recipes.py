"""The rule that chooses a recipe: the variants of an algorithm and mode, ranked by one metric over all games."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from rlcb.analysis.aggregates import normalized
from rlcb.analysis.best import listed
from rlcb.analysis.game_records import LATE
from rlcb.analysis.games import limits_of
from rlcb.analysis.grouping import setting_text
from rlcb.analysis.metrics import METRIC, REWARD
from rlcb.analysis.recipe_records import EQUAL_TIME, Recipe, RecipeRanking
from rlcb.analysis.records import ComparableSet, Group
from rlcb.analysis.run import Run
from rlcb.analysis.statistics import LEVEL, Array, holm, value_at, welch_over_strata, width_of
from rlcb.analysis.text import interval_text, number_text
from rlcb.analysis.untrusted import plain
from rlcb.words import counted

BASE = "base"  # the name of the variant that others are described against
_FEWEST = 2  # variants that make a ranking
Seeds = dict[int | str, float]  # seed → value
ByGame = dict[str, Seeds]


def rank_recipes(sets: Sequence[ComparableSet]) -> tuple[RecipeRanking, ...]:
    """A ranking for each algorithm and mode with variants, over all finished sets that differ in their game alone."""
    found: list[RecipeRanking] = []
    for alike in _collections(sets):
        kinds = dict.fromkeys((group.algorithm, group.mode) for one in alike for group in one.groups if group.variant)
        for kind in kinds:
            found += _rankings(alike, kind)
    return tuple(found)


def _collections(sets: Sequence[ComparableSet]) -> list[list[ComparableSet]]:
    """Sets with the same levels, budget and machine; one whose rewards cannot be normalised is alone."""
    collections: dict[tuple[str, ...], list[ComparableSet]] = {}
    for one in sets:
        if one.finished and one.measured:
            alone = () if limits_of(one) else (one.env,)
            collections.setdefault((one.levels, one.budget, one.machine, *alone), []).append(one)
    return [sorted(alike, key=lambda one: one.env) for alike in collections.values()]


def _rankings(sets: Sequence[ComparableSet], kind: tuple[str, str]) -> Iterator[RecipeRanking]:
    """The rankings of one algorithm and mode: by late reward, then at equal time if each run had its machine alone."""
    by_steps = _ranking(sets, kind, LATE)
    if by_steps is None:
        return
    runs = [run for one in sets for group in _groups_of(one, kind) for run in group.runs]
    shared, disturbed = sum(run.jobs_beside > 0 for run in runs), sum(run.disturbed for run in runs)
    if shared or disturbed:
        parts = [f"{shared} of {counted(len(runs), 'run')} shared the machine (use --jobs 1)"] if shared else []
        parts += [f"{disturbed} of {counted(len(runs), 'run')} disturbed by other programs"] if disturbed else []
        yield replace(by_steps, notes=(*by_steps.notes, f"not ranked at equal time: {', '.join(parts)}"))
        return
    yield by_steps
    if by_time := _ranking(sets, kind, EQUAL_TIME):
        yield by_time


def _groups_of(one: ComparableSet, kind: tuple[str, str]) -> list[Group]:
    return [group for group in one.groups if (group.algorithm, group.mode) == kind]


def _ranking(sets: Sequence[ComparableSet], kind: tuple[str, str], metric: str) -> RecipeRanking | None:
    """The variants by their mean over games; None where fewer than two have a value in every game."""
    values = {one.env: _values(one, kind, metric) for one in sets}
    games = [one.env for one in sets if values[one.env]]
    labels = list(dict.fromkeys(group.label for one in sets for group in _groups_of(one, kind)))
    ranked: dict[str, ByGame] = {
        label: {game: values[game][label] for game in games}
        for label in labels
        if all(label in values[game] for game in games)
    }
    if len(ranked) < _FEWEST or not games:
        return None
    notes = [_why_not(label, sets, values, games) for label in labels if label not in ranked]
    kept, said = _same_seeds(ranked, games)
    limits = {one.env: limits_of(one) for one in sets if one.env in games}
    normalize = len(games) > 1  # all of them have limits then
    strata = {
        label: [_scores(by_game[game], limits[game] if normalize else None) for game in games]
        for label, by_game in kept.items()
    }
    made = [_recipe(sets, kind, label, kept[label], strata[label]) for label in kept]
    made.sort(key=lambda recipe: -recipe.score)
    recipes = _compared(made, strata)
    first = sets[0]
    return RecipeRanking(
        *kind, metric, first.levels, first.budget, first.machine, tuple(games), normalize, tuple(recipes),
        (*notes, *said), _verdict(recipes, metric, normalize),
    )  # fmt: skip


def _values(one: ComparableSet, kind: tuple[str, str], metric: str) -> dict[str, Seeds]:
    """By the name of each group that may be ranked, the values of its seeds."""
    found: dict[str, Seeds] = {}
    groups = _groups_of(one, kind)
    ends = (float(run.history.time[-1]) for group in groups for run in group.runs if len(run.history))
    seconds = min(ends, default=0.0)  # that all of them trained for
    for group in groups:
        named = ((run.name if run.seed is None else run.seed, _value(run, metric, seconds)) for run in group.runs)
        known = {name: value for name, value in named if value is not None}
        if known and group.valid:
            found[group.label] = known
    return found


def _value(run: Run, metric: str, seconds: float) -> float | None:
    """The late reward of a run, or what it had reached after this many seconds."""
    return (
        run.metrics.late_reward if metric == LATE else value_at(run.history.time, run.history.settled_reward, seconds)
    )


def _why_not(
    label: str, sets: Sequence[ComparableSet], values: dict[str, dict[str, Seeds]], games: Sequence[str]
) -> str:
    """Why a group is not ranked."""
    missing = [game for game in games if label not in values[game]]
    groups = [group for one in sets if one.env in missing for group in one.groups if group.label == label]
    failed = sum(len(group.failed) for group in groups)
    why = f" ({counted(failed, 'run')} failed)" if failed else ""
    return f"not ranked: {label}, no value in {listed(missing)}{why}"


def _same_seeds(ranked: dict[str, ByGame], games: Sequence[str]) -> tuple[dict[str, ByGame], list[str]]:
    """The values of the seeds that all recipes have in a game; and where that is not all of them, in words."""
    kept: dict[str, ByGame] = {label: {} for label in ranked}
    fewer, unlike = [], []
    for game in games:
        common = set.intersection(*(set(by_game[game]) for by_game in ranked.values()))
        for label, by_game in ranked.items():
            kept[label][game] = {seed: value for seed, value in by_game[game].items() if seed in common or not common}
        if not common:
            unlike.append(game)
        elif any(len(by_game[game]) > len(common) for by_game in ranked.values()):
            fewer.append(game)
    notes = [f"only seeds that all variants have are used; some have more in {listed(fewer)}"] if fewer else []
    notes += [f"the variants have no seed in common in {listed(unlike)}, so each uses its own"] if unlike else []
    return kept, notes


def _scores(values: Seeds, limits: tuple[float, float] | None) -> Array:
    rewards = np.array(list(values.values()))
    return normalized(rewards, limits) if limits else rewards


def _recipe(
    sets: Sequence[ComparableSet], kind: tuple[str, str], label: str, by_game: ByGame, strata: Sequence[Array]
) -> Recipe:
    one, group = next((one, group) for one in sets for group in _groups_of(one, kind) if group.label == label)
    rewards = {game: tuple(values.values()) for game, values in by_game.items()}
    score = float(np.mean([values.mean() for values in strata]))
    return Recipe(label, group.variant, _changes(one, kind, group), rewards, score)


def _changes(one: ComparableSet, kind: tuple[str, str], group: Group) -> dict[str, Any] | None:
    """What a variant changes: against `base`, else a group without a variant, else where it differs from any other."""
    plain_ones = [other for other in _groups_of(one, kind) if other.variant in (BASE, "")]
    reference = max(plain_ones, key=lambda other: other.variant, default=None)
    if reference is group:
        return None
    if reference is None:
        return dict(one.variants.get(group.label, {}))
    keys = dict.fromkeys((*reference.settings, *group.settings))
    differing = [key for key in keys if group.settings.get(key) != reference.settings.get(key)]
    return {key: group.settings.get(key) for key in differing}


def _compared(recipes: Sequence[Recipe], strata: dict[str, list[Array]]) -> list[Recipe]:
    """The recipes in their order, each with its difference from the first."""
    best, *others = recipes
    tests = [welch_over_strata(strata[other.group], strata[best.group]) for other in others]
    corrected = holm([test[1] if test else None for test in tests])
    found = [best]
    for other, test, holm_p in zip(others, tests, corrected, strict=True):
        interval, p = test or (None, None)
        below = interval is not None and interval[1] < 0 and holm_p is not None and holm_p < 1 - LEVEL
        found.append(replace(other, difference=other.score - best.score, interval=interval, p=p, holm_p=holm_p,
                             established=below))  # fmt: skip
    return found


def _verdict(recipes: Sequence[Recipe], metric: str, normalize: bool) -> str:
    """The pick, and whether its lead is more than chance."""
    best, second, *_ = recipes
    form, width = "z.3f" if normalize else REWARD, width_of(second.interval)
    pick = f"Pick ({METRIC[metric].title})"
    lead = f"{pick}: {best.group} has the highest mean ({number_text(best.score, form, width)})"
    gap = f"its lead over the next ({second.group}, {number_text(second.score, form, width)})"
    if second.interval is None:
        few = any(len(seeds) < 2 for recipe in (best, second) for seeds in recipe.rewards.values())
        why = "one seed" if few else "no variation between seeds"
        return f"{lead}; {gap} is not established ({why})."
    low, high = -second.interval[1], -second.interval[0]
    judged = "is established" if second.established else "is not established"
    behind = sum(recipe.established for recipe in recipes[1:])
    span = f"{number_text(-second.difference, form, width)} {interval_text((low, high), form)}"
    others = f"Its lead is established over {behind} of {counted(len(recipes) - 1, 'other')}"
    return f"{lead}; {gap} {judged}: {span}. {others}."


def changes_text(recipe: Recipe) -> str:
    """What a recipe changes, in a line."""
    if recipe.changes is None:
        return "as configured"
    return ", ".join(plain(f"{key} {setting_text(value)}") for key, value in recipe.changes.items()) or "nothing"
