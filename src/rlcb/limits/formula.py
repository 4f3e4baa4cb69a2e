"""The attainable FPS of a run from the speeds of its parts; docs/metrics.md defines it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

ENV, ACTING, TRAINING = ACTIVITIES = ("env", "acting", "training")
Rates = Mapping[str, Sequence[float]]  # activity → samples per second of each process that does it


@dataclass(frozen=True)
class Shape:
    """What decides how the speeds of a run's processes are combined."""

    epochs: int
    has_learners: bool = False  # other processes learn than those that act
    acting_share: float = 1.0  # of the cores that the processes which act, and those which learn, can keep busy
    learning_share: float = 1.0
    apart: bool = False  # actors and learners have cores of their own
    in_turn: bool = False  # some environments step while the actions of others are computed


@dataclass(frozen=True)
class Limit:
    """What a machine could reach: FPS, and what they follow from, summed over the processes."""

    fps: float
    env_steps_per_second: float
    acting_per_second: float
    training_samples_per_second: float
    measured: str  # when, as ISO 8601


def one_process(env: float, acting: float, training: float, shape: Shape) -> float:
    """FPS of a process that steps environments and acts, one after the other or both at once, and then trains."""
    collecting = max(1 / env, 1 / acting) if shape.in_turn else 1 / env + 1 / acting
    return 1 / (collecting + shape.epochs / training)


def attainable_fps(rates: Rates, shape: Shape) -> float:
    """FPS that would be reached if nothing but stepping, acting and training took time."""
    each = zip(rates[ENV], rates[ACTING], strict=True)
    if not shape.has_learners:
        together = zip(each, rates[TRAINING], strict=True)
        return sum(one_process(env, acting, training, shape) for (env, acting), training in together)
    collected = sum(1 / (1 / env + 1 / acting) for env, acting in each)
    learned = sum(rates[TRAINING]) / shape.epochs
    if shape.apart:
        return min(collected, learned)
    # Both were measured with all cores busy; a side that has fewer processes than that cannot use all of them.
    return min(1 / (1 / collected + 1 / learned), collected * shape.acting_share, learned * shape.learning_share)


def over_rounds(rounds: Sequence[Rates], of: Callable[[Sequence[float]], float]) -> Rates:
    """The median, least or largest over the rounds, as `of` finds it, of every process's speeds."""
    return {name: [of(found) for found in zip(*(one[name] for one in rounds), strict=True)] for name in ACTIVITIES}


def limit_of(rates: Rates, shape: Shape, measured: str) -> Limit:
    """What follows from these speeds."""
    env, acting, training = (sum(rates[name]) for name in ACTIVITIES)
    return Limit(attainable_fps(rates, shape), env, acting, training, measured)
