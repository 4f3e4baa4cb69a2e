"""Checks that concern several keys of a configuration; every message says where the value was given."""

from collections.abc import Mapping

from rlcb.config.registry import ALGORITHMS
from rlcb.config.schema import Config
from rlcb.envs.families import canonical_env_name, missing_mode
from rlcb.errors import UsageError

Source = Mapping[str, str]  # key → where it was given, as a message names it
_MOST_LEVELS = 2**31 - 1
_MOST_STEPS = 2**26  # of a rollout


def where(source: Source, key: str, section: str) -> str:
    """Where a key was given, or where it belongs."""
    return source.get(key, f"{section}.{key}")


def divided_evenly(config: Config, source: Source) -> Config:
    """A parallel run's environments as num_workers × num_envs_per_worker, whichever two of the three were given."""
    workers, each, total = config.parallel.num_workers, config.parallel.num_envs_per_worker, config.env.num_envs
    place = where(source, "num_envs_per_worker", "parallel")
    if workers == "auto":
        if each is not None and "num_envs_per_worker" in source:
            raise UsageError(f"{place}: with num_workers auto give the total instead, env.num_envs")
        return config
    if each is None:
        if total % workers:
            below, above = total - total % workers, total + workers - total % workers
            raise UsageError(
                f"{where(source, 'num_workers', 'parallel')}: {workers} workers cannot share {total} "
                f"environments evenly; {below or workers} or {above} would do"
            )
        each = total // workers
    elif "num_envs" in source and total != workers * each:
        raise UsageError(f"{place}: {workers} × {each} is {workers * each}, but {source['num_envs']} says {total}")
    config = config.changed("env", num_envs=workers * each).changed("parallel", num_envs_per_worker=each)
    if config.parallel_execution.has_learners:
        _check_learners(config, workers, source)
    if config.parallel_execution.shares_minibatches:
        _check_shares(config, workers, source)
    return config


def _check_shares(config: Config, workers: int, source: Source) -> None:
    """Every worker learns from an equal share of every minibatch."""
    wanted = config.minibatch_size
    if config.rollout_size % wanted == 0 and wanted % workers:
        near = _nearest(config.rollout_size, workers * max(wanted // workers, 1), unit=workers)
        raise UsageError(
            f"{where(source, 'batch_size', 'training')}: {wanted} cannot be shared by {workers} workers "
            f"evenly; near it {near} would do"
        )


def _check_learners(config: Config, actors: int, source: Source) -> None:
    """Every learner gets an equal number of every minibatch's environments, and an update's rollouts have slots."""
    parallel, unrolls = config.parallel, config.minibatch_items
    if unrolls and parallel.num_learners and unrolls % parallel.num_learners:
        near = _nearest(unrolls, min(parallel.num_learners, unrolls))
        raise UsageError(
            f"{where(source, 'num_learners', 'parallel')}: {parallel.num_learners} learners cannot share the "
            f"{unrolls} environments of a minibatch evenly; {near} would do"
        )
    if parallel.num_slots is not None and parallel.num_slots < actors:
        raise UsageError(
            f"{where(source, 'num_slots', 'parallel')}: {parallel.num_slots} slots do not hold the rollouts of "
            f"{actors} actors that an update learns from; must be at least {actors}"
        )


def checked(config: Config, source: Source) -> Config:
    """The configuration with the environment's full name, once everything in it is known to fit together."""
    try:
        name = canonical_env_name(config.env.name)
    except UsageError as error:
        raise UsageError(f"{where(source, 'name', 'env')}: {error}") from None
    if problem := missing_mode(config.env):
        raise UsageError(f"{where(source, 'distribution_mode', 'env')}: {problem}")
    if config.env.start_level + config.env.num_levels > _MOST_LEVELS:
        place = where(source, "start_level", "env")
        raise UsageError(f"{place}: start_level + num_levels must stay below {_MOST_LEVELS + 1}")
    _check_batches(config, source)
    return config.changed("env", name=name)


def _check_batches(config: Config, source: Source) -> None:
    """A rollout has a size that fits, divides into minibatches and is not longer than the run."""
    entry, training, size = ALGORITHMS[config.algorithm], config.training, config.rollout_size
    if size > _MOST_STEPS:
        place = where(source, "num_envs", "env")
        raise UsageError(f"{place}: num_envs × n_steps is {size}; at most {_MOST_STEPS} fit a rollout")
    batch = size if entry.whole_rollout else training.batch_size
    unit = training.n_steps if entry.whole_unrolls else 1
    if batch < size and (size % batch or batch % unit):
        whole = f" in whole unrolls of n_steps = {unit}" if unit > 1 else ""
        raise UsageError(
            f"{where(source, 'batch_size', 'training')}: {batch} does not divide num_envs × n_steps = {size}{whole}; "
            f"the nearest that do are {_nearest(size, batch, unit)}"
        )
    if training.duration_hours is None and training.total_timesteps < size:
        raise UsageError(
            f"{where(source, 'total_timesteps', 'training')}: {training.total_timesteps} is less than one "
            f"rollout of num_envs × n_steps; the smallest valid value is {size}"
        )


def _nearest(size: int, wanted: int, unit: int = 1) -> str:
    """The divisors of `size` made of whole units next below and above `wanted`, in words; the only one where one is."""
    count = size // unit
    above = next(n for n in range(-(-wanted // unit), count + 1) if count % n == 0)
    below = next((n for n in range(wanted // unit, 0, -1) if count % n == 0), above)
    return f"{unit * below}" if below == above else f"{unit * below} and {unit * above}"
