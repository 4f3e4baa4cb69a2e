"""How often processes were lost, and when that is more than bad luck explains."""

from collections import Counter

IN_A_ROW, AT_ONCE = 3, 10  # losses of one; of all together
FORGIVEN_AFTER = 3  # deliveries since: whoever works again may be lost again


class Losses:
    """Counts losses by place; who delivers after being replaced is forgiven."""

    def __init__(self) -> None:
        self._losses, self._delivered = Counter[int](), Counter[int]()

    def add(self, place: int) -> int:
        """One more loss in this place; returns how many there were in a row."""
        self._losses[place] += 1
        self._delivered[place] = 0
        return self._losses[place]

    def delivered(self, place: int) -> None:
        """The process in this place did what it is for."""
        self._delivered[place] += 1
        if self._delivered[place] >= FORGIVEN_AFTER:
            self._losses[place] = 0

    def too_many(self, place: int) -> bool:
        """Whether to give up rather than to replace once more."""
        return self._losses[place] > IN_A_ROW or self._losses.total() > AT_ONCE

    def story(self, place: int, name: str, how: str) -> str:
        """What happened, for a person."""
        return (
            f"{name} was lost {self._losses[place]} times, the last time {how} ({self._losses.total()} losses in all)"
        )
