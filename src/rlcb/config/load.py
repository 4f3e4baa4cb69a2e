"""Defaults, YAML files and flags merged into one checked configuration; messages say where a value was given."""

import difflib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from rlcb.config.keys import not_of, owners
from rlcb.config.registry import ALGORITHMS, DEFAULT_ALGORITHM
from rlcb.config.schema import Config, EnvConfig, fields
from rlcb.config.values import allowed_values
from rlcb.config.yaml_file import read_yaml
from rlcb.envs.families import canonical_env_name, missing_mode
from rlcb.errors import UsageError

Given = Mapping[str, tuple[str, Any]]  # key → where it was given, as a message names it, and its value
_MOST_FILES = 4  # that are based on each other
_MOST_LEVELS = 2**31 - 1
_MOST_STEPS = 2**26  # of a rollout
# Keys that files in circulation also carry in another section than the canonical one.
_ALSO_IN = {
    "training": ("num_envs", "seed", "log_interval", "save_interval", "checkpoint_dir", "log_dir", "device",
                 "num_threads", "clip_range", "clip_value", "ent_coef", "vf_coef", "max_grad_norm",
                 "normalize_advantages"),
    "hardware": ("num_envs",),
}  # fmt: skip
_ALSO_IN_THE_ALGORITHMS = ("n_steps", "batch_size", "n_epochs", "learning_rate", "gamma", "gae_lambda")


class _Sources(dict[str, str]):
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


def default_file(algorithm: str, mode: str) -> Path | None:
    """The file that a command takes its configuration from where none is named; None: there is none here."""
    file = Path("config") / f"{algorithm}_{mode}.yaml"
    return file if os.path.lexists(file) else None


def default_output(algorithm: str, mode: str) -> Path:
    """The directory of a run that was given none."""
    return Path("benchmarks") / (mode if algorithm == DEFAULT_ALGORITHM else f"{algorithm}_{mode}")


def build_config(
    path: Path | None,
    overrides: Given,
    base: Config | None = None,
    mode: str = "sequential",
    algorithm: str = DEFAULT_ALGORITHM,
) -> Config:
    """Defaults (or `base`), then the file, then `overrides`: key → (the flag as typed, its value); all validated."""
    algorithm = base.algorithm if base else algorithm
    home = {key: section for section, key, _ in fields(algorithm)}
    values: dict[str, Any] = {}
    for keys in base.as_used().values() if base else ():
        values |= keys
    source = _Sources(home)
    for file, content in _files(path) if path else ():
        _apply_file(_keys_of(file, content, algorithm, home), values, source)
    for key, (flag, _) in overrides.items():
        if key not in home:
            raise UsageError(f"{flag}: {not_of(algorithm, key)}")
    source.total_is_kept = "num_workers" in overrides and not _gives_share(overrides)
    _apply(overrides, values, source)
    entry = ALGORITHMS[algorithm]
    sections: dict[str, dict[str, Any]] = {"training": dict(entry.training), entry.section: dict(entry.coefficients)}
    for key, value in values.items():
        sections.setdefault(home[key], {})[key] = value
    try:
        config = Config.model_validate({"algorithm": algorithm, **sections})
    except ValidationError as error:
        raise _first_problem(error, source, algorithm) from None
    return _checked(_divided_evenly(config, source) if mode == "parallel" else config, source)


def _files(path: Path) -> list[tuple[Path, dict[str, Any]]]:
    """A file and those that it is based on, each with its sections; the base comes first."""
    files: list[tuple[Path, dict[str, Any]]] = []
    while True:
        content = read_yaml(path)
        base = content.pop("base", None)
        files.insert(0, (path, content))
        if base is None:
            return files
        if not isinstance(base, str) or Path(base).is_absolute():
            raise UsageError(f"{path}: base: {base!r} is not valid; must be a file's path relative to this file")
        above = path.parent / base
        if not os.path.isfile(above):  # unlike Path.is_file never raises
            raise UsageError(f"{path}: base: there is no file {above}")
        if any(above.samefile(file) for file, _ in files):
            raise UsageError(f"{path}: base: {above} is itself based on this file")
        if len(files) == _MOST_FILES:
            raise UsageError(f"{path}: base: at most {_MOST_FILES} files may be based on each other")
        path = above


