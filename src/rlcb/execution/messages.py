"""What passes between the supervisor and its workers, over a socket.

The supervisor sends `Setup`, then `Go` to start or to go on, and `Give` to ask for the common state. A worker answers
with `Started`, a `Report` per update, `Broken` when the group lost a member, `Failed` when it cannot go on. Arrays are
numpy's: torch would send tensors as open files, through a server of its own.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlcb.config import Config


@dataclass(frozen=True)
class Setup:
    """Everything a worker needs to know."""

    config: Config
    rank: int
    num_threads: int
    memory: int  # descriptor of the memory that gradients cross in
    folder: Path  # for dumps
    rendezvous: Path  # where a gloo group finds together, a file for each generation
    start: dict[str, Any] | None


@dataclass(frozen=True)
class Started:
    """The worker is ready and waits for `Go`."""

    num_envs: int


@dataclass(frozen=True)
class Go:
    """Run, in this generation of the group; `update` says where to go back to first, if anywhere."""

    generation: int
    zero: float
    update: int | None = None


@dataclass(frozen=True)
class Broken:
    """The group lost a member; the worker can go back to the end of these updates and waits for `Go`."""

    updates: tuple[int, ...]


@dataclass(frozen=True)
class Give:
    """Send what all workers had in common at the end of this update."""

    update: int


@dataclass(frozen=True)
class Failed:
    """The worker cannot go on."""

    kind: str
    message: str
    exit_code: int
