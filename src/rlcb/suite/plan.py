"""A suite's directory: whose it is, what was planned, which runs are finished, whether there is room for the others."""

import json
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from rlcb.config.load import build_config
from rlcb.config.schema import Config
from rlcb.envs.families import canonical_env_name
from rlcb.errors import ResourceError, UsageError
from rlcb.files import Appender, sign_lock, try_lock, write_whole
from rlcb.run.directory import LOCK, checkpoint_bytes
from rlcb.suite.settings import Suite, SuiteConfig, read_settings

_SETTINGS = "suite.yaml"
_LOG_BYTES = 50 * 2**20  # what a run's metrics and console take on disk, generously
_SHOWN = 6  # differences named in one message


@dataclass(frozen=True)
class SuiteRun:
    """One training run of a suite."""

    algorithm: str
    mode: str
    game: str
    seed: int
    path: Path

    @property
    def name(self) -> str:
        """How lines call it."""
        return f"{self.algorithm} {self.mode} {self.game} seed {self.seed}"

    @property
    def pair(self) -> str:
        """`<algorithm>_<mode>`, by which its configuration is kept."""
        return f"{self.algorithm}_{self.mode}"

    @property
    def log(self) -> Path:
        """Where what it prints is kept."""
        return self.path.with_name(f"{self.path.name}.log")

    @property
    def final_checkpoint(self) -> Path:
        """What a finished run ends with."""
        return self.path / "checkpoints" / f"{self.pair}_final.pt"


@dataclass(frozen=True)
class Result:
    """What a finished run says about itself."""

    seconds: float
    fps: float | None
    reward: float | None


def runs_of(settings: SuiteConfig, output: Path) -> list[SuiteRun]:
    """All runs in their order: seed by seed, so that a change of the machine's speed meets all modes alike."""
    return [
        SuiteRun(algorithm, mode, game, seed, output / game.replace("/", "_") / f"{algorithm}_{mode}" / f"seed_{seed}")
        for seed in settings.seeds
        for game in settings.games
        for algorithm, mode in settings.pairs
    ]


