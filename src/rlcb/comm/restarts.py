"""How often processes were lost, and when that is more than bad luck explains."""

import time
from collections import Counter
from collections.abc import Iterable

IN_A_ROW, AT_ONCE = 3, 10  # losses of one; of all together
TOGETHER = 10.0  # seconds: what happens to everybody within them has one cause


class Losses:
    """Counts losses by place; who delivers after being replaced is forgiven."""

    def __init__(self) -> None:
        self._losses = Counter[int]()  # in a row, by place
        self._last: dict[int, float] = {}  # when each place was lost

    def add(self, place: int) -> int:
        """One more loss in this place; returns how many there were in a row."""
        self._losses[place] += 1
        self._last[place] = time.monotonic()
        return self._losses[place]

    def delivered(self, place: int) -> None:
        """The process in this place did what it is for: it may be lost again."""
        self._losses[place] = 0
        self._last.pop(place, None)

    def too_many(self, place: int) -> bool:
        """Whether to give up rather than to replace once more."""
        return self._losses[place] > IN_A_ROW or self._losses.total() > AT_ONCE

    def all_together(self, places: Iterable[int]) -> bool:
        """Whether each of several places was lost within the last moments."""
        times = [self._last.get(place, float("-inf")) for place in places]
        return len(times) > 1 and time.monotonic() - min(times) < TOGETHER

    def story(self, place: int, name: str, how: str) -> str:
        """What happened, for a person."""
        return (
            f"{name} was lost {self._losses[place]} times, the last time {how} ({self._losses.total()} losses in all)"
        )
