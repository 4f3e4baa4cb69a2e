"""The console lines of a run's updates: which updates get one, and what it says."""

from collections.abc import Mapping
from time import monotonic
from typing import Any

from rlcb.config.registry import ALGORITHMS
from rlcb.config.schema import Config
from rlcb.console import Console, clock
from rlcb.words import reward_text, with_deviation


class UpdateLines:
    """Prints a line for an update when one is due; where the output is no terminal, with how far the run is.

    There a line is due with the first and the last update, and whenever `log_interval` updates and
    `log_every_seconds` have passed. A terminal has a progress bar and gets a line every `log_interval` updates.
    """

    def __init__(self, console: Console, config: Config):
        self._console, self._config = console, config
        self._printed_at: float | None = None  # reading of the monotonic clock
        self._waiting: str | None = None  # what the last update would print, if its line was not due
        self._begun: tuple[float, float] | None = None  # training time and share done when this process began

    def begin(self, seconds: float, fraction: float) -> None:
        """The run continues from here, with this training time and share done."""
        self._begun = self._begun or (seconds, fraction)

    def show(self, metrics: Mapping[str, Any], fraction: float) -> None:
        """Print an update's line, or keep it in case it is the last."""
        logging, now = self._config.logging, monotonic()
        due = metrics["update"] % logging.log_interval == 0
        text = self._text(metrics, fraction)
        if not self._console.has_bar:
            waited = None if self._printed_at is None else now - self._printed_at
            due = waited is None or (due and waited >= logging.log_every_seconds)
            self._waiting = None if due else text
        if due:
            self._printed_at = now
            self._console.line(text)

    def finish(self) -> None:
        """There are no more updates: print the last one's line, unless it was printed."""
        if self._waiting is not None:
            self._console.line(self._waiting)
            self._waiting = None

    def _text(self, metrics: Mapping[str, Any], fraction: float) -> str:
        hours = self._config.training.duration_hours
        position = "" if self._console.has_bar else f" | [{self._position(metrics['time'], fraction)}]"
        if hours is not None and ALGORITHMS[self._config.algorithm].timed_lines:
            first, second = timed_lines(metrics, hours)
            return f"{first}{position}\n{second}"
        return f"{update_line(metrics)}{position}"

    def _position(self, seconds: float, fraction: float) -> str:
        """For people: '0:15:02 of 1:00:00, 25 %', or for a run by steps '0:15:02, 25 %, ETA 0:45:06'."""
        hours, share = self._config.training.duration_hours, f"{int(100 * fraction)} %"
        if hours is not None:
            return f"{clock(seconds)} of {clock(3600 * hours)}, {share}"
        begun, done = self._begun or (0.0, 0.0)
        left = "n/a" if fraction <= done else clock((1 - fraction) * (seconds - begun) / (fraction - done))
        return f"{clock(seconds)}, {share}, ETA {left}"


def timed_lines(metrics: Mapping[str, Any], hours: float) -> tuple[str, str]:
    """The two lines of one logged update of a run that stops by time."""
    mean, loss = metrics["rollout/ep_reward_mean"], metrics["loss/total"]
    return (
        f"[{metrics['time'] / 3600:.2f}h/{hours:.2f}h] Step: {metrics['step']:,} | Updates: {metrics['update']:,} | "
        f"FPS: {metrics['time/fps']:.0f} | Loss: {'n/a' if loss is None else format(loss, '.4f')}",
        f"  Mean Reward (last 100): {reward_text(mean)}",
    )


def update_line(metrics: Mapping[str, Any]) -> str:
    """The line of one logged update."""
    mean, std = metrics["rollout/ep_reward_mean"], metrics["rollout/ep_reward_std"]
    reward = "n/a" if mean is None else " ".join(with_deviation(mean, std))
    return f"Update {metrics['update']} | Step {metrics['step']:,} | FPS: {metrics['time/fps']:.0f} | Reward: {reward}"
