"""What a suite shows while it works: lines, and on a terminal a bar below them."""

from collections.abc import Sequence
from time import monotonic
from typing import TYPE_CHECKING

from rlcb.console import Screen, on_terminal

if TYPE_CHECKING:
    from rich.console import Console

_SAY_EVERY = 60.0  # seconds between lines that say how far everything is, where there is no bar
_NAMED = 4  # commands in progress that such a line names


class Display(Screen):
    """Prints lines; on a terminal keeps a bar and the commands in progress below them, which are removed at the end."""

    def __init__(self, console: "Console | None" = None):
        self._area = None
        if console or on_terminal():
            from rich.live import Live

            self._area = Live(console=console, auto_refresh=False, transient=True)
        super().__init__(self._area)
        self._said = monotonic()

    @property
    def drawn(self) -> bool:
        """Whether there is a bar to redraw."""
        return self._area is not None and self._live is not None

    @property
    def line_due(self) -> bool:
        """Whether it is time for a line in the place of a bar."""
        return not self.drawn and monotonic() - self._said >= _SAY_EVERY

    def say(self, phase: str, fraction: float, times: str, current: Sequence[str]) -> None:
        """Print in a line what `show` draws; `current`: how far each command in progress is."""
        self._said = monotonic()
        more = [f"{len(current) - _NAMED} more"] if len(current) > _NAMED else []
        words = "; ".join([*current[:_NAMED], *more])
        self.line(f"{phase}: {int(100 * fraction)} %, {times}{' | ' if words else ''}{words}")

    def show(self, phase: str, fraction: float, times: str, current: Sequence[str]) -> None:
        """Redraw the bar: phase, share done, elapsed and remaining time, the last line of each command in progress."""
        if not self._area or not self._live:
            return
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        row = Table.grid(padding=(0, 1))
        share = min(max(fraction, 0.0), 1.0)
        row.add_row(phase, ProgressBar(total=1.0, completed=share, width=24), f"{100 * share:.0f} %", times)
        lines = [Text(line, no_wrap=True, overflow="ellipsis") for line in current]
        self._area.update(Group(row, *lines), refresh=True)
