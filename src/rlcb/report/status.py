"""`rlcb status`: a table of all runs below a folder, once or repeatedly, or the same as JSON."""

import json
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlcb.analysis.run import with_variant
from rlcb.analysis.run_status import STATES, RunStatus
from rlcb.analysis.status import Snapshot, SuiteStatus, look
from rlcb.console import Screen, lost_output
from rlcb.errors import UsageError
from rlcb.words import counted, reward_text, short_time

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

_COLUMNS = ("run", "algorithm", "game", "seed", "state", "done", "ETA", "FPS", "reward", "saved", "")
_RIGHT = ("seed", "done", "ETA", "FPS", "reward", "saved")
_SHRINKING = ("run", "algorithm", "game")  # columns that are cut off first where the terminal is narrow
_SHORTEST = 16  # characters of a run's name that are shown at least
_GAP = 2  # spaces between two columns
_COLOURS = {"running": "green", "failed": "red", "dead": "red", "unknown": "yellow", "interrupted": "yellow"}
_ROOM = 3  # lines of a terminal that the table's head, the line about what is not shown and the cursor take


def show_status(folder: Path, watch: float | None, as_json: bool) -> int:
    """Print what the runs below a folder are doing; with `watch` again at that interval in seconds, until a signal."""
    snapshot = look(folder, time.time())
    if not snapshot.runs:
        raise UsageError(f"{snapshot.folder}: contains no run; give a directory with runs (default ./benchmarks)")
    with closing(_Table(redrawn=watch is not None and not as_json)) as table:
        while True:
            if as_json:
                print(json.dumps(_as_json(snapshot)), flush=True)
            else:
                table.show(snapshot)
            if watch is None or lost_output() is not None:
                return 0
            time.sleep(watch)
            snapshot = look(folder, time.time())


def _as_json(snapshot: Snapshot) -> dict[str, Any]:
    return {"schema": 1, "time": time.strftime("%Y-%m-%dT%H:%M:%S%z"), **asdict(snapshot)}


class _Table(Screen):
    """Draws tables: on a terminal with colours and, where they are redrawn, in place; elsewhere as plain lines."""

    def __init__(self, redrawn: bool):
        self._area, self._again = None, False
        if redrawn and sys.stdout.isatty():
            from rich.live import Live

            self._area = Live(auto_refresh=False, vertical_overflow="crop")
        super().__init__(self._area)

    def show(self, snapshot: Snapshot) -> None:
        """Print the runs and suites, or replace what was drawn before."""
        if self._area:
            self._area.update(_drawn(snapshot, self._area.console, whole=False), refresh=True)
        elif sys.stdout.isatty():
            from rich.console import Console

            console = Console()
            console.print(_drawn(snapshot, console, whole=True))
        else:
            print(*([""] if self._again else []), *_plain_lines(snapshot), sep="\n", flush=True)
        self._again = True


def _drawn(snapshot: Snapshot, console: "Console", whole: bool) -> "RenderableType":
    """The snapshot for a terminal; unless `whole`, only as many runs as fit, those that matter most.

    What is to be said of a run stands in its row, or where the terminal is too narrow for that in a line below.
    """
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    runs = [*snapshot.runs, *snapshot.moved_aside]
    widths = dict(zip(_COLUMNS, _widths([_cells(run) for run in runs]), strict=True))
    columns, room = _fitting(widths, console.width)
    beside = columns == _COLUMNS
    below, more = list(_lines_below(snapshot)), ""
    if not whole:
        runs, more = _most_important(runs, console.height - len(below) - _ROOM, 1 if beside else 2)
    table = Table(box=None, pad_edge=False)
    for name in columns:
        table.add_column(name, justify="right" if name in _RIGHT else "left", no_wrap=name not in _SHRINKING)
    for run in runs:
        texts = dict(zip(_COLUMNS, _cells(run), strict=True))
        if len(run.run) > room:  # runs differ at the ends of their names
            texts["run"] = f"…{run.run[1 - room :]}"
        cells = {name: Text(texts[name], no_wrap=True, overflow="ellipsis") for name in columns}
        cells["state"].stylize(_COLOURS.get(run.state, ""))
        table.add_row(*cells.values())
    said = [] if beside else [f"{run.run}: {run.state}, {_said(run)}" for run in runs if _said(run)]
    lines = [*([more] if more else []), *said, *below]
    return Group(table, *(Text(line, no_wrap=not whole, overflow="ellipsis") for line in lines))


