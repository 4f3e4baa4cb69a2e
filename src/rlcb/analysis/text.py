"""Values as text, on screen and in reports; and what a comparison shows, in sentences."""

from collections.abc import Sequence

from rlcb.analysis.best import lead_text, listed, standing, why_untested
from rlcb.analysis.metrics import HOURS, METRIC, NEEDS_ONE_MEASURE, REWARD
from rlcb.analysis.records import ComparableSet, Excluded, Group, MachineTable, Pair, Speedup
from rlcb.analysis.statistics import Interval, width_of
from rlcb.analysis.unjudged import doubt, few_episodes, notes_on_speed, speed_mark, why_not_judged
from rlcb.analysis.untrusted import plain
from rlcb.analysis.work import unequal_work, work_differences
from rlcb.words import counted, reward_text, span_text

_ENOUGH_SEEDS = 5
_MOST_REASONS = 3  # that are named
_WITHOUT_LEVELS = {"evaluation_train": "Evaluation", "evaluation_train_length": "Evaluated length"}
NO_WINNER = (
    "No winner: differences in speed or memory may be due to the machines, so nothing is tested across them. "
    "Speed-up is relative to sequential runs on the same machine; for a cluster, on the machine that started the run."
)
MEASURES = {
    "PSS": "memory is PSS: pages shared by several processes are divided among them, so each page counts once",
    "RSS": "memory is RSS: pages shared by several processes count once per process",
    "": "the memory measure is not recorded; earlier versions measured RSS",
}


def number_text(value: float | None, form: str, width: float | None = None) -> str:
    """A number in the given format; n/a where there is none.

    Hours are in a unit that fits; these and rewards are shown as finely as the `width` of their interval deserves.
    """
    if value is None:
        return "n/a"
    if form == HOURS:
        return span_text(3600 * value, None if width is None else 3600 * width)
    return reward_text(value, width, form.removesuffix(REWARD)) if form.endswith(REWARD) else format(value, form)


def interval_text(interval: Interval | None, form: str, width: float | None = None) -> str:
    """An interval in brackets, n/a where there is none; `width`: that of another that it stands beside."""
    low, high = (number_text(bound, form, width or width_of(interval)) for bound in interval or (None, None))
    return f"[{low}, {high}]" if interval else "n/a"


def metric_text(group: Group, metric: str) -> str:
    """A group's mean of a metric."""
    found = group.metrics[metric]
    return number_text(found.mean, METRIC[metric].form, found.width)


def _marked(text: str, group: Group, metric: str) -> str:
    mark = speed_mark(group, metric)
    return f"{text} ({mark})" if mark else text


def mean_and_interval(group: Group, metric: str) -> str:
    """A group's mean of a metric, followed by its interval where there is one."""
    mean, interval = metric_text(group, metric), group.metrics[metric].interval
    found = f"{mean} {interval_text(interval, METRIC[metric].form)}" if interval else mean
    return _marked(f"{found} {interval_source(group, metric)}".rstrip(), group, metric)


def interval_source(group: Group, metric: str) -> str:
    """What an interval of one seed is over; empty where it is over seeds, as usual, or there is none."""
    found = group.metrics[metric]
    within = {"blocks": "within the run", "episodes": "over episodes"}
    return f"({within[found.interval_over]})" if found.interval and found.interval_over in within else ""


def mean_and_deviation(group: Group, metric: str) -> str:
    """A group's mean ± standard deviation over seeds, and how many seeds have a value if not all do."""
    found, some = group.metrics[metric], known_seeds(group, metric)
    spread = "" if found.std is None else f" ± {number_text(found.std, METRIC[metric].form, found.width)}"
    return _marked(f"{metric_text(group, metric)}{spread} {some}".rstrip(), group, metric)


def over_seeds(groups: Sequence[Group]) -> str:
    """Whether values are means over seeds or of one seed, for captions."""
    if any(len(group.runs) > 1 for group in groups):
        return "mean over seeds"
    return "one seed each" if len(groups) > 1 else "one seed"


