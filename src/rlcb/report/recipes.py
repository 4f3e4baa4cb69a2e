"""The part of a report about recipes: the ranking of an algorithm's variants, and the one that the rule picks."""

from collections.abc import Iterator

import numpy as np

from rlcb.analysis.metrics import METRIC, REWARD
from rlcb.analysis.recipe_records import EQUAL_TIME, Recipe, RecipeRanking
from rlcb.analysis.recipes import changes_text
from rlcb.analysis.records import Comparison
from rlcb.analysis.statistics import width_of
from rlcb.analysis.text import interval_text, number_text, with_minus
from rlcb.report.document import Block, Cell, Section, Text, make_table
from rlcb.words import with_deviation

_RULE = (
    "Rule: the variant with the highest mean is picked. Difference: from the best variant, with Welch’s 95 % interval "
    "over seeds; it is established if the interval excludes zero and p remains significant after Holm’s correction. "
    "The best of several variants is biased upwards by the selection: report it from runs with other seeds."
)
_CHANGES = "What it changes"


def recipe_sections(comparison: Comparison) -> list[Section]:
    """One section with all rankings, none where there are none."""
    blocks = [block for ranking in comparison.recipes for block in _blocks(ranking)]
    return [Section("Recipes", "recipes", (Text("paragraph", _RULE), *blocks))] if blocks else []


def _blocks(ranking: RecipeRanking) -> Iterator[Block]:
    yield Text("lead", ranking.verdict)
    rows = []
    for place, recipe in enumerate(ranking.recipes, 1):
        cells = {
            title: Cell(text if title == _CHANGES else with_minus(text), with_minus(detail), strong=place == 1)
            for title, (text, detail) in _columns(ranking, recipe).items()
        }
        rows.append({"Group": Cell(recipe.group, group=True, strong=place == 1), **cells})
    yield make_table(f"{recipe_title(ranking)}. {_about(ranking)}", rows, "l" + "r" * (len(rows[0]) - 2) + "l")
    if ranking.notes:
        yield Text("items", ranking.notes)


def recipe_title(ranking: RecipeRanking) -> str:
    """What is ranked, and by what."""
    over = f"normalised, mean of {len(ranking.games)} games" if ranking.normalized else f"in {ranking.games[0]}"
    return f"Recipes of {ranking.title}: {METRIC[ranking.metric].title}, {over}"


def _about(ranking: RecipeRanking) -> str:
    """What the ranking is of."""
    task = ", ".join(text for text in (ranking.levels, ranking.budget, ranking.machine) if text)
    time = " Equal time: in each game, the longest time that all of these runs reached." * (
        ranking.metric == EQUAL_TIME
    )
    return f"{task}; games: rewards, mean ± standard deviation over seeds.{time}"


def recipe_lines(ranking: RecipeRanking) -> list[str]:
    """The ranking as lines of text."""
    table = [["", "variant", *(title.lower() for title in _columns(ranking, ranking.pick))]]
    for place, recipe in enumerate(ranking.recipes, 1):
        cells = (f"{text} {detail}".rstrip() for text, detail in _columns(ranking, recipe).values())
        table.append([f"{place}.", recipe.variant or recipe.group, *cells])
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = ["  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in table]
    return [lines[0], "-" * min(max(map(len, lines)), 125), *lines[1:]]


def _columns(ranking: RecipeRanking, recipe: Recipe) -> dict[str, tuple[str, str]]:
    """By the title of each column the value of a recipe, and what follows it: an interval or a deviation."""
    form = "z.3f" if ranking.normalized else REWARD
    found = {"Mean": (number_text(recipe.score, form), ""), "Difference": ("best", ""), "Established": ("–", "")}
    if recipe is not ranking.pick:
        interval = interval_text(recipe.interval, form) if recipe.interval else "[n/a]"
        found["Difference"] = (number_text(recipe.difference, f"+{form}", width_of(recipe.interval)), interval)
        found["Established"] = ("yes" if recipe.established else "no", "")
    if ranking.normalized:
        found |= {game: _reward(recipe.rewards[game]) for game in ranking.games}
    else:
        found["Mean"] = _reward(recipe.rewards[ranking.games[0]])
        found["Seeds"] = (str(len(recipe.rewards[ranking.games[0]])), "")
    return {**found, _CHANGES: (changes_text(recipe), "")}


def _reward(values: tuple[float, ...]) -> tuple[str, str]:
    return with_deviation(float(np.mean(values)), float(np.std(values, ddof=1)) if len(values) > 1 else None)
