"""Families of environments: one record each, and every function whose answer depends on the family."""

import csv
import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from rlcb.envs import engine
from rlcb.envs.own_code import is_own_id
from rlcb.errors import UsageError
from rlcb.hardware import package_version

if TYPE_CHECKING:  # numpy takes longer to import than `--help` may
    from rlcb.envs.base import EnvSettings, EnvSpec, VectorEnv

# Procgen's games, without importing them. easy_0 to hard_1 are the rewards that count as 0 and 1 (Cobbe et al. 2020,
# arXiv 1912.01588, appendix C); 0 is what a policy reaches that cannot see, and random actions can score below it.
# The authors' code has 1 and 1.5 for Jumper and Leaper in easy mode, where their table has 3: see docs/metrics.md.
# Procgen has a level generator per mode, not all of them for every game: a missing one ends the process. In the four
# games without `levels_rate` a completed level only means the highest possible score, so their share says little.
_TABLE = Path(__file__).with_name("procgen_games.csv").read_text(encoding="utf-8")
_PROCGEN = {row["game"]: row for row in csv.DictReader(_TABLE.splitlines())}
GAMES = tuple(_PROCGEN)
# Ids of Atari games that give every frame, or whose skipping of frames can be turned off; ale-py need not be there.
_ATARI = re.compile(r"ALE/\w+-v5|\w+NoFrameskip-v[04]")
_OTHER_ATARI = re.compile(r"(\w+)-v[04]")  # what the other ids of Atari games look like
_CLOSE = 0.75  # how near a name must be to be suggested, as difflib counts it
INSTALL_ATARI = "pip install 'rl-cluster-benchmark[atari]'"


@dataclass(frozen=True)
class Family:
    """A kind of environment. Its functions take the short names of environments, unless said otherwise."""

    module: str  # of rlcb.envs; its `make(settings, num_envs, seed, num_threads, pictured)` returns a VectorEnv
    short_name: Callable[[str], str | None]  # of any spelling; None: not an environment of this family
    full_name: Callable[[str], str]  # the name that files use
    exists: Callable[[str], bool]
    state_bytes: int  # of one environment's state in a checkpoint, roughly
    package_bytes: int = 0  # of memory that its package takes in a process, roughly
    env_bytes: int = 100_000  # of memory that one environment takes, roughly
    games: tuple[str, ...] = ()  # the short names, where they are few enough to be listed
    has_levels: bool = False
    distribution_modes: Callable[[str], tuple[str, ...]] = lambda name: ()  # none: all are accepted and ignored
    score_range: Callable[[str, str | None], tuple[float, float] | None] = lambda name, mode: None
    has_success: Callable[[str], bool] = lambda name: False  # the share of completed levels rates a policy
    known_spec: Callable[[], "EnvSpec | None"] = lambda: None  # of all its environments, without making one
    state_package: str | None = None  # a saved state loads only with the same version of this
    state_version: Callable[[], str] = lambda: ""  # the version here
    same_version: Callable[[str], str] = lambda version: version  # equal for versions with interchangeable states
    former_package: str = ""  # what earlier checkpoints call `state_package`
    keys: tuple[str, ...] = ()  # keys of the configuration's section `env` that other families do not have
    described: Callable[["EnvSettings"], str] = lambda settings: ""  # what these settings mean, for the banner


def _procgen_game(name: str) -> str | None:
    """The Procgen game that `name` means in any of its spellings, or None for another kind of environment."""
    short = name.removeprefix("procgen:").removeprefix("procgen-").removesuffix("-v0")
    return short if short in GAMES else None


def _procgen_range(game: str, mode: str | None) -> tuple[float, float] | None:
    row = _PROCGEN[game]
    return (float(row[f"{mode}_0"]), float(row[f"{mode}_1"])) if mode in ("easy", "hard") else None


def _procgen_spec() -> "EnvSpec":
    import numpy as np

    from rlcb.envs.base import EnvSpec

    return EnvSpec((64, 64, 3), np.dtype(np.uint8), num_actions=15)


def _is_registered(name: str) -> bool:
    import gymnasium

    return name in gymnasium.registry


def _is_gymnasium_id(name: str) -> bool:
    """Whether an environment is registered, and is no other id of an Atari game: these skip frames at random."""
    import gymnasium

    return _is_registered(name) and not str(gymnasium.registry[name].entry_point).startswith("ale_py")


def _is_atari_game(name: str) -> bool:
    """Whether ale-py, which registers its games when it is imported, has this one; without it any may exist."""
    if find_spec("ale_py") is None:
        return True  # a file that names it can be read; making one says what is missing
    import_module("ale_py")
    return _is_registered(name)


def repeat_probability(settings: "EnvSettings") -> float:
    """The probability of sticky actions: as it was given, or the one that belongs to the id."""
    if settings.repeat_action_probability is not None:
        return settings.repeat_action_probability
    return 0.0 if settings.name.endswith("-v4") else 0.25


