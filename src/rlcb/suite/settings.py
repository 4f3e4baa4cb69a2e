"""The settings of a benchmark suite, from its YAML file and flags, and the configuration of each kind of run."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from rlcb.config.division import Given, division_note
from rlcb.config.load import build_config, meant
from rlcb.config.named import default_file, find_config
from rlcb.config.registry import ALGORITHMS, CLUSTER_KEYS, MODES, Kind
from rlcb.config.schema import Config
from rlcb.config.variants import CONFIG, crossed
from rlcb.config.yaml_file import read_yaml
from rlcb.console import note
from rlcb.envs.families import canonical_env_name, find
from rlcb.envs.own_code import load, module_of
from rlcb.errors import NotPermitted, UsageError
from rlcb.run.request import new_config
from rlcb.run.sinks import check_tracker, want_tensorboard
from rlcb.suite.keys import (
    PASSED_ON,
    Sources,
    check_keys,
    check_variants,
    chosen,
    keys_of,
    note_left_out,
    refuse_same,
    where_of,
)
from rlcb.suite.schema import SuiteConfig
from rlcb.training import check_cluster, check_hardware

IMPORTS = "imports"  # the key with modules of the user's own; a command that continues a suite permits them anew
WHERE = ("cluster", "insecure")  # keys that say where runs train, which may change when a suite is continued
BUDGETS = ("duration_hours", "total_timesteps")


@dataclass(frozen=True)
class Suite:
    """Settings, and the configuration of each kind of run that follows from them."""

    settings: SuiteConfig
    configs: dict[Kind, Config]
    # For messages: the file that the settings are from, None if from flags, and those of the configurations.
    file: Path | None = field(default=None, compare=False)
    config_files: tuple[Path, ...] = field(default=(), compare=False)
    named: frozenset[str] = field(default=frozenset(), compare=False)  # the settings that are not left to defaults


def build_suite(path: Path | None, flags: Given, known: Mapping[Kind, Config] | None = None) -> Suite:
    """Defaults, then the file, then `flags`: setting or config key → (the flag as typed, its value); all checked.

    `known`: configurations that are not to be read again, because they are kept with the suite.
    """
    values, source = _read(path)
    overrides = values["overrides"] = {} if values.get("overrides") is None else values["overrides"]
    for key, (flag, value) in flags.items():
        if key == "variants":
            values[key] = chosen(values.get(key), flag, value)
            continue
        if key in PASSED_ON:
            if not isinstance(overrides, dict):
                valid = "config keys with their values"
                raise UsageError(f"{source['overrides']}: {overrides!r} is not valid; must be {valid}")
            both = key == IMPORTS and isinstance(overrides.get(key), list)
            overrides[key] = list(dict.fromkeys([*overrides[key], *value])) if both else value
            source[f"overrides.{key}"] = flag
            continue
        if key in BUDGETS and not any(budget in flags for budget in BUDGETS if budget != key):
            values = {name: entry for name, entry in values.items() if name not in BUDGETS}
        values[key], source[key] = value, flag
    settings = _validated(values, source)
    named = {kind: _file_of(settings, source, kind) for kind in settings.kinds if kind not in (known or {})}
    used = (file or default_file(kind.algorithm, kind.mode) for kind, file in named.items())
    files = tuple(dict.fromkeys(file for file in used if file))
    configs = _build_configs(settings, source, named, known or {})
    return Suite(settings, configs, path, files, frozenset(values))


def read_settings(path: Path) -> SuiteConfig:
    """The settings in a suite file."""
    return _validated(*_read(path))


def _validated(values: dict[str, Any], source: Sources) -> SuiteConfig:
    try:
        settings = SuiteConfig.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        key = str(first["loc"][0])
        valid = SuiteConfig.model_fields[key].description
        raise UsageError(f"{source[key]}: {first['input']!r} is not valid; must be {valid}") from None
    return _checked(settings, source)


def _read(path: Path | None) -> tuple[dict[str, Any], Sources]:
    """The values in a suite file, and what messages call each setting."""
    known = SuiteConfig.model_fields
    values = read_yaml(path, "keys such as 'seeds:' and 'duration_hours:'") if path else {}
    for key in values:
        if key not in known:
            raise UsageError(f"{path}: unknown key {key}{_meant_setting(key)}")
    return values, {key: f"{path}: {key}" if key in values else key for key in known}


def _meant_setting(key: str) -> str:
    """What a key of a suite file that is no setting was meant to be: perhaps one of a run's configuration."""
    if key in PASSED_ON:
        return f"; did you mean overrides.{key}?"
    return meant("games" if key == "env" else key, SuiteConfig.model_fields)


