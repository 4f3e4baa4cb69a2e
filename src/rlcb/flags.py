"""Command-line parsing: one-line errors with exit codes, flags for config keys, types of values."""

import argparse
import difflib
import math
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NoReturn

from rlcb.config.registry import ALGORITHMS, CLUSTER_KEYS
from rlcb.console import limit_waiting, lost_output, protect_output
from rlcb.errors import GpuFailed, ResourceError, RlcbError
from rlcb.signals import StopRequest

_FLAG_NAMES = {"name": "--env", "duration_hours": "--duration"}
PARALLEL_KEYS = ("num_workers", "num_envs_per_worker", *CLUSTER_KEYS)
ALIASES = {alias: key for entry in ALGORITHMS.values() for alias, key in entry.aliases.items() if key in PARALLEL_KEYS}
_BARE = ("insecure",)  # flags that need no value
_BROKEN_PIPE = 128 + 13  # as shells count SIGPIPE


class Parser(argparse.ArgumentParser):
    """argparse whose errors are one line, with the nearest valid flag."""

    def __init__(self, prog: str, description: str):
        super().__init__(prog=prog, description=description, allow_abbrev=False)

    def error(self, message: str) -> NoReturn:
        """Print one line and exit with 2."""
        self.exit(2, f"{self.prog}: error: {message}; see {self.prog} --help\n")

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        """End the program, with a message or after the help."""
        if message:
            print(message, end="", file=sys.stderr)
        sys.exit(_after_output(self.prog, status))

    def add_accept_disturbed(self) -> None:
        """The flag that takes a measurement although other programs used the cores."""
        text = "conclude from what is measured also where other programs disturb it"
        self.add_argument("--accept-disturbed", action="store_true", help=text)

    def parse(self, argv: Sequence[str] | None) -> argparse.Namespace:
        """Parse all of `argv`, None for the process's own; an unknown flag is answered with the nearest known one."""
        arguments, unknown = self.parse_known_args(argv)
        if unknown:
            known = [flag for action in self._actions for flag in action.option_strings]
            close = difflib.get_close_matches(unknown[0].split("=")[0], known, 1)
            self.error(f"unknown argument {unknown[0]}" + (f", did you mean {close[0]}?" if close else ""))
        return arguments


def start_program() -> None:
    """What every command begins with: its output cannot fail, and a signal ends it while there is nothing to save."""
    protect_output()
    StopRequest().install()


def answered(prog: str, work: Callable[[], int], prints_result: bool = False) -> int:
    """Do the work and return its exit code; an expected failure becomes one line and its exit code.

    `prints_result`: what the command is for goes to standard output, so it waits for the reader and fails without one.
    """
    if not prints_result:
        limit_waiting()
    try:
        code = work()
    except RlcbError as error:
        print(f"{prog}: error: {error}", file=sys.stderr)
        if isinstance(error, GpuFailed):
            _leave_gpu(error.exit_code)
        return error.exit_code
    except SystemExit as end:  # a signal before there was anything to save
        return end.code if isinstance(end.code, int) else 1
    return _after_output(prog, code) if prints_result else code


def _leave_gpu(code: int) -> None:
    """End the process here if it has used a GPU: CUDA would abort it when memory of the failed device is released."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _after_output(prog: str, code: int) -> int:
    """The exit code of a command whose result was printed: `code`, unless the result did not arrive."""
    lost = lost_output()
    if code or lost is None:
        return code
    if isinstance(lost, BrokenPipeError):
        return _BROKEN_PIPE  # the reader, `head` for instance, has read enough
    print(f"{prog}: error: standard output cannot be written: {lost.strerror}", file=sys.stderr)
    return ResourceError.exit_code


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


def overrides_of(parser: Parser, arguments: argparse.Namespace, mode: str | None) -> dict[str, tuple[str, Any]]:
    """The config keys among the arguments: key → the flag and its value."""
    from rlcb.config.schema import all_keys
    from rlcb.config.yaml_file import parse_scalar

    keys = {*all_keys(), *ALIASES}
    given = {key: value for key, value in vars(arguments).items() if key in keys and value is not None}
    overrides = {key: (flag_of(key), parse_scalar(value)) for key, value in given.items()}
    if "total_timesteps" in overrides:  # it replaces a duration given elsewhere
        overrides.setdefault("duration_hours", (flag_of("total_timesteps"), None))
    # In parallel commands --num-envs counts each worker's.
    aliases = {**ALIASES, "num_envs": "num_envs_per_worker"} if mode == "parallel" else ALIASES
    for name, key in aliases.items():
        meant = overrides.pop(name, None)
        if meant and overrides.setdefault(key, meant)[1] != meant[1]:
            parser.error(f"{flag_of(name)} and {flag_of(key)} mean the same here and differ")
    return overrides


def whole(low: int, high: int) -> Callable[[str], int]:
    """Reads a whole number within limits."""

    def read(text: str) -> int:
        number = int(text) if text.isascii() and text.lstrip("-").isdigit() else low - 1
        if not low <= number <= high:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from {low} to {high}")
        return number

    return read


def whole_or_auto(low: int, high: int) -> Callable[[str], int | str]:
    """Reads `auto` or a whole number within limits."""

    def read(text: str) -> int | str:
        try:
            return text if text == "auto" else whole(low, high)(text)
        except argparse.ArgumentTypeError as error:
            raise argparse.ArgumentTypeError(f"{error}, nor auto") from None

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


def positive(high: float) -> Callable[[str], float]:
    """Reads a number above 0 and up to a limit."""

    def read(text: str) -> float:
        number = finite(text)
        if not 0 < number <= high:
            raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0 up to {high:g}")
        return number

    return read
