"""The part of a report about several games: tables, pictures and CSV."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from rlcb.analysis.aggregates import Aggregates, Estimate
from rlcb.analysis.game_plots import figure_games, figure_profiles
from rlcb.analysis.game_records import FINAL, UNSEEN, GameScores, GameValue, GroupScores, Improvement, MetricScores
from rlcb.analysis.game_text import (
    STATISTICS,
    TITLES,
    agreement_text,
    game_list,
    improvement_verdict,
    interval_note,
)
from rlcb.analysis.games import published_of
from rlcb.analysis.plots import as_image
from rlcb.analysis.published import SOURCE
from rlcb.analysis.records import ComparableSet, Comparison
from rlcb.analysis.text import interval_text, number_text, with_minus
from rlcb.report.charts import profile_views
from rlcb.report.csv_text import csv_text
from rlcb.report.document import Block, Cell, Picture, Row, Section, Table, Text, View, make_table
from rlcb.report.figures import inline_svg, thinned
from rlcb.words import reward_text, with_deviation

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_FEW_PAIRS, _MOST_PAIRS = 3, 30
_POINTS = 60  # of a curve in a small plot
# The metrics of the table of games: the title of our values, and what marks the published ones.
_IN_TABLE = {FINAL: ("Final reward", ""), UNSEEN: ("Unseen levels", " (unseen)")}


def game_sections(comparison: Comparison, colours: Mapping[str, int]) -> Iterator[Section]:
    """A section for each collection of sets that differ in nothing but their game."""
    for order, scores in enumerate(comparison.game_scores, 1):
        title = f"{len(scores.games)} games: {scores.levels}, {scores.budget}"
        end = "" if order == 1 else f"_{order}"
        sets = [thin_set(one) for one in comparison.sets if comparison.scores_of(one) is scores]
        sets.sort(key=lambda one: one.env)
        blocks = tuple(_blocks(scores, sets, title, end, colours))
        yield Section(title, f"games{end}".replace("_", "-"), blocks, short="All games")


def thin_set(one: ComparableSet) -> ComparableSet:
    """A set with as many points of its curves as a small plot can show."""
    return replace(one, groups=tuple(thinned(group, _POINTS) for group in one.groups))


def _blocks(
    scores: GameScores, sets: Sequence[ComparableSet], title: str, end: str, colours: Mapping[str, int]
) -> Iterator[Block]:
    yield Text("paragraph", f"Games: {game_list(scores.games)}; {scores.task}.")
    if scores.metrics:
        yield from (aggregate_table(found) for found in scores.metrics)
        yield Text("items", score_notes(scores))
        alt = "Share of runs with a normalised score above each threshold, by group"
        caption = "Performance profiles: the share of runs, mean over games, whose normalised score is above τ. "
        caption += "Where one curve is above another, it is better at that score."
        figure = figure_profiles(scores, sets, f"{title}: performance profiles", colours)
        yield _picture(f"profiles{end}", figure, alt, caption, profile_views(scores, colours))
        if any(found.improvements for found in scores.metrics):
            yield improvement_table(scores)
    curves = {one.env: curve for one in sets if (curve := published_of(one.measured[0].runs[0], FINAL))}
    caption = "Mean reward of the last 100 episodes over environment steps."
    caption += f" Dashed grey line, where shown: {published_note(scores)}." if curves else ""
    figure = figure_games(sets, title, curves, colours)
    yield _picture(f"games{end}", figure, f"Reward over steps in {game_list(scores.games)}", caption)
    yield values_table(scores)


def _picture(name: str, figure: "Figure", alt: str, caption: str, views: tuple[View, ...] = ()) -> Picture:
    return Picture(name, alt, caption, inline_svg(figure, name, alt), lambda: as_image(figure), views)


def score_notes(scores: GameScores) -> list[str]:
    """What the scores are, what they do not contain, and why some have no interval."""
    notes = [
        "normalised score: 0 is a policy without observations, 1 the best possible or practically reachable reward",
        "mean and median are taken over the games’ means, the IQM over all runs of all games; the optimality gap is "
        "the average shortfall of the runs from 1 (lower is better)",
        interval_note(scores),
    ]
    about: dict[str, list[str]] = {}  # what is said → the metrics that it is said of
    for found in scores.metrics:
        reasons: dict[str, list[str]] = {}
        for one in found.groups:
            reasons.setdefault(one.why_no_interval, []).append(one.group)
        missing = [f"{why} ({', '.join(who)})" for why, who in reasons.items() if why]
        for note in (*found.notes, *missing):
            about.setdefault(note, []).append(TITLES[found.metric])
    for note, titles in about.items():
        notes.append(note if len(titles) == len(scores.metrics) else f"{', '.join(titles)}: {note}")
    if any(len(found.improvements) > 1 for found in scores.metrics):
        notes.append(
            "probabilities of improvement are not corrected for the number of pairs; scores.csv lists all of them"
        )
    if any(one.published for found in scores.metrics for one in found.groups):
        notes.append(
            f"published: PPO ({SOURCE}) after the same number of steps; only means of 3 runs per game are known, so "
            "its IQM is taken over the games’ means"
        )
    return [*notes, *map(agreement_text, scores.agreements), *scores.notes]


def published_note(scores: GameScores) -> str:
    """What the published values are, or why there are none."""
    known = [one for one in scores.values if one.published_mean is not None]
    if known:
        return f"PPO ({SOURCE}), mean of 3 runs, after the same number of steps"
    return f"no values for these levels and steps ({SOURCE}: from 250,000 steps, on hard levels from 1,000,000)"


def published_rows(found: MetricScores) -> list[tuple[str, Aggregates]]:
    """The published aggregates beside the groups: once where all groups have the same steps, else once for each."""
    rows = {str(one.published): ("PPO (published)", one.published) for one in found.groups if one.published}
    if len(rows) <= 1:
        return list(rows.values())
    return [(f"PPO (published) for {one.group}"[:31], one.published) for one in found.groups if one.published]


def aggregate_table(found: MetricScores) -> Table:
    """A row for each group with its aggregates on a metric, and the published ones."""
    rows: list[Row] = []
    for one in found.groups:
        row = {"Group": Cell(one.group, group=True), "Runs": Cell(str(_runs_in(one)))}
        row |= {title: _estimate_cell(getattr(one.aggregates, name)) for name, title in STATISTICS.items()}
        row |= {f"Published {name}": _published_cell(one.published, name.lower()) for name in ("mean", "IQM")}
        rows.append(row)
    return make_table(f"{TITLES[found.metric]}: normalised scores over {len(found.games)} games.", rows)


def _runs_in(one: GroupScores) -> int:
    return sum(len(scores) for scores in one.scores.values())


def _estimate_cell(estimate: Estimate, form: str = "z.3f") -> Cell:
    interval = interval_text(estimate.interval, form) if estimate.interval else "[n/a]"
    return Cell(with_minus(f"{estimate.value:{form}}"), with_minus(interval))


def _published_cell(published: Aggregates | None, name: str) -> Cell:
    return Cell(with_minus(f"{getattr(published, name).value:z.3f}") if published else "–")


def improvement_table(scores: GameScores) -> Table:
    """The probability of improvement of the pairs of groups that are shown."""
    rows = [_improvement_row(found.metric, pair) for found in scores.metrics for pair in shown_pairs(scores, found)]
    caption = "Probability of improvement: how often a run of the first group beats one of the second in the "
    caption += "same game, averaged over games; ties count half."
    return make_table(caption, rows, "lllrl")


def _improvement_row(metric: str, pair: Improvement) -> Row:
    return {
        "Score": TITLES[metric],
        "First": Cell(pair.first, group=True),
        "Second": Cell(pair.second, group=True),
        "P(first better)": _estimate_cell(pair.probability, "z.2f"),
        "Verdict": improvement_verdict(pair.first, pair.second, pair.probability),
    }


def shown_pairs(scores: GameScores, found: MetricScores) -> list[Improvement]:
    """The pairs of few groups on every metric; of more groups on the main one alone, and of many the clearest."""
    pairs = list(found.improvements)
    if len(pairs) <= _FEW_PAIRS:
        return pairs
    if found is not scores.main:
        return []
    if len(pairs) <= _MOST_PAIRS:
        return pairs
    return sorted(pairs, key=lambda pair: -abs(pair.probability.value - 0.5))[:_MOST_PAIRS]


def values_table(scores: GameScores) -> Table:
    """A row for each game and group, beside the published values after as many steps."""
    shown = {metric: title for metric, title in _IN_TABLE.items() if any(one.metric == metric for one in scores.values)}
    groups = dict.fromkeys(one.group for one in scores.values)
    steps = {one.steps for one in scores.values}
    rows: list[Row] = []
    for game in scores.games:
        for label in groups:
            values = {metric: scores.value(metric, game, label) for metric in shown}
            known = next((value for value in values.values() if value), None)
            most = max((value.n for value in values.values() if value), default=0)
            if known:
                row = {"Game": Cell(game), "Group": Cell(label, group=True), "Seeds": Cell(str(most))}
                row |= {"Steps": Cell(number_text(known.steps, ",.0f"))} if len(steps) > 1 else {}
                for metric, (title, mark) in shown.items():
                    row |= _value_cells(values[metric], title, mark)
                rows.append(row)
    after = (
        f"after {number_text(next(iter(steps)), ',.0f')} steps" if len(steps) == 1 else "after the same number of steps"
    )
    caption = f"Means ± standard deviations over seeds, {after}. Published: {published_note(scores)}. "
    caption += "Difference: ours minus published. games.csv has more columns."
    return make_table(caption, rows, "ll" + "r" * (len(rows[0]) - 2))


def _value_cells(value: GameValue | None, title: str, mark: str) -> dict[str, Cell]:
    names = (title, f"Published{mark}", f"Difference{mark}")
    if value is None:
        return {name: Cell("–") for name in names}
    cells = [_mean_cell(value.mean, value.std), Cell("–"), Cell("–")]
    if value.published_mean is not None:
        cells[1] = _mean_cell(value.published_mean, value.published_std)
        cells[2] = Cell(with_minus(difference_text(value)))
    return dict(zip(names, cells, strict=True))


def _mean_cell(mean: float, std: float | None) -> Cell:
    text, deviation = with_deviation(mean, std)
    return Cell(with_minus(text), deviation)


def difference_text(value: GameValue) -> str:
    """How far a group's mean is from the published one, as finely as the larger deviation of the two deserves."""
    return reward_text(value.difference, 2 * max(value.std or 0.0, value.published_std or 0.0), "+")


