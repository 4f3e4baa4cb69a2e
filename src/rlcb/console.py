"""Output: streams that cannot fail; lines, and on a terminal a progress bar; warnings, notes, texts from templates."""

import contextlib
import io
import os
import select
import sys
import time
import warnings
from collections.abc import Iterator
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from rlcb.errors import RlcbWarning
from rlcb.words import counted, exact_time, few_hours, reward_text, span_text, with_deviation

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer
    from rich.live import Live
    from rich.progress import Progress

_DRAW_EVERY = 0.1  # seconds, because drawing costs time
_PATIENCE = 5.0  # seconds that a run waits for the reader of its output to continue reading
_PIECE = 4096  # bytes; a pipe that is ready takes this many without waiting
_quiet: ContextVar[bool] = ContextVar("quiet", default=False)


class Output(io.RawIOBase):
    """A standard stream that cannot fail: after a failure it leads to /dev/null, also for processes started later."""

    def __init__(self, descriptor: int):
        self.failure: OSError | None = None  # why something could not be written
        self.patience: float | None = None  # seconds to wait for a reader that does not read; None: any time
        self._descriptor = self._target = descriptor
        self._stalled = False
        if os.isatty(descriptor):
            # Without waiting, through an opened file of its own: other processes share the one behind the descriptor.
            with contextlib.suppress(OSError):
                self._target = os.open(os.ttyname(descriptor), os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY)

    def writable(self) -> bool:
        """It is for writing."""
        return True

    def fileno(self) -> int:
        """The number of the standard stream."""
        return self._descriptor

    def isatty(self) -> bool:
        """Whether it leads to a terminal."""
        return os.isatty(self._descriptor)

    def write(self, data: "ReadableBuffer", /) -> int:
        """Write all of it; what cannot be written, or not within the patience, is dropped."""
        rest = memoryview(data)
        patience = 0.0 if self._stalled and self.patience is not None else self.patience
        deadline = None if patience is None else time.monotonic() + patience
        while rest:
            left = None if deadline is None else max(deadline - time.monotonic(), 0.0)
            try:
                if not select.select([], [self._target], [], left)[1]:
                    break
                rest = rest[os.write(self._target, rest[:_PIECE]) :]
            except BlockingIOError:  # a terminal can have room for less than the end of a line takes
                if left == 0.0:
                    break
                time.sleep(0.01)
            except OSError as error:
                self._give_up(error)
                rest = rest[:0]
        self._stalled = bool(rest)
        return memoryview(data).nbytes

    def _give_up(self, error: OSError) -> None:
        self.failure = error
        if self._target != self._descriptor:
            os.close(self._target)
            self._target = self._descriptor
        _lead_nowhere(self._descriptor)


def protect_output() -> None:
    """Replace standard output and error by streams that cannot fail; those that are closed lead to /dev/null."""
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            _lead_nowhere(descriptor)  # otherwise the next file that is opened would get this number
    for descriptor, name in ((1, "stdout"), (2, "stderr")):
        stream = getattr(sys, name)
        if stream is not None and (stream is not getattr(sys, f"__{name}__") or isinstance(stream.buffer, Output)):
            continue  # somebody else's, or done already
        encoding = stream.encoding if stream else "utf-8"
        # A terminal that cannot show ± or ✓ gets a question mark, not a traceback.
        safe = io.TextIOWrapper(Output(descriptor), encoding, errors="replace", line_buffering=True)  # type: ignore[type-var]
        for attribute in (name, f"__{name}__"):
            setattr(sys, attribute, safe)


def _lead_nowhere(descriptor: int) -> None:
    nowhere = os.open(os.devnull, os.O_RDWR)
    if nowhere != descriptor:
        os.dup2(nowhere, descriptor)
        os.close(nowhere)
    else:
        os.set_inheritable(descriptor, True)


def limit_waiting() -> None:
    """From now on a reader of the output that does not read any more holds the program up for some seconds only."""
    for stream in (sys.stdout, sys.stderr):
        output = getattr(stream, "buffer", None)
        if isinstance(output, Output):
            output.patience = _PATIENCE


def lost_output() -> OSError | None:
    """Why something that was printed to standard output has not arrived; None if everything has."""
    sys.stdout.flush()
    output = getattr(sys.stdout, "buffer", None)
    return output.failure if isinstance(output, Output) else None


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
            say(text)

    def close(self) -> None:
        """Draw no more; later lines follow below."""
        if self._live:
            self._live.stop()
            self._live = None


class Console(Screen):
    """Lines with a progress bar below them, if this is a terminal."""

    def __init__(self, label: str):
        self._label, self._drawn, self._tenths = label, 0.0, 0
        self._bar = _make_bar(label) if on_terminal() else None
        super().__init__(self._bar)

    @property
    def has_bar(self) -> bool:
        """Whether there is a progress bar, because this is a terminal."""
        return self._bar is not None

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


def clock(seconds: float) -> str:
    """Hours, minutes and seconds: 1:02:03."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}"


def filled(template: str, **values: Any) -> str:
    """A text from a template of rlcb/templates; a value that the template names must be given."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    texts = Environment(loader=PackageLoader("rlcb"), undefined=StrictUndefined, trim_blocks=True)
    texts.filters |= {
        "number": _number,
        "reward": _reward,
        "spread": _spread,
        "interval": interval_text,
        "counted": counted,
        "exact_time": exact_time,
        "few_hours": few_hours,
        "span": span_text,
    }
    return texts.get_template(template).render(**values)


def _number(value: float | None, form: str, why_not: str = "") -> str:
    if value is None:
        return f"n/a ({why_not})" if why_not else "n/a"
    return format(value, form)


def _reward(value: float | None, why_not: str = "") -> str:
    return _number(value, "", why_not) if value is None else reward_text(value)


def _spread(
    mean: float | None, deviation: float | None, why_not: str = "", interval: tuple[float, float] | None = None
) -> str:
    """A mean with its deviation, as finely as its interval or else the deviation deserves."""
    if mean is None:
        return _number(mean, "", why_not)
    text, spread = with_deviation(mean, deviation, interval[1] - interval[0] if interval else None)
    return f"{text} {spread or '± n/a'}"


def interval_text(interval: tuple[float, float] | None, form: str = "") -> str:
    """An interval for a person, of rewards unless there is a format; n/a where it is not known."""
    if interval is None:
        return "n/a"
    low, high = interval
    return " to ".join(format(bound, form) if form else reward_text(bound, high - low) for bound in interval)


@contextlib.contextmanager
def quieted(quiet: bool = True) -> Iterator[None]:
    """Print neither lines nor notes meanwhile, and have warnings be Python's, unless `quiet` is false."""
    before = _quiet.set(quiet)
    try:
        yield
    finally:
        _quiet.reset(before)


def on_terminal() -> bool:
    """Whether something can be redrawn: standard output is a terminal, and not to be left alone."""
    return sys.stdout.isatty() and not _quiet.get()


def say(*lines: str) -> None:
    """Print lines to standard output."""
    if not _quiet.get():
        print(*lines, sep="\n", flush=True)


def warn(text: str) -> None:
    """Tell the user about something that did not stop the program."""
    if _quiet.get():
        warnings.warn(text, RlcbWarning, stacklevel=2)
        return
    print(f"warning: {text}", file=sys.stderr, flush=True)


def note(text: str) -> None:
    """Tell the user what the program did on its own."""
    if not _quiet.get():
        print(f"note: {text}", file=sys.stderr, flush=True)
