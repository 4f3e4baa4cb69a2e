"""Checkpoints: one file each, written whole, verified when read, loaded without executing code.

`archive` is the format of the file, `checkpoint_schema` what must be in it; `meta.format` is the version of the layout,
which this file alone writes (`to_content`) and reads (`from_content`).
"""

import json
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from rlcb import __version__
from rlcb.config.registry import MODES
from rlcb.config.schema import Config
from rlcb.envs.families import environment_identity, state_problem, state_versions
from rlcb.errors import CheckpointUnusable, Diverged, NotPermitted
from rlcb.files import open_regular, write_whole
from rlcb.hardware import package_version
from rlcb.run.archive import Archive, ArchiveDamaged, sealed
from rlcb.run.checkpoint_schema import FORMAT, Unfit, check_content, check_types, check_values, not_finite
from rlcb.run.directory import LARGEST_CHECKPOINT
from rlcb.run.state import Arrays, Progress, RunState, RunTotals, SharedState, WorkerState


def to_content(config: Config, state: RunState, totals: RunTotals) -> dict[str, Any]:
    """The content of a checkpoint: shared state once, the workers' environments in the order of their ranks."""
    shared, workers = state.shared, state.workers
    versions = {name: package_version(name) or "" for name in ("torch", "gymnasium")}
    versions |= state_versions(config.env.name)
    return {
        "meta": {
            "format": FORMAT,
            "algorithm": config.algorithm,
            "env": environment_identity(config.env),
            "env_steps": shared.progress.env_steps,
            "updates": shared.progress.updates,
            "config": json.dumps(config.as_used()),
            "versions": {"rlcb": __version__, **versions},
        },
        "policy": _as_tensors(shared.policy),
        "optimizer": _as_tensors(shared.optimizer),
        "normalizer": list(shared.reward_moments),
        "progress": asdict(shared.progress),
        "run": asdict(totals),
        "workers": [
            {
                "acting": torch.tensor(worker.acting_rng),
                "learning": torch.tensor(worker.learning_rng),
                "observation": worker.observation_digest,
            }
            for worker in workers
        ],
        "envs": [torch.frombuffer(bytearray(env), dtype=torch.uint8) for worker in workers for env in worker.envs],
        "episode": {
            "return": [value for worker in workers for value in worker.episode_returns],
            "length": [value for worker in workers for value in worker.episode_lengths],
        },
        "discounted": [value for worker in workers for value in worker.discounted_returns],
    }


def from_content(content: dict[str, Any]) -> tuple[RunState, RunTotals]:
    """The run in the content of a checkpoint, as the workers that wrote it had it."""
    count, mean, squares = content["normalizer"]
    shared = SharedState(
        policy=_as_arrays(content["policy"]),
        optimizer=_as_arrays(content["optimizer"]),
        reward_moments=(count, mean, squares),
        progress=Progress(**content["progress"]),
    )
    workers = [_worker_state(content, rank) for rank in range(len(content["workers"]))]
    return RunState(shared, workers), RunTotals(**content["run"])


def _worker_state(content: dict[str, Any], rank: int) -> WorkerState:
    share = len(content["envs"]) // len(content["workers"])
    mine, known = slice(rank * share, (rank + 1) * share), content["workers"][rank]
    return WorkerState(
        envs=[tensor.numpy().tobytes() for tensor in content["envs"][mine]],
        episode_returns=content["episode"]["return"][mine],
        episode_lengths=content["episode"]["length"][mine],
        discounted_returns=content["discounted"][mine],
        acting_rng=known["acting"].numpy(),
        learning_rng=known["learning"].numpy(),
        observation_digest=known["observation"],
    )


def _as_tensors(arrays: Arrays) -> dict[str, torch.Tensor]:
    return {name: torch.tensor(array) for name, array in arrays.items()}


def _as_arrays(tensors: dict[str, torch.Tensor]) -> Arrays:
    return {name: tensor.numpy() for name, tensor in tensors.items()}


def save_checkpoint(path: Path, content: dict[str, Any]) -> None:
    """Write a checkpoint; numbers in it that are not finite raise Diverged, and nothing is written."""
    if found := not_finite(content):
        raise Diverged(
            f"diverged: {' '.join(found)} is not finite, {path} was not written; "
            f"the last good checkpoint is in {path.parent}; try a lower learning rate"
        )
    write_whole(path, sealed(content))