def _atari_words(settings: "EnvSettings") -> str:
    sticky = repeat_probability(settings)
    lives = "an episode ends with a life" if settings.episodic_life else "an episode ends with the game"
    rewards = "rewards are clipped to their signs" if settings.clip_rewards else "rewards are raw"
    parts = (
        f"frame skip {settings.frame_skip}",
        f"{settings.frame_stack} greyscale frames stacked",
        f"sticky actions {sticky:g}" if sticky else "no sticky actions",
        f"up to {settings.noop_max} no-ops",
        f"for learning, {lives} and {rewards}",
    )
    return "; ".join(parts)


FAMILIES = (  # a name belongs to the first that has a short name for it
    Family(
        module="procgen",
        short_name=_procgen_game,
        full_name=lambda game: f"procgen-{game}-v0",
        exists=lambda game: True,
        state_bytes=50_000,
        package_bytes=320 * 2**20,  # above all its pictures
        env_bytes=500_000,
        games=GAMES,
        has_levels=True,
        distribution_modes=lambda game: tuple(_PROCGEN[game]["modes"].split()),
        score_range=_procgen_range,
        has_success=lambda game: _PROCGEN[game]["levels_rate"] == "yes",
        known_spec=_procgen_spec,
        state_package="procgen",
        state_version=engine.build,
        same_version=engine.release,
        former_package="procgen-mirror",
    ),
    Family(
        module="atari",
        short_name=lambda name: name if _ATARI.fullmatch(name) else None,
        full_name=lambda name: name,
        exists=_is_atari_game,
        state_bytes=45_000,
        package_bytes=3 * 2**20,
        env_bytes=1_000_000,
        state_package="ale-py",
        state_version=lambda: package_version("ale-py") or "",
        keys=("frame_skip", "frame_stack", "repeat_action_probability", "noop_max", "episodic_life", "clip_rewards"),
        described=_atari_words,
    ),
    Family(
        module="gymnasium",
        short_name=lambda name: name,
        full_name=lambda name: name,
        exists=_is_gymnasium_id,
        state_bytes=1_000,
    ),
)


def find(name: str) -> tuple[Family, str]:
    """The family that a name in any spelling belongs to, and its short name there: `coinrun`, or a Gymnasium id."""
    return next((family, short) for family in FAMILIES if (short := family.short_name(name)) is not None)


def family_of(name: str) -> Family:
    """The family of an environment in any spelling; a name that does not exist is Gymnasium's."""
    return find(name)[0]


def keys_of_others(name: str) -> list[str]:
    """The keys of the configuration that mean nothing to an environment, as another family alone has them."""
    own = family_of(name)
    return [key for family in FAMILIES if family is not own for key in family.keys]


def refused_key(name: str, key: str) -> str | None:
    """Why a key of the configuration cannot be given for an environment; None: it can."""
    owner = next((family for family in FAMILIES if key in family.keys), None)
    if owner in (None, family_of(name)):
        return None
    return f"is for {owner.module.capitalize()} games, this is {name}"


def clips_rewards(settings: "EnvSettings") -> bool:
    """Whether the signs of rewards are learned from."""
    return settings.clip_rewards and "clip_rewards" in family_of(settings.name).keys


def canonical_env_name(name: str) -> str:
    """The full name of an environment that exists; another one is a UsageError."""
    family, short = find(name)
    if not family.exists(short):
        raise UsageError(_instead_of_random_skips(name) or f"unknown environment {name!r}{_hint(name)}")
    return family.full_name(short)


def _instead_of_random_skips(name: str) -> str | None:
    """What is said of an id of an Atari game whose number of skipped frames is random; None for any other name."""
    game = _OTHER_ATARI.fullmatch(name)
    if game and find_spec("ale_py") and _is_atari_game(f"ALE/{game[1]}-v5"):
        return (
            f"{name!r} skips frames at random, which is not supported; use ALE/{game[1]}-v5 or {game[1]}NoFrameskip-v4"
        )
    return None


def _hint(name: str) -> str:
    import gymnasium

    lists = {family.module.capitalize(): family.games for family in FAMILIES if family.games}
    known = {game: game for games in lists.values() for game in games}
    known |= {family.full_name(game): game for family in FAMILIES for game in family.games}
    close = [known[match] for match in difflib.get_close_matches(name, known, 1, _CLOSE)]
    own = [one for one in gymnasium.registry if is_own_id(one)]
    close = close or difflib.get_close_matches(name, own, 1) or _nearest_id(name, list(gymnasium.registry))
    meant = f"; did you mean {close[0]}?" if close else ";"
    listed = "; ".join(f"{family} games: {' '.join(games)}" for family, games in lists.items())
    others = "an Atari game such as ALE/Pong-v5, or a Gymnasium id such as CartPole-v1"
    return f"{meant} for your own, add --import MODULE; {listed}; {others}"


