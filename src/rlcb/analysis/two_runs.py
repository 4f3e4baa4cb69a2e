"""A sequential and a parallel run side by side, in the fixed form of compare_results.py."""

from collections.abc import Sequence

from rlcb.analysis.grouping import differences, setting_of
from rlcb.analysis.run import Figures, Run
from rlcb.analysis.text import WIDTH

ONE_SEED = "One seed each: intervals of the differences are n/a; rlcb compare takes any number of runs"
_RULE, _LINE = "=" * WIDTH, "-" * WIDTH
# Sections of rows: title, figure, form. None stands for what is computed from both runs.
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
    both = _gains(sequential, parallel)
    lines = [_RULE, "TRAINING COMPARISON" if len(columns) > 1 else "TRAINING RUN", _RULE]
    lines += [_row("Metric", [name for name, _ in columns]), _LINE]
    for section, rows in _TABLE:
        lines += ["", section, _LINE] if section else []
        for title, figure, form in rows:
            if figure:
                lines.append(_row(title, [_value(run.figures, figure, form) for _, run in columns]))
            elif len(columns) > 1:
                lines.append(_row(title, ["-", both[form]]))
    return "\n".join([*lines, _RULE])


def two_run_report(names: tuple[str | None, str | None], sequential: Run | None, parallel: Run | None) -> str:
    """The text of comparison_report.txt; `names`: the directories as they were given."""
    both = sequential and parallel
    title = "SEQUENTIAL VS PARALLEL TRAINING COMPARISON REPORT" if both else "TRAINING REPORT"
    lines = [_RULE, title, _RULE, ""]
    lines += [f"{word} Directory: {name}" for word, name in zip(("Sequential", "Parallel"), names, strict=True) if name]
    for word, run in (("SEQUENTIAL", sequential), ("PARALLEL", parallel)):
        if run:
            lines += ["", f"{word} TRAINING", _LINE]
            lines += [
                f"Duration: {_value(run.figures, 'duration_hours', '.2f')} hours",
                f"Total Timesteps: {_value(run.figures, 'total_timesteps', ',.0f')}",
                f"Average FPS: {_value(run.figures, 'average_fps', ',.0f')}",
                f"Peak Memory: {_value(run.figures, 'peak_memory_gb', '.2f')} GB",
            ]
    if sequential and parallel:
        gains = _gains(sequential, parallel)
        lines += ["", "COMPARISON", _LINE, f"Speedup (FPS): {gains['speedup']}", f"Efficiency Gain: {gains['gain']}"]
    unusual = [line for line in remarks([run for run in (sequential, parallel) if run]) if line != ONE_SEED]
    lines += ["", "REMARKS", _LINE, *unusual] if unusual else []
    return "\n".join(lines) + "\n"


def remarks(runs: Sequence[Run]) -> list[str]:
    """What a reader must know before drawing conclusions from the table."""
    found = [f"Not comparable: {item}" for item in _incomparable(runs)]
    found += [f"{run.label}, {run.status}: {run.reason}" for run in runs if run.status != "finished"]
    if len(runs) == 2 and not found:
        found.append(ONE_SEED)
    return found


def _incomparable(runs: Sequence[Run]) -> list[str]:
    if len(runs) != 2:
        return []
    found = differences(setting_of(runs[1]), setting_of(runs[0]))
    algorithms = [run.algorithm.upper() for run in runs]
    found += [f"other algorithm: {algorithms[1]}, not {algorithms[0]}"] if algorithms[0] != algorithms[1] else []
    return found


def _gains(sequential: Run | None, parallel: Run | None) -> dict[str, str]:
    """Speed-up and gain; n/a where the runs did different work or one did not come to an end by itself."""
    if not sequential or not parallel:
        return {}
    unlike = [item for item in _incomparable((sequential, parallel)) if not item.startswith("other budget")]
    values = {}
    for name, figure in (("speedup", "average_fps"), ("gain", "timesteps_per_hour")):
        below, above = getattr(sequential.figures, figure), getattr(parallel.figures, figure)
        values[name] = above / below if above and below and not unlike else None
    speedup, gain = values["speedup"], values["gain"]
    return {
        "speedup": f"{speedup:.2f}x" if speedup else "n/a",
        "gain": f"{100 * (gain - 1):.1f}%" if gain else "n/a",
    }


def _row(title: str, cells: Sequence[str]) -> str:
    return " ".join([f"{title:<40}", *(f"{text:<20}" for text in cells)])


def _value(figures: Figures, name: str, form: str) -> str:
    value = getattr(figures, name)
    return "n/a" if value is None else format(value, form)
