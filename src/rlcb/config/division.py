"""How a run's environments and rollouts are divided: among workers, learners and minibatches."""

from collections.abc import Mapping
from typing import Any

from rlcb.config.registry import ALGORITHMS
from rlcb.config.schema import Config
from rlcb.errors import UsageError
from rlcb.words import counted

Given = Mapping[str, tuple[str, Any]]  # key → where it was given, as a message names it, and its value
_MOST_STEPS = 2**26  # of a rollout


class Sources(dict[str, str]):
    """Key → where it was given, as a message names it; for any other key, where it belongs."""

    def __init__(self, home: dict[str, str]):
        super().__init__()
        self._home = home
        self.total_is_kept = False  # the number of workers was changed alone: the environments stay what they are

    def __missing__(self, key: str) -> str:
        return f"{self._home[key]}.{key}"

    def error(self, key: str, problem: str) -> UsageError:
        """What is wrong with a key's value, in a line that begins with where it was given."""
        return UsageError(f"{self[key]}: {problem}")


def gives_share(given: Given) -> bool:
    """Whether it is said how many environments each worker has."""
    return given.get("num_envs_per_worker", ("", None))[1] is not None


def divided_evenly(config: Config, source: Sources) -> Config:
    """A parallel run's environments as num_workers × num_envs_per_worker, whichever two of the three were given."""
    workers, each, total = config.parallel.num_workers, config.parallel.num_envs_per_worker, config.env.num_envs
    if workers == "auto":
        if each is not None and "num_envs_per_worker" in source:
            raise source.error("num_envs_per_worker", "with num_workers auto, give the total instead: env.num_envs")
        return config
    if each is None:
        if source.total_is_kept:
            workers = largest_division(config, workers)
            config = config.changed("parallel", num_workers=workers)
        if total % workers:
            below, above = total - total % workers, total + workers - total % workers
            near = f"{below} or {above} would work" if below else f"{above} would work"
            problem = f"{counted(workers, 'worker')} cannot share {counted(total, 'environment')} evenly"
            raise source.error("num_workers", f"{problem}; {near}")
        each = total // workers
    elif "num_envs" in source and total != workers * each:
        product = f"{workers} × {each} is {workers * each}"
        raise source.error("num_envs_per_worker", f"{product}, but {source['num_envs']} says {total}")
    config = config.changed("env", num_envs=workers * each).changed("parallel", num_envs_per_worker=each)
    if config.parallel_execution.has_learners:
        _check_learners(config, workers, source)
    wanted, shared = config.minibatch_size, config.parallel_execution.shares_minibatches
    if shared and config.rollout_size % wanted == 0 and wanted % workers:
        near = _nearest(config.rollout_size, workers * max(wanted // workers, 1), unit=workers)
        problem = f"{wanted} cannot be divided evenly among {counted(workers, 'worker')}; nearest valid: {near}"
        raise source.error("batch_size", problem)
    return config


def largest_division(config: Config, most: int) -> int:
    """The largest number of workers up to `most` that divides environments and shared minibatches evenly, else 0."""
    sizes = [config.env.num_envs]
    if config.parallel_execution.shares_minibatches:
        sizes.append(config.minibatch_size)
    return max((n for n in range(1, most + 1) if all(size % n == 0 for size in sizes)), default=0)


def division_note(config: Config, overrides: Given) -> str | None:
    """What a number of workers, or the share of each, makes of the environments; None unless one was given alone."""
    flag, wanted = overrides.get("num_workers", ("", None))
    workers, each, total = config.parallel.num_workers, config.parallel.num_envs_per_worker, config.env.num_envs
    noun, environments = ALGORITHMS[config.algorithm].worker, counted(total, "environment")
    in_total = f"{environments} in total"
    if wanted is None and gives_share(overrides):
        assert isinstance(workers, int), "auto goes with a total alone"
        return f"{overrides['num_envs_per_worker'][0]} {each}: {counted(workers, noun)}, {in_total}"
    if not isinstance(wanted, int) or gives_share(overrides):
        return None
    if wanted == workers:
        return f"{flag} {wanted}: {in_total}, {each} per {noun}"
    shared = f"minibatches of {config.minibatch_size}"
    what = environments + (f" and {shared}" if config.parallel_execution.shares_minibatches else "")
    using = f"{workers} × {counted(each or 1, 'environment')}"
    return f"{flag} {wanted}: {what} do not divide evenly among {counted(wanted, noun)}; using {using}"


def _check_learners(config: Config, actors: int, source: Sources) -> None:
    """Every learner gets an equal number of every minibatch's environments, and an update's rollouts have slots."""
    parallel, unrolls = config.parallel, config.minibatch_items
    if unrolls and parallel.num_learners and unrolls % parallel.num_learners:
        near = _nearest(unrolls, min(parallel.num_learners, unrolls))
        learners, environments = counted(parallel.num_learners, "learner"), counted(unrolls, "environment")
        problem = f"{learners} cannot share the {environments} of a minibatch evenly"
        raise source.error("num_learners", f"{problem}; valid: {near}")
    if parallel.num_slots is not None and parallel.num_slots < actors:
        slots, rollouts = counted(parallel.num_slots, "slot"), f"the rollouts of {counted(actors, 'actor')}"
        problem = f"{slots} cannot hold {rollouts} that one update needs"
        raise source.error("num_slots", f"{problem}; must be at least {actors}")


def check_batches(config: Config, source: Sources) -> None:
    """A rollout has a size that fits, divides into minibatches and is not longer than the run."""
    entry, training, size = ALGORITHMS[config.algorithm], config.training, config.rollout_size
    if size > _MOST_STEPS:
        raise source.error("num_envs", f"num_envs × n_steps is {size}; a rollout has at most {_MOST_STEPS} steps")
    batch = size if entry.whole_rollout else training.batch_size
    unit = training.n_steps if entry.whole_unrolls else 1
    if batch < size and (size % batch or batch % unit):
        whole = f" in whole unrolls of n_steps = {unit}" if unit > 1 else ""
        product = f"num_envs × n_steps = {config.env.num_envs} × {training.n_steps} = {size}"
        problem = f"{batch} does not divide {product}{whole}"
        raise source.error("batch_size", f"{problem}; the nearest that do are {_nearest(size, batch, unit)}")
    if training.duration_hours is None and training.total_timesteps < size:
        problem = f"{training.total_timesteps} is less than one rollout of num_envs × n_steps"
        raise source.error("total_timesteps", f"{problem}; the smallest valid value is {size}")


def _nearest(size: int, wanted: int, unit: int = 1) -> str:
    """The divisors of `size` made of whole units next below and above `wanted`, in words; the only one where one is."""
    count = size // unit
    above = next(n for n in range(-(-wanted // unit), count + 1) if count % n == 0)
    below = next((n for n in range(wanted // unit, 0, -1) if count % n == 0), above)
    return f"{unit * below}" if below == above else f"{unit * below} and {unit * above}"
