"""A sequential and a parallel run side by side, in the fixed form of compare_results.py."""

from collections.abc import Sequence

from rlcb.analysis.format import number_text
from rlcb.analysis.grouping import differences, task_of
from rlcb.analysis.run import Run
from rlcb.analysis.text import LINE, RULE

ONE_SEED = "One seed each: intervals of the differences are n/a; rlcb compare takes any number of runs"
# Sections of rows: title, metric, format. None stands for what is computed from both runs: "speedup" or "gain".
_TABLE: tuple[tuple[str, tuple[tuple[str, str | None, str], ...]], ...] = (
    ("", (
        ("Duration (hours)", "duration_hours", ".2f"),
        ("Total Timesteps", "total_timesteps", ",.0f"),
        ("Total Updates", "total_updates", ",.0f"),
    )),
    ("Performance Metrics", (
        ("Average FPS", "average_fps", ",.0f"),
        ("Speedup (Parallel/Sequential)", None, "speedup"),
        ("Final FPS", "final_fps", ",.0f"),
    )),
    ("Reward Metrics", (
        ("Initial Reward", "initial_reward", ".2f"),
        ("Final Reward", "final_reward", ".2f"),
        ("Best Reward", "best_reward", ".2f"),
    )),
    ("Resource Usage", (("Peak Memory (GB)", "peak_memory_gb", ".2f"),)),
    ("Efficiency Metrics", (
        ("Timesteps/Hour", "timesteps_per_hour", ",.0f"),
        ("Efficiency Gain (%)", None, "gain"),
    )),
)  # fmt: skip


def two_run_table(sequential: Run | None, parallel: Run | None) -> str:
    """The table on screen; with one run a single column."""
    columns = [(name, run) for name, run in (("Sequential", sequential), ("Parallel", parallel)) if run]
    gains = _gains(sequential, parallel)
    lines = [RULE, "TRAINING COMPARISON" if gains else "TRAINING RUN", RULE]
    lines += [_row("Metric", [name for name, _ in columns]), LINE]
    for section, rows in _TABLE:
        lines += ["", section, LINE] if section else []
        for title, metric, form in rows:
            if metric:
                lines.append(_row(title, [_value(run, metric, form) for _, run in columns]))
            elif gains:
                lines.append(_row(title, ["-", gains[form]]))
    return "\n".join([*lines, RULE])


def two_run_report(names: Sequence[str | None], sequential: Run | None, parallel: Run | None) -> str:
    """The text of comparison_report.txt; `names`: the directories as they were given."""
    gains = _gains(sequential, parallel)
    title = "SEQUENTIAL VS PARALLEL TRAINING COMPARISON REPORT" if gains else "TRAINING REPORT"
    lines = [RULE, title, RULE, ""]
    lines += [f"{word} Directory: {name}" for word, name in zip(("Sequential", "Parallel"), names, strict=True) if name]
    for word, run in (("SEQUENTIAL", sequential), ("PARALLEL", parallel)):
        if run:
            lines += [
                "",
                f"{word} TRAINING",
                LINE,
                f"Duration: {_value(run, 'duration_hours', '.2f')} hours",
                f"Total Timesteps: {_value(run, 'total_timesteps', ',.0f')}",
                f"Average FPS: {_value(run, 'average_fps', ',.0f')}",
                f"Peak Memory: {_value(run, 'peak_memory_gb', '.2f')} GB",
            ]
    if gains:
        lines += ["", "COMPARISON", LINE, f"Speedup (FPS): {gains['speedup']}", f"Efficiency Gain: {gains['gain']}"]
    unusual = [line for line in remarks([run for run in (sequential, parallel) if run]) if line != ONE_SEED]
    lines += ["", "REMARKS", LINE, *unusual] if unusual else []
    return "\n".join(lines) + "\n"


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
    found = differences(task_of(runs[1]), task_of(runs[0]))
    algorithms = [run.algorithm.upper() for run in runs]
    found += [f"other algorithm: {algorithms[1]}, not {algorithms[0]}"] if algorithms[0] != algorithms[1] else []
    return found


def _gains(sequential: Run | None, parallel: Run | None) -> dict[str, str]:
    """Speed-up and efficiency gain, n/a unless the runs differ in nothing but mode and budget; empty for one run."""
    if not sequential or not parallel:
        return {}
    unlike = [item for item in _incomparable((sequential, parallel)) if not item.startswith("other budget")]
    speedup, gain = (
        None if unlike else _ratio(getattr(parallel.metrics, name), getattr(sequential.metrics, name))
        for name in ("average_fps", "timesteps_per_hour")
    )
    return {
        "speedup": f"{speedup:.2f}x" if speedup else "n/a",
        "gain": f"{100 * (gain - 1):.1f}%" if gain else "n/a",
    }


def _ratio(above: float | None, below: float | None) -> float | None:
    return above / below if above and below else None


def _row(title: str, cells: Sequence[str]) -> str:
    return " ".join([f"{title:<40}", *(f"{text:<20}" for text in cells)])


def _value(run: Run, metric: str, form: str) -> str:
    return number_text(getattr(run.metrics, metric), form)
