"""The run directory: its lock and its layout."""

import contextlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlcb.config.load import build_config
from rlcb.config.registry import ALGORITHMS
from rlcb.config.schema import Config
from rlcb.console import note
from rlcb.errors import CheckpointUnusable, ResourceError, UsageError
from rlcb.files import (
    append_event,
    open_regular,
    owner_of_lock,
    read_json,
    refuse_unwritable,
    sweep,
    take_lock,
    write_json,
    write_pieces,
    write_whole,
)
from rlcb.run.ending import how_to_resume

LOCK = ".lock"
HISTORY = "metrics.jsonl"  # in the folder of the logs
LARGEST_CHECKPOINT = 2 * 2**30  # bytes of a file that is read as a checkpoint; real ones have some hundred million
_FORMAT = 1  # of run.json
_LARGEST_IDENTITY = 64 * 2**10  # bytes of run.json
_PIECE = 2**20  # bytes that are copied at a time


@dataclass(frozen=True)
class RunDirectory:
    """Where everything of one run is kept."""

    path: Path
    checkpoints: Path
    logs: Path
    algorithm: str
    mode: str
    locks: tuple[tuple[Path, int], ...]

    @property
    def prefix(self) -> str:
        """The beginning of the names of this run's checkpoints."""
        return f"{self.algorithm}_{self.mode}"

    def event(self, name: str, **fields: Any) -> None:
        """Append an event to events.jsonl."""
        append_event(self.path / "events.jsonl", name, fields)

    def release(self) -> None:
        """Unlock the directory; in this order, as whoever locks a file looks afterwards whether it is still there."""
        for folder, descriptor in self.locks:
            unlock(folder, descriptor)


def unlock(folder: Path, descriptor: int) -> None:
    """Unlock a directory that was locked with this descriptor."""
    with contextlib.suppress(OSError):  # a lock that no process holds does no harm
        (folder / LOCK).unlink()
    os.close(descriptor)


@dataclass(frozen=True)
class RunProspect:
    """Where the files of a run that is not started would go, and which earlier runs would be renamed."""

    path: Path
    checkpoints: Path
    logs: Path
    moved: dict[Path, Path]  # directory → its new name


def check_output(path: Path, config: Config, mode: str) -> None:
    """Refuse a place for a new run that is a file, or where it would lie inside of another run."""
    if os.path.lexists(path) and not os.path.isdir(path):
        raise UsageError(f"--output-dir {path}: is a file, not a directory")
    roots = _roots(path, config, mode)
    for folder in roots:
        refuse_inside_run(folder, own=roots)


def create_run(path: Path, config: Config, mode: str) -> RunDirectory:
    """Make a new run directory; one that is there already is renamed, never overwritten."""
    for folder in _roots(path, config, mode):
        if _holds_run(folder):
            set_aside(folder)
    _refuse_foreign_files(path)
    run = _open(path, config, mode)
    _identify(run)
    write_whole(path / "config.yaml", config.to_yaml().encode())
    return run


def claim(path: Path, resume: bool) -> int:
    """Lock the directory of a run whose files come from elsewhere; unless it is resumed, an earlier one is renamed."""
    if not resume and _holds_run(path):
        set_aside(path)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ResourceError(f"{error.filename}: cannot be written to: {error.strerror}") from None
    return _lock(path)


def _refuse_foreign_files(path: Path) -> None:
    if any(entry.is_file() for part in ("checkpoints", "logs") for entry in (path / part).rglob("*")):
        raise UsageError(f"--output-dir {path}: contains files that do not belong to a run; choose another directory")


def _identify(run: RunDirectory) -> None:
    identity = {"algorithm": run.algorithm, "mode": run.mode, "format": _FORMAT}
    write_json(run.path / "run.json", identity)


def open_run(path: Path, config: Config, mode: str) -> RunDirectory:
    """Open an existing run directory to resume the run in it."""
    run = _open(path, config, mode)
    _, before = read_identity(path)
    if before != mode:
        # The history first: killed in between, the run is still one of the mode whose folder holds its history.
        earlier = folders_of(path, config, before)[1] / HISTORY
        _refuse_unreadable(earlier)
        write_pieces(run.logs / HISTORY, lambda: _content(earlier))
        _identify(run)
    for folder in (run.path, run.checkpoints, run.logs):
        for name in sweep(folder):
            note(f"removed unfinished {folder / name}")
    write_whole(path / "config.yaml", config.to_yaml().encode())
    return run


def foresee_run(path: Path, config: Config, mode: str, resume: bool) -> RunProspect:
    """What `create_run`, or `open_run` to resume, would do; refuses what they would refuse, and writes nothing."""
    roots = _roots(path, config, mode)
    for folder in roots:
        refuse_locked(folder)
    moved = {} if resume else {folder: _first_free(folder) for folder in roots if _holds_run(folder)}
    if not resume and path not in moved:
        _refuse_foreign_files(path)
    checkpoints, logs = folders_of(path, config, mode)
    for folder in (path, checkpoints, logs):
        refuse_unwritable(folder)
    return RunProspect(path, checkpoints, logs, moved)


def refuse_locked(folder: Path) -> None:
    """Refuse a folder that another process has locked, without locking it."""
    if (owner := owner_of_lock(folder / LOCK)) is not None:
        raise _in_use(folder, owner)


def checkpoints_of(path: Path, config: Config, mode: str) -> list[Path]:
    """The checkpoints of the run in a directory, of whatever algorithm."""
    return sorted(folders_of(path, config, mode)[0].glob("*_*.pt"))


def _content(path: Path) -> Iterator[bytes]:
    """A file's content in pieces; nothing if there is no such file."""
    if os.path.lexists(path):
        with open_regular(path) as file:
            while piece := file.read(_PIECE):
                yield piece


