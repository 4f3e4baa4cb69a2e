"""The advice that a set of groups allows: which one to use, if that is established; else what is known and open."""

from collections.abc import Sequence

from rlcb.analysis.best import left_out, listed, ranked, why_not_ranked
from rlcb.analysis.cards import make_cards
from rlcb.analysis.choice import AT_EQUAL_STEPS, MOST_NAMED, SPEED, Choice, choose, name_of, names_of, worse_of
from rlcb.analysis.games import PART_OF_RANGE
from rlcb.analysis.metrics import METRIC
from rlcb.analysis.power import MOST_SEEDS, seeds_needed
from rlcb.analysis.records import Advice, ComparableSet, Group
from rlcb.analysis.speed import ratio_of_means, speed_ratio
from rlcb.analysis.text import interval_text, metric_text, number_text
from rlcb.envs.families import score_range
from rlcb.words import counted, span_text


def advise(one: ComparableSet) -> Advice | None:
    """What to use, where a criterion is established; None for unfinished runs and other programs' runs alone.

    *Established* is what `Pair.winner` says: the interval excludes zero and p, after Holm's correction over all pairs
    of the metric, is below 0.05. That all tests of the group must succeed needs no correction of its own (an
    intersection-union test); but which group they are about was chosen by the same data, and the correction over all
    pairs holds whichever group that is. Pairs of others do not count.
    """
    own = [group for group in one.measured if not group.external]
    if not one.finished or not own:
        return None
    choice, cards = choose(one, [group for group in own if group.valid]), make_cards(one)
    if choice is None:
        return Advice("", _unknown(one, own), cards)
    if len(one.measured) == 1:
        why = "only one group, so there is nothing to compare it with"
        return Advice("", f"{name_of(choice.pick)}: {_facts(choice)}; {why}.", cards)
    if choice.speed or choice.reward:
        parts = [_facts(choice), _gain(choice), _certainty(choice), _beside(choice)]
        text = f"Use {name_of(choice.pick)}: {'; '.join(filter(None, parts))}."
        return Advice(choice.pick.label, text, cards)
    return Advice("", f"{'; '.join(filter(None, [*_open(choice), _beside(choice)]))}.", cards)


def _in_words(metric: str) -> str:
    """The title of a metric within a sentence."""
    title = METRIC[metric].title
    return f"{title[0].lower()}{title[1:]}"


def _facts(choice: Choice) -> str:
    """Speed and reward of the group, as far as they are known and judged."""
    one, group = choice.one, choice.pick
    metric = choice.metric if group.metrics[choice.metric].n else one.reward_metric
    fps, hours = group.metrics[SPEED].mean, group.metrics["hours_to_reward"].mean
    facts = []
    if fps and not group.unjudged:
        facts += [f"{fps:,.0f} steps/s", f"1 M steps in {span_text(1e6 / fps)}"]
    if hours and one.threshold is not None and not group.unjudged:
        facts.append(f"reward {one.threshold:.3g} after {span_text(3600 * hours)}")
    elif group.metrics[metric].mean is not None:
        facts.append(f"{_in_words(metric)} {metric_text(group, metric)}")
    if group.unjudged:
        facts.append(f"its speed is not judged (it {why_not_ranked(group, SPEED) or 'has none'})")
    return ", ".join(facts)


def _gain(choice: Choice) -> str:
    """The speed over the sequential group, or over the next of its like."""
    pick, found = choice.pick, choice.pick.speedup
    if found and not found.machine:
        base = "sequential" if found.baseline == f"{pick.algorithm.upper()} Sequential" else found.baseline
        interval = f" {interval_text(found.interval, '.2f')}" if found.interval else ""
        return f"{found.value:.2f} × {base}{interval}"
    if not choice.peers:
        return ""
    both = pick.speeds, choice.peers[0].speeds
    ratio = speed_ratio(*both)
    value = ratio.value if ratio else ratio_of_means(*both)
    interval = f" {interval_text(ratio.interval, '.2f')}" if ratio else ""
    return f"{value:.2f} × {name_of(choice.peers[0])}{interval}" if value else ""


