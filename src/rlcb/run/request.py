"""What a training command asks for: a new run, or with `--resume` the one in a directory, whose settings stay."""

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rlcb.config.division import Given
from rlcb.config.load import build_config, default_output, gives_length
from rlcb.config.named import default_file, note_unused
from rlcb.config.registry import ALGORITHMS, CLUSTER_KEYS, RESUMABLE_KEYS
from rlcb.config.schema import Config, ParallelConfig, fields
from rlcb.console import note, say
from rlcb.envs.families import find
from rlcb.envs.own_code import is_own_id
from rlcb.errors import CheckpointUnusable, UsageError
from rlcb.run.directory import checkpoints_of, read_run, refuse_locked
from rlcb.run.ending import ending_of, resume_flag
from rlcb.words import counted, span_text, typed

# Keys whose null is replaced by a number when a run begins.
_DECIDED_KEYS = ("num_envs_per_worker", "num_learners", "num_slots", "num_threads")


@dataclass(frozen=True)
class Request:
    """What a training command asks for. A resumed run has its own algorithm, and its own mode unless one is given."""

    prog: str
    algorithm: str | None  # None: that of the resumed run
    mode: str | None
    overrides: Given
    config_file: Path | None = None
    output_dir: Path | None = None
    resume: Path | None = None
    dry_run: bool = False
    resume_auto: bool = False  # resume the run in the output directory if there is one, else start it
    on_update: Callable[[dict[str, Any]], object] | None = None  # takes the metrics of each update; False: stop
    from_python: bool = False  # asked by a program, which may know environments that workers do not


# New runs


def new_config(algorithm: str, mode: str, file: Path | None, overrides: Given) -> Config:
    """The file's configuration, by default that of the algorithm and mode, with the flags on top."""
    if file is None:
        note_unused(algorithm, mode)
        file = default_file(algorithm, mode)
    return build_config(file, overrides, mode=mode, algorithm=algorithm)


def requested_config(request: Request) -> tuple[Config, str]:
    """Configuration and mode of the run that a command asks for."""
    if request.resume:
        config, mode = _resumed_config(request, request.resume)
        _note_new_length(config, request.resume)
        return config, mode
    algorithm, mode = _algorithm_and_mode(request)
    refuse_missing_mode(algorithm, mode)
    changes = dict(request.overrides)
    if request.output_dir:
        # Whoever names the run's directory wants everything in it, also what the file puts elsewhere.
        for key in ("checkpoint_dir", "log_dir"):
            changes.setdefault(key, ("--output-dir", None))
    config = new_config(algorithm, mode, request.config_file, changes)
    refuse_workers(mode, request.overrides)
    _refuse_no_length(request, config)
    return config, mode


def _refuse_no_length(request: Request, config: Config) -> None:
    """Refuse to train an environment of the user's own for a length that was chosen for games."""
    given = any(request.overrides.get(key, ("", None))[1] is not None for key in ("total_timesteps", "duration_hours"))
    family, name = find(config.env.name)
    if given or (request.config_file and gives_length(request.config_file)) or family.games or not is_own_id(name):
        return
    how = "total_timesteps or duration" if request.from_python else "--total-timesteps N or --duration HOURS"
    raise UsageError(f"environment {name} is your own, so no training length suits it by default; give {how}")


def settings_file(request: Request, algorithm: str, mode: str) -> Path | None:
    """The file that the settings of a run came from; None: built-in defaults."""
    if request.resume:
        return request.resume / "config.yaml"
    return request.config_file or default_file(algorithm, mode)


def _algorithm_and_mode(request: Request) -> tuple[str, str]:
    """Those of a new run."""
    assert request.algorithm is not None
    return request.algorithm, request.mode or ALGORITHMS[request.algorithm].modes[0]


def refuse_missing_mode(algorithm: str, mode: str) -> None:
    """Refuse a mode that the algorithm does not have."""
    entry = ALGORITHMS[algorithm]
    if mode not in entry.modes:
        instead = entry.instead.get(mode)
        hint = (
            f"; its {mode} form is {instead.upper()}: {typed(f'rlcb train {instead} --mode {mode}')}" if instead else ""
        )
        raise UsageError(f"--mode {mode}: {algorithm} only has {' and '.join(entry.modes)} mode{hint}")


def refuse_workers(mode: str, overrides: Given) -> None:
    """Refuse flags that say how a run is divided among processes where it is not; a cluster is refused elsewhere."""
    for key, (flag, value) in overrides.items():
        if mode == "sequential" and key in ParallelConfig.model_fields and key not in CLUSTER_KEYS:
            raise UsageError(f"{flag} {value}: a sequential run has one process; omit it or use --mode parallel")


# Resumed runs


