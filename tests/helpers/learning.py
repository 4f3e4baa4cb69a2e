"""Trainings that must reach a mean return: one attempt where results repeat exactly, up to three where they do not."""

import math
from collections.abc import Callable, Sequence
from pathlib import Path

from helpers.processes import rlcb

_DIVERGED = 3  # exit code
_ATTEMPTS = 3


def assert_learned(
    reward: float, algorithm: str, flags: Sequence[str], folder: Path, evaluated: Callable[[Path], float]
) -> None:
    """Train with seed 1 and demand this mean return of `evaluated`, a function of the run's directory.

    A3C's workers, and IMPALA's actors and learners, do not wait for each other. The order of their updates depends on
    the load of the machine, and now and then such a run does not learn; then the next seed is tried.
    """
    asynchronous = algorithm == "a3c" or (algorithm == "impala" and "parallel" in flags)
    found: list[float] = []
    for seed in range(1, 1 + (_ATTEMPTS if asynchronous else 1)):
        path = folder / f"seed_{seed}"
        done = rlcb("train", algorithm, *flags, "--seed", str(seed), "--output-dir", path, timeout=900)
        diverged = asynchronous and done.returncode == _DIVERGED
        assert done.returncode == 0 or diverged, done.stderr
        found.append(-math.inf if diverged else evaluated(path))
        if found[-1] >= reward:
            return
    raise AssertionError(f"{algorithm} reached {found}, not {reward:g}")
