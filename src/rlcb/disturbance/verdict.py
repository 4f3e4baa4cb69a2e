"""Whether a measurement was disturbed by other programs, from sums over the looks at it."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rlcb.disturbance.meter import LEVELS, PREFIX, SUMS, Amounts

MOST_LOST = 5.0  # percent of its CPU time that a run may lose to others
MOST_OTHERS, LEAST_IDLE = 20.0, 10.0  # percent of the cores: so much used by others while so little is idle
AGAIN = "repeat on a quiet machine"
SHORTEST = 0.5  # seconds that must have been measured


@dataclass(frozen=True)
class Disturbance:
    """Figures of a measurement; None: not known. docs/metrics.md defines each."""

    disturbed: bool | None = None
    lost_percent: float | None = None
    others_percent: float | None = None
    idle_percent: float | None = None
    waited_percent: float | None = None
    stolen_percent: float | None = None
    throttled_percent: float | None = None
    load_average: float | None = None
    clock_mhz: float | None = None
    measured_seconds: float = 0.0

    @property
    def words(self) -> str:
        """The figures that show it."""
        lost = "" if self.lost_percent is None else f" ({_percent(self.lost_percent)} of its CPU time lost)"
        found = [f"other programs used {_percent(self.others_percent)} of the cores{lost}"]
        found += [f"stolen {_percent(self.stolen_percent)}", f"throttled {_percent(self.throttled_percent)}"]
        return ", ".join(found)


def _percent(value: float | None) -> str:
    return "an unknown share" if value is None else f"{value:.0f} %"


class Sums:
    """Amounts of all looks together."""

    def __init__(self) -> None:
        self._totals: Amounts = {}
        self._counts = dict.fromkeys(LEVELS, 0)

    def add(self, amounts: Mapping[str, Any], prefix: str = "") -> None:
        """Take in a look; `prefix`: of the names in these amounts, among which there may be others."""
        for name in (*SUMS, *LEVELS):
            value = amounts.get(prefix + name)
            if isinstance(value, int | float) and math.isfinite(value) and value >= 0:
                self._totals[name] = self._totals.get(name, 0.0) + value
                if name in LEVELS:
                    self._counts[name] += 1

    def verdict(self) -> Disturbance:
        """What the sums say."""
        levels = {name: round(self._totals[name] / count, 2) for name, count in self._counts.items() if count}
        return judge({name: self._totals[name] for name in SUMS if name in self._totals}, levels)


def as_columns(amounts: Amounts) -> Amounts:
    """A look's amounts under the names of a line of metrics, and how much of its CPU time the run lost."""
    lost = judge(amounts, {}).lost_percent if amounts else None
    return {PREFIX + name: amount for name, amount in amounts.items()} | (
        {} if lost is None else {f"{PREFIX}lost_percent": lost}
    )


def judge(sums: Amounts, levels: Amounts) -> Disturbance:
    """The verdict on these sums.

    Others took at most the time that they used, and at most the time that this run's threads waited for a core: of
    the rest of the former the cores were idle otherwise, of the latter the run's own threads waited for each other.
    """
    seconds, cores, own = (sums.get(name, 0.0) for name in SUMS[:3])
    others, idle, stolen, waited, throttled, by_others = (sums.get(name) for name in SUMS[3:])
    if not cores:
        return Disturbance(load_average=levels.get("load_average"), clock_mhz=levels.get("clock_mhz"))
    queued = None if waited is None else max(waited - (throttled or 0.0), 0.0)
    known = [amount for amount in (others, queued) if amount is not None]
    complete = len(known) == 2 and (not throttled or by_others is not None)
    # What the hypervisor took is divided among those who ran.
    certain = (stolen or 0.0) * (own / (own + others) if others and own else 1.0) + (by_others or 0.0)
    lost = _share(certain + (min(known) if len(known) == 2 else 0.0), own)
    most = _share(certain + min(known), own) if known and (complete or not throttled) else 100.0
    used, free = _of(others, cores), _of(idle, cores)
    crowded = used is not None and free is not None and used >= MOST_OTHERS and free < LEAST_IDLE
    disturbed = True if crowded or lost >= MOST_LOST else None if most >= MOST_LOST else False
    return Disturbance(
        disturbed=disturbed if seconds >= SHORTEST else None,
        lost_percent=round(lost, 2) if complete else None,
        others_percent=used,
        idle_percent=free,
        waited_percent=None if waited is None else round(_share(waited, own), 2),
        stolen_percent=_of(stolen, cores),
        throttled_percent=None if throttled is None else round(_share(throttled, own), 2),
        load_average=levels.get("load_average"),
        clock_mhz=levels.get("clock_mhz"),
        measured_seconds=round(seconds, 3),
    )


def _of(part: float | None, whole: float) -> float | None:
    return None if part is None else round(min(100 * part / whole, 100.0), 2)


def _share(part: float, rest: float) -> float:
    """A part in percent of itself and the rest."""
    return 100 * part / (part + rest) if part else 0.0
