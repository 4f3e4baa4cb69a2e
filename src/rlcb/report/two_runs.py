"""`compare_results.py`: a sequential and a parallel run side by side, as a table and texts of a fixed form."""

import os
from collections.abc import Mapping
from pathlib import Path

from rlcb.analysis.comparison import compare
from rlcb.analysis.grouping import differences
from rlcb.analysis.load import find_runs, is_run, load_run, load_runs
from rlcb.analysis.machines import efficiency
from rlcb.analysis.plots import IMAGE_FORMATS, as_image, figure_four_panels
from rlcb.analysis.run import Run
from rlcb.analysis.text import number_text
from rlcb.analysis.unjudged import MEASURED_ALONE, disturbed_text, doubt, repeat_command
from rlcb.analysis.work import work_differences
from rlcb.config.registry import ALGORITHMS
from rlcb.console import note, warn
from rlcb.errors import UsageError
from rlcb.files import write_whole
from rlcb.report.compare import make_folder
from rlcb.report.document import render
from rlcb.words import counted, few_hours, typed

_MODES = ("sequential", "parallel")
_HARDWARE = "different hardware"
_MACHINES = "Different machines: shown side by side without a winner, because differences may be due to the machines"
_ONE_SEED = "One seed each, so differences have no intervals; rlcb compare takes any number of runs"


def compare_two(sequential: str | None, parallel: str | None, newest: Path | None, output: Path) -> int:
    """`compare_results.py`: a sequential and a parallel run side by side, or one of them alone."""
    if output.suffix.lower() not in IMAGE_FORMATS:
        raise UsageError(f"--output {output}: the name of a plot file must end in {', '.join(IMAGE_FORMATS)}")
    given = dict(zip(_MODES, (sequential, parallel), strict=True))
    chosen = {mode: _named_run(mode, name) for mode, name in given.items() if name}
    if newest and len(chosen) < len(_MODES):
        chosen = {**_newest_runs(newest), **chosen}
    if not chosen:
        raise UsageError("no runs given; use --sequential DIR, --parallel DIR, or both")
    runs = {mode: chosen[mode] for mode in _MODES if mode in chosen}
    for run in runs.values():
        if run.problems:
            warn(f"{run.name}: used, but {'; '.join(run.problems)}")
    make_folder(output.parent)
    sets, remarks = compare(list(runs.values())).sets, _remarks(runs)
    title = sets[0].title if len(sets) == 1 else _title(runs)
    picture = figure_four_panels([group for one in sets for group in one.groups], title)
    report = output.with_name("comparison_report.txt")
    write_whole(output, as_image(picture, output.suffix.lower()))
    table, text = two_run_texts(runs, {mode: given[mode] or run.name for mode, run in runs.items()})
    write_whole(report, text.encode())
    print(table, *_details(runs), *remarks, f"Written: {output}", f"Written: {report}", sep="\n", flush=True)
    return 0


def _title(runs: Mapping[str, Run]) -> str:
    """The title of a picture of runs that differ in more than their mode."""
    unlike = [item for item in _incomparable(runs) if not item.startswith(_HARDWARE)]
    machines = (f"{mode} on {run.task.machine or 'an unknown machine'}" for mode, run in runs.items())
    first = next(iter(runs.values())).task
    same = ", ".join(part for part in (first.env, first.levels, first.budget) if part)
    return "; ".join(f"Not comparable: {item}" for item in unlike) or f"{same}: {'; '.join(machines)}"


def _named_run(mode: str, name: str) -> Run:
    """The run that a flag names, which must be of the flag's mode."""
    path = Path(name)
    if not os.path.isdir(path) or not is_run(path):
        below = len(find_runs(path, lambda _: None))
        what = (
            f"contains {counted(below, 'run')}; give the directory of one, or use rlcb compare"
            if below
            else "contains no run"
        )
        raise UsageError(f"--{mode} {name}: {what if os.path.isdir(path) else 'no such directory'}")
    run = load_run(path)
    if run.mode != mode:
        raise UsageError(f"--{mode} {name}: is a {run.mode} run; use --{run.mode}, or rlcb compare for any two runs")
    return run


def _newest_runs(folder: Path) -> dict[str, Run]:
    """The newest run below a folder and the newest of its algorithm in the other mode, finished ones first.

    A run of an algorithm with one mode alone has no counterpart: it is taken only where there is no other.
    """
    if not os.path.isdir(folder):
        raise UsageError(f"{folder}: no such directory, so there are no runs to compare; make train-timed creates one")
    found = [run for run in load_runs([folder], warn) if not run.external]
    if not found:
        raise UsageError(f"{folder}: contains only runs of other programs; use rlcb compare")
    runs = sorted(found, key=lambda run: (run.status == "finished", run.ended), reverse=True)
    newest = next((run for run in runs if _modes(run) == set(_MODES)), runs[0])
    other_mode = "parallel" if newest.mode == "sequential" else "sequential"
    others = [run for run in runs if (run.mode, run.algorithm) == (other_mode, newest.algorithm)]
    if not others and other_mode not in _modes(newest):
        note(f"{newest.algorithm.upper()} has no {other_mode} mode; {newest.name} is shown alone")
        return {newest.mode: newest}
    if not others:
        missing = f"no {other_mode} {newest.algorithm.upper()} run in {folder}; {newest.name} is shown alone"
        note(f"{missing}; to create one: {typed(f'rlcb train {newest.algorithm} --mode {other_mode}')}")
        return {newest.mode: newest}
    other = max(others, key=lambda run: (run.env == newest.env, run.variant == newest.variant))  # the first of equals
    return {newest.mode: newest, other.mode: other}


