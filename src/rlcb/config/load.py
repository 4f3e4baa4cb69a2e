"""Defaults, a YAML file and flags put together to one checked configuration."""

import difflib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from rlcb.config.registry import ALGORITHMS
from rlcb.config.schema import Config, allowed_values, fields
from rlcb.config.yaml_file import read_yaml
from rlcb.envs.families import canonical_env_name, missing_mode
from rlcb.errors import UsageError

# Keys that files in circulation also carry in another section than the canonical one.
_ALSO_IN = {
    "training": ("num_envs", "seed", "log_interval", "save_interval", "checkpoint_dir", "log_dir", "device",
                 "num_threads", "clip_range", "clip_value", "ent_coef", "vf_coef", "max_grad_norm",
                 "normalize_advantages"),
    "ppo": ("n_steps", "batch_size", "n_epochs", "learning_rate", "gamma", "gae_lambda"),
    "impala": ("n_steps", "batch_size", "n_epochs", "learning_rate", "gamma", "gae_lambda"),
    "a2c": ("n_steps", "learning_rate", "gamma", "gae_lambda"),
    "hardware": ("num_envs",),
}  # fmt: skip


def build_config(
    path: Path | None,
    overrides: Mapping[str, tuple[str, Any]],
    base: Config | None = None,
    mode: str = "sequential",
    algorithm: str = "ppo",
) -> Config:
    """Defaults (or `base`), then the file, then `overrides`: key → (the flag as typed, its value); all validated.

    The algorithm is that of `base`, where there is one.
    """
    algorithm = base.algorithm if base else algorithm
    home = {key: section for section, key, _ in fields(algorithm)}
    values: dict[str, dict[str, Any]] = {s: dict(content) for s, content in ALGORITHMS[algorithm].defaults.items()}
    for section, content in base.as_used().items() if base else ():
        values.setdefault(section, {}).update(content)
    source: dict[str, str] = {}
    if path:
        for section, content in read_yaml(path).items():
            _merge_section(path, section, content, algorithm, home, values, source)
    if overrides.get("num_workers", ("", None))[1] == "auto" and "num_envs_per_worker" not in overrides:
        _keep_total(values, source)
    for key, (flag, value) in overrides.items():
        if key not in home:
            raise UsageError(f"{flag}: {algorithm} has no such setting")
        values.setdefault(home[key], {})[key] = value
        source[key] = flag
    try:
        config = Config.model_validate({"algorithm": algorithm, **values})
    except ValidationError as error:
        raise UsageError(_first_problem(error, source, algorithm)) from None
    if mode == "parallel":
        config = _divided(config, source)
    return _checked(config, source)


def _merge_section(
    path: Path,
    section: str,
    content: Any,
    algorithm: str,
    home: dict[str, str],
    values: dict[str, dict[str, Any]],
    source: dict[str, str],
) -> None:
    """Sort one section of a file into its canonical places; refuse unknown and contradicting keys."""
    sections = list(dict.fromkeys(home.values()))
    if section not in sections:
        owners = [name for name, entry in ALGORITHMS.items() if entry.section == section]
        why = f"is for {' and '.join(owners)}, this is {algorithm}" if owners else "is unknown"
        raise UsageError(f"{path}: section {section!r} {why}{meant(section, sections)}")
    if content is None:
        return
    if not isinstance(content, dict):
        raise UsageError(f"{path}: section {section!r} must hold 'key: value' lines")
    aliases = ALGORITHMS[algorithm].aliases
    for name, value in content.items():
        key = str(aliases.get(name, name))
        if home.get(key) != section and not (key in home and key in _ALSO_IN.get(section, ())):
            owners = [other for other in ALGORITHMS if any(known == key for _, known, _ in fields(other))]
            hint = f": {algorithm} has no such setting" if owners and key not in home else meant(name, list(home), home)
            raise UsageError(f"{path}: unknown key {section}.{name}{hint}")
        place = values.setdefault(home[key], {})
        if key in source and place[key] != value:
            raise UsageError(
                f"{path}: {key} is given twice: {source[key]} says {place[key]}, {section}.{name} says {value}"
            )
        place[key] = value
        source[key] = f"{path}: {section}.{name}"


def _keep_total(values: dict[str, dict[str, Any]], source: dict[str, str]) -> None:
    """Turn a file's num_workers × num_envs_per_worker into their product: the total that `auto` is to divide."""
    parallel = values.get("parallel", {})
    workers, each = parallel.get("num_workers"), parallel.get("num_envs_per_worker")
    if isinstance(workers, int) and isinstance(each, int):
        values.setdefault("env", {})["num_envs"] = workers * each
        source["num_envs"] = source.pop("num_envs_per_worker", "parallel.num_envs_per_worker")
        del parallel["num_envs_per_worker"]


def meant(word: str, known: Iterable[str], home: dict[str, str] | None = None) -> str:
    """What was probably meant by an unknown word; `home` gives the section to name with it."""
    close = difflib.get_close_matches(word, list(known), 1, cutoff=0.5)
    if not close:
        return "" if home else f"; valid: {', '.join(known)}"
    return f"; did you mean {home[close[0]] + '.' if home else ''}{close[0]}?"


def _where(source: dict[str, str], key: str, section: str) -> str:
    """Where a key was given, or where it belongs."""
    return source.get(key, f"{section}.{key}")


def _first_problem(error: ValidationError, source: dict[str, str], algorithm: str) -> str:
    """One line for the first of a validation's problems: where, what, what would be valid."""
    problems = error.errors()
    first = problems[0]
    section, key = str(first["loc"][0]), str(first["loc"][1]) if len(first["loc"]) > 1 else ""
    field = next((f for s, k, f in fields(algorithm) if (s, k) == (section, key)), None)
    where = _where(source, key, section)
    allowed = allowed_values(field) if field else first["msg"]
    places = len({problem["loc"][:2] for problem in problems})
    more = f" (and {places - 1} more)" if places > 1 else ""
    return f"{where}: {first['input']!r} is not valid; must be {allowed}{more}"


