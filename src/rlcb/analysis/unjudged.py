"""Speeds that are not judged: of runs that shared their machine with others of a suite, or that were disturbed."""

import shlex
from collections.abc import Iterable, Sequence

from rlcb.analysis.metrics import OF_SPEED
from rlcb.analysis.records import ComparableSet, Group
from rlcb.analysis.run import Run
from rlcb.analysis.suites import is_suite
from rlcb.analysis.untrusted import import_flags, section
from rlcb.words import counted, typed

_MOST_NAMED = 3  # groups, runs and commands
_SUITE_LEVELS = 3  # a suite's runs lie in GAME/ALGORITHM_MODE/seed_N
_PLAUSIBLE = 1.1  # speed-up per core that measurements on a quiet machine may have by chance
MEASURED_ALONE = "to measure it, run rlcb benchmark --jobs 1 in another directory"


def speed_mark(group: Group, metric: str) -> str:
    """A mark on what depends on the speed of runs whose speed is not judged; empty on everything else."""
    return group.unjudged if metric in OF_SPEED and group.metrics[metric].mean is not None else ""


def doubt(efficiency: float) -> str:
    """What is said beside a speed-up per core that is larger than the cores explain; empty for others."""
    return "; more than the cores explain" if efficiency > _PLAUSIBLE else ""


def repeat_command(runs: Iterable[Run]) -> str:
    """What trains these runs again and keeps the old ones aside."""
    found = list(dict.fromkeys(_command(run) for run in runs))
    more = [f"and {len(found) - _MOST_NAMED} more"] if len(found) > _MOST_NAMED else []
    return "; ".join(found[:_MOST_NAMED] + more)


def _command(run: Run) -> str:
    suite = run.path.parents[_SUITE_LEVELS - 1] if len(run.path.parents) >= _SUITE_LEVELS else run.path
    if is_suite(suite):
        return typed(f"rlcb benchmark --output-dir {shlex.quote(str(suite))} --repeat-disturbed{_import_flags(run)}")
    config, output = (shlex.quote(str(path)) for path in (run.path / "config.yaml", run.path))
    how = f"--mode {run.mode} --config {config} --output-dir {output}{_import_flags(run)}"
    return typed(f"rlcb train {run.algorithm} {how}")


def _import_flags(run: Run) -> str:
    """The flags that permit the import of the modules that a run needs, each after a space."""
    return import_flags(section(run.config, "env").get("imports"), section(run.config, "training").get("network"))


def few_episodes(group: Group) -> list[str]:
    """That runs of a group have no reward, as a note; none where all have one."""
    unknown = group.metrics["final_reward"].missing
    have = "it has" if unknown == 1 else "they have"
    few = f"finished fewer than 100 episodes, so {have} no reward (a mean of 100 episodes)"
    return [f"{group.label}: {unknown} of {counted(len(group.runs), 'run')} {few}"] if unknown else []


def disturbed_text(run: Run) -> str:
    """What disturbed a run, for a list of remarks; empty if nothing did."""
    return f"disturbed: {run.disturbance.words}" if run.disturbed else ""


def why_not_judged(groups: Sequence[Group]) -> list[str]:
    """Why the speed of these groups is not judged, a clause for each reason, with what would measure it."""
    found = []
    for mark in ("shared", "disturbed"):
        here = [group for group in groups if group.unjudged == mark]
        if here:
            labels = [group.label for group in here]
            names = " and ".join([", ".join(labels[:-1]), labels[-1]] if labels[:-1] else labels)
            names = names if len(here) <= _MOST_NAMED else f"{len(here)} groups"
            its, was = ("its", "was") if len(here) == 1 else ("their", "were")
            commands = {_command(run) for group in here for run in group.disturbed}
            again = (
                f"repeat on a quiet machine: {commands.pop()}"
                if len(commands) == 1
                else "see the notes for the commands"
            )
            found.append(
                f"{names} shared the machine with other runs, so {its} speed is not judged; {MEASURED_ALONE}"
                if mark == "shared"
                else f"{names} {was} disturbed by other programs, so {its} speed is not judged; {again}"
            )
    return found


def _repeat(runs: Sequence[Run]) -> str:
    return f"repeat on a quiet machine: {repeat_command(runs)}"


def notes_on_speed(one: ComparableSet) -> list[str]:
    """Which runs' speeds do not count, with the figures; and speed-ups that the cores cannot explain."""
    notes = []
    shared = [f"up to {group.jobs_beside} beside {group.label}" for group in one.measured if group.jobs_beside]
    if shared:
        notes.append(
            f"(shared): other runs trained on the machine at the same time ({', '.join(shared)}), so speed and values "
            f"derived from it are not judged; {MEASURED_ALONE}"
        )
    for group in one.measured:
        if group.disturbed:
            seeds = [f"seed {run.seed}: {run.disturbance.words}" for run in group.disturbed[:_MOST_NAMED]]
            hidden = len(group.disturbed) - len(seeds)
            figures = "; ".join([*seeds, *([f"{hidden} more"] if hidden else [])])
            fate = "speed and values derived from it are not judged"
            if len(group.disturbed) < len(group.runs):
                fate = "excluded from speed and values derived from it"
            counts = f"{len(group.disturbed)} of {counted(len(group.runs), 'run')} disturbed by other programs"
            if section(group.runs[0].config, "training").get("duration_hours"):
                fate += "; a timed run that is disturbed makes fewer steps, so its rewards are lower as well"
            notes.append(f"(disturbed): {group.label}, {counts} ({figures}): {fate}; {_repeat(group.disturbed)}")
    notes += [
        _implausible(group, one) for group in one.measured if group.speedup and doubt(group.speedup.efficiency or 0.0)
    ]
    return notes


def _implausible(group: Group, one: ComparableSet) -> str:
    found = group.speedup
    assert found is not None
    assert found.efficiency is not None
    base = next((other for other in one.groups if other.label == found.baseline and not found.machine), None)
    calm = [run for run in base.runs if not run.disturbed] if base else []
    quiet = bool(calm) and all(run.disturbance.disturbed is False for run in calm)
    cause = f"{found.over} was not disturbed, so it uses its {counted(found.baseline_cores or 0, 'core')} poorly"
    unknown = f"either {found.over} uses its cores poorly or an unrecorded disturbance slowed it down"
    return (
        f"{group.label}: {100 * found.efficiency:.0f} % per core is more than its cores explain: "
        f"{cause if quiet else unknown}"
    )
