"""From paths to runs: finds run directories, reads them, and warns of what cannot be used."""

import os
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from rlcb.analysis.evaluations import load_evaluations
from rlcb.analysis.external.convert import load_imported, load_source
from rlcb.analysis.external.find import EXPECTED, is_imported, source_at
from rlcb.analysis.history import LARGEST_COLUMNS, History, load_history
from rlcb.analysis.machines import learners_of
from rlcb.analysis.run import (
    MEASURES,
    Run,
    RunMetrics,
    disturbance_of,
    ended_at,
    metrics_of_history,
    metrics_of_summary,
    status_of,
)
from rlcb.analysis.untrusted import (
    LARGEST_OBJECT,
    env_names,
    number,
    parse_lines,
    plain,
    read_object,
    section,
    whole_number,
)
from rlcb.config.yaml_file import MAX_BYTES, read_yaml
from rlcb.errors import UsageError
from rlcb.files import open_regular, read_regular

Warn = Callable[[str], None]
_MARKS = ("run.json", "benchmark_metrics.json", "training_summary.json")
ASIDE = re.compile(r"\.\d+$")  # what a run's name gets when it is moved aside
_DEEPEST = 8  # folders below the one that was named
_LARGEST_EVENTS = 16 * 2**20
# Files that a run can be compared without, and the most bytes that they can have.
_OTHERS = {
    "run.json": LARGEST_OBJECT,
    "config.yaml": MAX_BYTES,
    "metrics.json": LARGEST_COLUMNS,
    "events.jsonl": _LARGEST_EVENTS,
}


def load_runs(paths: Iterable[Path], warn: Warn) -> list[Run]:
    """Read runs, and all runs in folders of runs; each one that cannot be used is left out with a warning."""
    runs: list[Run] = []
    seen: set[str] = set()
    for path in (path for named in paths for path in find_runs(named, warn)):
        real = os.path.realpath(path)
        if real in seen:
            warn(f"{path}: given twice, used once")
            continue
        seen.add(real)
        try:
            run = load_run(path)
        except UsageError as error:
            warn(f"left out: {error}")
            continue
        if run.problems:
            what = f"external run {run.external.name}:" if run.external else "used, but"
            warn(f"{path}: {what} {'; '.join(run.problems)}")
        runs.append(run)
    if not runs:
        raise UsageError("no usable run; give run directories or directories that contain runs (such as ./benchmarks)")
    return runs


def find_runs(named: Path, warn: Warn) -> list[Path]:
    """The run directory that `named` is, or all below it in the order of their names, without runs moved aside.

    Folders with logs of other programs are among them, and so is such a file that is named.
    """
    if not os.path.isdir(named):
        if source_at(named):
            return [named]
        what = f"neither a directory nor one of {EXPECTED}" if os.path.exists(named) else "no such directory"
        warn(f"left out: {plain(str(named))}: {what}")
        return []
    found: list[Path] = []
    aside: dict[Path, Path] = {}
    for path, is_own, moved in walk(named, warn):
        aside |= moved
        if is_own or (is_external(path) and not any(is_external(above) for above in path.parents if above in found)):
            found.append(path)
    if not found:
        warn(f"left out: {plain(str(named))}: contains no run")
    if aside:
        (path, run), more = next(iter(aside.items())), len(aside) - 1
        what = f"{path} and {more} more: moved aside for newer runs" if more else f"{path}: moved aside for {run.name}"
        warn(f"left out: {plain(what)}; give the path of such a run to use it")
    return found


def is_external(path: Path) -> bool:
    """Whether a folder is an imported run, or one in which another program left its log."""
    return is_imported(path) or source_at(path) is not None


def walk(named: Path, warn: Warn) -> Iterator[tuple[Path, bool, dict[Path, Path]]]:
    """A folder and those below it, without what is inside of runs.

    Each with whether it is a run's directory, and with the runs in it that were moved aside, which do not come by
    themselves, and the run that each was moved for.
    """
    seen: set[str] = set()

    def unreadable(error: OSError) -> None:
        warn(f"left out: {plain(str(error.filename))}: {error.strerror}")

    for name, inside, _ in os.walk(named, followlinks=True, onerror=unreadable):
        path, real = Path(name), os.path.realpath(name)
        if is_run(path):
            yield path, True, {}
        elif real not in seen and len(path.relative_to(named).parts) <= _DEEPEST:  # links can lead in circles
            seen.add(real)
            aside = _moved_aside(path, inside)
            inside[:] = sorted(name for name in inside if path / name not in aside)
            yield path, False, aside
            continue
        inside.clear()


