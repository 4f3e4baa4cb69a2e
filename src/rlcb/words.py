"""Numbers in sentences: counts with their nouns, and times in units that fit them; commands as they are typed."""

import os
import shlex
import shutil
import sys

_UNITS = ((3600, "h"), (60, "min"), (1, "s"))
_SMALLER = {"h": (60, "min"), "min": (1, "s")}


def counted(count: float, noun: str) -> str:
    """A number with its noun, in the plural unless the number is one: 1 worker, 2 processes."""
    plural = "es" if noun.endswith("s") else "s"
    number = f"{count:,}" if isinstance(count, int) else f"{count:g}"
    return f"{number} {noun}{'' if count == 1 else plural}"


def span_text(seconds: float) -> str:
    """A time in its two largest units, in one from ten of them on: 1.5 s, 42 s, 1 min 40 s, 1 h 20 min, 25 h."""
    if seconds < 9.95:
        return f"{seconds:.2g} s"
    size, unit = next((size, unit) for size, unit in _UNITS if round(seconds) >= size)
    smaller = _SMALLER.get(unit)
    if smaller is None or seconds >= 10 * size:
        return f"{seconds / size:,.0f} {unit}"
    whole, rest = divmod(round(seconds / smaller[0]), size // smaller[0])
    return f"{whole} {unit} {rest} {smaller[1]}" if rest else f"{whole} {unit}"


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
