"""The advice that a set of groups allows: which one to use, how certain that is, and what would settle it."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from rlcb.analysis.best import lead_text, left_out, listed, ranked, why_not_ranked
from rlcb.analysis.metrics import METRIC
from rlcb.analysis.power import MOST_SEEDS, seeds_needed
from rlcb.analysis.records import Advice, Card, ComparableSet, Group
from rlcb.analysis.speed import speed_ratio
from rlcb.analysis.text import counted, interval_text, metric_text
from rlcb.analysis.untrusted import section
from rlcb.analysis.work import work_differences

SPEED = "average_fps"
_UNITS = ((3600, "h"), (60, "min"), (1, "s"))
_CARDS = {  # by metric: the title, and the unit of its value
    SPEED: ("Fastest", " steps/s"),
    "reward_at_equal_time": ("Best at equal time", ""),
    "reward_at_equal_steps": ("Best at equal steps", ""),
    "core_seconds_per_million": ("Cheapest per million steps", " s of CPU time"),
}


@dataclass(frozen=True)
class _Choice:
    """The group to use, and against whom that has to hold."""

    pick: Group
    metric: str  # that rewards are judged by
    peers: list[Group]  # the same algorithm and work, so that the faster one is better
    rivals: list[Group]  # all others that could have been chosen: those that have a reward of every seed


def advise(one: ComparableSet) -> Advice | None:
    """What to use; None where nothing can be concluded from a set."""
    valid = [group for group in one.measured if group.valid]
    choice = _choose(one, valid) if one.finished else None
    if choice is None:
        return None
    parts = [_facts(one, choice.pick, choice.metric)]
    if len(one.measured) == 1:
        return Advice(
            choice.pick.label,
            f"{_name(choice.pick)}: {parts[0]}; only one group, so there is nothing to compare it with.",
        )
    parts += [text for text in (_gain(choice), _certainty(one, choice)) if text]
    return Advice(choice.pick.label, f"Use {_name(choice.pick)}: {'; '.join(parts)}.", _cards(one, valid))


def _choose(one: ComparableSet, valid: Sequence[Group]) -> _Choice | None:
    """The best in reward; among its like that are not shown to be worse than any other the fastest.

    Where rewards are known, a group without one of every seed is never the one to use.
    """
    metric = _reward_metric(one, valid)
    rewards, speeds = ranked(valid, metric), ranked(valid, SPEED)
    candidates = rewards or speeds
    if not candidates:
        return None
    leader, labels = candidates[0], [group.label for group in candidates]
    worse = {pair.other(pair.winner) for pair in one.pairs if pair.metric == metric and pair.winner in labels}
    alike = [group for group in speeds if group.label in labels and group.label not in worse]
    alike = [group for group in alike if _same_work(group, leader)]
    pick = alike[0] if leader in alike else leader
    peers = [group for group in speeds if group is not pick and _same_work(group, pick)] if pick in speeds else []
    return _Choice(pick, metric, peers, [group for group in rewards if group is not pick])


def _reward_metric(one: ComparableSet, valid: Sequence[Group]) -> str:
    """Reward at equal time; after runs by time that is the reward at their end, evaluated where all are."""
    timed = any(section(group.runs[0].config, "training").get("duration_hours") for group in valid)
    at_equal_time = len(ranked(valid, "reward_at_equal_time")) == len(valid)
    return "reward_at_equal_time" if at_equal_time and not timed else one.reward_metric


def _same_work(one: Group, other: Group) -> bool:
    kind = (one.algorithm, one.variant, one.device) == (other.algorithm, other.variant, other.device)
    return kind and not work_differences(one.runs[0], other.runs[0])


def _name(group: Group) -> str:
    """A group in a sentence: PPO parallel with 2 workers."""
    name = re.sub(
        r" Parallel \((\d+) workers\)", lambda m: f" parallel with {counted(int(m[1]), 'worker')}", group.label
    )
    return name.replace(" Sequential", " sequential")


def span_text(seconds: float) -> str:
    """A time in its two largest units: 1 h 20 min."""
    if seconds < 1:
        return f"{seconds:.2g} s"
    size, unit = next((size, unit) for size, unit in _UNITS if round(seconds) >= size)
    smaller = {"h": (60, "min"), "min": (1, "s")}.get(unit)
    if smaller is None or seconds >= 10 * size:
        return f"{seconds / size:,.0f} {unit}"
    whole, rest = divmod(round(seconds / smaller[0]), size // smaller[0])
    return f"{whole} {unit} {rest} {smaller[1]}" if rest else f"{whole} {unit}"


def _facts(one: ComparableSet, group: Group, metric: str) -> str:
    """Speed and reward of a group, as far as they are known and judged."""
    fps, hours = group.metrics[SPEED].mean, group.metrics["hours_to_reward"].mean
    facts = []
    if fps and not group.unjudged:
        facts += [f"{fps:,.0f} steps/s", f"1 M steps in {span_text(1e6 / fps)}"]
    if hours and one.threshold is not None and not group.unjudged:
        facts.append(f"reward {one.threshold:.3g} after {span_text(3600 * hours)}")
    elif group.metrics[metric].mean is not None:
        title = METRIC[metric].title
        facts.append(f"{title[0].lower()}{title[1:]} {metric_text(group, metric)}")
    if group.unjudged:
        facts.append(f"its speed is not judged (it {why_not_ranked(group, SPEED) or 'has none'})")
    return ", ".join(facts)


def _gain(choice: _Choice) -> str:
    """The speed over the sequential group, or over the next of its like."""
    pick, found = choice.pick, choice.pick.speedup
    if found and not found.machine:
        base = "sequential" if found.baseline == f"{pick.algorithm.upper()} Sequential" else found.baseline
        interval = f" {interval_text(found.interval, '.2f')}" if found.interval else ""
        return f"{found.value:.2f} × {base}{interval}"
    if not choice.peers:
        return ""
    ratio, (ours, theirs) = speed_ratio(pick.speeds, choice.peers[0].speeds), (_fps(pick), _fps(choice.peers[0]))
    interval = f" {interval_text(ratio.interval, '.2f')}" if ratio else ""
    return f"{ours / theirs:.2f} × {_name(choice.peers[0])}{interval}" if theirs else ""


def _fps(group: Group) -> float:
    return group.metrics[SPEED].mean or 0.0


def _certainty(one: ComparableSet, choice: _Choice) -> str:
    """What is established about the group to use, and what would settle the rest.

    Sure of speed: it is shown to be faster than each of its peers. Sure of reward: it is shown to be better than each
    of its rivals. Pairs of others do not count, nor does one that a rival wins. *Shown* is what `Pair.winner` says: the
    interval excludes zero and p, after Holm's correction over all pairs of the metric, is below 0.05. That all of these
    tests must succeed needs no correction of its own (an intersection-union test); but which group they are about was
    chosen by the same data, and the correction over all pairs holds whichever group that is.
    """
    pick = choice.pick
    slower = [one.pair(SPEED, pick.label, peer.label) for peer in choice.peers]
    speed = all(pair and pair.winner == pick.label for pair in slower) if slower else None
    equal = [rival for rival in choice.rivals if rival.metrics[choice.metric].mean == pick.metrics[choice.metric].mean]
    pairs = {rival.label: one.pair(choice.metric, pick.label, rival.label) for rival in choice.rivals}
    open_rivals = [
        rival
        for rival in choice.rivals
        if rival not in equal and not ((pair := pairs[rival.label]) and pair.winner == pick.label)
    ]
    reward = not open_rivals if choice.rivals and pick.metrics[choice.metric].n else None
    if reward and equal:
        said = {True: "sure of speed", False: "not sure of speed", None: ""}[speed]
        alike = f"the same reward as {listed([_name(rival) for rival in equal[:3]])}"
        return f"{said}, {alike}" if said else alike
    more = f": {_more_seeds(one, choice, open_rivals[0])}" if open_rivals and reward is False else ""
    known = pick.metrics[choice.metric].n
    unknown = "no other group has rewards for every seed" if known else "rewards unknown"
    return {
        (True, True): "sure of speed and of reward",
        (True, False): f"sure of speed, not of reward{more}",
        (False, True): "sure of reward, not of speed",
        (False, False): f"sure of neither speed nor reward{more}",
        (None, True): "sure of reward",
        (None, False): f"not sure of reward{more}",
        (True, None): f"sure of speed; {unknown}",
        (False, None): f"not sure of speed; {unknown}",
        (None, None): "",
    }[speed, reward]


def _more_seeds(one: ComparableSet, choice: _Choice, rival: Group) -> str:
    """How many more seeds would tell two groups apart, as an estimate; where there is none, why."""
    ours, theirs = (group.metrics[choice.metric].values for group in (choice.pick, rival))
    fewest = min(len(ours), len(theirs))
    if fewest < 2:
        return "one seed gives no estimate of the spread; start with three seeds each"
    tests = sum(pair.metric == choice.metric for pair in one.pairs)
    needed = seeds_needed(ours, theirs, tests)
    if needed is None:
        return "all seeds have the same value, so the number of seeds needed cannot be estimated"
    whom = "settle it" if len(choice.rivals) == 1 else f"separate it from {_name(rival)}"
    if needed > MOST_SEEDS:
        return f"the difference from {_name(rival)} is small: more than {MOST_SEEDS} seeds each would be needed"
    return f"an estimated {counted(max(needed - fewest, 1), 'more seed')} each would {whom}"


def _cards(one: ComparableSet, valid: Sequence[Group]) -> tuple[Card, ...]:
    """The best group by each criterion that any group has a value of."""
    found = []
    not_judged: dict[str, list[str]] = {}
    for metric, (title, unit) in _CARDS.items():
        if metric == "core_seconds_per_million" and len({group.device for group in valid}) > 1:
            continue  # the time of a GPU is not part of it
        order, missing = ranked(valid, metric), left_out(valid, metric)
        without = f"; not ranked: {missing}" if missing else ""
        if order:
            best, mean = order[0], order[0].metrics[metric]
            value = f"{metric_text(best, metric)}{unit}"
            interval = interval_text(mean.interval, METRIC[metric].form) if mean.interval else ""
            found.append(
                Card(metric, title, best.label, value, interval, lead_text(one, metric, best, order[1:]) + without)
            )
        elif missing:
            not_judged.setdefault(missing, []).append(title.lower())
    found += [Card("", "Not judged", "", listed(titles), "", why) for why, titles in not_judged.items()]
    return tuple(found)
