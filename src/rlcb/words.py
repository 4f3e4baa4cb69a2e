"""Numbers in sentences: counts, times in units that fit, rewards with the digits that they need; commands as typed."""

import math
import os
import shlex
import shutil
import sys

GOOD, WARNING, FAILURE = "✓", "!", "✗"  # what the line of a check begins with
_UNITS = ((3600, "h"), (60, "min"), (1, "s"))
_SMALLER = {"h": (60, "min"), "min": (1, "s")}
_NOUNS = ((3600, "hour"), (60, "minute"))
_FEWEST_DECIMALS, _MOST_DECIMALS = 2, 9  # of a reward
_OF_WIDTH = 5  # the last digit is at most this part of an interval: rounding moves nothing by more than a tenth of it


def counted(count: float, noun: str) -> str:
    """A number with its noun, in the plural unless the number is one: 1 worker, 2 processes."""
    plural = "es" if noun.endswith("s") else "s"
    number = f"{count:,}" if isinstance(count, int) else f"{count:g}"
    return f"{number} {noun}{'' if count == 1 else plural}"


def reward_text(value: float | None, width: float | None = None, sign: str = "") -> str:
    """A reward with two decimals, and more where two would hide it; `sign` is that of a format.

    More is what the `width` of its interval deserves; without one, three significant digits of a value below 1.
    """
    if value is None or not math.isfinite(value):
        return "n/a" if value is None else f"{value}"
    if width is not None and 0 < width < math.inf:
        return f"{value:{sign}z.{min(max(_decimals(width), _FEWEST_DECIMALS), _MOST_DECIMALS)}f}"
    digits = _FEWEST_DECIMALS - math.floor(math.log10(abs(value))) if value else 0
    whole, _, decimals = f"{value:{sign}z.{min(max(digits, _FEWEST_DECIMALS), _MOST_DECIMALS)}f}".partition(".")
    return f"{whole}.{decimals.rstrip('0').ljust(_FEWEST_DECIMALS, '0')}"


def with_deviation(mean: float, deviation: float | None, width: float | None = None) -> tuple[str, str]:
    """A mean reward and ± its deviation, empty where there is none; both get the digits that the latter deserves.

    `width`: that of the mean's interval, where it is known.
    """
    width = width or 2 * (deviation or 0.0)
    return reward_text(mean, width), "" if deviation is None else f"± {reward_text(deviation, width)}"


def _decimals(width: float) -> int:
    """The decimals that an interval of this width deserves, negative for one of tens."""
    return math.ceil(math.log10(_OF_WIDTH / width))


def span_text(seconds: float, width: float | None = None) -> str:
    """A time in its two largest units, in one from ten of them on: 1.5 s, 42 s, 1 min 40 s, 1 h 20 min, 25 h.

    As finely as the `width` of its interval deserves, where that is finer: 20.0031 s, 1 h 20 min 12 s.
    """
    if width is not None and 0 < width < math.inf and (fine := _fine_span(seconds, width)):
        return fine
    if seconds < 9.95:
        return f"{seconds:.2g} s"
    size, unit = next((size, unit) for size, unit in _UNITS if round(seconds) >= size)
    smaller = _SMALLER.get(unit)
    if smaller is None or seconds >= 10 * size:
        return f"{seconds / size:,.0f} {unit}"
    whole, rest = divmod(round(seconds / smaller[0]), size // smaller[0])
    return f"{whole} {unit} {rest} {smaller[1]}" if rest else f"{whole} {unit}"


def _fine_span(seconds: float, width: float) -> str:
    """A time down to the unit that this width deserves; empty where that is no finer than usual."""
    step = next((size for size, _ in _UNITS if size <= width / _OF_WIDTH), 0)
    usual = 0.1 if seconds < 9.95 else 1 if seconds < 600 else 60 if seconds < 36_000 else 3600
    decimals = 0 if step else min(max(_decimals(width), 0), _MOST_DECIMALS)
    if (step or 10**-decimals) >= usual:
        return ""
    rest, parts = round(seconds / (step or 1), decimals) * (step or 1), []
    for size, unit in _UNITS[:-1]:
        whole, rest = divmod(rest, size)
        parts += [f"{whole:,.0f} {unit}"] if whole else []
    return " ".join([*parts, f"{rest:.{decimals}f} s"] if rest or not parts else parts)


def exact_time(hours: float) -> str:
    """A time with all its digits, in a unit in which these are few: 1.5 hours, 100 minutes, 20 seconds."""
    for size, noun in _NOUNS:
        count = 3600 * hours / size
        if count >= 1 and math.isclose(count, round(count, 2), rel_tol=1e-9):
            return counted(round(count, 2), noun)
    return counted(3600 * hours, "second")


def short_time(seconds: float) -> str:
    """The same for estimates and ages, to two digits: 12 s, 5 min, 3.2 h, 4 d."""
    if seconds < 99.5:
        return f"{seconds:.0f} s"
    if seconds < 99.5 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 48 * 3600 else f"{seconds / 86400:.0f} d"


def few_hours(hours: float | None) -> str:
    """A better unit for less than an hour, to follow it in a documented line: ' (30 s)'; empty for others."""
    return f" ({span_text(3600 * hours)})" if hours is not None and hours < 1 else ""


def typed(command: str) -> str:
    """A command of this program, `rlcb …` or `script.py …`, so that it works in the shell that it is printed in."""
    name, _, rest = command.partition(" ")
    return f"{_program() if name == 'rlcb' else f'{_python()} {name}'} {rest}".rstrip()


def _program() -> str:
    """`rlcb` where the shell finds this program by that name, otherwise where it is."""
    beside = os.path.join(os.path.dirname(sys.executable), "rlcb")  # as a virtual environment has it
    mine = next((one for one in (beside, sys.argv[0]) if os.path.basename(one) == "rlcb" and os.path.isfile(one)), None)
    found = shutil.which("rlcb")
    if mine is None:
        return f"{_place(sys.executable)} -m rlcb"
    return "rlcb" if found and os.path.samefile(found, mine) else _place(mine)


def _python() -> str:
    """`python` where the shell has one, as the scripts find their packages with any; otherwise this one."""
    return "python" if shutil.which("python") else _place(sys.executable)


def _place(file: str) -> str:
    """A program's path for a shell, relative where it lies below the current folder."""
    try:
        below = os.path.relpath(file)
    except OSError:  # the folder was removed
        below = os.pardir
    return shlex.quote(file if below.startswith(os.pardir) else below)