def _certainty(choice: Choice) -> str:
    """By which criterion the group is established to be the one to use, and what would settle the other."""
    others = [rival for rival in choice.rivals if rival not in choice.peers]
    over = f" (over {names_of(choice.peers)})" if choice.speed and others and not choice.reward else ""
    at_steps = f" {_in_words(choice.metric).removeprefix('reward ')}" if choice.metric == AT_EQUAL_STEPS else ""
    if choice.reward:
        return {
            True: "sure of speed and of reward",
            False: "sure of reward, not of speed",
            None: f"sure of reward{at_steps}",
        }[choice.speed]
    if choice.unsettled:
        return f"sure of speed{over}, not of reward: {_more_seeds(choice)}"
    if choice.equal:
        return f"sure of speed{over}, the same reward as {names_of(choice.equal)}"
    known = choice.pick.metrics[choice.metric].n
    return f"sure of speed; {'no other group has rewards for every seed' if known else 'rewards unknown'}"


def _open(choice: Choice) -> list[str]:
    """What is known where neither speed nor reward is established, and what would settle it."""
    one, pick, metric = choice.one, choice.pick, choice.metric
    ahead = [rival for rival in choice.rivals if choice.loses(metric, rival)]
    faster = [peer for peer in choice.peers if choice.loses(SPEED, peer)]
    behind = [group for group in worse_of(one, metric, [pick, *choice.rivals]) if group is not pick]
    level = [rival for rival in (*choice.unsettled, *choice.equal) if rival not in (*behind, *ahead)]
    if ahead:
        known = f"{names_of(ahead)} {_is(ahead)} ahead of {name_of(pick)}: {_rewards([*ahead, pick], metric)}"
        return [known, f"no difference from {names_of(level)} shown" if level else ""]
    level = level if choice.rivals else [peer for peer in choice.peers if peer not in faster]
    quicker = f"{names_of(faster)} {_is(faster)} faster than {name_of(pick)}" if faster else ""
    if not level:
        known = f": {quicker}" if quicker else f"; {name_of(pick)}: {_facts(choice)}"
        return [f"No group is recommended{known}", *_not_compared(choice)]
    rewards = _rewards([pick, *level], metric) if choice.rivals else ""
    return [
        f"No difference established between {names_of([pick, *level])}: "
        + ", ".join(filter(None, (rewards, _open_speed(choice, level)))),
        f"{names_of(behind)} {_is(behind)} behind in reward" if behind else "",
        quicker,
        (_more_seeds(choice) if choice.unsettled else "") if choice.rivals else _not_compared(choice)[0],
    ]


def _is(groups: Sequence[Group]) -> str:
    return "is" if len(groups) == 1 else "are"


def _rewards(groups: Sequence[Group], metric: str) -> str:
    """The rewards of few groups, of many the lowest and the highest."""
    values = [metric_text(group, metric) for group in groups]
    if len(set(values)) == 1:
        return f"{_in_words(metric)} {values[0]} each"
    shown = listed(values) if len(values) <= MOST_NAMED else f"{min(values, key=float)} to {max(values, key=float)}"
    return f"{_in_words(metric)} {shown}"


def _open_speed(choice: Choice, level: Sequence[Group]) -> str:
    """The speed of the group over the next of its kind; or why speeds are not judged."""
    if choice.peers:
        return f"speed {_gain(choice)}"
    own = [group for group in (choice.pick, *level) if not group.external]
    reasons = {why_not_ranked(group, SPEED) for group in own}
    if len(own) > 1 and len(reasons) == 1 and (reason := reasons.pop()):
        return f"speed not judged ({'both' if len(own) == 2 else 'all'} {reason.replace('was ', 'were ')})"
    return f"speed not judged: {missing}" if (missing := left_out(own, SPEED)) else ""