def load_checkpoint(path: Path, config: Config | None = None) -> dict[str, Any]:
    """Read and verify a checkpoint, with `config` one of that run; anything else is refused before it is unpacked."""
    with _opened(path) as archive:
        try:
            spec = check_content(archive.content, config)
        except NotPermitted as error:
            raise NotPermitted(f"{path}: {error}") from None
        content = {section: archive.filled(value) for section, value in archive.content.items()}
    try:
        check_values(content)
        if config is not None and content["envs"]:
            states = [tensor.numpy().tobytes() for tensor in content["envs"]]
            if problem := state_problem(config.env, spec, states):
                raise Unfit(problem)
    except Unfit as error:
        raise CheckpointUnusable(f"{path}: {error}") from None
    return content


@contextmanager
def _opened(path: Path) -> Iterator[Archive]:
    """The archive in a file; whatever is wrong with it, then or later, is a CheckpointUnusable that names the file."""
    if os.path.islink(path):
        raise CheckpointUnusable(f"{path}: a symbolic link")
    try:
        with open_regular(path, LARGEST_CHECKPOINT) as file:
            yield Archive(file)
    except FileNotFoundError:
        raise CheckpointUnusable(f"{path}: no such file") from None
    except OSError as error:
        raise CheckpointUnusable(f"{path}: cannot be read: {error.strerror}") from None
    except (ArchiveDamaged, Unfit) as error:
        raise CheckpointUnusable(f"{path}: {error}") from None


def step_checkpoints(folder: Path, prefix: str) -> list[tuple[int, Path]]:
    """The checkpoints `<prefix>_step_<N>.pt` in a folder as (N, path), newest first."""
    pattern = re.compile(re.escape(prefix) + r"_step_(\d+)\.pt")
    matches = ((pattern.fullmatch(path.name), path) for path in folder.glob(f"{prefix}_step_*.pt"))
    return sorted(((int(match[1]), path) for match, path in matches if match), reverse=True)


def candidates(folder: Path, algorithm: str) -> list[Path]:
    """All checkpoints of a run, whatever modes it ran in, newest first."""
    found: list[tuple[int, Path]] = []
    for mode in MODES:
        found += step_checkpoints(folder, f"{algorithm}_{mode}")
        final = folder / f"{algorithm}_{mode}_final.pt"
        if final.exists() or final.is_symlink():
            found.append((_steps_of(final), final))
    return [path for _, path in sorted(found, reverse=True)]


def _steps_of(path: Path) -> int:
    """How far the run was; a file that cannot be read sorts first, so that its damage is reported."""
    try:
        with _opened(path) as archive:
            return check_types(archive.content).env_steps
    except CheckpointUnusable:
        return 2**63


def load_newest(
    folder: Path, algorithm: str, warn: Callable[[str], None], config: Config | None = None
) -> tuple[Path, dict[str, Any]]:
    """The newest usable checkpoint; each other one is reported; none left is an error, never a fresh start."""
    paths = candidates(folder, algorithm)
    problems = []
    for path in paths:
        try:
            content = load_checkpoint(path, config)
        except CheckpointUnusable as error:
            problems.append(str(error))
            continue
        for problem in problems:
            warn(f"{problem}; falling back to the checkpoint before it")
        return path, content
    if not problems:
        raise CheckpointUnusable(f"no checkpoint in {folder}; nothing was changed")
    for problem in problems[1:]:
        warn(problem)
    every = f"none of the {len(paths)} checkpoints in {folder} is usable: " if len(paths) > 1 else ""
    raise CheckpointUnusable(f"{every}{problems[0]}; nothing was changed")


def prune(folder: Path, prefix: str, keep: int, newest: int) -> None:
    """Remove all but the newest `keep` step checkpoints up to step `newest`, where the run is.

    One beyond that is damaged: the run was resumed from one before it. It must not count among those that are kept.
    """
    found = step_checkpoints(folder, prefix)
    kept = [path for step, path in found if step <= newest][:keep]
    for _, path in found:
        if path not in kept:
            path.unlink(missing_ok=True)
