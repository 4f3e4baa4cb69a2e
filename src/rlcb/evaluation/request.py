"""What an evaluation is asked to do, and checks that it can be done."""

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from rlcb.errors import ResourceError, UsageError
from rlcb.files import refuse_to_replace

# A fixed seed, other than training's default. Random numbers come in streams apart from training's, so that a run with
# this very seed is not evaluated on its own training episodes either.
DEFAULT_SEED = 1_000_000


@dataclass(frozen=True)
class Request:
    """What to evaluate and how."""

    checkpoint: Path | None = None
    algorithm: str | None = None
    env: str | None = None
    num_episodes: int = 100
    num_envs: int | None = None
    deterministic: bool = False
    levels: str = "train"
    seed: int = DEFAULT_SEED
    device: str = "auto"
    num_threads: int | None = None
    render: bool = False
    video: Path | None = None
    output: Path | None = None

    @property
    def policy(self) -> str:
        """How actions are chosen: deterministic or sampled."""
        return "deterministic" if self.deterministic else "sampled"


def check_request(request: Request) -> None:
    """Raise an error for what would fail only after all episodes were played."""
    if request.num_envs is not None and request.num_envs > request.num_episodes:
        raise UsageError(
            f"--num-envs {request.num_envs}: more than the {request.num_episodes} episodes; at most one env for each"
        )
    if request.video:
        from rlcb.evaluation.video import check_encoder

        check_writable("--video", request.video)
        check_encoder(request.video)
    if request.output:
        check_writable("--output", request.output)


def check_writable(flag: str, path: Path) -> None:
    """Raise an error if the file cannot be written."""
    if not os.path.isdir(path.parent):
        raise UsageError(f"{flag} {path}: there is no folder {path.parent}")
    try:
        refuse_to_replace(path)
    except OSError as error:
        raise UsageError(f"{flag} {path}: is {error.strerror}") from None
    try:
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise ResourceError(f"{flag} {path}: cannot be written: {error.strerror}") from None
