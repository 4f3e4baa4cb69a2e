"""What a comparison over several games shows, in sentences."""

from collections.abc import Sequence

from rlcb.analysis.aggregates import Estimate
from rlcb.analysis.best import listed
from rlcb.analysis.game_records import (
    FINAL,
    LATE,
    TRAIN,
    UNSEEN,
    Agreement,
    GameScores,
    GroupScores,
    MetricScores,
)
from rlcb.analysis.games import DEVIATIONS, PART_OF_RANGE
from rlcb.analysis.metrics import METRIC
from rlcb.analysis.records import ComparableSet
from rlcb.analysis.statistics import LEVEL
from rlcb.analysis.text import interval_text
from rlcb.words import counted, reward_text, with_deviation

# What the scores are made from, for headings and sentences.
TITLES = {
    FINAL: "Final training reward",
    TRAIN: "Evaluation on training levels",
    UNSEEN: "Evaluation on unseen levels",
    LATE: METRIC[LATE].title,
}
STATISTICS = {"mean": "Mean", "median": "Median", "iqm": "IQM", "optimality_gap": "Optimality gap"}
_MOST_GROUPS = 4  # in a sentence
_ENOUGH_RUNS = 5  # of each game
_EVEN = 0.5  # the probability of improvement of two groups that are equally good


def estimate_text(estimate: Estimate, form: str = "z.3f") -> str:
    """A value, followed by its interval where there is one."""
    interval = f" {interval_text(estimate.interval, form)}" if estimate.interval else ""
    return f"{estimate.value:{form}}{interval}"


def verdict_over_games(scores: GameScores, sets: Sequence[ComparableSet]) -> str:
    """What all games together show."""
    alike = [one for one in sets if one.finished and (one.levels, one.budget, one.machine) == _task(scores)]
    groups = dict.fromkeys(group.label for one in alike for group in one.measured)
    count = sum(len(group.runs) for one in alike if one.env in scores.games for group in one.measured)
    sentences = [
        f"{len(scores.games)} games, {scores.task}: {counted(count, 'run')} in {counted(len(groups), 'group')}."
    ]
    if scores.main:
        sentences.append(_on_scores(scores.main))
        sentences += [_on_pair(scores.main)] if len(scores.main.improvements) == 1 else []
    return " ".join(sentences)


def _task(scores: GameScores) -> tuple[str, str, str]:
    return scores.levels, scores.budget, scores.machine


def _on_scores(scores: MetricScores) -> str:
    """The IQM of the best groups, and of the published PPO after as many steps."""
    ordered = sorted(scores.groups, key=lambda one: -one.aggregates.iqm.value)
    shown = [f"{one.group} {estimate_text(one.aggregates.iqm)}" for one in ordered[:_MOST_GROUPS]]
    more = f" and {len(ordered) - _MOST_GROUPS} more" if len(ordered) > _MOST_GROUPS else ""
    published = published_texts(ordered, "iqm")
    beside = f"; published PPO {published[0]} after the same number of steps" if len(set(published)) == 1 else ""
    why = {one.why_no_interval for one in ordered} - {""}
    reason = f" ({', '.join(sorted(why))})" if why else ""
    what = TITLES[scores.metric]
    return f"{what}, normalised, IQM over {len(scores.games)} games: {', '.join(shown)}{more}{beside}{reason}."


def published_texts(groups: Sequence[GroupScores], statistic: str) -> list[str]:
    """The published value of an aggregate beside each group, for those that have one."""
    return [f"{getattr(one.published, statistic).value:.3f}" for one in groups if one.published]


def _on_pair(scores: MetricScores) -> str:
    """The probability of improvement of the only two groups."""
    (pair,) = scores.improvements
    estimate = pair.probability
    judged = "" if estimate.interval is None else f": {improvement_verdict(pair.first, pair.second, estimate)}"
    return f"Probability that {pair.first} is better than {pair.second}: {estimate_text(estimate, '.2f')}{judged}."


def improvement_verdict(first: str, second: str, estimate: Estimate) -> str:
    """Which group the interval of a probability of improvement favours, in words."""
    if estimate.interval is None:
        return "n/a (one run per game)"
    low, high = estimate.interval
    if low > _EVEN:
        return f"{first} is better more often"
    return f"{second} is better more often" if high < _EVEN else "no difference shown"


def agreement_text(one: Agreement) -> str:
    """In how many games a group reaches about the published reward, and what it reaches in the others."""
    band = f"± {DEVIATIONS:.0f} standard deviations (at least ± {100 * PART_OF_RANGE:.0f} % of the game’s range)"
    within = f"{len(one.games) - len(one.outside)} of {counted(len(one.games), 'game')}"
    beside = [
        f"{value.game} ({reward_text(value.mean, 2 * (value.published_std or 0.0))}, "
        f"published {' '.join(with_deviation(value.published_mean or 0.0, value.published_std))})"
        for value in one.outside
    ]
    text = f"{TITLES[LATE]}: {one.group} is within the published mean {band} in {within}"
    return f"{text}, but not in {listed(beside)}" if beside else text


def interval_note(scores: GameScores) -> str:
    """How the intervals were made, and whether they are too narrow."""
    runs = [len(seeds) for found in scores.metrics for one in found.groups for seeds in one.scores.values()]
    narrow = "; with fewer than 5 runs per game they are too narrow" if 1 < min(runs, default=1) < _ENOUGH_RUNS else ""
    return f"{100 * LEVEL:.0f} % intervals: stratified bootstrap, runs resampled within each game{narrow}"


def game_list(games: Sequence[str]) -> str:
    """Names of games as in a sentence."""
    return listed(list(games))
