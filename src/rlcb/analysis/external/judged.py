"""What other programs' runs can be judged by: rewards at equal steps, where these mean the same."""

from dataclasses import replace

from rlcb.analysis.metrics import METRIC, OF_SPEED
from rlcb.analysis.records import ComparableSet, Group
from rlcb.analysis.unjudged import few_episodes

_JUDGED = "reward_at_equal_steps"
_SHORT = 0.9  # of the steps of our runs: a run that ended before that is worth a note


def own_groups(one: ComparableSet) -> ComparableSet:
    """The set without other programs' runs."""
    groups = tuple(group for group in one.groups if not group.external)
    labels = {group.label for group in groups}
    pairs = tuple(pair for pair in one.pairs if {pair.first, pair.second} <= labels)
    return replace(one, groups=groups, pairs=pairs)


def lacking(metric: str, first: Group, second: Group) -> str:
    """What is not known of two groups, of which one is external, to judge them by a metric; empty if all is known."""
    found = ((group, unknown_of(group, metric)) for group in (first, second))
    return next((f"{group.label}: {text}" for group, text in found if text), "")


def unknown_of(group: Group, metric: str) -> str:
    """What is not known of a group to judge it by a metric; empty for our own."""
    if not group.external:
        return ""
    if metric in OF_SPEED:
        return "machine unknown"
    if metric == "final_reward":
        return "budget unknown"
    if metric != _JUDGED:
        return ""
    if not all(run.external and run.external.same_rewards for run in group.runs):
        return "rewards averaged over an unknown number of episodes"
    return "levels unknown" if "levels" in group.external.unknown else ""


def external_notes(one: ComparableSet) -> list[str]:
    """Where each external group comes from, how its rewards are smoothed and what is not known of it."""
    notes = []
    ends = [
        (run.metrics.total_timesteps or 0.0, group)
        for group in one.measured
        for run in group.runs
        if not group.external or run.compared_reward is not None
    ]
    first, shortest = min(ends, key=lambda item: item[0], default=(0.0, None))
    others = [end for end, group in ends if not group.external]
    if shortest and shortest.external and others and first < _SHORT * min(others):
        notes.append(
            f"{shortest.label} ended at {first:,.0f} steps, so rewards at equal steps are compared at this point; "
            "without it, they are compared later"
        )
    for group in one.measured:
        origin = group.external
        if origin:
            notes += few_episodes(group)
            unknown = [f"{name} ({why})" for name, why in _together(origin.unknown).items()]
            guessed = [f"{name} (from {how})" for name, how in origin.guessed.items() if name != "name"]
            notes.append(
                f"{group.label}: from {origin.format} of {origin.program}; rewards: {origin.rewards}; "
                f"unknown, so n/a: {'; '.join(unknown)}" + (f"; guessed: {', '.join(guessed)}" if guessed else "")
            )
    return notes


def _together(unknown: dict[str, str]) -> dict[str, str]:
    """What is unknown for the same reason as one entry."""
    reasons: dict[str, list[str]] = {}
    for name, why in unknown.items():
        reasons.setdefault(why, []).append(name)
    return {", ".join(names): why for why, names in reasons.items()}


def external_verdict(one: ComparableSet) -> list[str]:
    """What the tests say of external groups, in a sentence; none where there is no such group."""
    foreign = [group.label for group in one.measured if group.external]
    if not foreign:
        return []
    names = ", ".join(foreign) if len(foreign) <= 3 else f"{len(foreign)} external groups"
    pairs = [pair for pair in one.pairs if pair.metric == _JUDGED and {pair.first, pair.second} & {*foreign}]
    ahead = [f"{pair.winner} is ahead of {pair.other(pair.winner)}" for pair in pairs if pair.winner]
    tested = [pair for pair in pairs if pair.interval]
    where = "alone" if len(foreign) == len(one.measured) else "beside these"
    shown = f"{names}: shown {where}, not judged by speed (machine unknown)"
    if ahead:
        return [f"{shown}; {METRIC[_JUDGED].title.lower()}: {', '.join(ahead)}."]
    if tested:
        return [f"{shown}; {METRIC[_JUDGED].title.lower()}: no difference shown."]
    why = dict.fromkeys(pair.verdict.removeprefix("n/a (").removesuffix(")") for pair in pairs)
    return [f"{shown}" + (f" nor by reward ({'; '.join(why)})." if why else ".")]
