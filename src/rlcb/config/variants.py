"""Variants of a suite: sets of configuration keys, and which algorithms and modes each of them applies to."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rlcb.config.registry import ALGORITHMS, Kind
from rlcb.config.schema import fields

CONFIG = "config"  # beside the keys of a variant: the file that its runs are based on
Variants = Mapping[str, Mapping[str, Any]]  # name → key → value


def kinds_of(algorithms: Sequence[str], modes: Sequence[str], variants: Variants) -> list[Kind]:
    """All kinds of runs; a mode that an algorithm lacks and a variant that changes nothing there are left out."""
    return [kind for kind in crossed(algorithms, modes, variants) if applies(variants.get(kind.variant, {}), kind)]


def crossed(algorithms: Sequence[str], modes: Sequence[str], variants: Variants) -> list[Kind]:
    """Every algorithm in each of the modes that it has, with every variant."""
    pairs = [(name, mode) for name in algorithms for mode in modes if mode in ALGORITHMS[name].modes]
    return [Kind(name, mode, variant) for name, mode in pairs for variant in (variants or ("",))]


def applies(keys: Iterable[str], kind: Kind) -> bool:
    """Whether a variant's keys mean anything to a kind of run; a variant without keys is as the others would be."""
    wanted = set(keys)
    return not wanted or CONFIG in wanted or not wanted.isdisjoint(_keys_in_mode(kind))


def _keys_in_mode(kind: Kind) -> set[str]:
    """The keys that count in a mode: a sequential run ignores how a parallel one is divided."""
    return {key for section, key, _ in fields(kind.algorithm) if kind.is_parallel or section != "parallel"}