def _resumed_config(request: Request, path: Path) -> tuple[Config, str]:
    """Configuration and mode of the run in a directory, with what may change on top."""
    for given, flag in ((request.config_file, "--config"), (request.output_dir, "--output-dir")):
        if given:
            raise UsageError(f"{flag}: cannot be used with --resume, which takes it from the run")
    for key, (flag, _) in request.overrides.items():
        if key not in (*RESUMABLE_KEYS, "network"):
            raise UsageError(f"{flag}: cannot be changed when a run is resumed; start a new run instead")
    config, before = read_run(path)
    if request.algorithm not in (None, config.algorithm):
        raise UsageError(
            f"{resume_flag(path)}: contains a run of {config.algorithm}, not of {request.algorithm}; "
            f"resume with: {typed(f'rlcb train {resume_flag(path)}')}"
        )
    mode = request.mode or before
    refuse_missing_mode(config.algorithm, mode)
    changes = dict(request.overrides)
    flag, network = changes.pop("network", ("", config.training.network))  # its own permits the network's module
    if network != config.training.network:
        raise UsageError(f"{flag}: cannot be changed when a run is resumed; start a new run instead")
    if "num_workers" in changes or mode != before:
        changes["num_envs_per_worker"] = ("--num-workers", None)  # the total stays what it is
    longer = build_config(None, changes, base=config, mode=mode)
    refuse_workers(mode, request.overrides)
    return longer, mode


def _note_new_length(config: Config, path: Path) -> None:
    """Say that the learning rate will fall differently, if the run in a directory had another length."""
    if config.training.lr_schedule == "linear" and _length(config) != _length(read_run(path)[0]):
        note(
            "the linear schedule of the learning rate now ends with the new length of the run, not with the earlier one"
        )


def _length(config: Config) -> tuple[float | None, int]:
    """The hours or steps that a run is to train for."""
    return config.training.duration_hours, config.training.total_timesteps


# --resume auto


def decide_resume(request: Request) -> Request | Path:
    """What `--resume auto` means for the directory as it is: start, or continue; a path: the run there is finished."""
    wanted, mode = requested_config(request)
    path = request.output_dir or default_output(wanted.algorithm, mode)
    refuse_locked(path)
    try:
        found = _stored_run(path, wanted, mode)
    except CheckpointUnusable as error:
        raise CheckpointUnusable(f"{error}; nothing was changed; to start from scratch, move {path} away") from None
    if found is None:
        return replace(request, resume_auto=False)
    stored, saved = found
    asked = replace(request, overrides={}, config_file=None, output_dir=None, resume=path, resume_auto=False)
    if wanted.algorithm == stored.algorithm:  # otherwise it is refused below
        asked = replace(asked, overrides=_changes(request, wanted, stored, path))
    config, _ = _resumed_config(asked, path)
    ending = ending_of(path)
    if ending and ending.reaches(config.training) and any(file.name.endswith("_final.pt") for file in saved):
        length = f"{ending.env_steps:,} steps in {span_text(3600 * ending.hours)}"
        say(f"Already finished: the run in {path} has {length}; nothing to do")
        return path
    return asked


def _stored_run(path: Path, wanted: Config, mode: str) -> tuple[Config, list[Path]] | None:
    """Configuration and checkpoints of the run in a directory; None, with a note, if there is nothing to continue."""
    parts = [os.path.lexists(path / name) for name in ("run.json", "config.yaml")]
    if all(parts) or checkpoints_of(path, wanted, mode):
        stored, before = read_run(path)
        if saved := checkpoints_of(path, stored, before):
            return stored, saved
    if any(parts):
        note(f"--resume auto: the run in {path} has no checkpoint yet; starting from the beginning")
    else:
        note(f"--resume auto: there is no run in {path}; starting a new one")
    return None


def _changes(request: Request, wanted: Config, stored: Config, path: Path) -> dict[str, tuple[str, Any]]:
    """What a command changes in the run in a directory: of its flags, and of a file that it names; or refused."""
    now, before = wanted.model_dump(), stored.model_dump()
    changes: dict[str, tuple[str, Any]] = {}
    for section, key, _ in fields(wanted.algorithm):
        new, old, flag = now[section][key], before[section][key], request.overrides.get(key)
        if key == "num_envs_per_worker":  # the total is what must stay
            new, old = wanted.env.num_envs, stored.env.num_envs
        if new == old or not (flag or request.config_file):
            continue
        if flag and key in RESUMABLE_KEYS:
            changes[key] = flag
        elif new == "auto" or (new is None and key in _DECIDED_KEYS):
            continue  # it was decided when the run began
        elif key in RESUMABLE_KEYS:
            changes[key] = (f"{request.config_file}: {section}.{key}", new)
        else:
            where = f"{flag[0]} {flag[1]}" if flag else f"{request.config_file}: {section}.{key} {new}"
            total = f"{counted(new, 'environment')} in total; " if key == "num_envs_per_worker" else ""
            raise UsageError(f"{where}: {total}the run in {path} has {old}; this cannot be changed on resume")
    return changes