def _divided(config: Config, source: dict[str, str]) -> Config:
    """A parallel run's environments: num_workers × num_envs_per_worker, whichever two of the three were given."""
    parallel, total = config.parallel, config.env.num_envs
    workers, each = parallel.num_workers, parallel.num_envs_per_worker
    where = _where(source, "num_envs_per_worker", "parallel")
    if workers == "auto":
        if each is not None and "num_envs_per_worker" in source:
            raise UsageError(f"{where}: with num_workers auto give the total instead, env.num_envs")
        return config
    if each is None:
        if total % workers:
            below, above = total - total % workers, total + workers - total % workers
            raise UsageError(
                f"{_where(source, 'num_workers', 'parallel')}: {workers} workers cannot share {total} "
                f"environments evenly; {below or workers} or {above} would do"
            )
        each = total // workers
    elif "num_envs" in source and total != workers * each:
        raise UsageError(f"{where}: {workers} × {each} is {workers * each}, but {source['num_envs']} says {total}")
    config = config.model_copy(update={"env": config.env.model_copy(update={"num_envs": workers * each})})
    if ALGORITHMS[config.algorithm].executions["parallel"] == "actor_learner":
        _check_learners(config, workers, source)
    else:
        _check_shares(config, workers, source)
    return config.model_copy(update={"parallel": parallel.model_copy(update={"num_envs_per_worker": each})})


def _check_shares(config: Config, workers: int, source: dict[str, str]) -> None:
    """Every worker learns from an equal share of every minibatch."""
    share, wanted = config.rollout_size // workers, config.minibatch_size
    if config.rollout_size % wanted == 0 and wanted % workers:
        below, above = (workers * size for size in _nearest_divisors(share, max(wanted // workers, 1)))
        near = _either(below, above)
        raise UsageError(
            f"{_where(source, 'batch_size', 'training')}: {wanted} cannot be shared by {workers} workers "
            f"evenly; near it {near} would do"
        )


def _check_learners(config: Config, actors: int, source: dict[str, str]) -> None:
    """Every learner gets an equal number of every minibatch's environments, and an update's rollouts have room."""
    parallel, columns = config.parallel, config.minibatch_items
    if columns and parallel.num_learners and columns % parallel.num_learners:
        below, above = _nearest_divisors(columns, min(parallel.num_learners, columns))
        raise UsageError(
            f"{_where(source, 'num_learners', 'parallel')}: {parallel.num_learners} learners cannot share the "
            f"{columns} environments of a minibatch evenly; {_either(below, above)} would do"
        )
    if parallel.num_slots is not None and parallel.num_slots < actors:
        raise UsageError(
            f"{_where(source, 'num_slots', 'parallel')}: {parallel.num_slots} slots do not hold the rollouts of "
            f"{actors} actors that an update learns from; must be at least {actors}"
        )


def _checked(config: Config, source: dict[str, str]) -> Config:
    """Checks that concern several keys, or the table of games; returns the config with the canonical name."""
    try:
        name = canonical_env_name(config.env.name)
    except UsageError as error:
        raise UsageError(f"{_where(source, 'name', 'env')}: {error}") from None
    if problem := missing_mode(config.env):
        raise UsageError(f"{_where(source, 'distribution_mode', 'env')}: {problem}")
    if config.env.start_level + config.env.num_levels > 2**31 - 1:
        raise UsageError(f"{_where(source, 'start_level', 'env')}: start_level + num_levels must stay below {2**31}")
    size = config.rollout_size
    batch = size if ALGORITHMS[config.algorithm].whole_rollout else config.training.batch_size
    if size > 2**26:
        where = _where(source, "num_envs", "env")
        raise UsageError(f"{where}: num_envs × n_steps is {size}; at most {2**26} fit a rollout")
    unit = config.training.n_steps if ALGORITHMS[config.algorithm].whole_columns else 1
    if batch < size and (size % batch or batch % unit):
        whole = f" in whole unrolls of n_steps = {unit}" if unit > 1 else ""
        below, above = _nearest_minibatches(size, unit, batch)
        raise UsageError(
            f"{_where(source, 'batch_size', 'training')}: {batch} does not divide num_envs × n_steps = {size}{whole}; "
            f"the nearest that do are {_either(below, above)}"
        )
    if config.training.duration_hours is None and config.training.total_timesteps < size:
        raise UsageError(
            f"{_where(source, 'total_timesteps', 'training')}: {config.training.total_timesteps} is less than one "
            f"rollout of num_envs × n_steps; the smallest valid value is {size}"
        )
    return config.model_copy(update={"env": config.env.model_copy(update={"name": name})})


def _either(one: int, other: int) -> str:
    return f"{one}" if one == other else f"{one} and {other}"


def _nearest_minibatches(size: int, unit: int, wanted: int) -> tuple[int, int]:
    """The divisors of `size` made of whole units next below and above `wanted`; the smallest twice if none is below."""
    below, above = _nearest_divisors(size // unit, max(wanted // unit, 1))
    if unit * below < wanted and below == above:
        above = next(n for n in range(above + 1, size // unit + 1) if size // unit % n == 0)
    return unit * below, unit * above


def _nearest_divisors(size: int, wanted: int) -> tuple[int, int]:
    """The divisors of `size` next below and above `wanted`."""
    below = next(n for n in range(wanted, 0, -1) if size % n == 0)
    above = next(n for n in range(wanted, size + 1) if size % n == 0)
    return below, above