def _checked(settings: SuiteConfig, source: Sources) -> SuiteConfig:
    """The settings with the games' short names, once all of them are known to exist and to fit together."""
    known: dict[str, Iterable[str]] = {"algorithms": ALGORITHMS, "modes": MODES}
    for key, names in known.items():
        for name in getattr(settings, key):
            if name not in names:
                raise UsageError(f"{source[key]}: {name!r} does not exist{meant(name, names)}")
    for algorithm in settings.algorithms:
        have = ALGORITHMS[algorithm].modes
        if not set(have) & set(settings.modes):
            raise UsageError(f"{source['modes']}: {algorithm} has none of these modes; it has {', '.join(have)}")
    if (settings.duration_hours is None) == (settings.total_timesteps is None):
        places = [source[key] for key in BUDGETS if getattr(settings, key) is not None]
        problem = f"{' and '.join(places)} cannot be used together" if len(places) > 1 else "no training length given"
        raise UsageError(f"{problem}; give either --duration HOURS or --total-timesteps N for each run")
    check_keys(settings.overrides, settings.algorithms, source)
    _check_files(settings, source)
    check_variants(settings.variants, settings.algorithms, settings.modes, source)
    settings = _with_modules(settings, source)
    try:
        games = [find(canonical_env_name(game))[1] for game in settings.games]
    except UsageError as error:
        raise UsageError(f"{source['games']}: {error}") from None
    settings = settings.model_copy(update={"games": games})
    for key in ("algorithms", "modes", "seeds", "games"):
        values = getattr(settings, key)
        twice = [value for value in values if values.count(value) > 1]
        if twice:
            raise UsageError(f"{source[key]}: {twice[0]} is given twice")
    return settings


def _with_modules(settings: SuiteConfig, source: Sources) -> SuiteConfig:
    """The settings with `module:Env-v0` taken apart, once the modules that they name are imported."""
    listed = settings.overrides.get(IMPORTS, [])
    if not isinstance(listed, list) or not all(isinstance(module, str) for module in listed):
        raise UsageError(f"{where_of(source, IMPORTS)}: {listed!r} is not valid; must be a list of modules")
    places = dict.fromkeys(listed, where_of(source, IMPORTS))
    for game in settings.games:
        if module := module_of(game):
            places.setdefault(module, source["games"])
    for module, place in places.items():
        try:
            load(module)
        except NotPermitted as error:
            raise NotPermitted(f"{place} {error}") from None
    games = [game.partition(":")[2] if module_of(game) else game for game in settings.games]
    overrides = {**settings.overrides, **({IMPORTS: list(places)} if places else {})}
    return settings.model_copy(update={"games": games, "overrides": overrides})


def _check_files(settings: SuiteConfig, source: Sources) -> None:
    if isinstance(settings.config, dict):
        pairs = [kind.pair for kind in crossed(settings.algorithms, settings.modes, {})]
        for pair in settings.config:
            if pair not in pairs:
                raise UsageError(f"{source['config']}: unknown key {pair}{meant(pair, pairs)}")