def _keys_of(path: Path, content: dict[str, Any], algorithm: str, home: dict[str, str]) -> dict[str, tuple[str, Any]]:
    """The keys of a file by their canonical names; unknown and contradicting ones are refused."""
    entry, given = ALGORITHMS[algorithm], dict[str, tuple[str, Any]]()
    also_in = {**_ALSO_IN, entry.section: _ALSO_IN_THE_ALGORITHMS}
    for section, keys in content.items():
        _check_section(path, section, keys, algorithm, home)
        for name, value in (keys or {}).items():
            key = entry.aliases.get(name, name)
            if home.get(key) != section and not (key in home and key in also_in.get(section, ())):
                foreign = owners(key) and key not in home
                hint = f": {not_of(algorithm, key)}" if foreign else meant(name, home, home)
                raise UsageError(f"{path}: unknown key {section}.{name}{hint}")
            if key in given and given[key][1] != value:
                before, other = given[key]
                raise UsageError(f"{path}: {key} is given twice: {before} says {other}, {section}.{name} says {value}")
            given[key] = (f"{path}: {section}.{name}", value)
    return given


def _check_section(path: Path, section: str, keys: Any, algorithm: str, home: dict[str, str]) -> None:
    sections = list(dict.fromkeys(home.values()))
    if section not in sections:
        owners = [name for name, entry in ALGORITHMS.items() if entry.section == section]
        why = f"is for {' and '.join(owners)}, this is {algorithm}" if owners else "is unknown"
        raise UsageError(f"{path}: section {section!r} {why}{meant(section, sections)}")
    if keys is not None and not isinstance(keys, dict):
        raise UsageError(f"{path}: section {section!r} must hold 'key: value' lines")


def _gives_share(given: Given) -> bool:
    """Whether it is said how many environments each worker has."""
    return given.get("num_envs_per_worker", ("", None))[1] is not None