def _refuse_unreadable(file: Path) -> None:
    """Raise CheckpointUnusable if there is something that is not a regular file, or may not be read."""
    try:
        if os.path.lexists(file):
            open_regular(file).close()
    except OSError as error:
        raise CheckpointUnusable(f"{file}: cannot be read: {error.strerror}") from None


def read_run(path: Path) -> tuple[Config, str]:
    """Configuration and mode of the run in a directory."""
    if not all(os.path.lexists(path / name) for name in ("run.json", "config.yaml")):
        if path.is_dir():
            problem = "contains no run to resume (no run.json and config.yaml)"
        else:
            problem = "is not a directory" if os.path.lexists(path) else "no such directory"
            problem += ", so there is no run to resume"
        raise CheckpointUnusable(f"{path}: {problem}")
    algorithm, mode = read_identity(path)
    _refuse_unreadable(path / "config.yaml")
    return build_config(path / "config.yaml", {}, mode=mode, algorithm=algorithm), mode


def read_identity(path: Path) -> tuple[str, str]:
    """Algorithm and mode of the run in a directory."""
    file = path / "run.json"
    try:
        identity = read_json(file, _LARGEST_IDENTITY)
        algorithm, mode, found = identity["algorithm"], identity["mode"], identity.get("format", _FORMAT)
    except OSError as error:
        raise CheckpointUnusable(f"{file}: cannot be read: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise CheckpointUnusable(f"{file}: damaged") from None
    if found != _FORMAT:
        raise CheckpointUnusable(f"{file}: unknown format; this version reads format {_FORMAT}")
    if not isinstance(algorithm, str) or algorithm not in ALGORITHMS or mode not in ALGORITHMS[algorithm].modes:
        raise CheckpointUnusable(f"{file}: unknown algorithm or mode")
    return algorithm, mode


def folders_of(path: Path, config: Config, mode: str) -> tuple[Path, Path]:
    """The folders of checkpoints and logs: in the run directory, unless the configuration says otherwise."""
    logging = config.logging
    checkpoints = Path(logging.checkpoint_dir) if logging.checkpoint_dir else path / "checkpoints"
    logs = Path(logging.log_dir) if logging.log_dir else path / "logs"
    return checkpoints, logs / f"{config.algorithm.upper()}_{mode.capitalize()}"


def _roots(path: Path, config: Config, mode: str) -> list[Path]:
    """The folders that belong to one run alone: its directory, and those that the configuration puts elsewhere."""
    outside = [folder for folder in folders_of(path, config, mode) if path not in folder.parents]
    return [path, *outside]


def _holds_run(folder: Path) -> bool:
    names = ("run.json", "config.yaml", HISTORY)
    return any(os.path.lexists(folder / name) for name in names) or any(folder.glob("*_step_*.pt"))


def refuse_inside_run(folder: Path, own: Sequence[Path] = ()) -> None:
    """Raise UsageError if a folder to write in lies inside of a run's directory, by its name or by where links lead."""
    allowed = {Path(os.path.realpath(path)) for path in own}
    above = dict.fromkeys([*Path(os.path.realpath(folder)).parents, *Path(os.path.abspath(folder)).parents])
    for parent in above:
        if Path(os.path.realpath(parent)) not in allowed and _is_run(parent):
            raise UsageError(f"{folder}: is inside the run in {parent}; choose a directory outside of it")


def _is_run(folder: Path) -> bool:
    """Whether a folder is a run's directory, or one that a run keeps its checkpoints or logs in."""
    names = ("run.json", HISTORY)
    try:
        return any((folder / name).is_file() for name in names) or any(folder.glob("*_step_*.pt"))
    except OSError:
        return False  # nobody can write below a folder that cannot be looked into


def _open(path: Path, config: Config, mode: str) -> RunDirectory:
    checkpoints, logs = folders_of(path, config, mode)
    try:
        for folder in (path, checkpoints, logs):
            folder.mkdir(parents=True, exist_ok=True)
            probe = folder / f".probe{os.getpid()}"
            probe.touch()
            probe.unlink()
    except OSError as error:
        raise ResourceError(f"{error.filename}: cannot be written to: {error.strerror}") from None
    locks = tuple((folder, _lock(folder)) for folder in _roots(path, config, mode))
    return RunDirectory(path, checkpoints, logs, config.algorithm, mode, locks)


def _lock(path: Path) -> int:
    """Lock the directory until this process ends; returns the open descriptor of the lock file."""
    descriptor, owner = take_lock(path / LOCK)
    if descriptor is None:
        raise _in_use(path, owner)
    if owner:
        note(f"{path}: took over the lock of a process that no longer exists ({owner})")
    return descriptor


def _in_use(path: Path, owner: str) -> UsageError:
    return UsageError(f"{path}: in use by another run ({owner}); choose another directory")


def _first_free(path: Path) -> Path:
    """The first of `<name>.1`, `<name>.2`, … that does not exist."""
    path = path.resolve()
    number = 1
    while (target := path.with_name(f"{path.name}.{number}")).exists():
        number += 1
    return target


def set_aside(path: Path) -> None:
    """Rename a finished run's directory to the first free `<name>.1`, `<name>.2`, …; refused while it is locked."""
    descriptor = _lock(path)
    try:
        path, target = path.resolve(), _first_free(path)
        path.rename(target)
        (target / LOCK).unlink(missing_ok=True)
    except OSError as error:
        raise ResourceError(f"{path}: cannot be moved aside: {error.strerror}") from None
    finally:
        os.close(descriptor)
    note(f"the earlier run in {path} was moved to {target}{how_to_resume(target)}")
