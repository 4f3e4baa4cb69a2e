"""Flags for config keys: one for each, in the schema's groups, with its metavar, description and default."""

import argparse
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rlcb.config.registry import ALGORITHMS, CLUSTER_KEYS, MODES
from rlcb.console import note
from rlcb.errors import UsageError
from rlcb.flags import Parser, flag_of

if TYPE_CHECKING:  # quick_test.py runs without pydantic
    from rlcb.config.schema import Config

# The flags of the documented scripts, by the config key each one sets; `rlcb train` has one for every key.
TIMED_KEYS = ("name", "imports", "seed", "num_envs", "n_steps", "batch_size", "num_threads", "device", "precision",
              "log_every_seconds")  # fmt: skip
FIXED_KEYS = (*TIMED_KEYS, "total_timesteps", "n_epochs", "learning_rate", "gamma", "gae_lambda", "clip_range",
              "ent_coef", "vf_coef", "log_interval", "save_interval", "checkpoint_dir", "log_dir")  # fmt: skip
PARALLEL_KEYS = ("num_workers", "num_envs_per_worker", "oversubscribe", *CLUSTER_KEYS)
ALIASES = {alias: key for entry in ALGORITHMS.values() for alias, key in entry.aliases.items() if key in PARALLEL_KEYS}
# Flags that are not followed by one value: one that needs none, one that can be given several times.
_FORMS: dict[str, dict[str, Any]] = {
    "insecure": {"nargs": "?", "const": "true"},
    "oversubscribe": {"nargs": "?", "const": "true"},
    "imports": {"action": "append"},
}
_SHARE = "num_envs_per_worker"


def add_keys(
    parser: Parser,
    keys: Iterable[str],
    algorithm: str | None = None,
    mode: str | None = None,
    aliases: Mapping[str, str] | None = None,
) -> None:
    """A flag for each key, and for each of its other names; values are checked with the file's, so all are text.

    Without an algorithm the keys of all are described, each with the algorithms that have it where not all do.
    """
    from rlcb.config.section import GROUPS
    from rlcb.config.values import metavar_of

    known, keys = _described(algorithm), set(keys)
    for title in GROUPS:
        within = [(key, field) for key, (group, field) in known.items() if key in keys and group == title]
        if not within:
            continue
        group = parser.add_argument_group(
            f"{title} ({algorithm.upper()})" if algorithm and title == "algorithm" else title
        )
        for key, field in within:
            form, text = _FORMS.get(key, {}), _text(key, field.description or "", algorithm, mode)
            group.add_argument(flag_of(key), dest=key, metavar=metavar_of(field), help=text, **form)
            for name, meant in (aliases or {}).items():
                if meant == key:
                    same = f"alias of {flag_of(key)}"
                    group.add_argument(flag_of(name), dest=name, metavar=metavar_of(field), help=same)


def hide_keys(parser: Parser, aliases: Mapping[str, str]) -> None:
    """Take all other keys without listing them, so that giving one is answered with the algorithms that have it."""
    from rlcb.config.schema import all_keys

    taken = {action.dest for action in parser.shown()}
    for key in (*all_keys(), *aliases):
        if key not in taken:
            parser.add_argument(flag_of(key), dest=key, help=argparse.SUPPRESS, **_FORMS.get(key, {}))


def _described(algorithm: str | None) -> dict[str, tuple[str, Any]]:
    """Key → its group and field, of an algorithm or of all of them."""
    from rlcb.config.keys import group_of
    from rlcb.config.schema import fields
    from rlcb.config.values import extra

    found: dict[str, tuple[str, Any]] = {}
    for name in (algorithm,) if algorithm else ALGORITHMS:
        for section, key, field in fields(name):
            found.setdefault(key, (extra(field, "group") or group_of(section), field))
    return found


def _text(key: str, description: str, algorithm: str | None, mode: str | None) -> str:
    from rlcb.config.keys import owners

    if key == "num_envs" and algorithm and "parallel" in ALGORITHMS[algorithm].modes:
        description = (
            f"alias of {flag_of(_SHARE)}" if mode == "parallel" else f"{description}; with --mode parallel: per worker"
        )
    having = [] if algorithm else owners(key)
    only = f" ({', '.join(having)} only)" if having and len(having) < len(ALGORITHMS) else ""
    return f"{description}{only}".replace("%", "%%")


