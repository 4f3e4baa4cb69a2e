"""The state of a run as typed records: what a checkpoint holds and what workers report after every update."""

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlcb.envs.episodes import Episode
from rlcb.envs.normalize import Moments

Arrays = dict[str, NDArray[Any]]


@dataclass
class Progress:
    """Counters of a run, the same in every worker."""

    env_steps: int = 0
    updates: int = 0
    skipped_steps: int = 0
    bad_updates_in_a_row: int = 0

    def count(self, env_steps: int, skipped_steps: int) -> None:
        """Count one more update from this many environment steps, with this many optimizer steps skipped."""
        self.env_steps += env_steps
        self.updates += 1
        self.skipped_steps += skipped_steps
        self.bad_updates_in_a_row = self.bad_updates_in_a_row + 1 if skipped_steps else 0

    def copy(self) -> "Progress":
        """The counters as they are now."""
        return replace(self)


@dataclass(frozen=True)
class SharedState:
    """What all workers of a run have in common: weights, optimizer, moments of the rewards, counters."""

    policy: Arrays
    optimizer: Arrays
    reward_moments: Moments
    progress: Progress


@dataclass(frozen=True)
class WorkerState:
    """What one worker alone has: its environments and random generators."""

    envs: list[bytes]
    episode_returns: list[float]  # of the unfinished episodes, per environment
    episode_lengths: list[int]
    discounted_returns: list[float]  # of the reward normaliser, per environment
    acting_rng: NDArray[np.uint8] | None  # None: the run was divided among another number of workers before
    learning_rng: NDArray[np.uint8] | None
    observation_digest: str | None


@dataclass(frozen=True)
class RunState:
    """A whole run at the end of an update; actors' environments are not kept, so `workers` may be empty."""

    shared: SharedState
    workers: list[WorkerState]

    def redivided(self, size: int) -> "RunState":
        """The same run for another number of workers: environments keep their order, random streams begin anew."""
        if len(self.workers) == size:
            return self
        envs = [env for worker in self.workers for env in worker.envs]
        returns = [value for worker in self.workers for value in worker.episode_returns]
        lengths = [value for worker in self.workers for value in worker.episode_lengths]
        discounted = [value for worker in self.workers for value in worker.discounted_returns]
        share = len(envs) // size
        parts = [slice(rank * share, (rank + 1) * share) for rank in range(size)]
        workers = [
            WorkerState(envs[part], returns[part], lengths[part], discounted[part], None, None, None) for part in parts
        ]
        return RunState(self.shared, workers)


@dataclass(frozen=True)
class Start:
    """What one worker continues from."""

    shared: SharedState
    own: WorkerState


@dataclass(frozen=True)
class RunTotals:
    """What a run has added up over its updates, beside its workers' state."""

    episodes: dict[str, Any]
    seconds: float
    started: str
    worker_restarts: int


@dataclass(frozen=True)
class UpdateReport:
    """What a worker tells about an update; the first one of a stretch tells where it starts and has no metrics."""

    rank: int
    progress: Progress
    now: float  # training time in seconds at the end of the update
    own: WorkerState | None = None
    shared: SharedState | None = None  # from rank 0, with `own`
    save: bool = True  # whether `shared` is to be saved as a checkpoint
    weights_checksum: int | None = None  # with `own`: all ranks must have the same
    ending: str | None = None  # after the last update: "finished" or "interrupted"
    fraction: float = 0.0  # how much of the run is done
    elapsed: float = 0.0
    seconds: dict[str, float] = field(default_factory=dict)  # where the time went
    metrics: dict[str, Any] | None = None
    skipped_steps: int = 0
    episodes: list[Episode] = field(default_factory=list)
    gpu_memory: dict[str, float] = field(default_factory=dict)  # of a process that learns on a GPU for another one
