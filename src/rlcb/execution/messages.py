"""What passes between a supervisor and its workers.

| role | gets | answers |
|---|---|---|
| worker (data-parallel) | `WorkerSetup`, `Assignment`, then `Go` | `Waiting`, `Started`, then an `UpdateReport` per update, until `Waiting` again |
| actor | `ActorSetup`, tickets | `Started`, `Filled` |
| learner | `LearnerSetup`, `Learn`, `GetShared` | `Started`; the first one also `Learned` and `SharedState` |
| async_worker | `AsyncSetup`, `Go` | `Started`, `Applied` per gradient, `Waiting` |
| limit_worker | `LimitSetup`, `Measure` | `Started`, then samples per second for each `Measure` |

A worker that cannot continue sends its error. Arrays are numpy's: torch would send tensors as open files, through a server.
"""  # noqa: E501

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlcb.comm.tickets import Ticket
from rlcb.config.plan import Plan
from rlcb.config.schema import Config
from rlcb.envs.episodes import Episode
from rlcb.envs.normalize import Moments
from rlcb.run.state import SharedState, Start, UpdateReport


@dataclass(frozen=True)
class Started:
    """The worker is ready."""

    num_envs: int


@dataclass(frozen=True)
class Go:
    """Run; `zero` is the clock's reading when training began."""

    generation: int
    zero: float


@dataclass(frozen=True)
class GetShared:
    """Send the shared state."""


@dataclass(frozen=True)
class WorkerSetup:
    """What a data-parallel worker needs to know, whatever group it will be in."""

    config: Config
    index: int
    num_threads: int
    memory: int  # descriptor of the memory in which gradients are exchanged
    dumps: Path  # folder for the batch that made training diverge
    rendezvous: str  # where gloo groups find together, one name for each generation: a file, on a cluster a key


@dataclass(frozen=True)
class Assignment:
    """Take this rank in a group of this size, and continue from `start`, or from the beginning."""

    rank: int
    size: int
    start: Start | None


@dataclass(frozen=True)
class Waiting:
    """The worker has nothing to do: no group, or one that is broken, or no rollouts are left."""

    reason: str = ""  # why the group is broken, as far as the worker knows


@dataclass(frozen=True)
class SharedMemory:
    """Descriptors of the memory that actors and learners share; it has no name, so nothing is left behind."""

    slots: int  # rollouts
    weights: int  # the policy, as actors get it
    snapshot: int  # weights and moments after every update, for replaced learners to continue from
    gradients: int  # what the learners average in


@dataclass(frozen=True)
class ActorSetup:
    """Everything an actor needs to know."""

    config: Config
    index: int
    incarnation: int
    num_threads: int
    num_envs: int
    num_slots: int
    memory: SharedMemory | None  # None: rollouts and weights travel over the network
    seed_key: tuple[int, ...]
    device: str = "cpu"  # where it computes actions
    env_threads: int = 0  # of each group of environments on a GPU


@dataclass(frozen=True)
class Learned:
    """An update is done; also what replaced learners continue from, beside the snapshot of weights and moments."""

    report: UpdateReport  # its times are for the supervisor to fill in
    reward_moments: Moments
    discounted_returns: list[float]
    incarnations: list[int]  # which process of each actor was learned from last
    episodes: list[tuple[list[float], list[int]]]  # of each actor's environments, in progress


@dataclass(frozen=True)
class LearnerSetup:
    """Everything a learner needs to know."""

    config: Config
    rank: int
    num_threads: int
    plan: Plan
    memory: SharedMemory
    generation: int
    dumps: Path
    checkpoint: SharedState | None  # what a resumed run continues from
    previous: Learned | None  # the last update of the learners before these


@dataclass(frozen=True)
class Learn:
    """Do one update from these rollouts; `save`: then send the shared state too."""

    tickets: tuple[Ticket, ...]
    learning_rate: float
    save: bool


@dataclass(frozen=True)
class AsyncSetup:
    """Everything an asynchronous worker needs to know."""

    config: Config  # with this worker's share of the environments
    index: int
    incarnation: int
    num_threads: int
    parameters: int  # descriptor of the memory that weights and moments lie in
    work: int  # descriptor of the counter of rollouts to do
    dumps: Path
    steps_before: int  # environment steps of the run before its workers were started
    reward_moments: Moments
    seed_key: tuple[int, ...]
    server: Any = None  # the parameter server, on a cluster


@dataclass(frozen=True)
class Applied:
    """A gradient was applied."""

    metrics: dict[str, Any]
    seconds: dict[str, float]
    skipped_steps: int
    episodes: list[Episode]
    lag: int  # gradients of others applied while this one was computed
    reward_moments: Moments


@dataclass(frozen=True)
class LimitSetup:
    """What a process needs to know that measures how fast one process of a run could be."""

    config: Config
    num_threads: int
    device: str
    env_threads: int
    rank: int
    size: int  # processes that share the configuration's environments
    minibatch_items: int  # of each minibatch that a process learns from


@dataclass(frozen=True)
class Measure:
    """Do nothing but this for so long."""

    activity: str  # env, acting or training
    seconds: float