def means_and_intervals(groups: Sequence[Group]) -> str:
    """What the values and brackets of a table are, as a sentence."""
    if any(len(group.runs) > 1 for group in groups):
        return "Means over seeds with 95 % intervals in brackets."
    return f"{over_seeds(groups).capitalize()}; 95 % intervals in brackets are within the run or over episodes."


def interval_label(groups: Sequence[Group], metrics: Sequence[str]) -> str:
    """What a plot's values and lines are, for the label of its axis."""
    found = [group.metrics[metric] for group in groups for metric in metrics]
    within = {"blocks": "within the run", "episodes": "over episodes"}
    over = next((within[one.interval_over] for one in found if one.interval and one.interval_over in within), "")
    if any(len(group.runs) > 1 for group in groups):
        return "mean over seeds, lines: 95 % interval"
    return f"{over_seeds(groups)}, lines: 95 % interval {over}" if over else over_seeds(groups)


def known_seeds(group: Group, metric: str) -> str:
    """How many of a group's seeds have a value, empty if all or none of them do."""
    known, count = group.metrics[metric].n, len(group.runs)
    return f"({known} of {count})" if 0 < known < count else ""


def with_minus(text: str) -> str:
    """Numbers with a minus sign instead of a hyphen, for pages: it is as wide as a plus sign."""
    return text.replace("-", "−")


def p_text(p: float | None) -> str:
    """A p-value with four decimals."""
    return "< 0.0001" if p is not None and p < 1e-4 else number_text(p, ".4f")


def sentence(text: str) -> str:
    """A phrase as a sentence."""
    return f"{text[:1].upper()}{text[1:]}."


def metric_title(one: ComparableSet, metric: str) -> str:
    """The title of a metric in a set's tables: memory with its measure, evaluations with levels where there are any."""
    title = METRIC[metric].title if one.levels else _WITHOUT_LEVELS.get(metric, METRIC[metric].title)
    known = metric in NEEDS_ONE_MEASURE and one.memory_measure in MEASURES and one.memory_measure
    return f"{title[:-1]}, {known})" if known else title


def untested_text(pairs: Sequence[Pair]) -> str:
    """Why none of these pairs was tested; empty where one was."""
    if any(pair.interval for pair in pairs):
        return ""
    reasons = list(dict.fromkeys(pair.verdict.removeprefix("n/a (").removesuffix(")") for pair in pairs))
    more = [counted(len(reasons) - _MOST_REASONS, "other reason")] if len(reasons) > _MOST_REASONS else []
    return "; ".join(reasons[:_MOST_REASONS] + more)


def energy_unknown(one: ComparableSet) -> str:
    """Why the energy of none of a set's runs is known; empty where it is, or no reason is recorded."""
    runs = [run for group in one.measured for run in group.runs]
    reasons = dict.fromkeys(run.energy_unknown for run in runs if run.energy_unknown)
    known = any(run.metrics.processor_watts is not None for run in runs)
    return "" if known or not reasons else next(iter(reasons))


def efficiency_text(found: Speedup | None) -> str:
    """Speed-up per core in percent, with the cores that it is computed from."""
    if found is None:
        return "-"
    if found.efficiency is None:
        return "n/a (cores not recorded)" if not found.cores or not found.baseline_cores else "n/a"
    return f"{100 * found.efficiency:.0f} % ({found.cores} against {found.baseline_cores}{doubt(found.efficiency)})"


def verdict_overall(main: str, excluded: Sequence[Excluded], across: Sequence[MachineTable] = ()) -> str:
    """The main verdict, how many runs are not part of it, and whether those of other machines are shown."""
    if not excluded:
        return main
    others = f"{counted(len(excluded), 'run')} {'are' if len(excluded) > 1 else 'is'} not part of this comparison"
    shown = " Runs of the same task on different machines are shown side by side, without a winner." if across else ""
    return f"{main} {others}; the reasons are listed below.{shown}"


