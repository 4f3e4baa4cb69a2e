"""How the run in a directory ended, as its summary says."""

import os
import shlex
from dataclasses import dataclass
from pathlib import Path

from rlcb.config.schema import TrainingConfig
from rlcb.files import read_json

_LARGEST_SUMMARY = 4 * 2**20  # bytes


@dataclass(frozen=True)
class Ending:
    """What the summary of a finished run says about its length."""

    env_steps: int
    hours: float
    planned_hours: float | None  # of a run by time

    def reaches(self, training: TrainingConfig) -> bool:
        """Whether the run is as long as it should be."""
        wanted = training.duration_hours
        if wanted is None:
            return self.env_steps >= training.total_timesteps
        # A run by time ends with the update that is nearest to its time, perhaps shortly before it.
        return max(self.hours, self.planned_hours or 0.0) >= wanted


def ending_of(path: Path) -> Ending | None:
    """How the run in a directory finished; None if it has not finished, or that is unknown."""
    try:
        summary = read_json(path / "benchmark_metrics.json", _LARGEST_SUMMARY)
        planned = summary["config"]["training"]["duration_hours"]
        hours = None if planned is None else float(planned)
        ending = Ending(int(summary["total_timesteps"]), float(summary["duration_hours"]), hours)
        return ending if summary["status"] == "finished" else None
    except (OSError, ValueError, KeyError, TypeError, OverflowError):
        return None


def how_to_resume(path: Path) -> str:
    """How an unfinished run that was moved here can be continued, for the end of a line; empty for any other."""
    saved = [file for file in (path / "checkpoints").glob("*.pt") if not file.stem.endswith("_step_0")]
    if ending_of(path) is not None or not saved:  # one from before the first update has nothing to continue
        return ""
    return f"; it is unfinished: resume it with {resume_flag(path)} (--resume auto would have resumed it in place)"


def resume_flag(path: Path) -> str:
    """The flag that resumes the run in a directory, as it is typed; a directory named auto is not the word auto."""
    place = os.path.join(".", path) if str(path) == "auto" else str(path)
    return f"--resume {shlex.quote(place)}"
