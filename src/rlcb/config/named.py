"""The configurations and suites that come with the package: by name, from any folder; other files by their paths."""

import difflib
import os
import re
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

from rlcb.console import note
from rlcb.errors import UsageError
from rlcb.files import read_regular
from rlcb.words import typed

_MOST_BYTES = 256 * 1024
_PACKAGE = Path(__file__).resolve().parents[1]
_FOLDERS = (_PACKAGE / "configs", _PACKAGE.parents[1] / "config")  # of an installed package, of a checkout
# Where the first sentence of a description ends, and what ends it.
_END = re.compile(r"[:.](?= +[A-Z`]|$)|:(?= )|(?<=\?)(?= )")


def folder() -> Path:
    """Where the files are: inside an installed package, or in the checkout that this runs from."""
    return next((one for one in _FOLDERS if one.is_dir()), _FOLDERS[0])


def configs() -> dict[str, Path]:
    """The configurations by name."""
    return _named(folder())


def suites() -> dict[str, Path]:
    """The suites by name."""
    return _named(folder() / "suites")


def _named(directory: Path) -> dict[str, Path]:
    return {file.stem: file for file in sorted(directory.glob("*.yaml"))}


def shown(path: Path) -> Path:
    """A file's path as messages have it: relative where it lies below the current folder."""
    try:
        here = Path.cwd()
    except FileNotFoundError:  # it was removed
        return path
    return path.relative_to(here) if path.is_relative_to(here) else path


def find_config(given: str) -> Path:
    """The configuration of a name, or the file at a path."""
    other = f"is a suite: {typed('rlcb benchmark --suite')}"
    return _find(given, "--config", "configuration", configs(), {name: f"{other} {name}" for name in suites()})


def find_suite(given: str) -> Path:
    """The suite of a name, or the file at a path."""
    other = "is a configuration, not a suite; use it with --config"
    return _find(given, "--suite", "suite", suites(), dict.fromkeys(configs(), other))


def _find(given: str, flag: str, what: str, known: Mapping[str, Path], elsewhere: Mapping[str, str]) -> Path:
    """What a word means: a name of the package unless it looks like a path; `./NAME` is a file of that name."""
    path = Path(given)
    if os.sep in given or path.suffix in (".yaml", ".yml"):
        if path.stem in known and not os.path.lexists(path):
            raise UsageError(f"{given}: no such file; to use the built-in {what}: {flag} {path.stem}")
        return path
    if given in known:
        return shown(known[given])
    if os.path.lexists(path):
        return path
    if given in elsewhere:
        raise UsageError(f"{given}: {elsewhere[given]}")
    raise UsageError(f"{given!r} is neither a built-in {what} nor a file{_meant(given, known)}")


def _meant(given: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(given, list(known), 1)
    return f"; did you mean {close[0]}?" if close else f"; for valid names, see {typed('rlcb configs')}"


def base_of(file: Path, base: str) -> Path:
    """The file that another one is based on: a configuration of the package, or a path relative to that other one."""
    known = configs()
    return shown(known[base]) if base in known else file.parent / base


def meant_config(base: str) -> str:
    """Which configuration of the package was probably meant by a base that is no file, for the end of a line."""
    return "" if os.sep in base else _meant(base.removesuffix(".yaml"), configs())


def default_file(algorithm: str, mode: str) -> Path | None:
    """The file that a command takes its configuration from where none is named; None: the package has none."""
    file = configs().get(f"{algorithm}_{mode}")
    return shown(file) if file else None


@cache  # said once, however often the configuration is read
def _note_unused(file: Path, used: Path) -> None:
    note(f"{shown(file)} is not used without --config; using {shown(used)}")


def note_unused(algorithm: str, mode: str) -> None:
    """Say so if the current folder has a file that looks as if it were the default and is not."""
    used = configs().get(f"{algorithm}_{mode}")
    here = Path("config") / f"{algorithm}_{mode}.yaml"
    if used and os.path.isfile(here) and not here.samefile(used):
        _note_unused(here.resolve(), used)


def text_of(file: Path) -> str:
    """What is in a file of the package."""
    return read_regular(file, _MOST_BYTES).decode()


def description_of(file: Path) -> str:
    """What a file says about itself: the first sentence of the comment that it begins with."""
    lines = []
    for line in text_of(file).splitlines():
        if not line.startswith("#"):
            break
        lines.append(line.removeprefix("#").strip())
    return _END.split(" ".join(lines), maxsplit=1)[0]
