"""Strict reading of YAML files: plain data, no code, no aliases; every fault is one line."""

import re
from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml

from rlcb.errors import UsageError
from rlcb.files import read_regular

MAX_BYTES = 256 * 1024


class _StrictLoader(yaml.SafeLoader):
    """SafeLoader that refuses duplicate keys and aliases and knows that 1e-4 is a number."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        """Build a dict; a key that occurs twice is an error."""
        seen: set[Any] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, str):
                raise yaml.constructor.ConstructorError(None, None, f"key {key!r} is not text", key_node.start_mark)
            if key in seen:
                raise yaml.constructor.ConstructorError(None, None, f"key {key!r} is given twice", key_node.start_mark)
            seen.add(key)
        return super().construct_mapping(node, deep)

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        """Compose a node; an alias is an error, as it can expand a small file to any size."""
        if self.check_event(yaml.AliasEvent):
            event = self.peek_event()  # type: ignore[no-untyped-call]
            raise yaml.composer.ComposerError(None, None, "aliases are not supported", event.start_mark)
        return super().compose_node(parent, index)


# In YAML 1.1 a float must have a dot; 1e-4 is to be one, too.
_StrictLoader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?(?:[0-9][0-9_]*\.?[0-9_]*|\.[0-9]+)[eE][-+]?[0-9]+$"),
    list("-+0123456789."),
)


def _load(text: str) -> Any:
    loader = _StrictLoader(text)
    try:
        return loader.get_single_data()
    finally:
        loader.dispose()


def parse_scalar(text: str) -> Any:
    """The value a YAML file would have for `text`: a number, a boolean, null or the text itself."""
    try:
        value = _load(text)
    except yaml.YAMLError:
        return text
    return text if isinstance(value, dict | list) else value


def read_yaml(path: Path, expected: str = "sections such as 'env:' and 'training:'") -> dict[str, Any]:
    """Read a YAML mapping; anything else is a UsageError that names the file, the line and what was expected."""
    try:
        data = _load(read_regular(path, MAX_BYTES).decode())
    except UnicodeDecodeError:
        raise UsageError(f"{path}: not UTF-8 text") from None
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f" line {mark.line + 1}" if mark else ""
        raise UsageError(f"{path}{where}: {error.problem or error.context}") from None
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise UsageError(f"{path}: not valid YAML: {str(error).splitlines()[0]}") from None
    if not isinstance(data, dict):
        found = "is empty" if data is None else f"holds a {type(data).__name__}"
        raise UsageError(f"{path}: {found}; expected {expected}")
    return data