def _apply(given: Given, values: dict[str, Any], source: _Sources) -> None:
    """Put keys on top of what is there; another number of workers, or share of each, alone keeps the environments."""
    workers, each = values.get("num_workers"), values.get("num_envs_per_worker")
    share = given.get("num_envs_per_worker", ("", None))[1]
    if workers == "auto" and "num_workers" not in given and type(share) is int and share > 0:
        values["num_workers"] = max(values.get("num_envs", EnvConfig().num_envs) // share, 1)
    if "num_workers" in given and not _gives_share(given) and isinstance(workers, int) and isinstance(each, int):
        values["num_envs"] = workers * each
        source["num_envs"] = source.pop("num_envs_per_worker", "parallel.num_envs_per_worker")
        del values["num_envs_per_worker"]
    for key, (place, value) in given.items():
        values[key], source[key] = value, place
    if _gives_share(given) and "num_envs" not in given:  # the total follows from it
        source.pop("num_envs", None)
        values.pop("num_envs", None)


def _apply_file(given: Given, values: dict[str, Any], source: _Sources) -> None:
    """Put a file's keys on top of its base's, whose own division of the environments gives way to the file's."""
    if "num_envs" in given and "num_envs_per_worker" not in given:
        source.pop("num_envs_per_worker", None)
        values.pop("num_envs_per_worker", None)
    _apply(given, values, source)


def meant(word: str, known: Iterable[str], home: Mapping[str, str] | None = None) -> str:
    """What was probably meant by an unknown word; `home` gives the section to name with it."""
    close = difflib.get_close_matches(word, list(known), 1, cutoff=0.5)
    if not close:
        return "" if home else f"; valid: {', '.join(known)}"
    return f"; did you mean {home[close[0]] + '.' if home else ''}{close[0]}?"


def _first_problem(error: ValidationError, source: _Sources, algorithm: str) -> UsageError:
    """One line for the first of a validation's problems: where, what, what would be valid."""
    problems = error.errors()
    key, value = problems[0]["loc"][1], problems[0]["input"]
    allowed = next(allowed_values(field) for _, name, field in fields(algorithm) if name == key)
    places = len({problem["loc"][:2] for problem in problems})
    more = f" (and {places - 1} more)" if places > 1 else ""
    return source.error(str(key), f"{value!r} is not valid; must be {allowed}{more}")


# Checks that concern several keys


def _divided_evenly(config: Config, source: _Sources) -> Config:
    """A parallel run's environments as num_workers × num_envs_per_worker, whichever two of the three were given."""
    workers, each, total = config.parallel.num_workers, config.parallel.num_envs_per_worker, config.env.num_envs
    if workers == "auto":
        if each is not None and "num_envs_per_worker" in source:
            raise source.error("num_envs_per_worker", "with num_workers auto give the total instead, env.num_envs")
        return config
    if each is None:
        if source.total_is_kept:
            workers = largest_division(config, workers)
            config = config.changed("parallel", num_workers=workers)
        if total % workers:
            below, above = total - total % workers, total + workers - total % workers
            near = f"{below or workers} or {above} would do"
            raise source.error("num_workers", f"{workers} workers cannot share {total} environments evenly; {near}")
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
        problem = f"{wanted} cannot be shared by {workers} workers evenly; near it {near} would do"
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
    noun = ALGORITHMS[config.algorithm].worker
    if wanted is None and _gives_share(overrides):
        return f"{overrides['num_envs_per_worker'][0]} {each}: {workers} {noun}s, {total} environments in all"
    if not isinstance(wanted, int) or _gives_share(overrides):
        return None
    if wanted == workers:
        return f"{flag} {wanted}: the {total} environments stay, {each} for each {noun}"
    shared = f"minibatches of {config.minibatch_size}"
    what = f"{total} environments" + (f" and {shared}" if config.parallel_execution.shares_minibatches else "")
    return f"{flag} {wanted}: {what} do not divide among {wanted} {noun}s: {workers} × {each} environments instead"


def _check_learners(config: Config, actors: int, source: _Sources) -> None:
    """Every learner gets an equal number of every minibatch's environments, and an update's rollouts have slots."""
    parallel, unrolls = config.parallel, config.minibatch_items
    if unrolls and parallel.num_learners and unrolls % parallel.num_learners:
        near = _nearest(unrolls, min(parallel.num_learners, unrolls))
        problem = f"{parallel.num_learners} learners cannot share the {unrolls} environments of a minibatch evenly"
        raise source.error("num_learners", f"{problem}; {near} would do")
    if parallel.num_slots is not None and parallel.num_slots < actors:
        problem = f"{parallel.num_slots} slots do not hold the rollouts of {actors} actors that an update learns from"
        raise source.error("num_slots", f"{problem}; must be at least {actors}")


def _checked(config: Config, source: _Sources) -> Config:
    """The configuration with the environment's full name, once everything in it is known to fit together."""
    try:
        name = canonical_env_name(config.env.name)
    except UsageError as error:
        raise source.error("name", str(error)) from None
    if problem := missing_mode(config.env):
        raise source.error("distribution_mode", problem)
    if config.env.start_level + config.env.num_levels > _MOST_LEVELS:
        raise source.error("start_level", f"start_level + num_levels must stay below {_MOST_LEVELS + 1}")
    _check_batches(config, source)
    return config.changed("env", name=name)


def _check_batches(config: Config, source: _Sources) -> None:
    """A rollout has a size that fits, divides into minibatches and is not longer than the run."""
    entry, training, size = ALGORITHMS[config.algorithm], config.training, config.rollout_size
    if size > _MOST_STEPS:
        raise source.error("num_envs", f"num_envs × n_steps is {size}; at most {_MOST_STEPS} fit a rollout")
    batch = size if entry.whole_rollout else training.batch_size
    unit = training.n_steps if entry.whole_unrolls else 1
    if batch < size and (size % batch or batch % unit):
        whole = f" in whole unrolls of n_steps = {unit}" if unit > 1 else ""
        problem = f"{batch} does not divide num_envs × n_steps = {size}{whole}"
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
