"""Strict reading of YAML files: plain data, no code, no aliases, no surprises; every fault is one line."""

import re
import unicodedata
from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml

from rlcb.errors import UsageError
from rlcb.files import read_regular

MAX_BYTES = 256 * 1024

_CORE = "tag:yaml.org,2002:"
# A plain word is a null, a boolean or a number only if it looks as in YAML 1.2 or JSON. All others are text.
_WHOLE = r"(0|[1-9][0-9]*(_[0-9]+)*)"
_MEANINGS = {
    "null": r"~|null|Null|NULL|",
    "bool": r"true|True|TRUE|false|False|FALSE",
    "int": rf"[-+]?{_WHOLE}",
    "float": rf"[-+]?(({_WHOLE}(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]+)?|\.(inf|Inf|INF))|\.(nan|NaN|NAN)",
}
# Words that YAML 1.1 or 1.2 takes for numbers of which most people would expect others, and what to write instead.
_SURPRISES = {
    r"[-+]?[0-9][0-9_]*(:[0-9]+)+(\.[0-9_]*)?": "in base 60; write a decimal number (1.5 for an hour and a half)",
    r"[-+]?0[0-9_]+(\.[0-9_]*)?([eE][-+]?[0-9]+)?": "with a leading 0; write it without",
    r"[-+]?0[box][0-9a-fA-F_]+": "in a base other than 10; write it in base 10",
}


class _StrictLoader(yaml.SafeLoader):
    """SafeLoader for plain data: no tags, aliases, merge keys or duplicate keys, and no word means a surprise."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        """Build a dict; a key that occurs twice is an error."""
        seen: set[Any] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, str):
                raise _problem(f"key {key!r} is not text", key_node)
            if key == "<<":
                raise _problem("merge keys (<<) are not supported; write out the keys", key_node)
            if key in seen:
                raise _problem(f"key {key!r} is given twice", key_node)
            seen.add(key)
        return super().construct_mapping(node, deep)

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        """Compose a node; an alias is an error, as it can expand a small file to any size, and so is a tag."""
        event: Any = self.peek_event()  # type: ignore[no-untyped-call]
        alias, tag, mark = self.check_event(yaml.AliasEvent), getattr(event, "tag", None), event.start_mark
        if alias or tag is not None:
            problem = "aliases are not supported" if alias else f"tags are not supported ({tag}); write plain values"
            raise yaml.composer.ComposerError(None, None, problem, mark)
        return super().compose_node(parent, index)

    def construct_text(self, node: yaml.ScalarNode) -> str:
        """A word that stays text: refused where it is plain and would be a surprise."""
        text = str(self.construct_scalar(node))
        surprise = next((what for pattern, what in _SURPRISES.items() if re.fullmatch(pattern, text)), None)
        if surprise and node.style is None:
            raise _problem(f"{text} is a number {surprise}, or in quotes if it is text", node)
        if any(unicodedata.category(letter) in ("Cc", "Cs") for letter in text):
            raise _problem(f"{text!r} contains control characters; remove them", node)
        return text


def _problem(text: str, node: yaml.Node) -> yaml.constructor.ConstructorError:
    return yaml.constructor.ConstructorError(None, None, text, node.start_mark)


class _Dumper(yaml.SafeDumper):
    """SafeDumper that quotes text which the loader would not read as text."""


def _add_resolvers() -> None:
    _StrictLoader.yaml_implicit_resolvers = {}  # without those of YAML 1.1
    for meaning, pattern in _MEANINGS.items():
        for kind in (_StrictLoader, _Dumper):
            kind.add_implicit_resolver(f"{_CORE}{meaning}", re.compile(f"(?:{pattern})$"), None)
    for pattern in _SURPRISES:
        _Dumper.add_implicit_resolver(f"{_CORE}surprise", re.compile(f"(?:{pattern})$"), None)


_add_resolvers()
_StrictLoader.add_constructor(f"{_CORE}str", _StrictLoader.construct_text)


def dump_yaml(value: Any) -> str:
    """A value as YAML text that `read_yaml` and other readers of YAML give back as it is."""
    return yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True)


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
    except (yaml.YAMLError, ValueError, RecursionError):
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
        found = "is empty" if data is None else f"contains a {type(data).__name__}"
        raise UsageError(f"{path}: {found}; expected {expected}")
    return data
