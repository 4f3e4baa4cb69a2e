"""Which algorithms there are: in which modes, run by which execution, with which section and defaults of their own."""

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Entry:
    """One algorithm, as far as commands and configuration need to know it."""

    executions: dict[str, str]  # mode → the module of rlcb.execution that runs it
    section: str  # its section of the configuration
    defaults: dict[str, dict[str, Any]] = field(default_factory=dict)  # where they differ from the general ones
    aliases: dict[str, str] = field(default_factory=dict)  # other names of keys → the names used here
    worker: str = "worker"  # what a parallel run's processes that act are called
    timed_lines: bool = False  # a timed run shows its hours and its loss at every logged update
    whole_rollout: bool = False  # an update is one optimizer step on all of a rollout
    instead: dict[str, str] = field(default_factory=dict)  # for a mode that it lacks, the algorithm to use
    without: tuple[str, ...] = ()  # keys of the configuration that mean nothing to it
    whole_columns: bool = False  # minibatches are made of environments with all their steps, not of single samples


_ADVANTAGE_ACTOR_CRITIC = {
    "training": {"n_steps": 16, "n_epochs": 1, "optimizer": "rmsprop", "rms_eps": 1e-5, "learning_rate": 7e-4}
}
ALGORITHMS: dict[str, Entry] = {
    "ppo": Entry({"sequential": "sequential", "parallel": "data_parallel"}, "ppo"),
    "impala": Entry(
        {"sequential": "sequential", "parallel": "actor_learner"},
        "impala",
        {"training": {"n_epochs": 1, "batch_size": 512, "optimizer": "rmsprop", "learning_rate": 4e-4}},
        {"num_actors": "num_workers", "num_envs_per_actor": "num_envs_per_worker",
         "entropy_coef": "ent_coef", "value_coef": "vf_coef"},
        worker="actor",
        timed_lines=True,
        whole_columns=True,
    ),
    "a2c": Entry(
        {"sequential": "sequential", "parallel": "data_parallel"}, "a2c", _ADVANTAGE_ACTOR_CRITIC,
        whole_rollout=True, without=("batch_size", "n_epochs"),
    ),
    "a3c": Entry(
        {"parallel": "async_gradients"}, "a2c",
        # Each gradient is from one worker's steps alone, so there are more of them and each moves the weights less.
        {"training": {**_ADVANTAGE_ACTOR_CRITIC["training"], "learning_rate": 3e-4}},
        whole_rollout=True, without=("batch_size", "n_epochs", "optimizer", "adam_eps"), instead={"sequential": "a2c"},
    ),
}  # fmt: skip
MODES: dict[str, tuple[str, ...]] = {name: tuple(entry.executions) for name, entry in ALGORITHMS.items()}
