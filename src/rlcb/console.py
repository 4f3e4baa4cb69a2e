"""Output of a run: lines, and on a terminal a progress bar below them; warnings and notes; texts from templates."""

import sys
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.live import Live
    from rich.progress import Progress

_DRAW_EVERY = 0.1  # seconds, because drawing costs time


class Screen:
    """Prints lines to standard output; on a terminal above something that is redrawn by calls alone.

    A thread that redraws it would take time from training.
    """

    def __init__(self, live: "Live | Progress | None"):
        """`live`: what is redrawn; None where the output is not a terminal."""
        self._live = live
        if live:
            live.start()

    def line(self, text: str) -> None:
        """Print one line."""
        if self._live:
            self._live.console.print(text, markup=False, highlight=False, soft_wrap=True)
        else:
            print(text, flush=True)

    def close(self) -> None:
        """Draw no more; later lines follow below."""
        if self._live:
            self._live.stop()
            self._live = None


class Console(Screen):
    """Lines with a progress bar below them, if this is a terminal."""

    def __init__(self, label: str):
        self._label, self._drawn, self._tenths = label, 0.0, 0
        self._bar = _make_bar(label) if sys.stdout.isatty() else None
        super().__init__(self._bar)

    def progress(self, fraction: float, detail: str) -> None:
        """Move the bar, if there is one."""
        now = time.perf_counter()
        if self._live and self._bar and (now - self._drawn > _DRAW_EVERY or fraction >= 1):
            self._drawn = now
            self._bar.update(self._bar.task_ids[0], completed=min(fraction, 1.0), detail=detail, refresh=True)

    def count(self, done: int, planned: int, noun: str) -> None:
        """Show how much is done: by the bar, elsewhere by a line for every tenth."""
        self.progress(done / planned, f"{done}/{planned}")
        tenths = 10 * done // planned
        if not self._bar and tenths > self._tenths:
            self._tenths = tenths
            self.line(f"{self._label}: {done}/{planned} {noun}")


def _make_bar(label: str) -> "Progress":
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    percentage, detail = TextColumn("{task.percentage:>3.0f}%"), TextColumn("{task.fields[detail]}")
    times = (TimeElapsedColumn(), TextColumn("<"), TimeRemainingColumn())
    bar = Progress(TextColumn("{task.description}"), BarColumn(), percentage, *times, detail, auto_refresh=False)
    bar.add_task(label, total=1.0, detail="")
    return bar


def timed_lines(metrics: Mapping[str, Any], hours: float) -> str:
    """The two lines of one logged update of a run that stops by time."""
    mean, loss = metrics["rollout/ep_reward_mean"], metrics["loss/total"]
    return (
        f"[{metrics['time'] / 3600:.2f}h/{hours:.2f}h] Step: {metrics['step']:,} | Updates: {metrics['update']:,} | "
        f"FPS: {metrics['time/fps']:.0f} | Loss: {'n/a' if loss is None else format(loss, '.4f')}\n"
        f"  Mean Reward (last 100): {'n/a' if mean is None else format(mean, '.2f')}"
    )


def update_line(metrics: Mapping[str, Any]) -> str:
    """The line of one logged update."""
    mean, std = metrics["rollout/ep_reward_mean"], metrics["rollout/ep_reward_std"]
    reward = "n/a" if mean is None else f"{mean:.2f} ± {std:.2f}"
    return f"Update {metrics['update']} | Step {metrics['step']:,} | FPS: {metrics['time/fps']:.0f} | Reward: {reward}"


def filled(template: str, **values: Any) -> str:
    """A text from a template of rlcb/templates; a value that the template names must be given."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    texts = Environment(loader=PackageLoader("rlcb"), undefined=StrictUndefined, trim_blocks=True)
    texts.filters |= {"number": _number, "spread": _spread, "interval": interval_text}
    return texts.get_template(template).render(**values)


def _number(value: float | None, form: str, why_not: str = "") -> str:
    if value is None:
        return f"n/a ({why_not})" if why_not else "n/a"
    return format(value, form)


def _spread(mean: float | None, deviation: float | None, why_not: str = "") -> str:
    return _number(mean, ".2f", why_not) if mean is None else f"{mean:.2f} ± {_number(deviation, '.2f')}"


def interval_text(interval: tuple[float, float] | None, form: str) -> str:
    """An interval for a person; n/a where it is not known."""
    return "n/a" if interval is None else f"{interval[0]:{form}} to {interval[1]:{form}}"


def warn(text: str) -> None:
    """Tell the user about something that did not stop the program."""
    print(f"warning: {text}", file=sys.stderr, flush=True)


def note(text: str) -> None:
    """Tell the user what the program did on its own."""
    print(f"note: {text}", file=sys.stderr, flush=True)
