"""A command for a suite that exists: it may add seeds, games, algorithms, modes and variants, and change nothing."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rlcb.config.registry import Kind
from rlcb.config.schema import Config
from rlcb.config.variants import CONFIG
from rlcb.errors import UsageError
from rlcb.suite.directory import recorded, runs_of
from rlcb.suite.schema import LISTS, SuiteConfig
from rlcb.suite.settings import IMPORTS, Suite
from rlcb.words import counted

_SHOWN = 6  # differences named in one message


def continued(output: Path, planned: Suite, wanted: Suite) -> Suite:
    """The suite of a directory with the runs that the suite wanted adds; UsageError names what else differs."""
    _refuse_differences(output, planned, wanted)
    earlier, now = planned.settings, wanted.settings
    if not _more(earlier, now):
        return planned
    grown: dict[str, Any] = {key: _joined(getattr(earlier, key), getattr(now, key)) for key in LISTS}
    imports = _joined(earlier.overrides.get(IMPORTS, []), now.overrides.get(IMPORTS, []))
    grown["overrides"] = {**now.overrides, **({IMPORTS: imports} if imports else {})}
    settings = now.model_copy(update={**grown, "variants": {**earlier.variants, **now.variants}})
    configs = {}
    for kind in settings.kinds:
        if kind in planned.configs:
            config = planned.configs[kind]
            # A game that is added may need a module, which the recorded games then import as well.
            configs[kind] = config.changed("env", imports=_joined(config.env.imports, imports)) if imports else config
        else:
            configs[kind] = _like_recorded(kind, planned, wanted)
    return replace(planned, settings=settings, configs=configs)


@dataclass(frozen=True)
class Additions:
    """What a suite has beyond the one that is recorded in its directory."""

    values: dict[str, list[Any]]  # by setting
    runs: list[str]

    def __str__(self) -> str:
        """For people: 'seeds 4, 5 (4 runs)'."""
        nouns = {key: key if len(values) > 1 else key[:-1] for key, values in self.values.items()}
        names = "; ".join(f"{noun} {', '.join(map(str, self.values[key]))}" for key, noun in nouns.items())
        return f"{names} ({counted(len(self.runs), 'run')})"


def additions(output: Path, suite: Suite) -> Additions | None:
    """What a suite adds to the recorded one; None where there is none, or nothing is added."""
    earlier = recorded(output)
    more = _more(earlier, suite.settings) if earlier else {}
    if not earlier or not more:
        return None
    known = runs_of(earlier, output)
    return Additions(more, [run.name for run in runs_of(suite.settings, output) if run not in known])


def _more(earlier: SuiteConfig, now: SuiteConfig) -> dict[str, list[Any]]:
    """The values of each list, and the names of variants, that were not there."""
    found = {key: _without(getattr(now, key), getattr(earlier, key)) for key in (*LISTS, "variants")}
    return {key: values for key, values in found.items() if values}


def _without(values: Any, others: Any) -> list[Any]:
    return [value for value in values if value not in others]


def _joined(first: Any, second: Any) -> list[Any]:
    return [*first, *_without(second, first)]


def _like_recorded(kind: Kind, planned: Suite, wanted: Suite) -> Config:
    """The configuration of an added kind of run; what was decided for recorded ones when the suite began holds too."""
    config = wanted.configs[kind]
    for other, before in planned.configs.items():
        hardware, now = before.hardware, config.hardware
        # Measured once for all variants; it would differ by chance otherwise.
        measured = now.precision == wanted.configs[other].hardware.precision == "auto"
        if other.pair == kind.pair and measured:
            config = config.changed("hardware", precision=hardware.precision)
        # It follows from the number of runs, which is another one now.
        if now.num_threads is None and not (kind.is_parallel or other.is_parallel) and hardware.device == now.device:
            config = config.changed("hardware", num_threads=hardware.num_threads)
    return config


# Differences


def _refuse_differences(output: Path, planned: Suite, wanted: Suite) -> None:
    """Raise UsageError if anything recorded is missing in the suite that is wanted, or other than it was."""
    missing, different = _missing(planned.settings, wanted), _different(planned, wanted)
    if not missing and not different:
        return
    earlier, now = planned.settings, wanted.settings
    if different and earlier.config != now.config:  # another name of a file with the same settings is no difference
        different = [_difference(CONFIG, earlier.config, now.config), *different]
    values = {key: _difference(key, getattr(earlier, key), getattr(now, key)) for key in missing}
    named = [words if key in wanted.named else f"{words} by default" for key, words in values.items()] + different
    more = f" and {len(named) - _SHOWN} more" if len(named) > _SHOWN else ""
    if different:
        advice = "Use the recorded values (--output-dir alone resumes that suite) or another --output-dir"
    else:
        flags = (f"--{key} {' '.join(map(str, values))}" for key, values in missing.items())
        advice = f"Values can be added, not removed: use {' '.join(flags)}, or another --output-dir"
    raise UsageError(
        f"--output-dir {output}: contains a suite with different settings: {'; '.join(named[:_SHOWN])}{more}. {advice}"
    )


def _missing(earlier: SuiteConfig, wanted: Suite) -> dict[str, list[Any]]:
    """The lists that lack a recorded value, each with the recorded values and the new ones that were asked for."""
    found = {}
    for key in LISTS:
        before, now = getattr(earlier, key), getattr(wanted.settings, key)
        if _without(before, now):
            found[key] = _joined(before, now if key in wanted.named else [])
    return found


def _different(planned: Suite, wanted: Suite) -> list[str]:
    """All other settings that differ, or else the keys of the configurations that do."""
    earlier, now = _flat(planned.settings), _flat(wanted.settings)
    if planned.settings.variants:
        now = {key: value for key, value in now.items() if key in earlier or not key.startswith("variants.")}
    in_configs = _different_keys(planned, wanted)
    if not in_configs:  # then a key that is given now has no effect on the recorded runs
        now = {key: value for key, value in now.items() if key in earlier or key not in wanted.settings.overrides}
    found = [
        _difference(key, earlier.get(key, "not set"), now.get(key, "not set"))
        for key in {**earlier, **now}
        if earlier.get(key) != now.get(key)
    ]
    return found or in_configs


def _flat(settings: SuiteConfig) -> dict[str, Any]:
    """The settings that cannot grow, each override and each variant by its name."""
    variants = {f"variants.{name}": keys for name, keys in settings.variants.items()}
    overrides = {key: value for key, value in settings.overrides.items() if key != IMPORTS}
    return settings.model_dump(exclude={"overrides", "variants", CONFIG, *LISTS}) | overrides | variants


def _different_keys(planned: Suite, wanted: Suite) -> list[str]:
    """The keys in which the configurations of recorded kinds of runs differ."""
    found = []
    for kind, config in planned.configs.items():
        if kind not in wanted.configs:
            continue
        same = {"name": config.env.name, "seed": config.env.seed}  # each run is given its own
        now = wanted.configs[kind].changed("env", **same, imports=config.env.imports)
        before, present = config.as_used(), now.as_used()
        for section, keys in present.items():
            if section == "parallel" and not kind.is_parallel:
                continue  # it has no effect there
            undecided = [key for place, key in _left_open(now) if place == section]
            for key in {**before[section], **keys}:
                values = before[section].get(key), keys.get(key)
                if values[0] != values[1] and key not in undecided:
                    found.append(_difference(f"{kind.label}: {section}.{key}", *values))
    return found


def _left_open(config: Config) -> list[tuple[str, str]]:
    """The sections and keys whose values a configuration leaves to the machine, decided when the suite began."""
    parallel, hardware = config.parallel, config.hardware
    automatic = parallel.num_workers == "auto"
    found = [("parallel", "num_workers"), ("parallel", "num_envs_per_worker")] if automatic else []
    found += [("parallel", "num_learners")] if automatic or parallel.num_learners is None else []
    found += [("hardware", "num_threads")] if hardware.num_threads is None else []
    return found + ([("hardware", "precision")] if hardware.precision == "auto" else [])


def _difference(key: str, before: Any, now: Any) -> str:
    return f"{key} {before} there and {now} here"
