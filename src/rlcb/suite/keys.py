"""Config keys in a suite's settings, in `overrides` and in `variants`: which there may be, and what each applies to."""

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from typing import Any

from rlcb.config.load import meant
from rlcb.config.registry import ALGORITHMS, VARIANT_NAME, Kind
from rlcb.config.schema import Config, all_keys, fields
from rlcb.config.variants import CONFIG, Variants, crossed, kinds_of
from rlcb.console import note
from rlcb.errors import UsageError

Sources = dict[str, str]  # setting → where it was given, as a message names it
# Config keys that the suite decides itself, and the setting that does.
_DECIDED = {"name": "games", "seed": "seeds", "duration_hours": "duration_hours", "total_timesteps": "total_timesteps",
            "checkpoint_dir": "--output-dir", "log_dir": "--output-dir", "variant": "variants"}  # fmt: skip
PASSED_ON = tuple(key for key in all_keys() if key not in _DECIDED)


def keys_of(algorithm: str) -> set[str]:
    """Every config key that an algorithm has."""
    return {key for _, key, _ in fields(algorithm)}


def where_of(source: Sources, key: str, variant: str = "") -> str:
    """Where a config key was given: among the overrides, or in a variant."""
    if variant:
        return f"{source['variants']}.{variant}.{key}"
    return source.get(f"overrides.{key}", f"{source['overrides']}.{key}")


def check_keys(keys: Iterable[str], algorithms: Sequence[str], source: Sources, variant: str = "") -> None:
    """Refuse what is no config key or none that these algorithms have, among the overrides or in a variant."""
    where = f"{source['variants']}.{variant}" if variant else source["overrides"]
    for key in keys:
        if key in _DECIDED:
            raise UsageError(f"{where}.{key}: in a suite, this is set by {_DECIDED[key]}")
        if key not in PASSED_ON:
            raise UsageError(f"{where}: unknown key {key}{meant(key, PASSED_ON)}")
        if not any(key in keys_of(algorithm) for algorithm in algorithms):
            owners = " and ".join(name for name in ALGORITHMS if key in keys_of(name))
            place = where_of(source, key, variant)
            raise UsageError(f"{place}: belongs to {owners}, but this suite has {' and '.join(algorithms)}")


# Variants


def check_variants(variants: Variants, algorithms: Sequence[str], modes: Sequence[str], source: Sources) -> None:
    """Refuse names that are not valid, keys that cannot be, and flags that a variant would overrule."""
    where = source["variants"]
    for name, values in variants.items():
        if not re.fullmatch(VARIANT_NAME, name):
            valid = "a name has up to 40 letters, digits and - (not first)"
            raise UsageError(f"{where}: {name!r} is not valid; {valid}")
        check_keys([key for key in values if key != CONFIG], algorithms, source, name)
        if not isinstance(values.get(CONFIG, ""), str):
            raise UsageError(f"{where}.{name}.{CONFIG}: {values[CONFIG]!r} is not valid; must be a config file")
    for one, other in combinations(variants, 2):
        if one.lower() == other.lower():
            raise UsageError(f"{where}: {one} and {other} differ only in upper and lower case; rename one")
    _refuse_overruled(variants, source)
    kept = {kind.algorithm for kind in kinds_of(algorithms, modes, variants)}
    for algorithm in algorithms:
        if algorithm not in kept:
            raise UsageError(f"{where}: none applies to {algorithm}; add a variant without keys, such as 'base: {{}}'")


def chosen(variants: Any, flag: str, names: Sequence[Any]) -> Any:
    """Those of a suite file's variants that a flag names; what is not valid in the file is left as it is."""
    known = variants if isinstance(variants, dict) else {}
    wanted = [str(name) for name in names]
    for name in wanted:
        if name not in known:
            hint = meant(name, known) if known else "; the suite file has no variants"
            raise UsageError(f"{flag}: {name!r} does not exist{hint}")
        if wanted.count(name) > 1:
            raise UsageError(f"{flag}: {name} is given twice")
    return {name: known[name] for name in wanted}


def _refuse_overruled(variants: Variants, source: Sources) -> None:
    """A flag stands above the file; one that would make variants alike, or be overruled by them, is refused."""
    flags = {key.removeprefix("overrides."): flag for key, flag in source.items() if key.startswith("overrides.")}
    if source["config"].startswith("--"):
        flags[CONFIG] = source["config"]
    for key, flag in flags.items():
        setting = [f"variants.{name}" for name, values in variants.items() if key in values]
        if setting:
            names = f"{' and '.join(setting)} of the suite file set{'s' if len(setting) == 1 else ''}"
            raise UsageError(f"{flag}: {names} it as well; omit the flag or change the file")


def note_left_out(variants: Variants, algorithms: Sequence[str], modes: Sequence[str]) -> None:
    """Say which variants are left out for which kinds of runs."""
    kept = kinds_of(algorithms, modes, variants)
    missing = [kind for kind in crossed(algorithms, modes, variants) if kind not in kept]
    for name in dict.fromkeys(kind.variant for kind in missing):
        where = ", ".join(f"{kind.algorithm} {kind.mode}" for kind in missing if kind.variant == name)
        note(f"variant {name}: not run for {where}: {', '.join(variants[name])} would change nothing there")


def refuse_same(configs: Mapping[Kind, Config], where: str) -> None:
    """Refuse two variants that are the same wherever both are; where only some of their runs are, say so."""
    names = dict.fromkeys(kind.variant for kind in configs)
    for one, other in combinations(names, 2):
        pairs = {kind: Kind(kind.algorithm, kind.mode, other) for kind in configs if kind.variant == one}
        both = {kind: twin for kind, twin in pairs.items() if twin in configs}
        same = [kind for kind, twin in both.items() if _counts(kind, configs) == _counts(twin, configs)]
        if same and len(same) == len(both):
            raise UsageError(f"{where}: {one} and {other} are identical; change or remove one of them")
        if same:
            alike = ", ".join(f"{kind.algorithm} {kind.mode}" for kind in same)
            note(f"variants {one} and {other} are identical for {alike}")


def _counts(kind: Kind, configs: Mapping[Kind, Config]) -> dict[str, dict[str, Any]]:
    """What counts of a kind's configuration, whatever its variant is called."""
    used = configs[kind].changed("logging", variant=None).as_used()
    return {name: keys for name, keys in used.items() if kind.is_parallel or name != "parallel"}
