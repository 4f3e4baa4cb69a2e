"""A sequential and a parallel run side by side, in the fixed form of compare_results.py."""

from collections.abc import Sequence

from rlcb.analysis.grouping import differences
from rlcb.analysis.run import Run
from rlcb.report.render import render

_MODES = ("Sequential", "Parallel")
ONE_SEED = "One seed each: intervals of the differences are n/a; rlcb compare takes any number of runs"


def two_run_table(sequential: Run | None, parallel: Run | None) -> str:
    """The table on screen; with one run a single column."""
    return render("two_runs_table.txt", runs=_by_mode(sequential, parallel), gains=_gains(sequential, parallel))


def two_run_report(names: Sequence[str | None], sequential: Run | None, parallel: Run | None) -> str:
    """The text of comparison_report.txt; `names`: the directories as they were given."""
    runs = _by_mode(sequential, parallel)
    unusual = [line for line in remarks(list(runs.values())) if line != ONE_SEED]
    directories = {mode: name for mode, name in zip(_MODES, names, strict=True) if name}
    gains = _gains(sequential, parallel)
    return render("two_runs_report.txt", runs=runs, directories=directories, gains=gains, remarks=unusual)


def remarks(runs: Sequence[Run]) -> list[str]:
    """What limits the conclusions from the table."""
    found = [f"Not comparable: {item}" for item in _incomparable(runs)]
    found += [f"{run.label}, {run.status}: {run.reason}" for run in runs if run.status != "finished"]
    if len(runs) == 2 and not found:
        found.append(ONE_SEED)
    return found


def _incomparable(runs: Sequence[Run]) -> list[str]:
    if len(runs) != 2:
        return []
    found = differences(runs[1].task, runs[0].task)
    algorithms = [run.algorithm.upper() for run in runs]
    found += [f"other algorithm: {algorithms[1]}, not {algorithms[0]}"] if algorithms[0] != algorithms[1] else []
    return found


def _by_mode(*runs: Run | None) -> dict[str, Run]:
    return {mode: run for mode, run in zip(_MODES, runs, strict=True) if run}


def _gains(sequential: Run | None, parallel: Run | None) -> dict[str, str]:
    """Speed-up and efficiency gain, n/a unless the runs differ in nothing but mode and budget; empty for one run."""
    if not sequential or not parallel:
        return {}
    unlike = [item for item in _incomparable((sequential, parallel)) if not item.startswith("other budget")]
    ratios = []
    for name in ("average_fps", "timesteps_per_hour"):
        above, below = getattr(parallel.metrics, name), getattr(sequential.metrics, name)
        ratios.append(above / below if above and below and not unlike else None)
    speedup, gain = ratios
    return {
        "speedup": "n/a" if speedup is None else f"{speedup:.2f}x",
        "gain": "n/a" if gain is None else f"{100 * (gain - 1):.1f}%",
    }