def _modes(run: Run) -> set[str]:
    """The modes that a run's algorithm has."""
    return set(ALGORITHMS[run.algorithm].modes) if run.algorithm in ALGORITHMS else {run.mode}


def two_run_texts(runs: Mapping[str, Run], directories: Mapping[str, str]) -> tuple[str, str]:
    """The table on screen and comparison_report.txt; `directories`: those of the runs, as they were given."""
    gains, remarks = _gains(runs), [line for line in _remarks(runs) if line != _ONE_SEED]
    hours = [run.metrics.duration_hours for run in runs.values()]
    durations = [f"{number_text(value, '.2f')}{few_hours(value)}" for value in hours]
    table = render("two_runs_table.txt", runs=runs, gains=gains, durations=durations)
    values = {"runs": runs, "directories": directories, "gains": gains, "details": _details(runs), "remarks": remarks}
    return table, render("two_runs_report.txt", **values)


def _details(runs: Mapping[str, Run]) -> list[str]:
    """What the documented table has no row for: machines, episode length, measure of memory, speed-up per core."""
    found = [f"{mode.capitalize()} Machine: {run.task.machine or 'not recorded'}" for mode, run in runs.items()]
    found += [f"{mode.capitalize()} Variant: {run.variant}" for mode, run in runs.items() if run.variant]
    for title, name, form, unit in (
        ("Episode Length", "final_episode_length", ",.0f", " steps"),
        ("Share of Machine Limit", "limit_fraction", ".0%", ""),
        ("Peak GPU Memory", "peak_gpu_memory_gb", ".2f", " GB"),
        ("GPU Busy", "gpu_percent", ".0f", " %"),
    ):
        values = [getattr(run.metrics, name) for run in runs.values()]
        if any(value is not None for value in values):
            found.append(f"{title}: {' / '.join(number_text(value, form) for value in values)}{unit}")
    measures = [run.memory_measure or "not recorded" for run in runs.values()]
    unequal = " (measured in different ways, so not comparable)" if len(set(measures)) > 1 else ""
    found.append(f"Memory Measure: {' / '.join(dict.fromkeys(measures))}{unequal}")
    ratio = _ratio(runs, "average_fps")
    if ratio is not None and {run.device for run in runs.values()} == {"cpu"}:
        cores = [runs[mode].cores for mode in _MODES]
        per_core = efficiency(ratio, cores[1], cores[0])
        known = (
            "n/a (cores not recorded)"
            if per_core is None
            else f"{100 * per_core:.0f} % ({cores[1]} against {cores[0]}{doubt(per_core)})"
        )
        found.append(f"Efficiency per Core: {known}")
    return found


def _remarks(runs: Mapping[str, Run]) -> list[str]:
    """What limits the conclusions from the table."""
    first, *others = runs.values()
    found = [f"Not comparable: {item}" for item in _incomparable(runs) if not item.startswith(_HARDWARE)]
    if any(run.task.machine != first.task.machine for run in others):
        found.append(_MACHINES)
        used_from = f"the machine that started the cluster run ({first.own_machine})"
        found += [f"Speedup: over {used_from}"] if _ratio(runs, "average_fps") is not None else []
    found += [f"{run.label}, {run.status}: {run.reason}" for run in runs.values() if run.status != "finished"]
    found += [_shared(run) for run in runs.values() if run.jobs_beside]
    found += [_disturbed(run) for run in runs.values() if run.disturbed]
    work = [f"Not the same work: {text}" for run in others if (text := work_differences(first, run))]
    return found + work + ([_ONE_SEED] if others and not found else [])


def _shared(run: Run) -> str:
    others = counted(run.jobs_beside, "other run")
    return f"{run.label} shared the machine with up to {others}: its speed is not compared; {MEASURED_ALONE}"


def _disturbed(run: Run) -> str:
    again = f"repeat on a quiet machine: {repeat_command([run])}"
    return f"{run.label} {disturbed_text(run)}: its speed is not compared; {again}"


def _incomparable(runs: Mapping[str, Run]) -> list[str]:
    """In which ways the second run differs from the first; empty for one run."""
    first, *others = runs.values()
    found = [difference for run in others for difference in differences(run.task, first.task)]
    algorithms = (run.algorithm.upper() for run in others if run.algorithm != first.algorithm)
    return found + [f"different algorithm: {name} instead of {first.algorithm.upper()}" for name in algorithms]


def _gains(runs: Mapping[str, Run]) -> dict[str, str]:
    """Speed-up and efficiency gain, n/a unless the runs differ in nothing but mode and budget; empty for one run."""
    if len(runs) < 2:
        return {}
    speedup, gain = _ratio(runs, "average_fps"), _ratio(runs, "timesteps_per_hour")
    return {
        "speedup": "n/a" if speedup is None else f"{speedup:.2f}x",
        "gain": "n/a" if gain is None else f"{100 * (gain - 1):.1f}%",
    }


def _ratio(runs: Mapping[str, Run], metric: str) -> float | None:
    """Parallel over sequential, on one machine, or on a cluster over the machine that it was used from."""
    if len(runs) < 2 or any(run.jobs_beside or run.disturbed for run in runs.values()):
        return None
    unlike = [item for item in _incomparable(runs) if not item.startswith("different budget")]
    if runs["parallel"].own_machine == runs["sequential"].task.machine:
        unlike = [item for item in unlike if not item.startswith(_HARDWARE)]
    below, above = (getattr(runs[mode].metrics, metric) for mode in _MODES)
    return above / below if above and below and not unlike else None
