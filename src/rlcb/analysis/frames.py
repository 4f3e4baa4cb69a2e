"""Runs as tables: pandas DataFrames, for which pandas is imported when one is asked for."""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rlcb.analysis.history import FIELDS, LARGEST_COLUMNS
from rlcb.analysis.load import places_of
from rlcb.analysis.run import Run
from rlcb.analysis.untrusted import parse_lines, read_object
from rlcb.errors import UsageError
from rlcb.files import read_regular

if TYPE_CHECKING:
    from pandas import DataFrame

INSTALL_PANDAS = "pip install 'rl-cluster-benchmark[pandas]'"
_SIZES = ("num_envs", "num_workers", "num_learners", "num_threads", "device")
_LARGEST_LOG = 2 * 2**30  # bytes


class Runs(list[Run]):
    """Runs in the order in which they were found."""

    def to_frame(self) -> "DataFrame":
        """A pandas DataFrame with a row for each run: what it was, how it ended, its metrics and evaluations."""
        rows = [{"path": str(run.path), **facts_of(run, "sampled")} for run in self]
        columns = {name: [row[name] for row in rows] for name in (rows[0] if rows else ())}
        for name, column in columns.items():
            if all(value is None for value in column):  # pandas would make objects of them, which have no mean
                columns[name] = [math.nan] * len(rows)
        return frame(columns)


def frame(columns: Mapping[str, Sequence[Any]]) -> "DataFrame":
    """A DataFrame of these columns; UsageError where pandas is not installed."""
    try:
        import pandas
    except ImportError:
        raise UsageError(f"to_frame: pandas is not installed: {INSTALL_PANDAS}") from None
    return pandas.DataFrame(dict(columns))


def updates_of(run: Run) -> dict[str, list[Any]]:
    """Every metric of a run's log by its name, a value for each update; NaN where the log has none."""
    _, log = places_of(run.path, run.config, run.algorithm, run.mode)
    try:
        rows = parse_lines(read_regular(log, _LARGEST_LOG))[0]
    except OSError:
        return _stored_columns(run)
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: [_known(row.get(name)) for row in rows] for name in names}


def _stored_columns(run: Run) -> dict[str, list[Any]]:
    """The metrics in metrics.json; where there is none, those that were read with the run."""
    try:
        content = read_object(run.path / "metrics.json", LARGEST_COLUMNS)
    except UsageError:
        content = {name: getattr(run.history, field).tolist() for field, name in FIELDS.items()}
    columns = {name: column for name, column in content.items() if isinstance(column, list)}
    length = len(columns.get("step", ()))
    return {name: [_known(value) for value in column] for name, column in columns.items() if len(column) == length}


def _known(value: Any) -> Any:
    return math.nan if value is None else value


def facts_of(run: Run, policy: str) -> dict[str, Any]:
    """Everything that is known of a run as a whole; evaluations are those of this policy."""
    facts: dict[str, Any] = {
        "algorithm": run.algorithm,
        "mode": run.mode,
        "variant": run.variant,
        "env": run.env,
        "levels": run.task.levels,
    }
    facts |= {name: getattr(run, name) for name in _SIZES}
    facts |= {"seed": run.seed, "status": run.status, "reason": run.reason, **vars(run.metrics)}
    facts |= {"memory_measure": run.memory_measure, "machine": run.task.machine, "cores": run.cores}
    facts |= {"jobs_beside": run.jobs_beside, **vars(run.disturbance)}
    for levels in ("train", "unseen"):
        played = run.evaluations.find(run.env, levels, policy)
        facts[f"evaluation_{levels}"] = played.mean_reward if played else None
    return {**facts, "problems": "; ".join(run.problems)}
