"""Values that are whole but wrong: one place of a nested value is replaced or removed."""

import copy
import math
from typing import Any

from hypothesis import strategies as st

DEEP: list[Any] = []
for _ in range(200):
    DEEP = [DEEP]
WRONG = (
    None, True, False, 0, -1, 1, 2**53 + 2, 2**70, -(2**70), 0.5, -1e300, 1e308, math.inf, -math.inf, math.nan,
    "", "text", "=1+1", "\n\x00", "9" * 5000, [], {}, [None], [[]], [1, 2], {"a": 1}, {"env": {"name": 3}}, DEEP,
)  # fmt: skip


def places(value: Any, here: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place inside of a nested value, as the keys that lead there; of long lists the ends."""
    found = [here] if here else []
    if isinstance(value, dict):
        for key, inner in value.items():
            found += places(inner, (*here, key))
    elif isinstance(value, list):
        for index in {0, len(value) // 2, len(value) - 1} if value else ():
            found += places(value[index], (*here, index))
    return found


def changed(value: Any, place: tuple[Any, ...], change: str, wrong: Any) -> Any:
    """A copy of a nested value in which one place is replaced, removed, doubled or wrapped in a list."""
    whole = copy.deepcopy(value)
    *above, last = place
    inner = whole
    for key in above:
        inner = inner[key]
    if change == "remove":
        del inner[last]
    elif change == "double" and isinstance(inner, list):
        inner.insert(last, copy.deepcopy(inner[last]))
    elif change == "double":
        inner[f"{last}_"] = copy.deepcopy(inner[last])
    elif change == "wrap":
        inner[last] = [inner[last]]
    else:
        inner[last] = wrong
    return whole


@st.composite
def wrong_values(draw: st.DrawFn, value: Any) -> Any:
    """Copies of a nested value, each with one place wrong."""
    place = draw(st.sampled_from(places(value)))
    change = draw(st.sampled_from(("replace", "replace", "replace", "remove", "double", "wrap")))
    return changed(value, place, change, draw(st.sampled_from(WRONG)))