def _moved_aside(path: Path, names: list[str]) -> dict[Path, Path]:
    """The runs `<name>.1`, `<name>.2`, … in a folder that made room for a run `<name>`, with that one."""
    pairs = {name: ASIDE.sub("", name) for name in sorted(names) if ASIDE.search(name)}
    found = {path / name: path / run for name, run in pairs.items() if run in names}
    return {copy: run for copy, run in found.items() if is_run(copy) and is_run(run)}


def is_run(path: Path) -> bool:
    """Whether a folder is a run's directory, in whatever state."""
    return any(os.path.isfile(path / mark) for mark in _MARKS) or bool(_log_folders(path))


def _log_folders(path: Path) -> list[str]:
    """The names of a run's folders of logs, such as PPO_Parallel."""
    return sorted(log.parent.name for log in (path / "logs").glob("*/metrics.jsonl") if os.path.isfile(log))


def load_run(path: Path) -> Run:
    """Read one run directory, or a log of another program; UsageError says why it cannot be used."""
    if is_imported(path):
        return load_imported(path)
    source = None if is_run(path) else source_at(path)
    if source:
        return load_source(source)
    benchmark, benchmark_problem = _optional(path / "benchmark_metrics.json")
    summary, summary_problem = _optional(path / "training_summary.json")
    algorithm, mode = identity_of(path, benchmark, summary)
    config = config_of(path, benchmark)
    checkpoints, log = places_of(path, config, algorithm, mode)
    history, problems = load_history(log, path / "metrics.json")
    summarized, summary_problems = metrics_of_summary(benchmark, summary)
    measured = metrics_of_history(history)
    steps, reached = summarized.get("total_timesteps"), measured.get("total_timesteps")
    covered = steps is not None and (reached is None or reached <= steps)
    said = plain(benchmark.get("status", summary.get("status", "finished" if benchmark else "")))
    status, reason = status_of(path, said, covered, reached or steps, _events(path))
    if not len(history) and not steps and status != "failed":
        raise UsageError(f"{path}: nothing to compare: {'; '.join(problems) or 'no update was logged'}")
    if covered and reached != steps:
        measured["late_reward"] = None  # the log ends before the run did
    # Of two values the later source's is used: the summary's, unless the run went on after it was written.
    sources = (measured, summarized) if covered else (summarized, measured)
    metrics = RunMetrics(**{name: found for source in sources for name, found in source.items() if found is not None})
    evaluations, evaluation_problems = load_evaluations(checkpoints, f"{algorithm}_{mode}_")
    if evaluations.env_steps is not None and evaluations.env_steps != metrics.total_timesteps:
        evaluation_problems.append(f"its evaluation is of step {evaluations.env_steps:,}, not of the final policy")
    hardware, division = section(benchmark, "hardware"), section(config, "parallel")
    workers = whole_number(hardware.get("num_workers")) or whole_number(division.get("num_workers"))
    measure = plain(section(benchmark, "resource_usage").get("memory_measure")).upper() if covered else ""
    lacking = [text for text in (benchmark_problem, summary_problem) if text and (said or "no " not in text)]
    return Run(
        path=path,
        name=plain(str(path)),
        algorithm=algorithm,
        mode=mode,
        variant=variant_of(config),
        **_task(config),
        hardware=hardware,
        num_workers=max(workers or 1, 1) if mode == "parallel" else 1,
        num_learners=learners_of(algorithm, mode, hardware, division),
        num_threads=whole_number(hardware.get("num_threads")),
        config=config,
        status=status,
        reason=reason,
        ended=ended_at(path, benchmark, log),
        metrics=metrics,
        disturbance=disturbance_of(benchmark if covered else {}),
        memory_measure=measure if measure in MEASURES else "",
        energy_unknown=plain(section(benchmark, "resource_usage").get("processor_watts_unknown")),
        time_shares=_shares(benchmark if covered else {}, history),
        history=history,
        evaluations=evaluations,
        problems=(*lacking, *_unreadable(path), *problems, *summary_problems, *evaluation_problems),
    )


