"""Values out of files that nobody vouches for."""

import json
import math
import os
from pathlib import Path
from typing import Any

from rlcb.errors import UsageError

try:
    import orjson as _quick
except ImportError:  # the standard library's parser gives the same, later
    _quick = None  # type: ignore[assignment]

_LARGEST = 64 * 2**20


def parse_json(text: bytes) -> Any:
    """What a JSON text says; ValueError or RecursionError where it is none."""
    if _quick:
        try:
            return _quick.loads(text)
        except ValueError:  # it knows neither NaN nor large numbers, so the other parser has the last word
            return json.loads(text)
    return json.loads(text)


def number(value: Any) -> float | None:
    """A finite number as it is, None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float) or abs(value) > 1e300:
        return None
    return float(value) if math.isfinite(value) else None


def whole_number(value: Any) -> int | None:
    """A whole number as it is, None for anything else."""
    found = number(value)
    return int(found) if found is not None and found == int(found) else None


def plain(value: Any) -> str:
    """Text that cannot disturb a terminal or a page: printable and not endless; empty for anything but text."""
    if not isinstance(value, str):
        return ""
    return "".join(letter if letter.isprintable() else "?" for letter in value[:200])


def section(content: Any, name: str) -> dict[str, Any]:
    """A mapping inside a mapping, empty where there is none."""
    inner = content.get(name) if isinstance(content, dict) else None
    return inner if isinstance(inner, dict) else {}


def read_object(path: Path) -> dict[str, Any]:
    """A JSON object from a file; UsageError says in a phrase what is wrong with it."""
    try:
        if not os.path.isfile(path):
            raise UsageError(f"no {path.name}")
        if os.path.getsize(path) > _LARGEST:
            raise UsageError(f"{path.name} is larger than {_LARGEST // 2**20} MB")
        content = parse_json(path.read_bytes())
    except OSError as error:
        raise UsageError(f"{path.name} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError):
        raise UsageError(f"{path.name} is damaged: no valid JSON") from None
    if not isinstance(content, dict):
        raise UsageError(f"{path.name} is damaged: no JSON object")
    return content
