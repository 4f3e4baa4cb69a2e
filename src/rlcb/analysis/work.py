"""Where runs do not do the same work: settings that make it another amount or kind, not how it is carried out."""

from collections.abc import Sequence
from typing import Any

from rlcb.analysis.run import Run
from rlcb.analysis.untrusted import plain, section, whole_number
from rlcb.config.registry import ALGORITHMS

# Keys that are part of the task or say how a run is carried out.
_NOT_WORK = {
    "env": ("name", "seed", "distribution_mode", "num_levels", "start_level"),
    "training": ("total_timesteps", "duration_hours", "micro_batch_size"),
    "hardware": ("device", "num_threads"),
}
_NAMES = {"num_envs": "environments", "n_steps": "rollout length", "batch_size": "minibatch", "n_epochs": "epochs"}
# What decides how much is computed for each step, whatever the algorithm.
_AMOUNT = ("environments", "rollout length", "minibatch", "epochs", "network", "precision")
_OF_OPTIMIZER = {"adam_eps": "adam", "rms_eps": "rmsprop", "rms_decay": "rmsprop"}
_MOST_LABELS, _MOST_VALUES = 3, 4  # that are named

Work = dict[str, str]  # values in words, by name


def work_of(run: Run) -> Work:
    """Everything that decides how much a run computes for each step, and what."""
    entry = ALGORITHMS.get(run.algorithm)
    names = ("env", "training", entry.section if entry else run.algorithm, "hardware")
    found: dict[str, Any] = {}
    for name in names:
        kept = {key: value for key, value in section(run.config, name).items() if key not in _NOT_WORK.get(name, ())}
        found |= kept
    optimizer = found.get("optimizer", "rmsprop")  # A3C has one alone
    found = {key: value for key, value in found.items() if _OF_OPTIMIZER.get(key, optimizer) == optimizer}
    if found.get("reward_norm_gamma", 0) is None:
        found["reward_norm_gamma"] = found.get("gamma")
    if found.get("network") == "auto" and run.distribution_mode is not None:
        found["network"] = "nature"  # what auto is for images, such as Procgen's
    found["precision"] = run.precision
    if entry:
        found |= {"n_epochs": found.get("n_epochs", 1), "batch_size": _minibatch(run, found)}
    return {_NAMES.get(key, plain(key)): _in_words(value) for key, value in found.items()}


def _minibatch(run: Run, found: dict[str, Any]) -> int | None:
    """Samples of one optimizer step."""
    entry = ALGORITHMS[run.algorithm]
    envs, steps, wanted = (whole_number(found.get(key)) for key in ("num_envs", "n_steps", "batch_size"))
    if not envs or not steps:
        return wanted
    if entry.executions.get(run.mode) == "async_gradients":
        return steps * envs // run.num_workers  # each worker's gradient is a step
    return envs * steps if entry.whole_rollout or not wanted else min(wanted, envs * steps)


def _in_words(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return {True: "on", False: "off", None: "none"}[value]
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:g}" if isinstance(value, float) else plain(str(value))


def work_differences(one: Run, other: Run) -> str:
    """In which ways two runs do not do the same work: 'minibatch 1,024 / 2,048'; empty if they do."""
    mine, theirs = work_of(one), work_of(other)
    names = _compared([(one.algorithm, mine), (other.algorithm, theirs)])
    unlike = [name for name in names if mine.get(name) != theirs.get(name)]
    return ", ".join(f"{name} {mine.get(name, 'none')} / {theirs.get(name, 'none')}" for name in unlike)


def _compared(works: Sequence[tuple[str, Work]]) -> list[str]:
    """The names to compare: all of them for one algorithm; coefficients of different ones mean different things."""
    names = list(dict.fromkeys(name for _, work in works for name in work))
    same = len({algorithm for algorithm, _ in works}) == 1
    return sorted((name for name in names if same or name in _AMOUNT), key=lambda name: name not in _AMOUNT)


def unequal_work(groups: Sequence[tuple[str, Run]]) -> list[str]:
    """In which ways groups do not do the same work, with the labels that have each value.

    Two groups of different algorithms are compared by the amount of work alone.
    """
    works = [(label, run.algorithm, work_of(run)) for label, run in groups]
    found = []
    for name in _compared([("", work) for _, _, work in works]):
        collections = [works] if name in _AMOUNT else _by_algorithm(works)
        for alike in collections:
            values: dict[str, list[str]] = {}
            for label, _, work in alike:
                values.setdefault(work.get(name, "none"), []).append(label)
            named = [f"{value} ({_some(labels)})" for value, labels in values.items()]
            if len(named) > 1:
                many = f"{len(named)} different values"
                found.append(f"{name} {' / '.join(named) if len(named) <= _MOST_VALUES else many}")
    return found


def _by_algorithm(works: Sequence[tuple[str, str, Work]]) -> list[list[tuple[str, str, Work]]]:
    algorithms = dict.fromkeys(algorithm for _, algorithm, _ in works)
    return [[item for item in works if item[1] == algorithm] for algorithm in algorithms]


def _some(labels: Sequence[str]) -> str:
    return ", ".join(labels) if len(labels) <= _MOST_LABELS else f"{len(labels)} groups"