def verdict_on(one: ComparableSet, external: bool = False) -> str:
    """What a set shows, in two to four sentences; `external`: other programs' runs are shown beside it."""
    groups, reward = one.measured, one.reward_metric
    if not groups:
        return f"{one.title}: all runs failed, so there is nothing to compare."
    many = f"{counted(sum(len(group.runs) for group in groups), 'run')} in {counted(len(groups), 'group')}"
    if not one.finished:
        return f"{one.title}: {many}, none of them finished, so no conclusion is drawn."
    sentences = [f"{one.title}: {many}."]
    if len(groups) == 1:
        alone = [f"{METRIC[name].title} {mean_and_interval(groups[0], name)}" for name in (reward, "average_fps")]
        why = "only group of our own runs" if external else "only group, so there is nothing to compare it with"
        sentences.append(f"{groups[0].label} is the {why}: {', '.join(alone)}.")
    else:
        sentences += [_on_speed(one, groups), _on_metric(one, groups, reward)]
    sentences += [_on_speedup(group) for group in groups if group.speedup and group.speedup.machine]
    caveats = (_caveat(one, groups), _unequal(groups))
    return " ".join([*sentences, *(caveat for caveat in caveats if caveat)])


def _on_speedup(group: Group) -> str:
    """The speed of a group on a cluster over that on the machine that it was used from."""
    found = group.speedup
    assert found
    per_core = f", {100 * found.efficiency:.0f} % per core" if found.efficiency is not None else ""
    cores = f" ({counted(found.cores or 0, 'core')} against {found.baseline_cores}{per_core})" if per_core else ""
    unlike = f"; not the same work: {found.unequal_work}" if found.unequal_work else ""
    return f"{group.label} is {found.value:.2f} times as fast as {found.over}{cores}{unlike}."


def _on_speed(one: ComparableSet, groups: Sequence[Group]) -> str:
    """The same as of any metric, but only of groups whose runs had the machine to themselves."""
    known = [group for group in groups if group.metrics["average_fps"].n]
    alone = [group for group in known if not group.unjudged]
    reasons = why_not_judged(known)
    if not reasons:
        return _on_metric(one, groups, "average_fps")
    judged = f"{_on_metric(one, alone, 'average_fps')} " if len(alone) > 1 else f"{METRIC['average_fps'].title}: "
    return f"{judged}{'. '.join(reasons)}."


def _on_metric(one: ComparableSet, groups: Sequence[Group], metric: str) -> str:
    """Which group has the best mean of a metric, and over which others its lead is established."""
    title, order = METRIC[metric].title, standing(one, metric, groups)
    without = f" Not ranked: {order.missing}." if order.missing else ""
    best, others = order.best, order.others
    if not best or not others:
        return f"{title}: too few groups have a value{' for all their seeds' if order.missing else ''}.{without}"
    pair = one.pair(metric, best.label, others[0].label)
    if len(others) == 1 and pair:
        return f"{title}: {_on_two(best, others[0], pair)}.{without}"
    found = f"{title}: {best.label} has the highest mean ({mean_and_interval(best, metric)})"
    return f"{found}; {lead_text(order, metric)}.{without}"


def _on_two(best: Group, other: Group, pair: Pair) -> str:
    form = METRIC[pair.metric].form
    means = f"{best.label} {metric_text(best, pair.metric)}, {other.label} {metric_text(other, pair.metric)}"
    if pair.interval is None or pair.difference is None:
        return f"{means}; {_why_untested(best, other, pair)}"
    sign = 1 if pair.first == best.label else -1
    difference, (low, high) = sign * pair.difference, sorted(sign * bound for bound in pair.interval)
    shown, lowest, highest = (number_text(value, form, high - low) for value in (difference, low, high))
    span = f"difference {shown}, 95 % interval {lowest} to {highest}"
    return f"{pair.verdict} ({means}; {span})"


