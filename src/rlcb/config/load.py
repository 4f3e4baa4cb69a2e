"""Defaults, YAML files and flags merged into one checked configuration; messages say where a value was given."""

import difflib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from rlcb.config.division import Given, Sources, check_batches, divided_evenly, gives_share
from rlcb.config.environment import EnvConfig
from rlcb.config.keys import not_of, owners
from rlcb.config.named import base_of, configs, meant_config
from rlcb.config.own_modules import imported, joined_imports, with_imports
from rlcb.config.registry import ALGORITHMS, DEFAULT_ALGORITHM
from rlcb.config.schema import Config, fields
from rlcb.config.values import allowed_values
from rlcb.config.yaml_file import read_yaml
from rlcb.envs.families import canonical_env_name, missing_mode, refused_key
from rlcb.errors import UsageError

_MOST_FILES = 4  # that are based on each other
_MOST_LEVELS = 2**31 - 1
# Keys that files in circulation also carry in another section than the canonical one.
_ALSO_IN = {
    "training": ("num_envs", "seed", "log_interval", "save_interval", "checkpoint_dir", "log_dir", "device",
                 "num_threads", "clip_range", "clip_value", "ent_coef", "vf_coef", "max_grad_norm",
                 "normalize_advantages"),
    "hardware": ("num_envs",),
}  # fmt: skip
_ALSO_IN_THE_ALGORITHMS = ("n_steps", "batch_size", "n_epochs", "learning_rate", "gamma", "gae_lambda")


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
    source = Sources(home)
    for file, content in _files(path) if path else ():
        _apply_file(with_imports(_keys_of(file, content, algorithm, home)), values, source)
    for key, (flag, _) in overrides.items():
        if key not in home:
            raise UsageError(f"{flag}: {not_of(algorithm, key)}")
    source.total_is_kept = "num_workers" in overrides and not gives_share(overrides)
    _apply(with_imports(overrides), values, source)
    entry = ALGORITHMS[algorithm]
    sections: dict[str, dict[str, Any]] = {"training": dict(entry.training), entry.section: dict(entry.coefficients)}
    for key, value in values.items():
        sections.setdefault(home[key], {})[key] = value
    try:
        config = Config.model_validate({"algorithm": algorithm, **sections})
    except ValidationError as error:
        raise _first_problem(error, source, algorithm) from None
    return _checked(divided_evenly(config, source) if mode == "parallel" else config, source)


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
            valid = "the name of a built-in configuration (see `rlcb configs`) or a path relative to this file"
            raise UsageError(f"{path}: base: {base!r} is not valid; must be {valid}")
        above = base_of(path, base)
        if not os.path.isfile(above):  # unlike Path.is_file never raises
            raise UsageError(f"{path}: base: there is no file {above}{meant_config(base)}")
        if any(above.samefile(file) for file, _ in files):
            raise UsageError(f"{path}: base: {above} is itself based on this file")
        if len(files) == _MOST_FILES:
            raise UsageError(f"{path}: base: at most {_MOST_FILES} files may be based on each other")
        path = above


def gives_length(path: Path) -> bool:
    """Whether a file, or one that it is based on, says how long to train; those of the package do not count."""
    shipped = {file.resolve() for file in configs().values()}
    own = [content.get("training") or {} for file, content in _files(path) if file.resolve() not in shipped]
    return any(keys.get(key) is not None for keys in own for key in ("total_timesteps", "duration_hours"))


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
    key = ALGORITHMS[algorithm].aliases.get(section, section)
    if key in home and key not in sections:
        raise UsageError(f"{path}: key {section!r} is in no section; did you mean {home[key]}.{key}?")
    if section not in sections:
        owners = [name for name, entry in ALGORITHMS.items() if entry.section == section]
        why = f"belongs to {' and '.join(owners)}, but this is {algorithm}" if owners else "is unknown"
        raise UsageError(f"{path}: section {section!r} {why}{meant(section, sections)}")
    if keys is not None and not isinstance(keys, dict):
        raise UsageError(f"{path}: section {section!r} must contain 'key: value' lines")


def _apply(given: Given, values: dict[str, Any], source: Sources) -> None:
    """Put keys on top of what is there; another number of workers, or share of each, alone keeps the environments."""
    workers, each = values.get("num_workers"), values.get("num_envs_per_worker")
    share = given.get("num_envs_per_worker", ("", None))[1]
    if workers == "auto" and "num_workers" not in given and type(share) is int and share > 0:
        values["num_workers"] = max(values.get("num_envs", EnvConfig().num_envs) // share, 1)
    if "num_workers" in given and not gives_share(given) and isinstance(workers, int) and isinstance(each, int):
        values["num_envs"] = workers * each
        source["num_envs"] = source.pop("num_envs_per_worker", "parallel.num_envs_per_worker")
        del values["num_envs_per_worker"]
    for key, (place, value) in given.items():
        more = joined_imports(values.get(key), value, place, source) if key == "imports" else value
        values[key], source[key] = more, place
    if gives_share(given) and "num_envs" not in given:  # the total follows from it
        source.pop("num_envs", None)
        values.pop("num_envs", None)


def _apply_file(given: Given, values: dict[str, Any], source: Sources) -> None:
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


def _first_problem(error: ValidationError, source: Sources, algorithm: str) -> UsageError:
    """One line for the first of a validation's problems: where, what, what would be valid."""
    problems = error.errors()
    key, value = problems[0]["loc"][1], problems[0]["input"]
    allowed = next(allowed_values(field) for _, name, field in fields(algorithm) if name == key)
    places = len({problem["loc"][:2] for problem in problems})
    more = f" (and {places - 1} more)" if places > 1 else ""
    return source.error(str(key), f"{value!r} is not valid; must be {allowed}{more}")


# Checks that concern several keys


def _checked(config: Config, source: Sources) -> Config:
    """The configuration with the environment's full name, once everything in it is known to fit together."""
    config = imported(config, source)
    try:
        name = canonical_env_name(config.env.name)
    except UsageError as error:
        raise source.error("name", str(error)) from None
    for key in source:
        if problem := refused_key(name, key):
            raise source.error(key, problem)
    if problem := missing_mode(config.env):
        raise source.error("distribution_mode", problem)
    if config.env.start_level + config.env.num_levels > _MOST_LEVELS:
        raise source.error("start_level", f"start_level + num_levels must be below {_MOST_LEVELS + 1}")
    check_batches(config, source)
    return config.changed("env", name=name)
