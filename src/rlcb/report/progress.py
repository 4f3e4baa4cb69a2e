"""What a report says of runs that are in progress while it is kept current."""

from collections.abc import Sequence
from dataclasses import dataclass

from rlcb.analysis.run_status import RunStatus
from rlcb.analysis.text import with_minus
from rlcb.report.document import Row, Table, make_table
from rlcb.words import reward_text, short_time

_MOST_UNDER_WAY = 20  # runs with a row each


@dataclass(frozen=True)
class Progress:
    """What is still in progress while a report is kept current."""

    text: str  # all runs in a line
    runs: Sequence[RunStatus]  # those that run or wait
    seconds: float  # between two looks


def progress_table(runs: Sequence[RunStatus]) -> Table:
    """A row for each run that is in progress or waits for its turn; of many the first."""
    rows: list[Row] = [
        {
            "Run": run.run,
            "State": run.state,
            "Done": "–" if run.fraction is None else f"{100 * run.fraction:.0f} %",
            "Left": "–" if run.eta_seconds is None else short_time(run.eta_seconds),
            "FPS": "–" if run.fps is None else f"{run.fps:,.0f}",
            "Reward": "–" if run.reward is None else with_minus(reward_text(run.reward)),
        }
        for run in runs[:_MOST_UNDER_WAY]
    ]
    more = f" The first {len(rows)} of {len(runs)}." if len(runs) > len(rows) else ""
    return make_table(f"State when this page was written; reward: mean of the last 100 episodes.{more}", rows, "llrrrr")
