"""Defaults, YAML files and flags merged into one checked configuration."""

import difflib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from rlcb.config.check import checked, divided_evenly, where
from rlcb.config.registry import ALGORITHMS, DEFAULT_ALGORITHM
from rlcb.config.schema import Config, allowed_values, fields
from rlcb.config.yaml_file import read_yaml
from rlcb.errors import UsageError

Given = Mapping[str, tuple[str, Any]]  # key → where it was given, as a message names it, and its value
_MOST_FILES = 4  # that are based on each other
# Keys that files in circulation also carry in another section than the canonical one.
_ALSO_IN = {
    "training": ("num_envs", "seed", "log_interval", "save_interval", "checkpoint_dir", "log_dir", "device",
                 "num_threads", "clip_range", "clip_value", "ent_coef", "vf_coef", "max_grad_norm",
                 "normalize_advantages"),
    "hardware": ("num_envs",),
}  # fmt: skip
_ALSO_IN_THE_ALGORITHMS = ("n_steps", "batch_size", "n_epochs", "learning_rate", "gamma", "gae_lambda")


def build_config(
    path: Path | None,
    overrides: Given,
    base: Config | None = None,
    mode: str = "sequential",
    algorithm: str = DEFAULT_ALGORITHM,
) -> Config:
    """Defaults (or `base`), then the file, then `overrides`: key → (the flag as typed, its value); all validated.

    The algorithm is that of `base`, where there is one.
    """
    algorithm = base.algorithm if base else algorithm
    home = {key: section for section, key, _ in fields(algorithm)}
    values: dict[str, Any] = {}
    for keys in base.as_used().values() if base else ():
        values |= keys
    source: dict[str, str] = {}
    for file, content in _files(path) if path else ():
        _apply_file(_keys_of(file, content, algorithm, home), values, source)
    for key, (flag, _) in overrides.items():
        if key not in home:
            raise UsageError(f"{flag}: {algorithm} has no such setting")
    _apply(overrides, values, source)
    sections: dict[str, dict[str, Any]] = {"training": dict(ALGORITHMS[algorithm].training)}
    for key, value in values.items():
        sections.setdefault(home[key], {})[key] = value
    try:
        config = Config.model_validate({"algorithm": algorithm, **sections})
    except ValidationError as error:
        raise UsageError(_first_problem(error, source, algorithm)) from None
    return checked(divided_evenly(config, source) if mode == "parallel" else config, source)


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
                known = any(known == key for other in ALGORITHMS for _, known, _ in fields(other))
                foreign = known and key not in home
                hint = f": {algorithm} has no such setting" if foreign else meant(name, home, home)
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


def _apply(given: Given, values: dict[str, Any], source: dict[str, str]) -> None:
    """Put keys on top of what is there."""
    workers, each = values.get("num_workers"), values.get("num_envs_per_worker")
    to_divide = given.get("num_workers", ("", None))[1] == "auto" and "num_envs_per_worker" not in given
    if to_divide and isinstance(workers, int) and isinstance(each, int):
        values["num_envs"] = workers * each  # the total that `auto` is to divide
        source["num_envs"] = source.pop("num_envs_per_worker", "parallel.num_envs_per_worker")
        del values["num_envs_per_worker"]
    for key, (place, value) in given.items():
        values[key], source[key] = value, place


def _apply_file(given: Given, values: dict[str, Any], source: dict[str, str]) -> None:
    """Put a file's keys on top of its base's, whose own division of the environments gives way to the file's."""
    if "num_envs" in given and "num_envs_per_worker" not in given:
        source.pop("num_envs_per_worker", None)
        values.pop("num_envs_per_worker", None)
    _apply(given, values, source)
    divides = "num_workers" in given or "num_envs_per_worker" in given
    if divides and "num_envs" not in given and values.get("num_envs_per_worker") is not None:
        source.pop("num_envs", None)
        values.pop("num_envs", None)


def meant(word: str, known: Iterable[str], home: Mapping[str, str] | None = None) -> str:
    """What was probably meant by an unknown word; `home` gives the section to name with it."""
    close = difflib.get_close_matches(word, list(known), 1, cutoff=0.5)
    if not close:
        return "" if home else f"; valid: {', '.join(known)}"
    return f"; did you mean {home[close[0]] + '.' if home else ''}{close[0]}?"


def _first_problem(error: ValidationError, source: dict[str, str], algorithm: str) -> str:
    """One line for the first of a validation's problems: where, what, what would be valid."""
    problems = error.errors()
    first = problems[0]
    section, key = str(first["loc"][0]), str(first["loc"][1]) if len(first["loc"]) > 1 else ""
    field = next((f for s, k, f in fields(algorithm) if (s, k) == (section, key)), None)
    allowed = allowed_values(field) if field else first["msg"]
    places = len({problem["loc"][:2] for problem in problems})
    more = f" (and {places - 1} more)" if places > 1 else ""
    return f"{where(source, key, section)}: {first['input']!r} is not valid; must be {allowed}{more}"
