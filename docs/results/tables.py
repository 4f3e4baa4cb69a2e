"""Prints the tables of the recipes in docs/results.md from the CSV files beside it.

usage: python docs/results/tables.py

In the document, the tables of the searches have one more column, which says what a variant changes.
"""

import csv
from itertools import combinations
from pathlib import Path

import numpy as np

from rlcb.analysis.published import published_curve
from rlcb.analysis.statistics import Array, welch
from rlcb.envs.families import normalized_score

HERE = Path(__file__).parent
GAMES = {"coinrun": "CoinRun", "maze": "Maze", "starpilot": "StarPilot"}
NAMES = {"ppo": "PPO", "impala": "IMPALA", "a2c": "A2C", "a3c": "A3C"}
PICKS = {  # of the searches: the default recipes
    "ppo": "discount-99-low-entropy",
    "impala": "discount-99",
    "a2c": "discount-99-high-rate",
    "a3c": "discount-99-high-rate",
}
WAYS = {
    ("ppo", "sequential"): "PPO sequential",
    ("ppo", "parallel"): "PPO, 2 workers",
    ("impala", "sequential"): "IMPALA sequential",
    ("impala", "parallel"): "IMPALA, 2 actors, 2 learners",
    ("a2c", "sequential"): "A2C sequential",
    ("a2c", "parallel"): "A2C, 2 workers",
    ("a3c", "parallel"): "A3C, 4 workers",
}
MACHINES = {"sequential": "one H200, 16 cores, fp32", "parallel": "2 cores of an AMD EPYC, bf16"}
EQUAL_TIME = {  # of the variants in equal_time.csv: algorithm, variant → name
    ("ppo", "two-epochs"): "PPO, 2 epochs",
    ("impala", "two-epochs"): "IMPALA, 2 epochs",
    ("impala", "one-epoch"): "IMPALA, 1 epoch",
}
LATE, TRAINING, UNSEEN = MEASURES = ("late_reward", "evaluated_training_levels", "evaluated_unseen_levels")
MEASURED = ("last 250,000 steps, each seed", "mean ± std", "evaluated, training levels", "evaluated, unseen levels")
SEARCH_SEEDS = {"101", "102", "103"}
Rows = list[dict[str, str]]


def read(name: str, **wanted: str) -> Rows:
    """The rows of a CSV file with these texts in these columns, in the order of their seeds."""
    with (HERE / name).open() as file:
        rows = [row for row in csv.DictReader(file) if all(row[key] == text for key, text in wanted.items())]
    return sorted(rows, key=lambda row: int(row["seed"]))


def column(rows: Rows, game: str, measure: str = LATE) -> Array:
    """One measure of the runs in a game."""
    return np.array([float(row[measure]) for row in rows if row["game"] == game])


def normalized(game: str, rewards: Array) -> Array:
    """The normalised scores of rewards."""
    return np.array([normalized_score(game, "easy", float(reward)) for reward in rewards], float)


def each(rewards: Array) -> str:
    """The values themselves."""
    return ", ".join(f"{reward:.2f}" for reward in rewards)


def spread(values: Array, digits: int = 2) -> str:
    """Mean ± standard deviation."""
    return f"{values.mean():.{digits}f} ± {values.std(ddof=1):.{digits}f}"


def bold(text: str, when: bool = True) -> str:
    """The text in bold."""
    return f"**{text}**" if when else text


def row(*cells: str) -> str:
    """A line of a table."""
    return f"| {' | '.join(cells)} |".replace("|  |", "| |").replace("|  |", "| |")


def head(*cells: str) -> list[str]:
    """The first two lines of a table."""
    return [row(*cells), "|---" * len(cells) + "|"]


def by_game(rows: Rows) -> tuple[float, list[str]]:
    """A recipe's normalised mean over the games, and for each game the mean of its seeds and the seeds."""
    rewards = {game: column(rows, game) for game in GAMES}
    mean = float(np.mean([normalized(game, values).mean() for game, values in rewards.items()]))
    cells = [f"{values.mean():.2f}" + (f" ({each(values)})" if len(values) > 1 else "") for values in rewards.values()]
    return mean, cells


def difference(first: Array, second: Array) -> tuple[str, bool]:
    """The difference of two means with Welch's 95 % interval, and whether that excludes zero."""
    test = welch(first, second)
    if test is None:
        raise ValueError("a difference needs at least two runs on both sides")
    low, high = test.interval
    text = f"{first.mean() - second.mean():.2f} ({low:.2f} to {high:.2f})".replace("-", "−")
    return text, low > 0 or high < 0


