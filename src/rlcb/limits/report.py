"""What is said about the limit of this machine: by `rlcb limits`, and at the end of a run."""

import shlex
from collections.abc import Callable
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import Any

from rlcb.config.plan import Plan, make_plan
from rlcb.config.precision import with_precision
from rlcb.config.registry import ALGORITHMS
from rlcb.config.schema import Config
from rlcb.console import note, say, warn
from rlcb.disturbance.verdict import AGAIN, Disturbance
from rlcb.envs.families import make_ready
from rlcb.envs.own_code import permitted_flags
from rlcb.errors import ResourceError, UsageError
from rlcb.hardware import prepare_process
from rlcb.limits.cache import find, key_of, store
from rlcb.limits.formula import Limit, limit_of, over_rounds
from rlcb.words import counted, typed

ROUNDS, SECONDS = 3, 1.0  # of `rlcb limits`: how often every part is measured, and for how long each time
_TIMEOUT = 600.0  # seconds in total, beyond which something hangs
_UNSTEADY = 1.25  # the highest over the lowest FPS of the rounds, above which the machine was not quiet
_LONG_RUN = 30.0  # seconds of training that are worth a measurement afterwards
_ROUNDS_AFTER_A_RUN, _SECONDS_AFTER_A_RUN, _TIMEOUT_AFTER_A_RUN = 2, 0.5, 60.0
_SHOWN = (  # what each figure is called, its unit, and where a limit has it
    ("  Environments alone", "steps/s", "env_steps_per_second"),
    ("  Acting", "samples/s", "acting_per_second"),
    ("  Training", "samples/s", "training_samples_per_second"),
    ("Attainable", "FPS", "fps"),
)


def show_limits(config: Config, mode: str, rounds: int, seconds: float, accept_disturbed: bool) -> int:
    """Measure what this machine could reach for a configuration, print it and keep it for the summaries of runs.

    What other programs disturbed twice is not kept, unless that is accepted.
    """
    if mode == "parallel" and config.parallel.cluster is not None:
        raise UsageError(
            f"--cluster {config.parallel.cluster}: limits are measured on this machine only; omit the flag"
        )
    make_ready(config.env.name)
    config, plan = make_plan(with_precision(config, mode), mode)
    say(f"Measuring {_words(config, plan, mode)}: {rounds} × {seconds:g} s for each part")
    timeout = _TIMEOUT + 6 * rounds * seconds
    (low, limit, high), disturbance = _measured(config, plan, rounds, seconds, timeout)
    if disturbance.disturbed and not accept_disturbed:
        note(f"disturbed: {disturbance.words}; measuring again")
        (low, limit, high), disturbance = _measured(config, plan, rounds, seconds, timeout)
    for title, unit, field in _SHOWN:
        lowest, middle, highest = (getattr(one, field) for one in (low, limit, high))
        say(f"{title}: {middle:,.0f} {unit} ({lowest:,.0f} to {highest:,.0f})")
    if disturbance.disturbed and not accept_disturbed:
        raise ResourceError(f"disturbed: {disturbance.words}; nothing was stored; {AGAIN}, or add --accept-disturbed")
    if disturbance.disturbed:
        note(f"disturbed: {disturbance.words}; the measured values are probably too low")
    if high.fps > _UNSTEADY * low.fps:
        note("the repetitions differ widely: other programs may be using this machine; repeat when it is idle")
    try:
        say(f"Stored: {store(key_of(config, plan, mode), limit)}")
    except ResourceError as error:
        warn(f"not stored: {error}")
    return 0


def _words(config: Config, plan: Plan, mode: str) -> str:
    """The run that is measured, in words."""
    noun = ALGORITHMS[config.algorithm].worker if mode == "parallel" else "process"
    learners = f", {counted(plan.num_learners, 'learner')}" if plan.num_learners else ""
    processes = f"{counted(plan.num_workers, noun)}{learners} × {counted(plan.threads, 'thread')}"
    environments = counted(config.env.num_envs, "environment")
    return f"{config.algorithm.upper()} {mode} on {config.env.name} ({processes}, {environments})"


def _measured(
    config: Config, plan: Plan, rounds: int, seconds: float, timeout: float, stop: Callable[[], bool] = lambda: False
) -> tuple[tuple[Limit, Limit, Limit], Disturbance]:
    """A limit measured now: from the lowest, the median and the highest speeds of the rounds; and what disturbed it."""
    prepare_process(plan.threads)
    from rlcb.limits.measure import measure

    found, shape, disturbance = measure(config, plan, rounds, seconds, timeout, stop)
    now = datetime.now().astimezone().isoformat(timespec="seconds")
    low, middle, high = (limit_of(over_rounds(found, of), shape, now) for of in (min, median, max))
    return (low, middle, high), disturbance


# At the end of a run


def limit_of_run(
    config: Config, plan: Plan, mode: str, seconds: float, fps: float, stop: Callable[[], bool]
) -> dict[str, Any] | None:
    """The block `limit` of a run that trained for so long, so fast; None where the limit is not known.

    It is measured now if it was not measured before and the run was long enough. A failure is not the run's.
    """
    try:
        limit = _known_or_measured(config, plan, mode, seconds >= _LONG_RUN, stop)
    except Exception as error:  # the run is complete, whatever is wrong here
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        warn(f"the limit of this machine could not be measured: {reason}")
        return None
    if limit is None:
        return None
    return {"fps": limit.fps, "fraction": fps / limit.fps, **{k: v for k, v in asdict(limit).items() if k != "fps"}}


def _known_or_measured(
    config: Config, plan: Plan, mode: str, long_enough: bool, stop: Callable[[], bool]
) -> Limit | None:
    key = key_of(config, plan, mode)
    limit = find(key)
    if limit is not None or not long_enough or stop():
        return limit
    say("Measuring the limit of this machine (a few seconds) …")
    rounds, seconds, timeout = _ROUNDS_AFTER_A_RUN, _SECONDS_AFTER_A_RUN, _TIMEOUT_AFTER_A_RUN
    (_, limit, _), disturbance = _measured(config, plan, rounds, seconds, timeout, stop)
    if disturbance.disturbed:
        warn(f"the limit of this machine is unknown: the measurement was disturbed: {disturbance.words}; {AGAIN}")
        return None
    try:
        store(key, limit)
    except ResourceError as error:
        warn(f"the limit of this machine was not stored: {error}")
    return limit


def command_for(algorithm: str, mode: str, config_file: Path) -> str:
    """The command that measures the limit of a run with this configuration file."""
    return typed(f"rlcb limits {algorithm} --mode {mode} --config {shlex.quote(str(config_file))}{permitted_flags()}")
