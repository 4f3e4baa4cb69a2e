"""A run's division with every `auto` decided."""

from dataclasses import dataclass

from rlcb.config.schema import Config


@dataclass(frozen=True)
class Plan:
    """A run's division with every `auto` decided."""

    execution: str
    num_workers: int
    envs_per_worker: int
    num_learners: int
    num_slots: int
    threads: int
    device: str


def largest_division(config: Config, most: int) -> int:
    """The largest number of workers, at most so many, that divides environments and minibatches; 0 if none does."""
    fitting = (n for n in range(1, most + 1) if config.env.num_envs % n == 0 and config.minibatch_size % n == 0)
    return max(fitting, default=0)
