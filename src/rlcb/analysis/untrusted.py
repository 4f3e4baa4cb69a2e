"""Values from files that may be damaged or hostile."""

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlcb.envs.families import find
from rlcb.errors import UsageError
from rlcb.files import open_regular, read_regular

try:
    import orjson as _quick
except ImportError:  # the parser of the standard library gives the same values, more slowly
    _quick = None  # type: ignore[assignment]

LARGEST_OBJECT = 64 * 2**20
_LONGEST_REASON = 1000  # letters; it may end with a command


def parse_json(text: bytes) -> Any:
    """The value of a JSON text; ValueError or RecursionError if it is not valid."""
    if _quick:
        try:
            return _quick.loads(text)
        except ValueError:
            pass  # orjson accepts neither NaN nor large numbers, so the standard parser decides
    return json.loads(text)


def parse_lines(text: bytes) -> tuple[list[dict[str, Any]], int]:
    """The JSON objects in the lines of a text, and how many lines hold none."""
    # One call of the parser for all lines is quicker; only if that fails each line is parsed by itself.
    lines = text.strip()
    together = _json_or_none(b"[" + lines.replace(b"\n", b",\n") + b"]")  # no string contains a line's end
    whole = isinstance(together, list) and len(together) == lines.count(b"\n") + 1
    if whole and all(isinstance(row, dict) for row in together):
        return together, 0
    found = [_json_or_none(line) for line in text.split(b"\n") if line.strip()]
    rows = [row for row in found if isinstance(row, dict)]
    return rows, len(found) - len(rows)


def read_tail(path: Path, size: int) -> list[dict[str, Any]]:
    """The JSON objects in the last lines of a file, from its last `size` bytes; none if it cannot be read."""
    try:
        with open_regular(path) as file:
            begin = max(os.fstat(file.fileno()).st_size - size, 0)
            file.seek(max(begin - 1, 0))
            text = file.read(size + 1)
    except OSError:
        return []
    return parse_lines(text[text.find(b"\n") + 1 :] if begin else text)[0]


def _json_or_none(text: bytes) -> Any:
    try:
        return parse_json(text)
    except (ValueError, RecursionError):
        return None


def number(value: Any) -> float | None:
    """A finite number, None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float) or abs(value) > 1e300:
        return None
    return float(value) if math.isfinite(value) else None


def whole_number(value: Any) -> int | None:
    """A whole number, None for anything else."""
    found = number(value)
    return int(found) if found is not None and found == int(found) else None


def plain(value: Any, longest: int = 200) -> str:
    """Text without control characters and of limited length; empty for anything but text."""
    if not isinstance(value, str):
        return ""
    shown = value if len(value) <= longest else f"{value[: longest - 1]}…"
    return "".join(letter if letter.isprintable() else "?" for letter in shown)


def import_flags(imports: Any, network: Any) -> str:
    """The flags that permit the import of the modules that a configuration names, each after a space."""
    modules = list(imports) if isinstance(imports, list) else []
    if isinstance(network, str) and ":" in network:
        modules.append(network.partition(":")[0])
    return "".join(f" --import {name}" for name in dict.fromkeys(filter(_is_module, modules)))


def _is_module(name: object) -> bool:
    return isinstance(name, str) and name.isascii() and all(part.isidentifier() for part in name.split("."))


def failure_reason(event: Mapping[str, Any]) -> str:
    """The line with which a run failed, from its events: long enough for the paths and the command in it."""
    reason = event.get("reason")
    line = next(iter(reason.splitlines()), "") if isinstance(reason, str) else ""
    return plain(line, _LONGEST_REASON) or "no reason recorded"


def env_names(value: Any) -> tuple[str, str | None]:
    """An environment's full name in its one spelling, and its short name, if it has levels to generalise to."""
    name = plain(value)
    family, short = find(name)
    return family.full_name(short), short if family.has_levels else None


def section(content: Any, name: str) -> dict[str, Any]:
    """A mapping inside a mapping, empty where there is none."""
    inner = content.get(name) if isinstance(content, dict) else None
    return inner if isinstance(inner, dict) else {}


def read_object(path: Path, largest: int = LARGEST_OBJECT) -> dict[str, Any]:
    """A JSON object from a file; UsageError says in a phrase what is wrong with it."""
    try:
        content = parse_json(read_regular(path, largest))
    except FileNotFoundError:
        raise UsageError(f"no {path.name}") from None
    except OSError as error:
        raise UsageError(f"{path.name} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError):
        raise UsageError(f"{path.name} is damaged: invalid JSON") from None
    if not isinstance(content, dict):
        raise UsageError(f"{path.name} is damaged: not a JSON object")
    return content