def _task(config: dict[str, Any]) -> dict[str, Any]:
    """What a run trained on, as fields of a Run; only Procgen has levels."""
    env = section(config, "env")
    name, game = env_names(env["name"])
    return {
        "env": name,
        "game": game or name,
        "distribution_mode": (plain(env.get("distribution_mode")) or "easy") if game else None,
        "num_levels": whole_number(env.get("num_levels")) if game else None,
        "start_level": whole_number(env.get("start_level")) if game else None,
        "seed": whole_number(env.get("seed")),
        "num_envs": whole_number(env.get("num_envs")),
    }


def _optional(path: Path) -> tuple[dict[str, Any], str]:
    """A JSON object, or an empty one and what is wrong."""
    try:
        return read_object(path), ""
    except UsageError as error:
        return {}, str(error)


def _unreadable(path: Path) -> list[str]:
    """What is wrong with the files that a run can be compared without, as far as they are there."""
    problems = []
    for name, limit in _OTHERS.items():
        try:
            open_regular(path / name, limit).close()
        except OSError as error:
            if os.path.lexists(path / name):
                problems.append(f"{name} cannot be read: {error.strerror}")
    return problems


def identity_of(path: Path, benchmark: dict[str, Any], summary: dict[str, Any]) -> tuple[str, str]:
    """Algorithm and mode, from the first file that has them."""
    marks = _optional(path / "run.json")[0]
    folders = _log_folders(path)
    words = folders[0].lower().split("_") if len(folders) == 1 and folders[0].count("_") == 1 else ["", ""]
    candidates = (
        (marks.get("algorithm"), marks.get("mode")),
        (benchmark.get("algorithm"), benchmark.get("training_mode")),
        (summary.get("algorithm"), summary.get("mode")),
        (words[0], words[1]),
    )
    for algorithm, mode in candidates:
        if plain(algorithm).isalnum() and mode in ("sequential", "parallel"):
            return plain(algorithm).lower(), str(mode)
    raise UsageError(f"{path}: unknown algorithm and mode: run.json is missing or damaged")


def config_of(path: Path, benchmark: dict[str, Any]) -> dict[str, Any]:
    """The configuration, from the first file that has it."""
    config = section(benchmark, "config")
    if not plain(section(config, "env").get("name")):
        try:
            config = read_yaml(path / "config.yaml")
        except UsageError as error:
            raise UsageError(f"{path}: unknown configuration: {error}") from None
    if not plain(section(config, "env").get("name")):
        raise UsageError(f"{path}: unknown environment: no env.name in config.yaml")
    return config


def variant_of(config: dict[str, Any]) -> str:
    """The name that a run's settings were given; empty where they have none."""
    return plain(section(config, "logging").get("variant"))


def places_of(path: Path, config: dict[str, Any], algorithm: str, mode: str) -> tuple[Path, Path]:
    """The folder of the checkpoints and the log; both may lie outside of the run's directory."""
    places = section(config, "logging")
    checkpoints = Path(plain(places.get("checkpoint_dir")) or path / "checkpoints")
    logs = Path(plain(places.get("log_dir")) or path / "logs")
    return checkpoints, logs / f"{algorithm.upper()}_{mode.capitalize()}" / "metrics.jsonl"


def _events(path: Path) -> list[dict[str, Any]]:
    """The recorded events of a run; damaged lines are left out."""
    try:
        return parse_lines(read_regular(path / "events.jsonl", _LARGEST_EVENTS))[0]
    except OSError:
        return []  # no event has been recorded, or none can be read


def _shares(benchmark: dict[str, Any], history: History) -> dict[str, float]:
    """The share of the training time that each activity took, in parts of 1."""
    said = {plain(name): number(value) for name, value in section(benchmark, "time_shares").items()}
    parts = {name: value for name, value in said.items() if value is not None and value >= 0} or history.spent
    total = sum(parts.values())
    return {name: value / total for name, value in parts.items()} if total else {}
