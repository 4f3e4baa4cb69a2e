"""The curves of a group: each run's own, averaged where all of them have data."""

from collections.abc import Callable, Sequence

import numpy as np

from rlcb.analysis.history import History
from rlcb.analysis.run import Run
from rlcb.analysis.statistics import Array, Curve, mean_curve

_WINDOWS = 60  # stretches of time that speed is measured over
_SMOOTHING = 100  # a hundredth of a run is averaged where single updates say little


def group_curves(runs: Sequence[Run], seed: int) -> dict[str, Curve]:
    """All curves of a group; those for which a run has no data are left out."""
    makers: dict[str, Callable[[History], tuple[Array, Array]]] = {
        "reward_steps": lambda history: (history.step, history.reward),
        "reward_hours": lambda history: (history.time / 3600, history.reward),
        "fps_hours": _speed,
        "policy_loss_steps": lambda history: (history.step, _smooth(history.policy_loss)),
        "steps_hours": lambda history: (history.time / 3600, history.step),
    }
    found = {name: mean_curve([maker(run.history) for run in runs], seed) for name, maker in makers.items()}
    return {name: curve for name, curve in found.items() if curve is not None}


def _speed(history: History) -> tuple[Array, Array]:
    """Steps per second in equal stretches of time, over the middle of each in hours."""
    if not len(history):
        return np.empty(0), np.empty(0)
    time, step = np.append(0.0, history.time), np.append(0.0, history.step)
    edges = np.linspace(0, time[-1], min(_WINDOWS, len(history)) + 1)
    if edges[-1] == 0:
        return np.empty(0), np.empty(0)
    speed = np.diff(np.interp(edges, time, step)) / np.diff(edges)
    return (edges[1:] + edges[:-1]) / 7200, speed


def _smooth(values: Array) -> Array:
    """A running mean over a hundredth of the run, over what is there at the ends and around gaps."""
    width = len(values) // _SMOOTHING
    if width < 2:
        return values
    window = np.ones(width)
    known = np.isfinite(values)
    sums = np.convolve(np.where(known, values, 0.0), window, "same")
    counts = np.convolve(known.astype(float), window, "same")
    return np.where(known & (counts > 0), sums / np.maximum(counts, 1), np.nan)
