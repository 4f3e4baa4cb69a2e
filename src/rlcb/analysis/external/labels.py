"""What an external run is called: as flags say, else as its files do, else as the names of its folders suggest."""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from rlcb.analysis.external.log import Log
from rlcb.analysis.untrusted import env_names, plain
from rlcb.envs.families import GAMES

_SHORT = {"Stable-Baselines3": "SB3"}
_ALGORITHMS = ("impala", "appo", "ppo", "a2c", "a3c", "dqn", "ddpg", "sac", "td3", "trpo", "ppg", "pqn", "rainbow")
_GYMNASIUM = re.compile(r"(?<![A-Za-z0-9])((?:ALE/)?[A-Z][A-Za-z0-9]+-v\d+)(?!\d)")
_SEED = re.compile(r"(?:^|[^a-z])(?:seed|s)[_=-]?(\d{1,9})(?!\d)", re.IGNORECASE)
_CLEANRL = re.compile(r"^(.+)__(.+)__(\d{1,9})__\d+$")  # environment, experiment, seed, time
_LEVELS = 2  # folders above whose names are looked at

Found = TypeVar("Found")


@dataclass(frozen=True)
class Labels:
    """What a run is called; None where it is not known."""

    name: str | None = None
    algorithm: str | None = None
    game: str | None = None
    seed: int | None = None
    distribution_mode: str | None = None  # this and the next two: levels of Procgen
    num_levels: int | None = None
    start_level: int | None = None
    guessed: dict[str, str] = field(default_factory=dict)  # which of them are not given, and where they come from


def complete(given: Labels, log: Log, path: Path) -> Labels:
    """The labels with what the log and the names of the folders tell; what neither tells stays None."""
    guessed: dict[str, str] = {}
    names = [part for part in (path.name, *(folder.name for folder in path.absolute().parents[:_LEVELS])) if part]
    algorithm, game, seed = given.algorithm, given.game, given.seed
    if algorithm is None:
        algorithm = _algorithm(log.hints.get("algorithm", "")) or _first(_algorithm, names)
        _note(guessed, "algorithm", algorithm, "algorithm" in log.hints)
    if game is None:
        game = log.hints.get("env") or _first(_game, names)
        _note(guessed, "game", game, "env" in log.hints)
    if seed is None:
        said = log.hints.get("seed", "")
        seed = int(said) if said.isdecimal() and len(said) < 10 else _first(_seed, names)
        _note(guessed, "seed", seed, said.isdecimal())
    name = given.name
    if name is None:
        name = " ".join([_SHORT.get(log.program, log.program), *([algorithm.upper()] if algorithm else [])])
        guessed["name"] = "program and algorithm"
    full = env_names(game) if game else None
    shown = (full[1] or full[0]) if full else None
    return replace(given, name=plain(name), algorithm=algorithm, game=shown, seed=seed, guessed=guessed)


def _note(guessed: dict[str, str], what: str, value: object, in_file: bool) -> None:
    if value is not None:
        guessed[what] = "its files" if in_file else "names of folders"


def _first(reader: Callable[[str], Found | None], names: Iterable[str]) -> Found | None:
    return next((found for name in names if (found := reader(name)) is not None), None)


def _algorithm(text: str) -> str | None:
    words = re.split(r"[^a-z0-9]+", text.lower())
    return next((name for name in _ALGORITHMS if name in words), None)


def _game(name: str) -> str | None:
    match = _GYMNASIUM.search(name)
    if match:
        return match[1]
    words = re.split(r"[^a-z0-9]+", name.lower())
    return next((game for game in GAMES if game in words), None)


def _seed(name: str) -> int | None:
    match = _CLEANRL.match(name)
    if match:
        return int(match[3])
    found = _SEED.search(name)
    return int(found[1]) if found else None
