"""How often workers may be replaced before the run gives up."""

import time
from collections import Counter
from collections.abc import Iterable

PER_WORKER, IN_ALL = 3, 10  # deaths that are forgiven: of one worker, of all together
TOGETHER = 10.0  # seconds: workers that die within them have one cause


class RestartBudget:
    """Counts deaths by place; a worker that delivers after being replaced is forgiven its predecessors'."""

    def __init__(self) -> None:
        self._deaths = Counter[int]()  # since the place last delivered
        self._last: dict[int, float] = {}  # when each place last lost its worker

    def add(self, place: int) -> int:
        """One more death in this place; returns how many there were since it last delivered."""
        self._deaths[place] += 1
        self._last[place] = time.monotonic()
        return self._deaths[place]

    def delivered(self, place: int) -> None:
        """The worker in this place did what it is for."""
        self._deaths[place] = 0
        self._last.pop(place, None)

    def exhausted(self, place: int) -> bool:
        """Whether to give up rather than to replace this worker once more."""
        return self._deaths[place] > PER_WORKER or self._deaths.total() > IN_ALL

    def all_together(self, places: Iterable[int]) -> bool:
        """Whether each of several places lost its worker within the last moments."""
        times = [self._last.get(place, float("-inf")) for place in places]
        return len(times) > 1 and time.monotonic() - min(times) < TOGETHER

    def story(self, place: int, name: str, how: str) -> str:
        """What happened, for a person."""
        deaths, total = self._deaths[place], self._deaths.total()
        return f"{name} was lost {deaths} times, the last time {how} ({total} losses in all)"
