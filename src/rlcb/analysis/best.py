"""Which groups can be ranked by a metric, which one is the best, and over which others its lead is established.

Everything that names a best group takes it from here: verdict, advice, cards and tables.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from rlcb.analysis.external.judged import unknown_of
from rlcb.analysis.metrics import METRIC, OF_SPEED
from rlcb.analysis.records import NOT_SHOWN, ComparableSet, Group, Pair
from rlcb.words import counted

_WORDS = dict(enumerate(["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"], start=1))

_MOST_NAMED = 2  # groups that are left out for the same reason


@dataclass(frozen=True)
class Standing:
    """The ranking of some groups by a metric, and what the tests of the best one with each other ranked one say."""

    best: Group | None = None
    others: tuple[Group, ...] = ()  # ranked as well
    ahead: tuple[str, ...] = ()  # others over which its lead is established
    level: tuple[str, ...] = ()  # others from which no difference is shown
    untested: tuple[Pair, ...] = ()
    missing: str = ""  # groups that have values and are not ranked, with the reasons

    @property
    def winner(self) -> Group | None:
        """The best group, if its lead over all others is established."""
        return self.best if self.others and len(self.ahead) == len(self.others) else None


def listed(names: Sequence[str]) -> str:
    """Names as in a sentence: a, b and c."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def why_not_ranked(group: Group, metric: str) -> str:
    """Why a group's mean of a metric is not set beside others'; empty where it is, and where it has no value at all."""
    found = group.metrics[metric]
    if not found.n:
        return ""
    if unknown := unknown_of(group, metric) or _why_invalid(group):
        return unknown
    if metric in OF_SPEED and group.unjudged:
        return "shared the machine" if group.unjudged == "shared" else "was disturbed"
    if found.missing:
        return f"{found.n} of {counted(found.n + found.missing, 'seed')} have a value"
    # A seed that failed would have had a reward; that it failed says nothing about speed.
    if group.failed and ("reward" in metric or metric not in OF_SPEED):
        return f"{len(group.failed)} of {counted(len(group.runs) + len(group.failed), 'seed')} failed"
    return ""


def _why_invalid(group: Group) -> str:
    return "" if group.valid else f"{counted(len(group.failed), 'seed')} failed"


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
        share = f"all {len(groups)}" if len(labels) == len(groups) else f"{len(labels)} of {len(groups)}"
        names = listed(labels) if len(labels) <= _MOST_NAMED else f"{share} groups"
        found.append(f"{names} ({several})")
    return ", ".join(found)


def standing(one: ComparableSet, metric: str, groups: Sequence[Group] | None = None) -> Standing:
    """How the groups of a set, all unless some are given, stand by a metric."""
    among = one.measured if groups is None else groups
    order, missing = ranked(among, metric), left_out(among, metric)
    if not order:
        return Standing(missing=missing)
    best, *others = order
    pairs = [pair for other in others if (pair := one.pair(metric, best.label, other.label))]
    return Standing(
        best=best,
        others=tuple(others),
        ahead=tuple(pair.other(best.label) for pair in pairs if pair.winner == best.label),
        level=tuple(pair.other(best.label) for pair in pairs if NOT_SHOWN in pair.verdict),
        untested=tuple(pair for pair in pairs if pair.winner is None and NOT_SHOWN not in pair.verdict),
        missing=missing,
    )


def lead_text(found: Standing, metric: str) -> str:
    """Over which others the lead of the best group is established."""
    if not found.best or not found.others:
        return "no other group has a value for every seed"
    count, mean = len(found.others), found.best.metrics[metric].mean
    equal = [other.label for other in found.others if other.metrics[metric].mean == mean]
    if equal:
        return f"the same as {some(equal, count)}"
    parts = [f"its lead over {some(found.ahead, count)} is statistically established"] if found.ahead else []
    parts += [f"its lead over {some(found.level, count)} is not statistically established"] if found.level else []
    parts += [_untested(found.untested, count)] if found.untested else []
    return "; ".join(parts) or "not tested"


def no_winner_text(one: ComparableSet, metric: str, found: Standing) -> str:
    """Why no group is established to be the best by a metric."""
    if not one.finished:
        return "n/a (unfinished)"
    if len(one.measured) < 2:
        return "n/a (only one group)" if one.measured else "n/a (all runs failed)"
    if not found.others:
        why = "no other group has a value" if found.best else "no values"
        return f"not judged: {found.missing}" if found.missing else f"n/a ({why})"
    others = listed(found.level) if len(found.level) in (1, 2) else counted(len(found.level), "other")
    alone = len(found.level) == len(found.others)
    parts = [NOT_SHOWN if alone else f"{NOT_SHOWN} from {others}"] if found.level else []
    if found.untested:
        all_of_them = len(found.untested) == len(found.others)
        parts.append(found.untested[0].verdict if all_of_them else f"{len(found.untested)} not tested")
    return "; ".join(parts) or "n/a (not tested)"


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
