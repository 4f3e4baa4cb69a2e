"""What passes between a supervisor and its children, over a socket.

Data-parallel workers get `Setup`, then `Go` to start or to go on, and `Give` to ask for the common state. They answer
with `Started`, a `Report` per update, `Broken` when the group lost a member, `Failed` when they cannot go on. Actors
get `ActorSetup`, then tickets to fill, and answer with `Filled`. Learners get `LearnerSetup`, then `Learn`, and the
first of them answers with `Learned`. Asynchronous workers get `AsyncSetup` and `Go`, and answer with `Applied` for each
gradient, and `OutOfWork`. Arrays are numpy's: torch would send tensors as open files, through a server.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlcb.config.schema import Config

if TYPE_CHECKING:
    from rlcb.envs.episodes import Episode


@dataclass(frozen=True)
class Setup:
    """Everything a worker needs to know."""

    config: Config
    rank: int
    num_threads: int
    memory: int  # descriptor of the memory that gradients cross in
    folder: Path  # for dumps
    rendezvous: Path | str  # where a gloo group finds together: a file, or on a cluster a key, for each generation
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


@dataclass(frozen=True)
class Ticket:
    """The right to fill a slot, and once filled, what is in it."""

    number: int
    slot: int
    actor: int = -1
    life: int = 0  # which of the processes that have been this actor
    rollout: int = 0  # how many it had filled before
    version: int = 0  # of the policy that acted

    @property
    def stamp(self) -> int:
        """What the slot itself must say: never the same for two rollouts of a run."""
        return (self.actor << 48) + (self.life << 32) + self.rollout + 1


@dataclass(frozen=True)
class Memory:
    """Descriptors of what actors and learners share; it has no names, so nothing is left, whoever is killed."""

    slots: int  # rollouts
    weights: int  # the policy, as actors get it
    snapshot: int  # weights and moments after every update, for new learners to go on from
    gradients: int  # what the learners average in


@dataclass(frozen=True)
class ActorSetup:
    """Everything an actor needs to know."""

    config: Config
    actor: int
    life: int
    num_threads: int
    num_slots: int
    memory: Memory | None  # None: rollouts and weights travel
    seed_key: tuple[int, ...]


@dataclass(frozen=True)
class Filled:
    """A slot is full; where the actor's time went since the one before."""

    ticket: Ticket
    seconds: dict[str, float]


@dataclass(frozen=True)
class LearnerSetup:
    """Everything a learner needs to know."""

    rank: int
    config: Config
    num_threads: int
    num_slots: int
    memory: Memory
    generation: int
    folder: Path  # for dumps
    start: dict[str, Any] | None  # what a checkpoint gives
    carried: dict[str, Any] | None  # where to go on from, with the weights in the snapshot


@dataclass(frozen=True)
class Learn:
    """Do one update from these rollouts; `save`: then send what a checkpoint needs."""

    tickets: tuple[Ticket, ...]
    learning_rate: float
    save: bool


@dataclass(frozen=True)
class Learned:
    """An update is done."""

    progress: dict[str, int]
    metrics: dict[str, float | None]
    spent: dict[str, float]
    skipped_steps: int
    episodes: "list[Episode]"
    carried: dict[str, Any]
    common: dict[str, Any] | None


@dataclass(frozen=True)
class AsyncSetup:
    """Everything an asynchronous worker needs to know."""

    config: Config  # with this worker's share of the environments
    worker: int
    num_threads: int
    parameters: int  # descriptor of the memory that weights and moments lie in
    work: int  # descriptor of the counter of rollouts to do
    folder: Path  # for dumps
    steps_before: int  # environment steps of the run before its processes were started
    moments: tuple[float, float, float]  # of the rewards
    seed_key: tuple[int, ...]
    keeper: Any = None  # who keeps the parameters, on a cluster


@dataclass(frozen=True)
class Applied:
    """A gradient was applied."""

    metrics: dict[str, float | None]
    spent: dict[str, float]
    skipped_steps: int
    episodes: "list[Episode]"
    lag: int  # gradients of others applied while this one was computed
    moments: tuple[float, float, float]


@dataclass(frozen=True)
class OutOfWork:
    """Nothing is left to do, or the run was asked to end; the worker waits for `Go`."""
