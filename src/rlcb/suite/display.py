"""A suite's output: lines, and on a terminal a progress bar over all runs with the current one's last line."""

import sys
from datetime import timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console


def clock(seconds: float) -> str:
    """Hours, minutes and seconds: 1:02:03."""
    return str(timedelta(seconds=round(seconds)))


def time_note(elapsed: float, left: float | None) -> str:
    """Elapsed and remaining time."""
    return f"elapsed {clock(elapsed)}, " + ("time left not known yet" if left is None else f"about {clock(left)} left")


class Display:
    """Prints lines; on a terminal keeps two more below them."""

    def __init__(self, console: "Console | None" = None):
        self._bar = _Bar(console) if console or sys.stdout.isatty() else None

    def line(self, text: str) -> None:
        """Print one line above the bar."""
        if self._bar:
            self._bar.line(text)
        else:
            print(text, flush=True)

    def show(self, phase: str, fraction: float, times: str, current: str) -> None:
        """Redraw the bar: phase, share done, elapsed and remaining time, the current command's last line."""
        if self._bar:
            self._bar.show(phase, fraction, times, current)

    def close(self) -> None:
        """Remove the bar."""
        if self._bar:
            self._bar.close()
            self._bar = None


class _Bar:
    """Two lines at the bottom, redrawn only when told to."""

    def __init__(self, console: "Console | None"):
        from rich.live import Live

        self._live = Live(console=console, auto_refresh=False, transient=True)
        self._live.start()

    def line(self, text: str) -> None:
        self._live.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def show(self, phase: str, fraction: float, times: str, current: str) -> None:
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        row = Table.grid(padding=(0, 1))
        share = min(max(fraction, 0.0), 1.0)
        row.add_row(phase, ProgressBar(total=1.0, completed=share, width=24), f"{100 * share:.0f} %", times)
        self._live.update(Group(row, Text(current, no_wrap=True, overflow="ellipsis")), refresh=True)

    def close(self) -> None:
        self._live.stop()
