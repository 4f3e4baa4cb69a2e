"""A suite's output: lines, and on a terminal a progress bar over all runs with the current one's last line."""

import sys
from datetime import timedelta
from typing import TYPE_CHECKING

from rlcb.console import Screen

if TYPE_CHECKING:
    from rich.console import Console


def clock(seconds: float) -> str:
    """Hours, minutes and seconds: 1:02:03."""
    return str(timedelta(seconds=round(seconds)))


def time_note(elapsed: float, left: float | None) -> str:
    """Elapsed and remaining time."""
    return f"elapsed {clock(elapsed)}, " + ("time left not known yet" if left is None else f"about {clock(left)} left")


class Display(Screen):
    """Prints lines; on a terminal keeps two more below them, which are removed at the end."""

    def __init__(self, console: "Console | None" = None):
        self._area = None
        if console or sys.stdout.isatty():
            from rich.live import Live

            self._area = Live(console=console, auto_refresh=False, transient=True)
        super().__init__(self._area)

    def show(self, phase: str, fraction: float, times: str, current: str) -> None:
        """Redraw the bar: phase, share done, elapsed and remaining time, the current command's last line."""
        if not self._area or not self._live:
            return
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        row = Table.grid(padding=(0, 1))
        share = min(max(fraction, 0.0), 1.0)
        row.add_row(phase, ProgressBar(total=1.0, completed=share, width=24), f"{100 * share:.0f} %", times)
        self._area.update(Group(row, Text(current, no_wrap=True, overflow="ellipsis")), refresh=True)
