"""Looks at the use of the cores repeatedly: what the run's processes used and waited for, what others used."""

import time
from collections.abc import Sequence
from pathlib import Path

from rlcb.disturbance.readings import (
    CoreTimes,
    QuotaTimes,
    System,
    clock_mhz,
    core_times,
    load_average,
    own_seconds,
    quota_times,
    waits,
)

_SHARE = 0.0005  # of one core that looking may take
_FIRST_PAUSE = 0.5  # seconds until the second look; later ones come at most twice as late as the one before

PREFIX = "resource/"
# Sums over the looks, in seconds of one core, but for the first.
SUMS = ("measured_seconds", "core_seconds", "own_core_seconds", "others_core_seconds", "idle_core_seconds",
        "stolen_core_seconds", "waited_core_seconds", "throttled_core_seconds",
        "throttled_by_others_core_seconds")  # fmt: skip
LEVELS = ("load_average", "clock_mhz")  # as they are at a look
Amounts = dict[str, float]


class DisturbanceMeter:
    """Amounts since the look before; looks are so far apart that they cost next to nothing."""

    def __init__(self, system: System | None = None):
        self._system = system or System()
        self._started = self._last = time.monotonic()
        self._due = 0.0
        self._own = 0.0
        self._cores: CoreTimes | None = None
        self._quotas: dict[Path, QuotaTimes] = {}
        self._waits: dict[tuple[int, str], float] | None = None
        # By which others' time was below zero so far: in each cgroup, and on the cores (None).
        self._owed: dict[Path | None, float] = {}
        self._begun = False

    def look(self, processes: Sequence[int], at_once: bool = False) -> Amounts:
        """Amounts since the look before; empty at the first one, and as long as the next one is not due."""
        now = time.monotonic()
        if now < self._due and not at_once:
            return {}
        before = time.thread_time()
        try:
            found = self._amounts(processes, now)
        except ValueError:  # something stands in a file of the system that does not belong there
            found = {}
        cost = time.thread_time() - before
        self._due = now + max(min(cost / _SHARE, now - self._started), _FIRST_PAUSE)
        return found

    def _amounts(self, processes: Sequence[int], now: float) -> Amounts:
        cores, quotas, waiting = core_times(self._system), quota_times(self._system), waits(processes, self._system)
        total, seconds = own_seconds(processes, self._system), now - self._last
        own = max(total - self._own, 0.0)
        found = {
            "measured_seconds": seconds,
            "core_seconds": seconds * max(len(self._system.cores), 1),
            "own_core_seconds": own,
            **self._of_cores(cores, own),
            **self._of_quotas(quotas, own),
        }
        if waiting is not None and self._waits is not None:
            # Of a thread whose number was another's before, all of its waiting is new.
            past = self._waits
            new = (waited - past[key] if waited >= past.get(key, 0.0) and key in past else waited
                   for key, waited in waiting.items())  # fmt: skip
            found["waited_core_seconds"] = sum(new)
        for name, level in zip(LEVELS, (load_average(self._system), clock_mhz(self._system)), strict=True):
            found |= {} if level is None else {name: level}
        first, self._begun = not self._begun, True
        self._last, self._own, self._cores, self._quotas, self._waits = now, total, cores, quotas, waiting
        return {} if first else {name: round(amount, 4) for name, amount in found.items()}

    def _of_cores(self, now: CoreTimes | None, own: float) -> Amounts:
        past = self._cores
        if now is None or past is None:
            return {}
        return {
            "others_core_seconds": self._others(None, now.busy - past.busy - own),
            "idle_core_seconds": max(now.idle - past.idle, 0.0),
            "stolen_core_seconds": max(now.stolen - past.stolen, 0.0),
        }

    def _of_quotas(self, now: dict[Path, QuotaTimes], own: float) -> Amounts:
        """Throttling by all cgroups together; of each, others caused at most what they used of it."""
        total, by_others, known = 0.0, 0.0, True
        both = [(folder, times, self._quotas[folder]) for folder, times in now.items() if folder in self._quotas]
        for folder, times, past in both:
            throttled = max(times.throttled - past.throttled, 0.0)
            total += throttled
            if times.used is not None and past.used is not None:
                by_others += min(throttled, self._others(folder, times.used - past.used - own))
            elif throttled:
                known = False
        found = {"throttled_core_seconds": total} if both else {}
        return found | ({"throttled_by_others_core_seconds": by_others} if both and known else {})

    def _others(self, where: Path | None, seconds: float) -> float:
        """Others' time, never negative: the kernel rounds times, and what is below zero is taken from later looks."""
        left = seconds + self._owed.get(where, 0.0)
        self._owed[where] = min(left, 0.0)
        return max(left, 0.0)
