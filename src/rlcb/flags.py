"""Command-line parsing: one-line errors with exit codes, flags for config keys, types of values."""

import argparse
import difflib
import math
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NoReturn

_FLAG_NAMES = {"name": "--env", "duration_hours": "--duration"}
_BARE = ("insecure",)  # flags that need no value
_BROKEN_PIPE = 128 + 13  # as shells count SIGPIPE


class Parser(argparse.ArgumentParser):
    """argparse whose errors are one line, with the nearest valid flag."""

    def __init__(self, prog: str, description: str):
        super().__init__(prog=prog, description=description, allow_abbrev=False)

    def error(self, message: str) -> NoReturn:
        """Print one line and exit with 2."""
        self.exit(2, f"{self.prog}: error: {message}; see {self.prog} --help\n")

    def parse(self, argv: Sequence[str] | None) -> argparse.Namespace:
        """Parse all of `argv`, None for the process's own; an unknown flag is answered with the nearest known one."""
        arguments, unknown = self.parse_known_args(argv)
        if unknown:
            known = [flag for action in self._actions for flag in action.option_strings]
            close = difflib.get_close_matches(unknown[0].split("=")[0], known, 1)
            self.error(f"unknown argument {unknown[0]}" + (f", did you mean {close[0]}?" if close else ""))
        return arguments


def answered(prog: str, work: Callable[[], int]) -> int:
    """Do the work and return its exit code; an expected failure becomes one line and its exit code."""
    from rlcb.errors import RlcbError

    try:
        code = work()
        sys.stdout.flush()
    except RlcbError as error:
        print(f"{prog}: error: {error}", file=sys.stderr)
        return error.exit_code
    except BrokenPipeError:
        # The reader, `head` for instance, has closed the pipe; Python would report that again when it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _BROKEN_PIPE
    return code


def flag_of(key: str) -> str:
    """The flag that sets a config key."""
    return _FLAG_NAMES.get(key, "--" + key.replace("_", "-"))


def add_keys(parser: Parser, keys: Iterable[str], aliases: Mapping[str, str] | None = None) -> None:
    """A flag for each key, and for each of its other names; values are checked with the file's, so all are text."""
    from rlcb.config.schema import all_keys, allowed_values

    by_key = all_keys()
    for key in keys:
        field = by_key[key]
        text = f"{field.description}: {allowed_values(field)}"
        bare: dict[str, Any] = {"nargs": "?", "const": "true"} if key in _BARE else {}
        parser.add_argument(flag_of(key), dest=key, metavar="VALUE", help=text.replace("%", "%%"), **bare)
    for name, key in (aliases or {}).items():
        parser.add_argument(flag_of(name), dest=name, metavar="VALUE", help=f"the same as {flag_of(key)}")
    parser.epilog = "What no flag gives comes from the config file, and what that leaves out from the defaults."


def whole(low: int, high: int) -> Callable[[str], int]:
    """Reads a whole number within limits."""

    def read(text: str) -> int:
        number = int(text) if text.isascii() and text.lstrip("-").isdigit() else low - 1
        if not low <= number <= high:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from {low} to {high}")
        return number

    return read


def finite(text: str) -> float:
    """Reads a finite number."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number")
    return number