def _build_configs(
    settings: SuiteConfig, source: Sources, files: Mapping[Kind, Path | None], known: Mapping[Kind, Config]
) -> dict[Kind, Config]:
    """The configuration of each kind, from `files` if it is not `known`; checked for every game, kept with the first
    game and seed."""
    configs: dict[Kind, Config] = {}
    said: dict[str, None] = {}  # once for all variants
    for kind in settings.kinds:
        for game in reversed(settings.games):
            if kind in known:
                changes = {"name": (source["games"], game)}
                configs[kind] = build_config(None, changes, known[kind], kind.mode)
            else:
                changes = _changes(settings, source, kind, game)
                configs[kind] = new_config(kind.algorithm, kind.mode, files[kind], changes)
        if kind.is_parallel and (words := division_note(configs[kind], changes)):
            said[f"{kind.pair}: {words}"] = None
        want_tensorboard(configs[kind].logging.tensorboard)
        check_tracker(configs[kind].logging.track)
        _check_machines(kind, configs[kind], settings)
    for words in said:
        note(words)
    refuse_same(configs, source["variants"])
    note_left_out(settings.variants, settings.algorithms, settings.modes)
    return configs


def _file_of(settings: SuiteConfig, source: Sources, kind: Kind) -> Path | None:
    """The configuration that is named for a kind of run, by its variant or for all."""
    own = settings.variants.get(kind.variant, {}).get(CONFIG)
    given = own or (settings.config.get(kind.pair) if isinstance(settings.config, dict) else settings.config)
    try:
        return find_config(given) if given else None
    except UsageError as error:
        where = f"{source['variants']}.{kind.variant}.{CONFIG}" if own else source["config"]
        raise UsageError(f"{where}: {error}") from None


def moved(suite: Suite, where: Mapping[str, Any]) -> Suite:
    """The same suite on another cluster, or on this machine; `where`: the keys that say so with their values."""
    settings = suite.settings.model_copy(update={"overrides": {**suite.settings.overrides, **where}})
    configs = {
        kind: config.changed("parallel", **where) if kind.is_parallel else config
        for kind, config in suite.configs.items()
    }
    for kind, config in configs.items():
        _check_machines(kind, config, settings)
    return replace(suite, settings=settings, configs=configs)


def _check_machines(kind: Kind, config: Config, settings: SuiteConfig) -> None:
    """Refuse a GPU or a cluster that cannot be used, and what a node would have to decide by itself."""
    if settings.cluster is None or kind.is_parallel:
        check_hardware(config, kind.mode)
        return
    check_cluster(settings.cluster, settings.insecure)
    if config.hardware.device == "auto":
        raise UsageError("--device auto: the nodes of a cluster may differ; use --device cpu or cuda with --cluster")


def _changes(settings: SuiteConfig, source: Sources, kind: Kind, game: str) -> dict[str, tuple[str, Any]]:
    """What the suite changes in a config file, as far as the algorithm has such keys, and where each was given."""
    budget = next(key for key in BUDGETS if getattr(settings, key) is not None)
    changes: dict[str, tuple[str, Any]] = {
        "name": (source["games"], game),
        "seed": (source["seeds"], settings.seeds[0]),
        "duration_hours": (source[budget], settings.duration_hours),
        "checkpoint_dir": ("--output-dir", None),  # all of a run stays in its directory
        "log_dir": ("--output-dir", None),
        "variant": (source["variants"], kind.variant or None),
    }
    if budget == "total_timesteps":
        changes[budget] = (source[budget], settings.total_timesteps)
    known = keys_of(kind.algorithm) - set(() if kind.is_parallel else CLUSTER_KEYS)
    for variant, values in (("", settings.overrides), (kind.variant, settings.variants.get(kind.variant, {}))):
        changes |= {key: (where_of(source, key, variant), value) for key, value in values.items() if key in known}
    if kind.is_parallel and "num_envs" in changes:
        # A suite compares modes: num_envs is the total in each, whatever share the file gives a worker.
        changes.setdefault("num_envs_per_worker", (changes["num_envs"][0], None))
    return changes
