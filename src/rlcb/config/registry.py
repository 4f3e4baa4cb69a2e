"""The one list of algorithms, modes and executions: which section, names and defaults each algorithm has of its own."""

from dataclasses import dataclass, field
from typing import Any

DEFAULT_ALGORITHM = "ppo"
MODES = ("sequential", "parallel")
VARIANT_NAME = r"[A-Za-z0-9][A-Za-z0-9-]{0,39}"  # without _, which separates the parts of a folder's name
CLUSTER_KEYS = ("cluster", "min_workers", "insecure")  # of the section `parallel`: they mean nothing to other runs

# What may change when a run is resumed: with any other key it would be another run.
RESUMABLE_KEYS = ("imports", "total_timesteps", "duration_hours", "log_interval", "log_every_seconds", "save_interval",
                  "save_every_minutes",
                  "keep_checkpoints", "tensorboard", "track", "device", "compile", "deterministic", "env_groups",
                  "num_threads", "num_workers", "backend", "oversubscribe",
                  "worker_timeout", "cluster", "min_workers", "insecure", "num_learners", "actor_device", "num_slots",
                  "policy_update_frequency")  # fmt: skip


@dataclass(frozen=True)
class Execution:
    """A way to run an algorithm; its module of rlcb.execution has the same name."""

    keys: tuple[str, ...] = ()  # keys of the section `parallel` that it alone knows
    has_learners: bool = False  # other processes learn than those that act
    shares_minibatches: bool = False  # every worker learns from an equal share of each minibatch


@dataclass(frozen=True)
class Entry:
    """One algorithm, as far as commands and configuration need to know it."""

    module: str  # of rlcb.algorithms; its ALGORITHM holds the mathematics
    section: str  # the section of the configuration with its coefficients
    executions: dict[str, str]  # mode → execution
    summary: str = ""  # what it is, in a line of help
    instead: dict[str, str] = field(default_factory=dict)  # for a mode that it lacks, the algorithm to use
    training: dict[str, Any] = field(default_factory=dict)  # defaults of its own in the section `training`
    coefficients: dict[str, Any] = field(default_factory=dict)  # and in its section with coefficients
    aliases: dict[str, str] = field(default_factory=dict)  # other names of keys → the names used here
    without: tuple[str, ...] = ()  # keys of the configuration that mean nothing to it
    worker: str = "worker"  # what a parallel run's processes that act are called
    timed_lines: bool = False  # a timed run shows its hours and its loss at every logged update
    whole_rollout: bool = False  # an update is one optimizer step on all of a rollout
    whole_unrolls: bool = False  # minibatches are made of environments with all their steps, not of single samples

    @property
    def modes(self) -> tuple[str, ...]:
        """The modes it has, the default one first."""
        return tuple(self.executions)


@dataclass(frozen=True)
class Kind:
    """What the runs of a suite that differ by game and seed alone have in common."""

    algorithm: str
    mode: str
    variant: str = ""  # of the suite's settings; empty in a suite without variants

    @property
    def label(self) -> str:
        """Its name in folders and files; no part of it contains an underscore."""
        return "_".join(self._parts)

    @property
    def pair(self) -> str:
        """The same without the variant."""
        return f"{self.algorithm}_{self.mode}"

    @property
    def name(self) -> str:
        """What messages call it."""
        return " ".join(self._parts)

    @property
    def is_parallel(self) -> bool:
        """Whether its runs have several processes."""
        return self.mode == "parallel"

    @property
    def _parts(self) -> list[str]:
        return [self.algorithm, self.mode, *([self.variant] if self.variant else [])]


EXECUTIONS = {
    "sequential": Execution(),
    "data_parallel": Execution(keys=("backend",), shares_minibatches=True),
    "actor_learner": Execution(
        keys=("num_learners", "actor_device", "num_slots", "policy_update_frequency"),
        has_learners=True,
    ),
    "async_gradients": Execution(),
}
_DATA_PARALLEL = {"sequential": "sequential", "parallel": "data_parallel"}
_A2C_TRAINING = {"n_steps": 16, "n_epochs": 1, "optimizer": "rmsprop", "rms_eps": 1e-5, "learning_rate": 2e-3,
                 "lr_schedule": "linear"}  # fmt: skip
ALGORITHMS = {
    "ppo": Entry(
        "ppo", "ppo", _DATA_PARALLEL, "proximal policy optimization: clipped objective, several epochs",
        training={"learning_rate": 5e-4, "lr_schedule": "linear"}, coefficients={"ent_coef": 0.003},
    ),
    "impala": Entry(
        "impala", "impala", {"sequential": "sequential", "parallel": "actor_learner"},
        "importance-weighted actor-learner: asynchronous actors, V-trace correction",
        training={"n_epochs": 3, "batch_size": 512, "optimizer": "rmsprop", "learning_rate": 8e-4,
                  "lr_schedule": "linear"},
        coefficients={"ent_coef": 0.003},
        aliases={"num_actors": "num_workers", "num_envs_per_actor": "num_envs_per_worker",
                 "entropy_coef": "ent_coef", "value_coef": "vf_coef"},
        worker="actor", timed_lines=True, whole_unrolls=True,
    ),
    "a2c": Entry(
        "a2c", "a2c", _DATA_PARALLEL, "synchronous advantage actor-critic: one gradient step per short rollout",
        training=_A2C_TRAINING,
        without=("batch_size", "n_epochs"), whole_rollout=True,
    ),
    "a3c": Entry(
        "a2c", "a2c", {"parallel": "async_gradients"},
        "asynchronous advantage actor-critic: workers apply gradients without synchronisation",
        instead={"sequential": "a2c"},
        # Each gradient is from one worker's steps alone, so there are more of them and each moves the weights less.
        training={**_A2C_TRAINING, "learning_rate": 9e-4},
        without=("batch_size", "n_epochs", "optimizer", "adam_eps"), whole_rollout=True,
    ),
}  # fmt: skip
