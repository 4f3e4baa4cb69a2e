"""The values that a key takes: durations as text, what is allowed in words, what stands for a value in help."""

import re
from typing import Annotated, Any, Literal, get_args, get_origin

from pydantic import BeforeValidator
from pydantic.fields import FieldInfo

MOST_HOURS = 8760
HOURS = f"a number of hours above 0 up to {MOST_HOURS} or a time such as 1h, 30m, 90s"
_GROUPED = 100_000  # numbers from here on are written with groups of digits
_SECONDS = {"h": 3600, "m": 60, "s": 1}
_TIME = re.compile("".join(rf"(?:([0-9]+(?:\.[0-9]+)?){unit})?" for unit in _SECONDS))


def read_hours(value: Any) -> Any:
    """Hours of a text such as 1h, 30m, 90s or 1h30m; whatever else is given, or too long, stays for the validation."""
    parts = _TIME.fullmatch(value) if isinstance(value, str) and value else None
    if not parts:
        return value
    seconds = sum(float(part or 0) * unit for part, unit in zip(parts.groups(), _SECONDS.values(), strict=True))
    return seconds / 3600 if 0 < seconds <= MOST_HOURS * 3600 else value


Hours = Annotated[float, BeforeValidator(read_hours)]


def alternatives(field: FieldInfo) -> list[tuple[Any, list[Any]]]:
    """The types that a field takes, each with the metadata of its annotation."""
    whole = field.annotation
    parts = (whole,) if get_origin(whole) is Literal else get_args(whole) or (whole,)
    split = [get_args(part) if get_origin(part) is Annotated else (part,) for part in parts]
    return [(kind, details) for kind, *details in split]


def extra(field: FieldInfo, name: str) -> str | None:
    """What the schema says of a field beyond its type: its group or metavar."""
    known = field.json_schema_extra
    found = known.get(name) if isinstance(known, dict) else None
    return found if isinstance(found, str) else None


def allowed_values(field: FieldInfo) -> str:
    """What a field takes, in words: 'a whole number from 1 to 16384'."""
    words: list[str] = []
    if get_origin(field.annotation) is list:
        return "a list of module names such as my_envs or package.module"
    for kind, details in alternatives(field):
        if get_origin(kind) is Literal:
            choices = get_args(kind)
            words.append("one of " + ", ".join(choices) if len(choices) > 1 else choices[0])
        elif extra(field, "metavar") == "HOURS" and kind is float:
            words.append(HOURS)
        elif kind in (int, float):
            limits = [*field.metadata, *(item for detail in details for item in getattr(detail, "metadata", ()))]
            words.append(_range_words("a number" if kind is float else "a whole number", limits))
        elif kind is str and "network" in (extra(field, "group") or ""):
            words.append("module:Class")
        elif kind is str and details:
            words.append("up to 40 letters, digits and - (not first)")
        else:
            words.append({bool: "true or false", str: "text", type(None): "null"}[kind])
    return " or ".join(words)


def _range_words(noun: str, metadata: list[Any]) -> str:
    limits = {
        name: getattr(item, name) for item in metadata for name in ("gt", "ge", "lt", "le") if hasattr(item, name)
    }
    low = f" above {limits['gt']}" if "gt" in limits else f" from {limits['ge']}" if "ge" in limits else ""
    high = f" {'up ' if 'gt' in limits else ''}to {limits['le']}" if "le" in limits else ""
    high = f" and below {limits['lt']}" if "lt" in limits else high
    return f"{noun}{low}{high}"


def metavar_of(field: FieldInfo) -> str:
    """What stands for a field's value in help: its choices in braces, or the kind of value it is."""
    named = extra(field, "metavar")
    kinds = [kind for kind, _ in alternatives(field) if kind is not type(None)]
    text = "MODULE:CLASS" if extra(field, "group") == "network" else "TEXT"
    number = named or next(
        ({int: "N", float: "X", str: text}[kind] for kind in kinds if kind in (int, float, str)), None
    )
    choices = ["true", "false"] if bool in kinds else []
    choices += [choice for kind in kinds if get_origin(kind) is Literal for choice in get_args(kind)]
    if number:
        return "|".join((number, *choices))
    return f"{{{','.join(choices)}}}"


def value_text(value: Any) -> str:
    """A value as a config file has it."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, list):
        return " ".join(map(str, value)) or "none"
    return f"{value:_}" if isinstance(value, int) and value >= _GROUPED else str(value).removesuffix(".0")