def search(algorithm: str) -> list[str]:
    """All variants of a search, the best first."""
    rows = [one for one in read("search.csv", algorithm=algorithm) if one["seed"] in SEARCH_SEEDS]
    found = [(*by_game([one for one in rows if one["variant"] == name]), name) for name in {r["variant"] for r in rows}]
    lines = head(NAMES[algorithm], "normalised mean", *GAMES.values())
    for mean, cells, name in sorted(found, reverse=True):
        lines.append(row(bold(name, name == PICKS[algorithm]), bold(f"{mean:.3f}", name == PICKS[algorithm]), *cells))
    return lines


def equal_time() -> list[str]:
    """Variants with fewer epochs and more steps beside the defaults."""
    measured = "reward over the last 250,000 steps", "steps", "CoinRun (101, 102, 103)", "Maze", "StarPilot"
    lines = head(*measured, "normalised mean", "CoinRun, less the default's (Welch's 95 % interval)")
    for algorithm, epochs in (("ppo", 4), ("impala", 3)):
        default = read("search.csv", algorithm=algorithm, variant=PICKS[algorithm])
        tried = {
            name: read("equal_time.csv", algorithm=algorithm, variant=variant)
            for (of, variant), name in EQUAL_TIME.items()
            if of == algorithm
        }
        recipes = {f"{NAMES[algorithm]}, {epochs} epochs (default)": default, **tried}
        best = max(by_game(rows)[0] for rows in recipes.values())
        for name, rows in recipes.items():
            mean, cells = by_game(rows)
            beside = "" if rows is default else difference(column(rows, "coinrun"), column(default, "coinrun"))[0]
            lines.append(row(name, f"{int(rows[0]['steps']):,}", *cells, bold(f"{mean:.3f}", mean == best), beside))
    return lines


def reported(way: tuple[str, str]) -> Rows:
    """The runs of a default recipe with the report seeds."""
    algorithm, mode = way
    return read("report.csv", recipe=PICKS[algorithm], algorithm=algorithm, mode=mode)


def published(game: str, unseen: bool = False) -> str:
    """The published PPO's reward after two million steps."""
    curve = published_curve(game, "easy", 200, 0, unseen)
    point = curve.at(2e6) if curve else None
    if point is None:
        raise LookupError(f"no published reward in {game}")
    return f"{point[0]:.2f} ± {point[1]:.2f}"


def report_of(game: str) -> list[str]:
    """All ways to train in a game, and the published PPO."""
    lines = head(GAMES[game], *MEASURED, "machine")
    for way, name in WAYS.items():
        late, training, unseen = (column(reported(way), game, measure) for measure in MEASURES)
        cells = each(late), bold(spread(late)), spread(training), spread(unseen), MACHINES[way[1]]
        lines.append(row(name, *cells))
    return [*lines, row("published PPO, 3 runs", "", published(game), "", published(game, unseen=True), "")]


def report_over_games() -> list[str]:
    """The normalised means of the games: mean and standard deviation over the seeds."""
    lines = head("normalised mean of the games", "last 250,000 steps", "evaluated, training levels", "unseen levels")
    for way, name in WAYS.items():
        rows = reported(way)
        means = [np.mean([normalized(game, column(rows, game, one)) for game in GAMES], axis=0) for one in MEASURES]
        lines.append(row(name, *(spread(mean, 3) for mean in means)))
    return lines


def report_differences() -> list[str]:
    """Differences of the algorithms in each mode, and of the modes of each algorithm; bold where zero is excluded."""
    pairs = {
        f"{NAMES[one]} − {NAMES[other]}, {mode}": ((one, mode), (other, mode))
        for mode in MACHINES
        for one, other in combinations(NAMES, 2)
        if (one, mode) in WAYS and (other, mode) in WAYS
    }
    for algorithm, name in NAMES.items():
        if (algorithm, "sequential") in WAYS:
            pairs[f"{name}, parallel − sequential"] = (algorithm, "parallel"), (algorithm, "sequential")
    lines = head("difference", *GAMES.values())
    for name, sides in pairs.items():
        first, second = map(reported, sides)
        lines.append(row(name, *(bold(*difference(column(first, game), column(second, game))) for game in GAMES)))
    return lines


def earlier_picks() -> list[str]:
    """PPO's and IMPALA's picks of the first two rounds with the report seeds."""
    lines = head("", "game", *MEASURED)
    for algorithm in ("ppo", "impala"):
        rows, name = read("report.csv", recipe="linear", algorithm=algorithm), f"{NAMES[algorithm]}, `linear`"
        for number, (game, title) in enumerate(GAMES.items()):
            late, training, unseen = (column(rows, game, measure) for measure in MEASURES)
            lines.append(row("" if number else name, title, each(late), spread(late), spread(training), spread(unseen)))
    return lines


def tables() -> list[list[str]]:
    """All tables, each as its lines."""
    searches, reports = [search(algorithm) for algorithm in NAMES], [report_of(game) for game in GAMES]
    return [*searches, equal_time(), *reports, report_over_games(), report_differences(), earlier_picks()]


if __name__ == "__main__":
    print("\n\n".join("\n".join(table) for table in tables()))