def _not_compared(choice: Choice) -> list[str]:
    """Why the rewards and the speed of the group are not compared with others'."""
    one, metric = choice.one, choice.metric
    missing = left_out(one.measured, metric)
    known = "no other group has a reward for every seed"
    known = f"not ranked by reward: {missing}" if missing else known
    few = " (fewer than 100 episodes: train for longer)" if metric == "final_reward" else ""
    found = [known if choice.pick.metrics[metric].n else f"{_in_words(metric)} unknown{few}"]
    own = [group for group in one.measured if not group.external]
    if choice.pick.unjudged:
        return found  # which its facts say already
    if not choice.peers and (unjudged := left_out(own, SPEED)):
        found.append(f"speed not judged: {unjudged}")
    elif not choice.peers and len(ranked(own, SPEED)) > 1:
        found.append("speeds are not compared, because the work is not the same")
    return found


def _beside(choice: Choice) -> str:
    """How the group stands to other programs' runs, by what these can be judged by."""
    pairs = [
        (group, choice.pair(AT_EQUAL_STEPS, group))
        for group in choice.one.measured
        if group.external and group not in choice.rivals
    ]
    ahead = [group for group, pair in pairs if pair and pair.winner == choice.pick.label]
    behind = [group for group, pair in pairs if pair and pair.winner == group.label]
    parts = [f"ahead of {names_of(ahead)}"] if ahead else []
    parts += [f"behind {names_of(behind)}"] if behind else []
    known = [group for group, _ in pairs if ranked([group], AT_EQUAL_STEPS) and group not in (*ahead, *behind)]
    parts += [f"not told apart from {names_of(known)}"] if known else []
    return f"at equal steps {name_of(choice.pick)} is {listed(parts)}" if parts else ""


def _unknown(one: ComparableSet, own: Sequence[Group]) -> str:
    """What is said where no group can be ranked by reward or by speed."""
    reasons = [
        f"{what}: {left_out(own, metric) or 'unknown'}"
        for what, metric in (("reward", one.reward_metric), ("speed", SPEED))
    ]
    return f"No group can be ranked: {'; '.join(reasons)}."


def _more_seeds(choice: Choice) -> str:
    """How many more seeds would tell the group from the next rival, as an estimate; where there is none, why."""
    rival = choice.unsettled[0]
    ours, theirs = (group.metrics[choice.metric].values for group in (choice.pick, rival))
    fewest = min(len(ours), len(theirs))
    if fewest < 2:
        return "one seed gives no estimate of the spread; start with three seeds each"
    tests = sum(pair.metric == choice.metric and pair.p is not None for pair in choice.one.pairs)
    needed = seeds_needed(ours, theirs, max(tests, 1))
    if needed is None:
        return "all seeds have the same value, so the number of seeds needed cannot be estimated"
    whom = "settle it" if len(choice.rivals) == 1 else f"separate it from {name_of(rival)}"
    if needed > MOST_SEEDS:
        return f"{_why_unsettled(choice, rival)}: more than {MOST_SEEDS} seeds each would be needed"
    return f"an estimated {counted(max(needed - fewest, 1), 'more seed')} each would {whom}"


def _why_unsettled(choice: Choice, rival: Group) -> str:
    """Whether the difference from a rival is small, which its whole interval must be, or the spread hides it."""
    pair, scale = choice.pair(choice.metric, rival), _scale(choice)
    if pair is None or pair.interval is None or pair.difference is None:
        return f"the seeds differ too much to tell from {name_of(rival)}"
    if scale is not None and max(map(abs, pair.interval)) <= PART_OF_RANGE * scale:
        return f"the difference from {name_of(rival)} is small"
    sign = 1 if pair.first == choice.pick.label else -1
    low, high = sorted(sign * bound for bound in pair.interval)
    difference = number_text(sign * pair.difference, METRIC[choice.metric].form, high - low)
    shown = f"{difference} {interval_text((low, high), METRIC[choice.metric].form)}"
    return f"the seeds differ too much to tell (difference from {name_of(rival)} {shown})"


def _scale(choice: Choice) -> float | None:
    """What a difference in reward is large or small beside: the game's range, else what the groups have learned."""
    limits = score_range(choice.one.env, choice.pick.runs[0].distribution_mode)
    if limits:
        return limits[1] - limits[0]
    groups = (choice.pick, *choice.rivals)
    starts = [start for group in groups if (start := group.metrics["initial_reward"].mean) is not None]
    ends = [end for group in groups if (end := group.metrics[choice.metric].mean) is not None]
    return max(ends) - min(starts) if starts and ends else None
