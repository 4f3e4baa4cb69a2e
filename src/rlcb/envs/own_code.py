"""Modules of the user's own, with environments or networks: imported only if the user names them.

A configuration or a checkpoint may name a module, but files come from anywhere, so a name in one is never reason enough
to run code. `permit` says which modules the command line named; a worker is told by the process that started it.
"""

import contextlib
import os
import re
import sys
import sysconfig
import traceback
from collections.abc import Iterable, Iterator
from importlib import import_module
from pathlib import Path
from types import FrameType, ModuleType, TracebackType

from rlcb.errors import NotPermitted, UsageError

SHELL = "RLCB_IMPORT"  # environment variable: modules that every command takes as if --import named them
FOLDER = "RLCB_MODULE_FOLDER"  # environment variable: where modules are looked for first, in every process of a run
MODULE_NAME = r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*"
_WITH_DEFAULTS = ("gymnasium", "ale_py", "shimmy")  # packages whose environments are not the user's own
_permitted: set[str] = set()


def permit(modules: Iterable[str], folder: str | None = None) -> None:
    """From now on these modules may be imported here, and no others.

    They are looked for in a folder first, by default where the command was typed, then among the installed packages.
    """
    _permitted.clear()
    _permitted.update(modules)
    if folder or FOLDER not in os.environ:
        with contextlib.suppress(FileNotFoundError):  # a directory that was removed
            os.environ[FOLDER] = folder or os.getcwd()


def named_in_shell() -> list[str]:
    """The modules in the user's environment variable RLCB_IMPORT, which separates them by commas."""
    return [word.strip() for word in os.environ.get(SHELL, "").split(",") if word.strip()]


@contextlib.contextmanager
def permitted_meanwhile() -> Iterator[None]:
    """What is permitted from here on is so until the end of the block; afterwards it is what it was before."""
    before = set(_permitted)
    try:
        yield
    finally:
        _permitted.clear()
        _permitted.update(before)


def permitted_flags() -> str:
    """The flags that permit the same again, for a command that is shown to the user; empty or with a space before."""
    return "".join(f" --import {module}" for module in sorted(_permitted))


def module_of(name: str) -> str | None:
    """The module in `module:Name`, as an environment or a network may be given; None where there is none."""
    module, colon, _ = name.partition(":")
    return module if colon and module != "procgen" else None


def is_own_id(name: str) -> bool:
    """Whether a Gymnasium id is registered by code that is neither this program's nor Gymnasium's."""
    import gymnasium

    found = gymnasium.registry.get(name)
    entry = found.entry_point if found else None
    module = entry if isinstance(entry, str) else getattr(entry, "__module__", "")
    return found is not None and module.split(".")[0] not in _WITH_DEFAULTS


def load(module: str) -> ModuleType:
    """Import a module; NotPermitted unless it was permitted, UsageError with the reason where it fails."""
    if not re.fullmatch(MODULE_NAME, module):
        raise UsageError(f"{module!r} is not a module name; valid: names such as my_envs or package.module")
    if module not in _permitted:
        raise NotPermitted(
            f"names the module {module}, which is not imported automatically; if you trust it, add --import {module} "
            f'(from Python: imports=["{module}"])'
        )
    folder = os.environ.get(FOLDER)
    if folder and folder not in sys.path and os.path.isdir(folder):
        sys.path.insert(0, folder)
    try:
        return import_module(module)
    except (Exception, SystemExit) as error:  # somebody else's code may raise anything
        flag = SHELL if module in named_in_shell() else "--import"
        raise UsageError(f"{flag} {module}: cannot be imported: {_reason(error, module)}") from None


def import_named(modules: Iterable[str], network: str) -> None:
    """Import the modules that a checkpoint names, its network's too, if they are permitted."""
    own = module_of(network)
    for module in (*modules, *([own] if own else [])):
        load(module)


def load_all(modules: Iterable[str], folder: str | None = None) -> None:
    """Import the modules that another process of this run was permitted to import."""
    modules = list(modules)
    permit(modules, folder)
    for module in modules:
        load(module)


def _reason(error: BaseException, module: str) -> str:
    """What failed, in a line, and in which line of which file if the module was found."""
    missing = isinstance(error, ModuleNotFoundError) and error.name is not None and f"{module}.".startswith(error.name)
    if missing:
        return f"{type(error).__name__}: {error}; searched {os.environ.get(FOLDER, '.')} and the installed packages"
    return described(error)


def described(error: BaseException, begin: TracebackType | None = None) -> str:
    """An exception of somebody else's code in a line: its class, what it says and where it was raised.

    `begin`: the part of its traceback that is not ours; without it, only a line of the user's code is a place.
    """
    text = " ".join(str(error).split())[:300]
    words = f"{type(error).__name__}: {text}" if text else type(error).__name__
    frames = [entry for entry in traceback.walk_tb(begin or error.__traceback__) if not is_ours(entry[0])]
    users = [entry for entry in frames if _is_users(entry[0])]
    for frame, line in reversed(users or (frames if begin else [])):
        return f"{words} ({frame.f_code.co_filename}, line {line})"
    return words


def _is_users(frame: FrameType) -> bool:
    """Whether a line is in a module that the user has named, or at least not in an installed package."""
    name, file = module_name(frame), Path(frame.f_code.co_filename)
    if file.parts[0].startswith("<"):  # no file, as of code in a text
        return False
    if any(name == module or name.startswith(f"{module}.") for module in _permitted):
        return True
    return not is_library(file)


def is_library(file: Path) -> bool:
    """Whether a file belongs to Python or to an installed package."""
    python = any(file.is_relative_to(sysconfig.get_path(kind)) for kind in ("stdlib", "platstdlib"))
    return python or bool({"site-packages", "dist-packages"}.intersection(file.parts))


def is_ours(frame: FrameType) -> bool:
    """Whether a frame of a traceback belongs to this program."""
    return module_name(frame).partition(".")[0] == "rlcb"


def module_name(frame: FrameType) -> str:
    """The module that a frame of a traceback belongs to."""
    return str(frame.f_globals.get("__name__", ""))
