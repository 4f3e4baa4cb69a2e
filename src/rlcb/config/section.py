"""What sections of settings files are made of: keys with their defaults, descriptions, limits and groups in help."""

from typing import Any, ClassVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

# YAML reads 25e6 as a float; here it is a count.
Whole = BeforeValidator(lambda value: int(value) if isinstance(value, float) and value.is_integer() else value)

# The groups of flags in help, in their order.
GROUPS = ("what to train on", "length", "algorithm", "network", "parallel", "hardware", "logging and files")


def setting(default: Any, description: str, metavar: str = "", group: str = "", **limits: Any) -> Any:
    """A key's default, what it means, and the limits of its values as pydantic's Field takes them.

    `metavar` stands for its value in help where the type does not tell, `group` is its group if not its section's.
    """
    extra = {name: text for name, text in (("metavar", metavar), ("group", group)) if text}
    return Field(default, description=description, json_schema_extra=dict(extra), **limits)


class Section(BaseModel):
    """A part of a settings file: nothing unknown in it, nothing converted, nothing changed later."""

    group: ClassVar[str] = "algorithm"  # one of GROUPS: where help lists its keys
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)
