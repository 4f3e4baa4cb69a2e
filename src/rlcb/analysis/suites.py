"""Suites from their files: the runs that are planned, what the suite's events say, how much is left to do."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from rlcb.analysis.alive import owner_of
from rlcb.analysis.untrusted import failure_reason, import_flags, number, plain, read_tail, section, whole_number
from rlcb.config.registry import ALGORITHMS, VARIANT_NAME, Kind
from rlcb.config.variants import kinds_of
from rlcb.config.yaml_file import read_yaml
from rlcb.errors import UsageError

_MOST_RUNS = 10_000  # of a plan
_EVENTS_BYTES = 2**20  # read from the end of suite_events.jsonl
_TURNS = ("suite_started", "suite_interrupted", "suite_finished")


@dataclass(frozen=True)
class SuiteRun:
    """A training run of a suite's plan."""

    kind: Kind
    game: str
    seed: int
    suite: Path  # the suite's directory

    @property
    def name(self) -> str:
        """What messages and the suite's events call it."""
        return f"{self.kind.name} {self.game} seed {self.seed}"

    @property
    def path(self) -> Path:
        """Its directory."""
        return self.suite / self.game.replace("/", "_") / self.kind.label / f"seed_{self.seed}"

    @property
    def log(self) -> Path:
        """The file with what it prints."""
        return self.path.with_name(f"{self.path.name}.log")

    @property
    def final_checkpoint(self) -> Path:
        """The checkpoint that it has when it is finished."""
        return self.path / "checkpoints" / f"{self.kind.pair}_final.pt"

    @property
    def evaluation(self) -> Path:
        """The file with the results of that checkpoint, once it is evaluated."""
        return self.final_checkpoint.with_name(f"{self.final_checkpoint.stem}_evaluation.json")


def planned_runs(suite: Path, kinds: Sequence[Kind], games: Sequence[str], seeds: Sequence[int]) -> list[SuiteRun]:
    """All runs in their order: seed by seed, so that a change of the machine's speed affects all kinds alike."""
    return [SuiteRun(kind, game, seed, suite) for seed in seeds for game in games for kind in kinds]


@dataclass(frozen=True)
class Suite:
    """A suite as its files describe it."""

    path: Path
    runs: tuple[SuiteRun, ...]
    state: str  # running, finished, interrupted, dead, unknown
    jobs: int  # runs that train at a time
    hours: float | None  # that each run trains, where that is given
    last_events: Mapping[str, Mapping[str, Any]]  # of each run since the suite was started, by the run's name
    import_flags: str  # for a command that continues it, each after a space

    def started(self, run: SuiteRun) -> bool:
        """Whether the suite has started the run and not seen its end."""
        return self.last_events.get(run.name, {}).get("event") in ("run_started", "run_resumed")

    def node(self, run: SuiteRun) -> str:
        """The node of a cluster that the suite has started the run on, until its end; empty for this machine."""
        return plain(self.last_events.get(run.name, {}).get("node")) if self.started(run) else ""

    def failure(self, run: SuiteRun) -> str | None:
        """Why the run failed since the suite was started; None if it did not."""
        last = self.last_events.get(run.name, {})
        return failure_reason(last) if last.get("event") == "run_failed" else None

    def seconds_left(self, running: list[float], waiting: int, known: list[float]) -> float | None:
        """Seconds until all runs are done: of those `running` what each has left, of runs like those waiting what is
        `known` of their length; None where nothing is."""
        each = 3600 * self.hours if self.hours else fmean(known) if known else None
        if waiting and each is None:
            return None
        return max([(sum(running) + waiting * (each or 0.0)) / self.jobs, *running, 0.0])


def is_suite(path: Path) -> bool:
    """Whether a folder is the directory of a suite."""
    return (path / "suite.yaml").is_file() and (path / "configs").is_dir()


def read_suite(path: Path) -> Suite:
    """The suite in a directory; UsageError says why it cannot be read."""
    settings = read_yaml(path / "suite.yaml", "the settings of a suite")
    events = read_tail(path / "suite_events.jsonl", _EVENTS_BYTES)
    begun = max((index for index, event in enumerate(events) if event.get("event") == "suite_started"), default=0)
    turns = [event for event in events if event.get("event") in _TURNS]
    last, start = (turns[-1] if turns else {}), (events[begun] if events else {})
    overrides = section(settings, "overrides")
    return Suite(
        path=path,
        runs=_planned(path, settings),
        state=_state(path, plain(last.get("event"))),
        jobs=max(whole_number(start.get("jobs")) or 1, 1),
        hours=number(settings.get("duration_hours")),
        last_events={plain(event.get("run")): event for event in events[begun:] if "run" in event},
        import_flags=import_flags(overrides.get("imports"), overrides.get("network")),
    )


def _state(path: Path, last: str) -> str:
    """What a suite does, from its process and the last of its own events."""
    owner = owner_of(path)
    if owner and owner.alive:
        return "running"
    ended = {"suite_interrupted": "interrupted", "suite_finished": "finished"}
    if last in ended:
        return ended[last]
    return "unknown" if owner and owner.alive is None else "dead"


def _planned(path: Path, settings: dict[str, Any]) -> tuple[SuiteRun, ...]:
    """All runs of a suite, in its order."""
    lists: list[Any] = [settings.get(key) for key in ("seeds", "games", "algorithms", "modes")]
    seeds, games, algorithms, modes = (one if isinstance(one, list) else [one] for one in lists)
    variants = _variants(path, settings)
    if len(seeds) * len(games) * len(algorithms) * len(modes) * max(len(variants), 1) > _MOST_RUNS:
        raise UsageError(f"{path / 'suite.yaml'}: plans more than {_MOST_RUNS:,} runs")
    known = all(isinstance(name, str) and name in ALGORITHMS for name in algorithms)
    if not known or not all(map(plain, games)) or None in map(whole_number, seeds):
        raise UsageError(f"{path / 'suite.yaml'}: damaged: its seeds, games or algorithms are not known")
    kinds = kinds_of(algorithms, modes, variants)
    return tuple(planned_runs(path, kinds, [plain(game) for game in games], [int(seed or 0) for seed in seeds]))


def _variants(path: Path, settings: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The variants of a suite; empty where it has none."""
    found = settings.get("variants") or {}
    known = isinstance(found, dict) and all(
        isinstance(name, str) and re.fullmatch(VARIANT_NAME, name) and isinstance(keys, dict)
        for name, keys in found.items()
    )
    if not known:
        raise UsageError(f"{path / 'suite.yaml'}: damaged: its variants are not names with keys")
    return found
