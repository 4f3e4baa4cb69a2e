"""What is known of a key besides its value: its group in help, and the algorithms that have it."""

from rlcb.config.registry import ALGORITHMS
from rlcb.config.schema import Config, fields
from rlcb.config.section import Section


def group_of(section: str) -> str:
    """The group in help of a section's keys."""
    model = Config.model_fields[section].annotation
    assert isinstance(model, type)
    assert issubclass(model, Section)
    return model.group


def owners(key: str) -> list[str]:
    """The algorithms that have a key."""
    return [name for name in ALGORITHMS if any(known == key for _, known, _ in fields(name))]


def not_of(algorithm: str, key: str) -> str:
    """That a key is not this algorithm's but others', in words."""
    return f"{algorithm} has no such setting; it belongs to {' and '.join(owners(key))}"
