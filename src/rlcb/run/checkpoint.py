"""Checkpoints: one file each, written whole, verified when read, loaded without executing code.

A checkpoint is what `torch.save` writes (so `torch.load(..., weights_only=True)` opens it), a ZIP archive, with the
SHA-256 of all that stands before it as the archive's comment. `meta.format` is the version of its layout, which this
file alone writes (`to_content`) and reads (`from_content`).
"""

import hashlib
import io
import json
import os
import re
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from rlcb import __version__
from rlcb.config.registry import MODES
from rlcb.config.schema import Config
from rlcb.envs.families import environment_identity, family_of
from rlcb.errors import CheckpointUnusable
from rlcb.files import read_regular, write_whole
from rlcb.hardware import package_version
from rlcb.run.state import Arrays, Progress, RunState, RunTotals, SharedState, WorkerState

FORMAT = 1
LARGEST = 2 * 2**30  # bytes of a file that is read as a checkpoint; real ones have up to some hundred million
_LABEL = b"rlcb-sha256:"
_COMMENT = len(_LABEL) + 64
_END_RECORD = b"PK\x05\x06"  # ZIP's last record: 22 bytes, of which the last two give the comment's length
_SECTIONS = ("meta", "policy", "optimizer", "progress", "run", "normalizer", "workers", "envs", "episode", "discounted")


def to_content(config: Config, state: RunState, totals: RunTotals) -> dict[str, Any]:
    """The content of a checkpoint: shared state once, the workers' environments in the order of their ranks."""
    shared, workers = state.shared, state.workers
    versions = {name: package_version(name) or "" for name in ("torch", "procgen-mirror", "gymnasium")}
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


def from_content(path: str, content: dict[str, Any], config: Config) -> tuple[RunState, RunTotals]:
    """The run in a checkpoint, as the workers that wrote it had it; it must be of this environment and algorithm."""
    _refuse_foreign(path, content["meta"], config)
    try:
        count, mean, squares = content["normalizer"]
        shared = SharedState(
            policy=_as_arrays(content["policy"]),
            optimizer=_as_arrays(content["optimizer"]),
            reward_moments=(count, mean, squares),
            progress=Progress(**content["progress"]),
        )
        workers = [_worker_state(content, rank) for rank in range(len(content["workers"]))]
        return RunState(shared, workers), RunTotals(**content["run"])
    except (KeyError, TypeError, ValueError, AttributeError, ZeroDivisionError) as error:
        raise CheckpointUnusable(f"{path}: does not fit this run: {error}") from None


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


def _refuse_foreign(path: str, meta: dict[str, Any], config: Config) -> None:
    """A state of another game must never reach the game's own code: it trusts what it is given."""
    expected = {"algorithm": config.algorithm, "env": environment_identity(config.env)}
    if package := family_of(config.env.name).state_package:
        expected[package] = package_version(package) or ""
    found = {**meta, **meta.get("versions", {})}
    for key, value in expected.items():
        if found.get(key) != value:
            raise CheckpointUnusable(f"{path}: made with {key} {found.get(key)}, this run has {value}")


def save_checkpoint(path: Path, content: dict[str, Any]) -> None:
    """Write a checkpoint; all weights in it must be finite."""
    for name, tensor in content["policy"].items():
        if not torch.isfinite(tensor).all():
            raise CheckpointUnusable(f"weights {name} are not finite: {path} was not written")
    buffer = io.BytesIO()
    torch.save(content, buffer)
    data = bytearray(buffer.getvalue())
    if data[-22:-18] != _END_RECORD:
        raise CheckpointUnusable("torch.save did not write a plain ZIP archive")
    data[-2:] = _COMMENT.to_bytes(2, "little")
    data += _LABEL
    data += hashlib.sha256(data).hexdigest().encode()
    write_whole(path, bytes(data))


def load_checkpoint(path: Path) -> dict[str, Any]:
    """Read and verify a checkpoint; anything but an undamaged one of ours is refused."""
    if os.path.islink(path):
        raise CheckpointUnusable(f"{path}: a symbolic link")
    try:
        data = read_regular(path, LARGEST)
    except FileNotFoundError:
        raise CheckpointUnusable(f"{path}: no such file") from None
    except OSError as error:
        raise CheckpointUnusable(f"{path}: cannot be read: {error.strerror}") from None
    body, digest = data[:-64], data[-64:]
    if body[-len(_LABEL) :] != _LABEL:
        raise CheckpointUnusable(f"{path}: not a checkpoint of this program, or cut off")
    if hashlib.sha256(body).hexdigest().encode() != digest:
        raise CheckpointUnusable(f"{path}: damaged: its SHA-256 does not match")
    try:
        content = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
    except Exception as error:  # the unpickler of a hostile file may raise anything; it executes nothing
        raise CheckpointUnusable(f"{path}: refused: {str(error).splitlines()[0]}") from None
    return _checked(path, content)


def _checked(path: Path, content: Any) -> dict[str, Any]:
    if not isinstance(content, dict) or not isinstance(content.get("meta"), dict):
        raise CheckpointUnusable(f"{path}: not a checkpoint of this program")
    found = content["meta"].get("format")
    if found != FORMAT:
        raise CheckpointUnusable(f"{path}: has format {found}, this version reads format {FORMAT}")
    missing = [section for section in _SECTIONS if section not in content]
    if missing:
        raise CheckpointUnusable(f"{path}: lacks {', '.join(missing)}")
    return content


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
        return int(load_checkpoint(path)["meta"]["env_steps"])
    except CheckpointUnusable:
        return 2**63


def load_newest(folder: Path, algorithm: str, warn: Callable[[str], None]) -> tuple[Path, dict[str, Any]]:
    """The newest checkpoint that is whole; each damaged one is reported; none left is an error, never a fresh start."""
    paths = candidates(folder, algorithm)
    for path in paths:
        try:
            return path, load_checkpoint(path)
        except CheckpointUnusable as error:
            warn(f"{error}; falling back to the checkpoint before it")
    reason = f"none of the {len(paths)} checkpoints in {folder} is usable" if paths else f"no checkpoint in {folder}"
    raise CheckpointUnusable(f"{reason}; nothing was changed")


def prune(folder: Path, prefix: str, keep: int, newest: int) -> None:
    """Remove all but the newest `keep` step checkpoints up to step `newest`, where the run is.

    One beyond that is damaged: the run was resumed from one before it. It must not count among those that are kept.
    """
    found = step_checkpoints(folder, prefix)
    kept = [path for step, path in found if step <= newest][:keep]
    for _, path in found:
        if path not in kept:
            path.unlink(missing_ok=True)
