"""A comparison in words: careful ones."""

from collections.abc import Sequence

from rlcb.analysis.pairs import NOT_SHOWN
from rlcb.analysis.records import METRIC, ComparableSet, Excluded, Group, Pair
from rlcb.analysis.untrusted import plain

_WORK = ("num_envs", "n_steps", "batch_size", "n_epochs", "network", "micro_batch_size")
_ENOUGH_SEEDS = 5


def verdict_overall(sets: Sequence[ComparableSet], excluded: Sequence[Excluded]) -> str:
    """The main set's verdict, and a sentence on what is not part of it."""
    if not excluded:
        return sets[0].verdict
    others = f"{len(excluded)} run{'s are' if len(excluded) > 1 else ' is'} not part of this comparison"
    return f"{sets[0].verdict} {others}; the reasons are listed."


def verdict_on(one: ComparableSet) -> str:
    """What a set shows, in two to four sentences."""
    count = sum(len(group.runs) for group in one.groups)
    groups = [group for group in one.groups if group.runs]
    many = f"{count} run{'s' * (count != 1)} in {len(groups)} group{'s' * (len(groups) != 1)}"
    if not groups:
        return f"{one.title}: every run failed, there is nothing to compare."
    if not one.finished:
        return f"{one.title}: {many} that did not come to their end, so nothing is concluded from them."
    sentences = [f"{one.title}: {many}."]
    evaluated = all(group.metrics["evaluation_unseen"].n == len(group.runs) for group in groups)
    reward = "evaluation_unseen" if evaluated else "final_reward"
    if len(groups) == 1:
        alone = [f"{METRIC[name].title} {figure(groups[0], name)}" for name in (reward, "average_fps")]
        sentences.append(f"{groups[0].label} is alone, there is nothing to compare it with: {', '.join(alone)}.")
    else:
        sentences += [_on_metric(one, groups, name) for name in ("average_fps", reward)]
    caveat = _caveat(groups)
    return " ".join([*sentences, caveat] if caveat else sentences)


def figure(group: Group, metric: str) -> str:
    """A mean with its interval, or with the reason why there is none."""
    summary, form = group.metrics[metric], METRIC[metric].form
    if summary.mean is None:
        return "n/a"
    if summary.interval:
        return f"{summary.mean:{form}} [{summary.interval[0]:{form}}, {summary.interval[1]:{form}}]"
    return f"{summary.mean:{form}}"


def _on_metric(one: ComparableSet, groups: Sequence[Group], metric: str) -> str:
    """Who is ahead in one metric and from whom that can be told."""
    title = METRIC[metric].title
    known = sorted(groups, key=lambda group: -(group.metrics[metric].mean or float("-inf")))
    known = [group for group in known if group.metrics[metric].mean is not None]
    if len(known) < 2:
        return f"{title}: too few groups have a value."
    best, others = known[0], known[1:]
    pairs = [one.pair(metric, best.label, other.label) or one.pair(metric, other.label, best.label) for other in others]
    if len(others) == 1:
        assert pairs[0]
        return _on_two(title, METRIC[metric].form, best, others[0], metric, pairs[0])
    ahead = [other.label for other, pair in zip(others, pairs, strict=True) if pair and pair.winner == best.label]
    level = [other.label for other, pair in zip(others, pairs, strict=True) if pair and NOT_SHOWN in pair.verdict]
    untested = len(others) - len(ahead) - len(level)
    parts = [f"a difference is shown from {_some(ahead, others)}"] if ahead else []
    parts += [f"none is shown from {_some(level, others)}"] if level else []
    parts += [f"{untested} of {len(others)} could not be tested"] if untested else []
    return f"{title}: {best.label} has the highest mean ({figure(best, metric)}); {'; '.join(parts)}."


def _on_two(title: str, form: str, best: Group, other: Group, metric: str, pair: Pair) -> str:
    means = best.metrics[metric].mean, other.metrics[metric].mean
    figures = f"{best.label} {means[0]:{form}}, {other.label} {means[1]:{form}}"
    if pair.interval is None or pair.difference is None:
        return f"{title}: {figures}; whether they differ is {pair.verdict}."
    low, high = sorted(bound if pair.first == best.label else -bound for bound in pair.interval)
    span = f"difference {abs(pair.difference):{form}}, 95 % interval {low:{form}} to {high:{form}}"
    if pair.winner:
        return f"{title}: {pair.winner} is ahead ({figures}; {span})."
    return f"{title}: {pair.verdict} ({figures}; {span})."


def _caveat(groups: Sequence[Group]) -> str:
    """The one thing a reader must not overlook."""
    invalid = [group.label for group in groups if not group.valid]
    if invalid:
        return f"{_listed(invalid)}: invalid, more than one seed failed."
    failed = [group.label for group in groups if group.failed]
    if failed:
        return f"A seed failed in {_listed(failed)}, so its figures speak for the others only."
    if max(len(group.runs) for group in groups) == 1:
        return "With one seed each, differences in reward cannot be told from chance."
    return ""


def _some(labels: Sequence[str], others: Sequence[Group]) -> str:
    """Few others by name, many by number."""
    if len(others) <= 3:
        return _listed(labels)
    return f"all {len(others)} others" if len(labels) == len(others) else f"{len(labels)} of {len(others)} others"


def _listed(labels: Sequence[str]) -> str:
    return labels[0] if len(labels) == 1 else f"{', '.join(labels[:-1])} and {labels[-1]}"


def notes_on(one: ComparableSet) -> tuple[str, ...]:
    """What a reader should know before trusting a set's figures."""
    notes = []
    for group in one.groups:
        notes += [f"{group.label}: {fail.run} (seed {fail.seed}) failed: {fail.reason}" for fail in group.failed]
        if not group.valid:
            notes.append(f"{group.label}: invalid, {len(group.failed)} seeds failed")
        unknown = group.metrics["final_reward"].missing
        if unknown:
            notes.append(f"{group.label}: {unknown} of {len(group.runs)} runs finished no episode; they have no reward")
        notes += _unequal_work(group, one.groups)
    if any(1 < len(group.runs) < _ENOUGH_SEEDS for group in one.groups):
        notes.append("with fewer than 5 seeds bootstrap intervals of a group are too narrow: judge by the pairs")
    versions = sorted({_versions(group) for group in one.groups if group.runs})
    if len(versions) > 1:
        notes.append(f"versions differ: {' | '.join(versions)}")
    return tuple(notes)


def _unequal_work(group: Group, groups: Sequence[Group]) -> list[str]:
    """What a speed-up does not account for."""
    base = next((other for other in groups if group.speedup and other.label == group.speedup.baseline), None)
    if not base:
        return []
    pairs = [(key, group.settings.get(key), base.settings.get(key)) for key in _WORK]
    unequal = [f"{key} {mine}, not {theirs}" for key, mine, theirs in pairs if mine != theirs]
    return [f"{group.label}: not the same work as {base.label}: {', '.join(unequal)}"] if unequal else []


def _versions(group: Group) -> str:
    versions = group.runs[0].hardware.get("versions")
    if not isinstance(versions, dict):
        return "unknown"
    return ", ".join(f"{plain(name)} {plain(version)}" for name, version in versions.items())
