"""Which group has the best mean of a metric, and over which other groups its lead is established."""

from collections.abc import Sequence

from rlcb.analysis.external.judged import unknown_of
from rlcb.analysis.metrics import METRIC, OF_SPEED
from rlcb.analysis.records import NOT_SHOWN, ComparableSet, Group, Pair

_WORDS = dict(enumerate(["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"], start=1))

_MOST_NAMED = 2  # groups that are left out for the same reason


def listed(names: Sequence[str]) -> str:
    """Names as in a sentence: a, b and c."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def why_not_ranked(group: Group, metric: str) -> str:
    """Why a group's mean of a metric is not set beside others'; empty where it is, and where it has no value at all."""
    found = group.metrics[metric]
    if not found.n:
        return ""
    if unknown := unknown_of(group, metric):
        return unknown
    if metric in OF_SPEED and group.unjudged:
        return "shared the machine" if group.unjudged == "shared" else "was disturbed"
    if found.missing:
        return f"{found.n} of {found.n + found.missing} seeds have a value"
    # A seed that failed would have had a reward; that it failed says nothing about speed.
    if group.failed and ("reward" in metric or metric not in OF_SPEED):
        return f"{len(group.failed)} of {len(group.runs) + len(group.failed)} seeds failed"
    return ""


def ranked(groups: Sequence[Group], metric: str) -> list[Group]:
    """The groups whose mean of a metric is over all their seeds, the best one first."""
    sign = -1 if METRIC[metric].higher_is_better else 1
    known = [
        (sign * mean, group)
        for group in groups
        if (mean := group.metrics[metric].mean) is not None and not why_not_ranked(group, metric)
    ]
    return [group for _, group in sorted(known, key=lambda item: item[0])]


def left_out(groups: Sequence[Group], metric: str) -> str:
    """The groups that have values and are not ranked, with the reason of each; empty where there are none."""
    reasons: dict[str, list[str]] = {}
    for group in groups:
        if why := why_not_ranked(group, metric):
            reasons.setdefault(why, []).append(group.label)
    found = []
    for why, labels in reasons.items():
        several = why.replace("was ", "were ") if len(labels) > 1 else why
        names = listed(labels) if len(labels) <= _MOST_NAMED else f"{len(labels)} of {len(groups)} groups"
        found.append(f"{names} ({several})")
    return ", ".join(found)


def lead_text(one: ComparableSet, metric: str, best: Group, others: Sequence[Group]) -> str:
    """Over which others the lead of the best group is established."""
    if not others:
        return "no other group has a value for every seed"
    mean = best.metrics[metric].mean
    equal = [other.label for other in others if other.metrics[metric].mean == mean]
    if equal:
        return f"the same as {some(equal, len(others))}"
    pairs = [pair for other in others if (pair := one.pair(metric, best.label, other.label))]
    ahead = [pair.other(best.label) for pair in pairs if pair.winner == best.label]
    level = [pair.other(best.label) for pair in pairs if NOT_SHOWN in pair.verdict]
    untested = [pair for pair in pairs if pair.winner is None and NOT_SHOWN not in pair.verdict]
    parts = [f"its lead over {some(ahead, len(others))} is statistically established"] if ahead else []
    parts += [f"its lead over {some(level, len(others))} is not statistically established"] if level else []
    parts += [_untested(untested, len(others))] if untested else []
    return "; ".join(parts) or "not tested"


def _untested(pairs: Sequence[Pair], others: int) -> str:
    if all("one seed" in pair.verdict for pair in pairs):
        return (
            "one seed: not enough to tell" if len(pairs) == others else f"{len(pairs)} of {others} groups have one seed"
        )
    return f"{len(pairs)} of {others} pairs could not be tested" if others > 1 else why_untested(pairs[0])


def why_untested(pair: Pair) -> str:
    """Why a pair was not tested."""
    return f"not tested: {pair.verdict.removeprefix('n/a (').removesuffix(')')}"


def some(labels: Sequence[str], others: int) -> str:
    """Few other groups by name, many by number."""
    if others <= 3:
        return listed(labels)
    total = _WORDS.get(others, str(others))
    if len(labels) == others:
        return f"the other {total}"
    return f"{_WORDS.get(len(labels), len(labels))} of the other {total}"