@contextmanager
def owned(output: Path) -> Iterator[None]:
    """Make the directory and keep every other suite out of it; the kernel ends that when this process ends."""
    if output.exists() and not output.is_dir():
        raise UsageError(f"--output-dir {output}: is a file")
    try:
        output.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(output / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise ResourceError(f"{error.filename}: cannot be written to: {error.strerror}") from None
    try:
        if not try_lock(descriptor):
            owner = os.read(descriptor, 200).decode(errors="replace").strip() or "just starting"
            raise UsageError(f"--output-dir {output}: a suite is running there ({owner}); choose another directory")
        sign_lock(descriptor)
        yield
    finally:
        os.close(descriptor)


def in_use(run: SuiteRun) -> bool:
    """Whether a training process still holds the run's directory."""
    try:
        descriptor = os.open(run.path / LOCK, os.O_RDONLY)
    except OSError:
        return False
    try:
        return not try_lock(descriptor)
    finally:
        os.close(descriptor)


def config_path(output: Path, pair: str) -> Path:
    """Where a suite keeps the configuration of an algorithm in a mode."""
    return output / "configs" / f"{pair}.yaml"


def store(output: Path, suite: Suite) -> None:
    """Write the plan down; its settings last, so that a plan with settings is whole."""
    try:
        config_path(output, "").parent.mkdir(exist_ok=True)
    except OSError as error:
        raise ResourceError(f"{error.filename}: cannot be written to: {error.strerror}") from None
    for pair, config in suite.configs.items():
        head = "# For every run of this kind; --env and --seed are given to each.\n"
        write_whole(config_path(output, pair), (head + config.to_yaml()).encode())
    settings = yaml.safe_dump(suite.settings.model_dump(), sort_keys=False, allow_unicode=True)
    write_whole(output / _SETTINGS, settings.encode())


def has_plan(output: Path) -> bool:
    """Whether a suite was started in this directory before."""
    return (output / _SETTINGS).is_file()


def stored(output: Path) -> Suite:
    """The plan of the suite in a directory."""
    settings = read_settings(output / _SETTINGS)
    configs = {
        f"{algorithm}_{mode}": build_config(
            config_path(output, f"{algorithm}_{mode}"), {}, mode=mode, algorithm=algorithm
        )
        for algorithm, mode in settings.pairs
    }
    return Suite(settings, configs)


def refuse_differences(output: Path, planned: Suite, wanted: Suite) -> None:
    """Raise an error that names what was asked for now and was not when the suite began."""
    before, now = _flat(planned.settings), _flat(wanted.settings)
    different = [
        f"{key} {before.get(key, 'not set')} there, {now.get(key, 'not set')} now"
        for key in {**before, **now}
        if before.get(key) != now.get(key)
    ]
    if not different:  # else the configurations differ because of that
        for pair, config in wanted.configs.items():
            different += _differences(pair, planned.configs[pair].as_used(), config.as_used())
    if different:
        more = f" and {len(different) - _SHOWN} more" if len(different) > _SHOWN else ""
        raise UsageError(
            f"--output-dir {output}: holds a suite with other settings: {'; '.join(different[:_SHOWN])}{more}. "
            "Choose another directory, or give nothing but --output-dir to continue that suite"
        )


def _flat(settings: SuiteConfig) -> dict[str, Any]:
    return {**settings.model_dump(exclude={"overrides"}), **settings.overrides}


def _differences(pair: str, before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    if now["parallel"]["num_workers"] == "auto":
        decided = ("num_workers", "num_envs_per_worker", "num_learners")
        measured = {key: before["parallel"][key] for key in decided if key in now["parallel"]}
        now = {**now, "parallel": {**now["parallel"], **measured}}  # when the suite began
    return [
        f"{pair}: {section}.{key} {before[section][key]} there, {value} now"
        for section, values in now.items()
        for key, value in values.items()
        if before[section][key] != value
    ]


def result_of(run: SuiteRun) -> Result | None:
    """What a run's own files say once it is finished; None while it is not, or they are another's or damaged."""
    try:
        summary = json.loads((run.path / "training_summary.json").read_text(encoding="utf-8"))
        env = json.loads((run.path / "benchmark_metrics.json").read_text(encoding="utf-8"))["config"]["env"]
        found = (summary["status"], summary["algorithm"], summary["mode"], env["name"], env["seed"])
        result = Result(3600 * float(summary["duration_hours"]), summary["avg_fps"], summary["final_reward"])
        whole = run.final_checkpoint.stat().st_size > 0
    except (OSError, ValueError, KeyError, TypeError):
        return None
    wanted = ("finished", run.algorithm.upper(), run.mode, canonical_env_name(run.game), run.seed)
    return result if whole and found == wanted else None


def resumable(run: SuiteRun) -> bool:
    """Whether an earlier start left something that training can go on from."""
    begun = all((run.path / name).is_file() for name in ("run.json", "config.yaml"))
    return begun and any((run.path / "checkpoints").glob(f"{run.algorithm}_*.pt"))


def check_room(output: Path, runs: list[SuiteRun], configs: dict[str, Config]) -> None:
    """Refuse to start where the checkpoints and logs of the runs to come would not fit."""
    need = 0
    for run in runs:
        config = configs[run.pair]
        checkpoints = config.logging.keep_checkpoints + 2  # the final one, and one that is being written
        need += checkpoint_bytes(config) * checkpoints + _LOG_BYTES
    free = shutil.disk_usage(output).free
    if free < need:
        raise ResourceError(
            f"{output}: {need / 2**20:,.0f} MB needed for {len(runs)} runs, {free / 2**20:,.0f} MB free; "
            "free some space, keep fewer checkpoints (keep_checkpoints) or choose another directory"
        )


def event(output: Path, name: str, **details: Any) -> None:
    """Append something that happened to suite_events.jsonl."""
    line = json.dumps({"time": time.strftime("%Y-%m-%dT%H:%M:%S%z"), "event": name, **details})
    file = Appender(output / "suite_events.jsonl")
    try:
        file.write(line.encode() + b"\n")
    finally:
        file.close()
