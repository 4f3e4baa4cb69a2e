"""Checkpoints: one file each, written whole, verified when read, loaded without executing code.

A checkpoint is what `torch.save` writes (so `torch.load(..., weights_only=True)` opens it), a ZIP archive, with the
SHA-256 of all that stands before it as the archive's comment.
"""

import hashlib
import io
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from rlcb.errors import CheckpointUnusable
from rlcb.files import write_whole

FORMAT = 1
MODES = ("sequential", "parallel")
_LABEL = b"rlcb-sha256:"
_COMMENT = len(_LABEL) + 64
_END_RECORD = b"PK\x05\x06"  # ZIP's last record: 22 bytes, of which the last two give the comment's length
_SECTIONS = ("meta", "policy", "optimizer", "progress", "run", "normalizer", "workers", "envs", "episode", "discounted")


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
    if path.is_symlink() or not path.is_file():
        raise CheckpointUnusable(f"{path}: {'a symbolic link' if path.is_symlink() else 'no such file'}")
    try:
        data = path.read_bytes()
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


def prune(folder: Path, prefix: str, keep: int) -> None:
    """Remove all but the newest `keep` step checkpoints."""
    for _, path in step_checkpoints(folder, prefix)[keep:]:
        path.unlink(missing_ok=True)