def _why_untested(best: Group, other: Group, pair: Pair) -> str:
    single = [group.label for group in (best, other) if group.metrics[pair.metric].n == 1]
    if "one seed" in pair.verdict and single:
        return f"one seed {'each' if len(single) == 2 else f'of {single[0]}'}: not enough to tell"
    return why_untested(pair)


def _caveat(one: ComparableSet, groups: Sequence[Group]) -> str:
    """The most important limitation of what the set shows, empty if there is none."""
    invalid = [group.label for group in groups if not group.valid]
    if invalid:
        return f"{listed(invalid)}: invalid, more than one seed failed."
    failed = [group.label for group in groups if group.failed]
    if failed:
        return f"A seed failed in {listed(failed)}; the results cover the remaining seeds only."
    if len(groups) > 1 and max(len(group.runs) for group in groups) == 1:
        speed = "; speed is judged within each run" if any(pair.interval_over == "blocks" for pair in one.pairs) else ""
        return f"With one seed each, differences in reward cannot be distinguished from chance{speed}."
    return ""


def _unequal(groups: Sequence[Group]) -> str:
    """Whether groups do not do the same work, in a sentence; empty if they do."""
    if len(groups) == 2:
        unlike = work_differences(groups[0].runs[0], groups[1].runs[0])
        return f"Not the same work ({groups[0].label} / {groups[1].label}): {unlike}." if unlike else ""
    found = unequal_work([(group.label, group.runs[0]) for group in groups])
    return "The groups do not all do the same work; see the notes." if found else ""


def notes_on(one: ComparableSet) -> tuple[str, ...]:
    """What limits the conclusions from a set: failures, missing values, unequal work, few seeds, other versions."""
    notes = []
    for group in one.groups:
        notes += [f"{group.label}: {run.name} (seed {run.seed}) failed: {run.reason}" for run in group.failed]
        if not group.valid:
            notes.append(f"{group.label}: invalid, {counted(len(group.failed), 'seed')} failed")
        notes += few_episodes(group)
    unlike = unequal_work([(group.label, group.runs[0]) for group in one.measured])
    notes += [f"not the same work: {difference}" for difference in unlike]
    for found in (group.speedup for group in one.measured):
        if found and found.machine and found.unequal_work:
            notes.append(f"not the same work as {found.over}: {found.unequal_work}")
    notes += notes_on_speed(one)
    if one.memory_measure not in MEASURES:
        measures = (f"{group.memory_measure or 'not recorded'} ({group.label})" for group in one.measured)
        notes.append(f"memory was measured in different ways and cannot be compared: {', '.join(measures)}")
    if any(pair.interval_over == "blocks" for pair in one.pairs):
        notes.append(
            "speed is judged within each run, from blocks of updates; estimating the variation between repetitions "
            "takes three seeds each"
        )
    if any(1 < len(group.runs) < _ENOUGH_SEEDS for group in one.groups):
        notes.append(
            "with fewer than 5 seeds the bootstrap interval of a group is too narrow; rely on the tests of pairs"
        )
    versions = [_versions(group) for group in one.measured]
    # Procgen's version is recorded where it is used; earlier versions recorded it under another name, everywhere.
    recorded = [each for each in versions if each]
    shared = [name for name in recorded[0] if all(name in each for each in recorded)] if recorded else []
    different = {", ".join(f"{name} {each[name]}" for name in shared) if each else "unknown" for each in versions}
    if len(different) > 1:
        notes.append(f"versions differ: {' | '.join(sorted(different))}")
    return tuple(notes)


def _versions(group: Group) -> dict[str, str]:
    """The versions that a group's first run recorded, by their names."""
    versions = group.runs[0].hardware.get("versions")
    driver = plain(group.runs[0].hardware.get("gpu_driver"))
    named = {**(versions if isinstance(versions, dict) else {}), **({"GPU driver": driver} if driver else {})}
    return {plain(name): plain(version) for name, version in named.items()}