def _fitting(widths: dict[str, int], width: int) -> tuple[tuple[str, ...], int]:
    """The columns that fit into a width, and the characters that they leave for the name of a run.

    First the last one gives way, which can stand in lines below, then game and algorithm, which long names contain.
    """
    for left_out in ((), ("",), ("", "game"), *((("", "game", "algorithm"),) if widths["run"] > _SHORTEST else ())):
        columns = tuple(name for name in _COLUMNS if name not in left_out)
        room = width - sum(widths[name] + _GAP for name in columns[1:])
        if room >= (widths["run"] if not left_out else min(widths["run"], _SHORTEST)):
            return columns, room
    return _COLUMNS[:-1], _SHORTEST  # too narrow: all that can be cut off is


def _most_important(runs: list[RunStatus], room: int, lines: int) -> tuple[list[RunStatus], str]:
    """The runs that fit into this many lines, and a line about the others; a run with a detail takes `lines`."""
    chosen: list[RunStatus] = []
    by_importance = sorted(runs, key=lambda run: (bool(run.replaced_by), STATES.index(run.state)))
    for run in by_importance:
        room -= lines if _said(run) else 1
        if room < 0:
            return chosen, f"not shown: {_counts(by_importance[len(chosen) :])}"
        chosen.append(run)
    return runs, ""


def _widths(rows: Sequence[Sequence[str]]) -> list[int]:
    """The width of each column."""
    return [max(map(len, column)) for column in zip(_COLUMNS, *rows, strict=True)]


def _plain_lines(snapshot: Snapshot) -> Iterator[str]:
    """The snapshot as lines of text, nothing cut off."""
    rows = [_cells(run) for run in (*snapshot.runs, *snapshot.moved_aside)]
    widths = _widths(rows)
    for row in (_COLUMNS, *rows):
        cells = zip(_COLUMNS, row, widths, strict=True)
        padded = (cell.rjust(width) if name in _RIGHT else cell.ljust(width) for name, cell, width in cells)
        yield (_GAP * " ").join(padded).rstrip()
    yield from _lines_below(snapshot)


def _cells(run: RunStatus) -> tuple[str, ...]:
    """A run as a row of the table."""
    return (
        run.run,
        with_variant(f"{run.algorithm.upper()} {run.mode}".strip() or "?", run.variant),
        run.game or "?",
        "?" if run.seed is None else str(run.seed),
        run.state,
        "" if run.fraction is None else f"{100 * run.fraction:.0f} %",
        _or_empty(run.eta_seconds),
        "" if run.fps is None else f"{run.fps:,.0f}",
        "" if run.reward is None else reward_text(run.reward),
        _or_empty(run.checkpoint_age_seconds),
        _said(run),
    )


def _said(run: RunStatus) -> str:
    """Where a run is, if not on this machine, whether it was moved aside, and what else is to be said of it."""
    aside = f"moved aside for {run.replaced_by.rpartition('/')[2]}" if run.replaced_by else ""
    return ", ".join(part for part in (f"on {run.where}" if run.where else "", aside, run.detail) if part)


def _or_empty(seconds: float | None) -> str:
    return "" if seconds is None else short_time(seconds)


def _lines_below(snapshot: Snapshot) -> Iterator[str]:
    """The suites, how many runs there are, and what could not be read."""
    yield from (_suite_line(suite) for suite in snapshot.suites)
    yield f"{_counts([*snapshot.runs, *snapshot.moved_aside])} in {snapshot.folder}, {time.strftime('%H:%M:%S')}"
    yield from snapshot.left_out


def _suite_line(suite: SuiteStatus) -> str:
    parts = [f"{suite.done} of {counted(suite.runs, 'run')} done"]
    states = [state for state in STATES if state != "finished"]
    parts += [f"{count} {state}" for state in states if (count := getattr(suite, state))]
    parts += [f"about {short_time(suite.eta_seconds)} left"] if suite.eta_seconds is not None else []
    parts += [suite.detail] if suite.detail else []
    return f"suite {suite.suite}: {suite.state}, {', '.join(parts)}"


def _counts(runs: Sequence[RunStatus]) -> str:
    """How many runs there are in each state."""
    count = Counter("moved aside" if run.replaced_by else run.state for run in runs)
    return ", ".join(f"{count[state]} {state}" for state in (*STATES, "moved aside") if count[state]) or "no run"
