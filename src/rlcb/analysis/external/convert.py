"""Files of another program as a run to compare with."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from rlcb.analysis.evaluations import Evaluations
from rlcb.analysis.external.find import MONITOR, PROGRESS, Source
from rlcb.analysis.external.labels import Labels, complete
from rlcb.analysis.external.log import EPISODES, Log, columns_of
from rlcb.analysis.external.mapping import Mapping
from rlcb.analysis.external.monitor import read_monitors
from rlcb.analysis.external.progress import read_progress
from rlcb.analysis.external.record import MARK, SCHEMA, External, SourceFile, external_of
from rlcb.analysis.external.tensorboard import read_tensorboard
from rlcb.analysis.history import Columns, as_history, read_log
from rlcb.analysis.run import Run, RunMetrics, metrics_of_history
from rlcb.analysis.untrusted import env_names, plain, read_object, section, whole_number
from rlcb.disturbance.verdict import Disturbance
from rlcb.envs.episodes import WINDOW
from rlcb.errors import UsageError
from rlcb.files import sha256_of
from rlcb.words import typed

HISTORY = "metrics.jsonl"
IMPORTED = "imported"  # the status of such a run: whether it is finished is not known
_LARGEST = 8 * 2**30
_NOT_RECORDED = "not recorded by other programs"
_OF_UPDATES = ("total_updates", "final_fps")  # metrics that are over updates, which are not in the files

Content = dict[str, Any]


def convert(source: Source, given: Labels, mapping: Mapping | None = None) -> tuple[Content, Columns]:
    """What external.json holds for a source, and the log's columns; UsageError says what is wrong or missing."""
    log = _read(source, mapping)
    labels = complete(given, log, source.path)
    if labels.game is None:
        raise UsageError(
            f"{source.path}: the files do not name the environment; give it: "
            f"{typed(f'rlcb import {source.path} --game NAME')}"
        )
    try:
        files = [
            SourceFile(str(file.absolute()), sha256_of(file, _LARGEST), os.stat(file).st_size) for file in source.files
        ]
    except OSError as error:
        raise UsageError(f"{error.filename}: cannot be read: {error.strerror}") from None
    problems = list(log.problems)
    if source.unread:
        problems.append(f"also present but not read: {', '.join(source.unread)}")
    external = External(
        name=labels.name or log.program,
        program=log.program,
        format=log.format,
        sources=tuple(files),
        mapping=dict(log.mapping),
        rewards=log.rewards,
        same_rewards=log.kind == EPISODES or log.window == WINDOW,
        guessed=labels.guessed,
        unknown=_unknown(log, labels),
    )
    facts = ("algorithm", "game", "seed", "distribution_mode", "num_levels", "start_level")
    content = {"schema": SCHEMA, **external.to_dict(), **{name: getattr(labels, name) for name in facts}}
    return {**content, "problems": problems}, columns_of(log)


def _read(source: Source, mapping: Mapping | None) -> Log:
    if source.format == MONITOR:
        if mapping is not None:
            raise UsageError(f"{source.path}: monitor.csv has fixed columns; --mapping is for TensorBoard and tables")
        return read_monitors(source.files)
    if source.format == PROGRESS:
        return read_progress(source.files[0], mapping)
    return read_tensorboard(source.files, mapping)


def _unknown(log: Log, labels: Labels) -> dict[str, str]:
    """What is not known of a run, and why."""
    found = {
        "machine": _NOT_RECORDED,
        "disturbance": _NOT_RECORDED,
        "memory": _NOT_RECORDED,
        "settings": "not read: settings of other programs have different meanings",
        "budget": "the files do not say whether the run has finished",
    }
    if labels.game and env_names(labels.game)[1] and labels.distribution_mode is None:
        found["levels"] = "not in the files; give --distribution-mode and --num-levels to rlcb import"
    if not np.isfinite(log.time).any():
        found["time"] = "not in the file"
    for name in ("algorithm", "seed"):
        if getattr(labels, name) is None:
            found[name] = f"neither in the files nor in their directory names; give --{name} to rlcb import"
    return found


def run_of(path: Path, content: Content, columns: Columns) -> Run:
    """A run from what `convert` returns, or from what was written of that."""
    external = external_of(content)
    history, problems = as_history(columns, [], timed=False)
    if not len(history):
        raise UsageError(f"{path}: nothing to compare: it has no rewards")
    measured = {name: value for name, value in metrics_of_history(history).items() if name not in _OF_UPDATES}
    name, game = env_names(content.get("game"))
    said = content.get("problems")
    told = [plain(text) for text in said[:100]] if isinstance(said, list) else []
    seed = whole_number(content.get("seed"))
    return Run(
        path=path,
        name=plain(str(path)),
        algorithm=plain(content.get("algorithm")).lower() or "unknown",
        mode="external",
        variant="",
        env=name,
        game=game or name,
        distribution_mode=plain(content.get("distribution_mode")) or None if game else None,
        num_levels=whole_number(content.get("num_levels")) if game else None,
        start_level=whole_number(content.get("start_level")) if game else None,
        seed=seed,
        num_envs=None,
        num_workers=1,
        num_learners=None,
        num_threads=None,
        config={"env": {"name": name, "seed": seed}, "external": external.to_dict()},
        hardware={},
        status=IMPORTED,
        reason=external.in_words,
        ended=_ended(external),
        metrics=RunMetrics(**measured),
        disturbance=Disturbance(),
        memory_measure="",
        time_shares={},
        history=history,
        evaluations=Evaluations(),
        problems=(*told, *problems),
        external=external,
    )


def _ended(external: External) -> float:
    """When the newest of its files was last changed, as far as they are still there."""
    times = [os.path.getmtime(source.path) for source in external.sources if os.path.exists(source.path)]
    return max(times, default=0.0)


def load_imported(path: Path) -> Run:
    """A run that `rlcb import` made."""
    try:
        content = read_object(path / MARK)
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from None
    if content.get("schema") != SCHEMA or not plain(content.get("game")):
        raise UsageError(f"{path}: {MARK} is damaged or from another version; import the files again")
    columns, problems = read_log(path / HISTORY)
    run = run_of(path, content, columns)
    return replace(run, problems=(*run.problems, *problems))


def load_source(source: Source) -> Run:
    """A run of another program, read directly; what it is called is guessed."""
    content, columns = convert(source, Labels())
    run = run_of(source.path, content, columns)
    guesses = ", ".join(f"{name} {section_text(content, name)} from {how}" for name, how in _guessed(content).items())
    return replace(run, problems=(*([f"guessed {guesses}"] if guesses else []), *run.problems))


def _guessed(content: Content) -> dict[str, str]:
    return {name: plain(how) for name, how in section(content, "guessed").items() if name != "name"}


def section_text(content: Content, name: str) -> str:
    """A label as it is printed."""
    return plain(str(content.get(name)))