def _nearest_id(name: str, ids: list[str]) -> list[str]:
    """The id whose name, without folder and version, is nearest to this one's; empty if none is near.

    Two short ids are alike through their versions alone, so that any name of the user's own would be near to some.
    """
    plain = {one: _plain(one) for one in ids}
    close = difflib.get_close_matches(_plain(name), plain.values(), 1, _CLOSE)
    return difflib.get_close_matches(name, [one for one in ids if plain[one] in close], 1, cutoff=0)


def _plain(name: str) -> str:
    return re.sub(r"-v\d+$", "", name).rpartition("/")[2]


def missing_mode(settings: "EnvSettings") -> str | None:
    """What is wrong with the distribution mode, in words: an environment that does not have it; None: nothing."""
    family, short = find(settings.name)
    modes = family.distribution_modes(short)
    if not modes or settings.distribution_mode in modes:
        return None
    return f"{short} has no mode {settings.distribution_mode!r}; it has {', '.join(modes)}"


def score_range(name: str, distribution_mode: str | None) -> tuple[float, float] | None:
    """The rewards that count as 0 and 1 in this environment, where they are published."""
    family, short = find(name)
    return family.score_range(short, distribution_mode)


def normalized_score(name: str, distribution_mode: str | None, reward: float) -> float | None:
    """(reward − low) / (high − low) with the environment's published range; None where there is none."""
    limits = score_range(name, distribution_mode)
    return None if limits is None else (reward - limits[0]) / (limits[1] - limits[0])


def environment_identity(settings: "EnvSettings") -> str:
    """The environment and its settings in one line: equal lines mean interchangeable states."""
    levels = f" {settings.distribution_mode} num_levels={settings.num_levels} start_level={settings.start_level}"
    family = family_of(settings.name)
    levels = levels if family.has_levels else ""
    own = "".join(f" {key}={getattr(settings, key)}" for key in family.keys)
    return f"{settings.name}{levels}{own} num_envs={settings.num_envs}"


def state_versions(name: str) -> dict[str, str]:
    """What the saved states of an environment depend on, with its version here."""
    family = family_of(name)
    return {family.state_package: family.state_version()} if family.state_package else {}


def release_versions(name: str) -> dict[str, str]:
    """The same for people: the version that a build belongs to."""
    return {package: family_of(name).same_version(version) for package, version in state_versions(name).items()}


def foreign_state(name: str, saved: Mapping[str, str]) -> str | None:
    """Why states that were saved with these versions do not load here, in words; None: they do."""
    family = family_of(name)
    if family.state_package is None:
        return None
    there, here = saved.get(family.state_package) or saved.get(family.former_package, "unknown"), family.state_version()
    if family.same_version(there) == family.same_version(here):
        return None
    return f"made with {family.state_package} {there}, this run has {here or 'none'}"


def make_ready(name: str) -> None:
    """Have here what an environment needs, if need be by fetching it; for the process of a command, not for workers."""
    ready = getattr(import_module(f"rlcb.envs.{family_of(name).module}"), "make_ready", None)
    if ready:
        ready()


def make_env(
    settings: "EnvSettings", num_envs: int, seed: int, num_threads: int, pictured: bool = False
) -> "VectorEnv":
    """Build `num_envs` copies of the environment; `pictured`: they can also draw themselves."""
    module = import_module(f"rlcb.envs.{family_of(settings.name).module}")
    env: VectorEnv = module.make(settings, num_envs, seed, num_threads, pictured)
    return env


def tried_out(settings: "EnvSettings") -> "tuple[EnvSpec, bool] | None":
    """What trying the environment shows: its spec, and whether it repeats itself; None: both are known beforehand."""
    family = family_of(settings.name)
    if family.known_spec() is not None:
        return None
    trial = getattr(import_module(f"rlcb.envs.{family.module}"), "trial", None)
    found: tuple[EnvSpec, bool] | None = trial(settings) if trial else None
    return found


def state_problem(settings: "EnvSettings", spec: "EnvSpec", states: list[bytes]) -> str | None:
    """What is wrong with states that `set_state` is to load, as far as the family's `state_problem` can tell."""
    check = getattr(import_module(f"rlcb.envs.{family_of(settings.name).module}"), "state_problem", None)
    problem: str | None = check(settings, spec, states) if check else None
    return problem


def spec_of(settings: "EnvSettings") -> "EnvSpec":
    """What the environment's observations and actions look like; one is made where its family has no one answer."""
    known = family_of(settings.name).known_spec()
    if known is not None:
        return known
    env = make_env(settings, num_envs=1, seed=0, num_threads=0)
    env.close()
    return env.spec
