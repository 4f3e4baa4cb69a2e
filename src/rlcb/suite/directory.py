"""A suite's directory: its lock, the stored plan, which runs are finished, whether the others fit on the disk."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlcb.analysis.suites import SuiteRun, planned_runs
from rlcb.analysis.untrusted import number, read_object, section
from rlcb.config.load import build_config
from rlcb.config.registry import Kind
from rlcb.config.schema import Config
from rlcb.config.yaml_file import dump_yaml
from rlcb.envs.families import canonical_env_name
from rlcb.errors import ResourceError, UsageError
from rlcb.files import append_event, nearest_existing, owner_of_lock, refuse_unwritable, take_lock, write_whole
from rlcb.run.directory import LOCK, refuse_inside_run
from rlcb.run.space import checkpoint_bytes
from rlcb.suite.schema import SuiteConfig
from rlcb.suite.settings import Suite, read_settings
from rlcb.words import counted

_SETTINGS, _CONFIGS = "suite.yaml", "configs"
_LOG_BYTES = 50 * 2**20  # upper estimate of a run's metrics and console output
_LONGEST_HOURS = 1e6  # that a run can have taken


@dataclass(frozen=True)
class Result:
    """What the files of a finished run say."""

    seconds: float
    fps: float | None
    reward: float | None
    disturbed: bool = False  # by other programs
    episode_length: float | None = None  # of its last episodes


def runs_of(settings: SuiteConfig, output: Path) -> list[SuiteRun]:
    """All runs of a suite in their order."""
    return planned_runs(output, settings.kinds, settings.games, settings.seeds)


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ResourceError(f"{error.filename}: cannot be written to: {error.strerror}") from None


@contextmanager
def locked(output: Path) -> Iterator[None]:
    """Make the directory and lock it against other suites; the kernel drops the lock when this process ends."""
    _refuse_place(output)
    _make(output)
    descriptor, owner = take_lock(output / LOCK)
    if descriptor is None:
        raise _in_use(output, owner)
    try:
        yield
    finally:
        os.close(descriptor)


def check_unlocked(output: Path) -> None:
    """Refuse what `locked` would refuse, without making or locking anything."""
    _refuse_place(output)
    if (owner := owner_of_lock(output / LOCK)) is not None:
        raise _in_use(output, owner)
    refuse_unwritable(output)


def _refuse_place(output: Path) -> None:
    if os.path.lexists(output) and not os.path.isdir(output):
        raise UsageError(f"--output-dir {output}: is a file, not a directory")
    refuse_inside_run(output)


def _in_use(output: Path, owner: str) -> UsageError:
    advice = "wait until it ends, then repeat the command, or choose another directory"
    return UsageError(f"--output-dir {output}: a suite is running there ({owner}); {advice}")


def in_use(run: SuiteRun) -> bool:
    """Whether a training process has the run's directory locked."""
    return owner_of_lock(run.path / LOCK) is not None


def config_path(output: Path, kind: Kind) -> Path:
    """The file with the configuration of a kind of run."""
    return output / _CONFIGS / f"{kind.label}.yaml"


def store(output: Path, suite: Suite) -> None:
    """Store the plan; its settings come last, so that a plan with settings is complete."""
    _make(output / _CONFIGS)
    for kind, config in suite.configs.items():
        head = "# For every run of this kind; --env and --seed are given to each.\n"
        write_whole(config_path(output, kind), (head + config.to_yaml()).encode())
    left_out = None if suite.settings.variants else {"variants"}  # such a suite is what it was before there were any
    write_whole(output / _SETTINGS, dump_yaml(suite.settings.model_dump(exclude=left_out)).encode())


def has_plan(output: Path) -> bool:
    """Whether a suite was started in this directory before."""
    return os.path.lexists(output / _SETTINGS)


def settings_file(output: Path) -> Path:
    """The file with the settings of the suite in a directory."""
    return output / _SETTINGS


def recorded(output: Path) -> SuiteConfig | None:
    """The settings of the suite in a directory; None if none was started there."""
    return read_settings(output / _SETTINGS) if has_plan(output) else None


def stored(output: Path) -> Suite:
    """The plan of the suite in a directory."""
    suite = Suite(read_settings(output / _SETTINGS), {}, output / _SETTINGS, (output / _CONFIGS,))
    for kind in suite.settings.kinds:
        suite.configs[kind] = build_config(config_path(output, kind), {}, mode=kind.mode, algorithm=kind.algorithm)
    return suite


def result_of(run: SuiteRun) -> Result | None:
    """The result of a finished run; None if it is not finished, or its files are damaged or another run's."""
    try:
        summary = read_object(run.path / "training_summary.json")
        config = section(read_object(run.path / "benchmark_metrics.json"), "config")
        whole = run.final_checkpoint.stat().st_size > 0
    except (OSError, UsageError):
        return None
    env, variant = section(config, "env"), section(config, "logging").get("variant")
    found = [*(summary.get(key) for key in ("status", "algorithm", "mode")), env.get("name"), env.get("seed")]
    wanted = ["finished", run.kind.algorithm.upper(), run.kind.mode, canonical_env_name(run.game), run.seed]
    hours = number(summary.get("duration_hours"))
    if (
        not whole
        or found != wanted
        or (variant or "") != run.kind.variant
        or hours is None
        or not 0 <= hours <= _LONGEST_HOURS
    ):
        return None
    disturbed = section(summary, "disturbance").get("disturbed") is True
    fps, reward, length = (number(summary.get(key)) for key in ("avg_fps", "final_reward", "final_episode_length"))
    return Result(3600 * hours, fps, reward, disturbed, length)


def disturbed_runs(settings: SuiteConfig, output: Path) -> list[SuiteRun]:
    """The finished runs that other programs disturbed."""
    return [run for run in runs_of(settings, output) if (result := result_of(run)) and result.disturbed]


def resumable(run: SuiteRun) -> bool:
    """Whether an earlier start left a checkpoint to resume from."""
    begun = all(os.path.isfile(run.path / name) for name in ("run.json", "config.yaml"))
    return begun and any((run.path / "checkpoints").glob(f"{run.kind.algorithm}_*.pt"))


def saved_steps(run: SuiteRun) -> int:
    """The steps of its newest checkpoint, of those that are named after them; 0 if there is none."""
    named = (path.stem.rpartition("_step_")[2] for path in (run.path / "checkpoints").glob("*_step_*.pt"))
    return max((int(steps) for steps in named if steps.isascii() and steps.isdigit()), default=0)


def check_room(output: Path, runs: list[SuiteRun], configs: dict[Kind, Config]) -> None:
    """Raise ResourceError if the checkpoints and logs of these runs would not fit on the disk."""
    need = 0
    for run in runs:
        config = configs[run.kind]
        checkpoints = config.logging.keep_checkpoints + 2  # the final one, and one that is being written
        need += checkpoint_bytes(config, run.kind.mode) * checkpoints + _LOG_BYTES
    free = shutil.disk_usage(nearest_existing(output)).free
    if free < need:
        raise ResourceError(
            f"{output}: {need / 2**20:,.0f} MB needed for {counted(len(runs), 'run')}, {free / 2**20:,.0f} MB free; "
            "free some space, keep fewer checkpoints (keep_checkpoints) or choose another directory"
        )


def event(output: Path, name: str, **details: Any) -> None:
    """Append an event to suite_events.jsonl."""
    append_event(output / "suite_events.jsonl", name, details)
