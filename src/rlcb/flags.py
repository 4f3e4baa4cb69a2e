"""Command-line parsing, also for calls from Python: help with defaults, one-line errors with exit codes, types."""

import argparse
import difflib
import keyword
import math
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from numbers import Integral, Real
from pathlib import Path
from typing import Any, NoReturn

from rlcb.console import limit_waiting, lost_output, protect_output
from rlcb.errors import GpuFailed, ResourceError, RlcbError, UsageError
from rlcb.signals import StopRequest
from rlcb.words import typed

_FLAG_NAMES = {"name": "--env", "imports": "--import", "duration_hours": "--duration"}
_ENVIRONMENT_FLAGS = {"env", "games", "game"}  # what different commands call the environments
_BROKEN_PIPE = 128 + 13  # as shells count SIGPIPE


class _Formatter(argparse.RawDescriptionHelpFormatter):
    """Help with the default of every flag that has one."""

    def __init__(self, prog: str, defaults: Callable[[], Mapping[str, str]]):
        super().__init__(prog, max_help_position=30)
        self._read_defaults = defaults
        self._defaults: Mapping[str, str] | None = None

    def _get_help_string(self, action: argparse.Action) -> str:
        if self._defaults is None:
            self._defaults = self._read_defaults()
        own = action.default if action.option_strings or action.nargs == "?" else None
        own = None if own is False or own in ([], argparse.SUPPRESS) else own
        default = self._defaults.get(action.dest, own)
        shown = "" if default is None else f" (default {default})"
        return f"{action.help}{shown.replace('%', '%%')}"


class Parser(argparse.ArgumentParser):
    """argparse whose errors are one line, with the nearest valid flag, and whose help shows defaults.

    `defaults` returns those that argparse does not know, as text, by destination; it is called when help is asked for.
    """

    def __init__(
        self, prog: str, description: str, defaults: Callable[[], Mapping[str, str]] = dict, *, add_help: bool = True
    ):
        self.defaults = defaults
        super().__init__(
            prog=prog,
            description=description,
            formatter_class=lambda prog: _Formatter(prog, self.defaults),
            allow_abbrev=False,
            add_help=add_help,
        )

    def shown(self) -> list[argparse.Action]:
        """The arguments that help lists."""
        return [action for action in self._actions if action.help != argparse.SUPPRESS]

    def error(self, message: str) -> NoReturn:
        """Print one line and exit with 2."""
        see = " See" if message.endswith("?") else "; see"
        self.exit(2, f"{self.prog}: error: {message}{see} {typed(f'{self.prog} --help')}\n")

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        """End the program, with a message or after the help."""
        if message:
            print(message, end="", file=sys.stderr)
        sys.exit(_after_output(self.prog, status))

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Refuse a word that is none of an argument's choices, with the one that was probably meant."""
        if action.choices is not None and value not in action.choices:
            valid = ", ".join(map(repr, action.choices))
            hint = _meant(str(value), [str(choice) for choice in action.choices])
            raise argparse.ArgumentError(action, f"invalid choice: {value!r} (choose from {valid}){hint}")

    def parse(self, argv: Sequence[str] | None) -> argparse.Namespace:
        """Parse all of `argv`, None for the process's own; an unknown flag is answered with the nearest known one."""
        arguments, unknown = self.parse_known_args(argv)
        if unknown:
            known = [flag for action in self.shown() for flag in action.option_strings]
            self.error(_unknown(unknown[0], known))
        for action in self._actions:  # an empty value, as of a variable that is not set, means nothing
            value = getattr(arguments, action.dest, None)
            if value == "" or (isinstance(value, list) and "" in value):
                self.error(f"{(*action.option_strings, action.dest)[0]}: the value is empty; give one or omit the flag")
        return arguments

    def take(self, given: Mapping[str, Any], without: Sequence[str] = ()) -> argparse.Namespace:
        """The same for a call from Python: values by the flags' names with underscores; None stands for the default.

        A wrong name or value raises UsageError. `without`: flags that a call does not have.
        """
        names = {_parameter(action): action for action in self._actions if action.dest not in ("help", *without)}
        arguments = argparse.Namespace(**{action.dest: action.default for action in names.values()})
        for name, value in given.items():
            if name not in names:
                raise UsageError(_unknown(name, [known for known in names if names[known] in self.shown()]))
            if value is not None:
                setattr(arguments, names[name].dest, _taken(name, names[name], value))
        return arguments


def _unknown(name: str, known: Sequence[str]) -> str:
    """That an argument is unknown, and which was probably meant."""
    word = name.partition("=")[0]
    same = [one for one in known if {word.lstrip("-"), one.lstrip("-")} <= _ENVIRONMENT_FLAGS]
    return f"unknown argument {name}{f'; did you mean {same[0]}?' if same else _meant(word, known)}"


def _meant(word: str, known: Sequence[str]) -> str:
    """The known word that was probably meant, for the end of a line; empty where none is near."""
    close = difflib.get_close_matches(word, known, 1)
    return f"; did you mean {close[0]}?" if close else ""


def _parameter(action: argparse.Action) -> str:
    """The name of a flag or argument in a call from Python."""
    name = (action.option_strings[-1] if action.option_strings else action.dest).lstrip("-").replace("-", "_")
    return action.dest if keyword.iskeyword(name) else name  # --import: imports


def _taken(name: str, action: argparse.Action, value: Any) -> Any:
    """A value from Python as the action's type and choices want it."""
    if action.nargs == "+" or isinstance(action, argparse._AppendAction):
        alone = isinstance(value, str | os.PathLike) or not isinstance(value, Iterable)
        return [_taken_one(name, action, one) for one in ([value] if alone else value)]
    return _taken_one(name, action, value)


def _taken_one(name: str, action: argparse.Action, value: Any) -> Any:
    if action.nargs == 0 and not isinstance(value, bool):
        raise UsageError(f"{name}: {value!r} is not valid; must be True or False")
    if action.choices and value not in action.choices:
        valid = [str(choice) for choice in action.choices]
        hint = _meant(str(value), valid)
        raise UsageError(f"{name}: {value!r} is not valid; must be one of {', '.join(valid)}{hint}")
    if action.type is Path and not isinstance(value, str | os.PathLike):
        raise UsageError(f"{name}: {value!r} is not valid; must be a path")
    if callable(action.type):
        try:
            return action.type(os.fspath(value) if isinstance(value, os.PathLike) else str(value))
        except argparse.ArgumentTypeError as error:
            raise UsageError(f"{name}: {error}") from None
    if isinstance(value, bool | str):
        return value
    if isinstance(value, Integral | Real):  # also those of numpy
        return int(value) if isinstance(value, Integral) else float(value)
    return os.fspath(value) if isinstance(value, os.PathLike) else value


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


def parameter_of(key: str) -> str:
    """The parameter of a call from Python that sets a config key."""
    return flag_of(key).removeprefix("--").replace("-", "_")


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
            raise argparse.ArgumentTypeError(f"{error} or auto") from None

    return read


def file_or_name(find: Callable[[str], Path]) -> Callable[[str], Path]:
    """Reads the path of a file, or a name that `find` knows the file of."""

    def read(text: str) -> Path:
        if not text:
            raise argparse.ArgumentTypeError("the value is empty; give one or omit the flag")
        try:
            return find(text)
        except UsageError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

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