def defaults_of(algorithm: str, mode: str) -> Callable[[], dict[str, str]]:
    """Reads what each key is without a flag, as text; the keys of parallel runs as the file of that mode has them."""

    def read() -> dict[str, str]:
        from rlcb.config.schema import fields
        from rlcb.config.values import value_text

        configs = {one: _without_flags(algorithm, one) for one in ALGORITHMS[algorithm].modes}
        found = {}
        for section, key, _ in fields(algorithm):
            config = configs["parallel" if section == "parallel" else mode]
            found[key] = value_text(getattr(getattr(config, section), key))
        if mode == "parallel":
            del found["num_envs"]  # --num-envs is each worker's there
        return found

    return read


def _without_flags(algorithm: str, mode: str) -> "Config":
    from rlcb.config.load import build_config
    from rlcb.config.named import default_file

    try:
        return build_config(default_file(algorithm, mode), {}, mode=mode, algorithm=algorithm)
    except UsageError as problem:
        note(f"{problem}; the defaults shown ignore this file")
        return build_config(None, {}, mode=mode, algorithm=algorithm)


def peek(argv: Sequence[str]) -> tuple[str | None, str | None]:
    """Algorithm and mode in a command line, for help alone: parsing decides what is valid."""
    words = [part for word in argv for part in (word.split("=", 1) if word.startswith("--") else [word])]
    pairs = list(zip(["", *words], words, strict=False))
    algorithm = next((word for before, word in pairs if word in ALGORITHMS and not before.startswith("-")), None)
    mode = next((word for before, word in pairs if before == "--mode" and word in MODES), None)
    if algorithm and mode not in ALGORITHMS[algorithm].modes:
        mode = ALGORITHMS[algorithm].modes[0]
    return algorithm, mode


def overrides_of(
    arguments: argparse.Namespace, algorithm: str | None, mode: str | None, named: Callable[[str], str] = flag_of
) -> dict[str, tuple[str, Any]]:
    """The config keys among the arguments: key → what messages call it and its value; `named`: what they call a key."""
    from rlcb.config.schema import all_keys
    from rlcb.config.yaml_file import parse_scalar

    keys = {*all_keys(), *ALIASES}
    given = {key: value for key, value in vars(arguments).items() if key in keys and value is not None}
    if imports := permit_named(given):
        given["imports"] = imports
    values = {key: parse_scalar(value) if isinstance(value, str) else value for key, value in given.items()}
    overrides = {key: (named(key), value) for key, value in values.items()}
    if "total_timesteps" in overrides:  # it replaces a duration given elsewhere
        overrides.setdefault("duration_hours", (named("total_timesteps"), None))
    _refuse_aliases(overrides, algorithm, named)
    # In parallel commands --num-envs counts each worker's.
    aliases = {**ALIASES, "num_envs": _SHARE} if mode == "parallel" else ALIASES
    for name, key in aliases.items():
        meant = overrides.pop(name, None)
        if meant and overrides.setdefault(key, meant)[1] != meant[1]:
            raise UsageError(
                f"{named(name)} and {named(key)} are the same setting here and have different values; give one of them"
            )
    return overrides


def permit_named(given: Mapping[str, Any]) -> list[str]:
    """Permit the modules that a command line or a call names, as imports, in `module:Env-v0` and in `module:Class`.

    RLCB_IMPORT counts as further imports. Returns all that are named as imports.
    """
    from rlcb.envs.own_code import MODULE_NAME, SHELL, module_of, named_in_shell, permit

    for word in named_in_shell():
        if not re.fullmatch(MODULE_NAME, word):
            valid = "names such as my_envs or package.module, separated by commas"
            raise UsageError(f"{SHELL}: {word!r} is not a module name; valid: {valid}")
    imports = list(dict.fromkeys([*(given.get("imports") or ()), *named_in_shell()]))
    names = [given.get("name"), given.get("env"), given.get("network"), *(given.get("games") or ())]
    permit([*imports, *(module for name in names if name and (module := module_of(name)))])
    return imports


def _refuse_aliases(given: Iterable[str], algorithm: str | None, named: Callable[[str], str]) -> None:
    """Refuse another algorithm's names of keys."""
    for name in given:
        if algorithm and name in ALIASES and name not in ALGORITHMS[algorithm].aliases:
            owners = " and ".join(one for one, entry in ALGORITHMS.items() if name in entry.aliases)
            raise UsageError(f"{named(name)} is a setting of {owners}; for {algorithm} use {named(ALIASES[name])}")