# CSV


def games_csv(comparison: Comparison) -> str:
    """A row for each metric, game and group."""
    head = ["levels", "budget", "machine", *(field.name for field in fields(GameValue)), "difference"]
    rows: list[Sequence[Any]] = [head]
    for scores in comparison.game_scores:
        task = (scores.levels, scores.budget, scores.machine)
        rows += [[*task, *vars(one).values(), one.difference] for one in scores.values]
    return csv_text(rows)


def scores_csv(comparison: Comparison) -> str:
    """A row for each aggregate of each metric and group, and for each probability of improvement."""
    rows: list[Sequence[Any]] = [
        ["levels", "budget", "machine", "metric", "games", "group", "over", "statistic", "value", "low95", "high95",
         "published"]
    ]  # fmt: skip
    for scores in comparison.game_scores:
        task = [scores.levels, scores.budget, scores.machine]
        for found in scores.metrics:
            about = [*task, found.metric, len(found.games)]
            for one in found.groups:
                for name in STATISTICS:
                    estimate, published = getattr(one.aggregates, name), one.published
                    beside = getattr(published, name).value if published else None
                    rows.append([*about, one.group, "", name, *_numbers(estimate), beside])
            for pair in found.improvements:
                name = "probability_of_improvement"
                rows.append([*about, pair.first, pair.second, name, *_numbers(pair.probability), None])
    return csv_text(rows)


def _numbers(estimate: Estimate) -> list[float | None]:
    low, high = estimate.interval or (None, None)
    return [estimate.value, low, high]
