"""The energy of a machine's processors during a run, from Linux's counters (RAPL), where they can be read."""

import os
import time
from dataclasses import dataclass
from pathlib import Path

from rlcb.hardware import read_system_file

_POWERCAP = Path("/sys/class/powercap")
_OF_PROCESSORS = ("package", "dram")  # zones that do not contain each other; others are parts of these
_LOOKS_APART = 1.0  # seconds


@dataclass(frozen=True)
class _Zone:
    """A counter in microjoules that begins again at zero above its range."""

    path: Path
    span: int

    def read(self) -> int | None:
        text = read_system_file(self.path / "energy_uj").strip()
        return int(text) if text.isdigit() else None


class EnergyMeter:
    """Adds up what the counters of all processors count; of the whole machine, whatever runs on it."""

    def __init__(self, folder: Path = _POWERCAP, on_cluster: bool = False):
        self._zones, self.reason = _find_zones(folder)
        if on_cluster:
            self._zones, self.reason = [], "on a cluster the other nodes' counters are not read"
        self._last = [zone.read() or 0 for zone in self._zones]
        self._started = self._looked = time.monotonic()
        self._joules = 0.0

    def look(self) -> None:
        """Add what was used since the last look; a counter overflows after many minutes at the earliest."""
        if not self._zones or time.monotonic() - self._looked < _LOOKS_APART:
            return
        self._looked = time.monotonic()
        for index, zone in enumerate(self._zones):
            now = zone.read()
            if now is None:
                self._zones, self.reason = [], f"{zone.path}/energy_uj can no longer be read"
                return
            used = now - self._last[index]
            self._joules += max(used if used >= 0 else used + zone.span, 0) / 1e6
            self._last[index] = now

    def totals(self) -> dict[str, float | str | None]:
        """Mean power of the machine's processors since the start, or why it is not known."""
        seconds = self._looked - self._started
        known = bool(self._zones) and seconds > 0
        return {
            "processor_watts": round(self._joules / seconds, 2) if known else None,
            "processor_watts_unknown": None if known else self.reason or "the run was too short to tell",
        }


def _find_zones(folder: Path) -> tuple[list[_Zone], str]:
    """The counters of processors and of their memory; where there are none or one is not readable, why."""
    try:
        paths = sorted(path for path in folder.iterdir() if ":" in path.name)
    except OSError:
        return [], f"the system has no energy counters ({folder})"
    names = {path: read_system_file(path / "name").strip() for path in paths}
    zones = []
    for path in (path for path, name in names.items() if name.startswith(_OF_PROCESSORS)):
        span = read_system_file(path / "max_energy_range_uj").strip()
        zone = _Zone(path, int(span) if span.isdigit() else 0)
        if zone.read() is None:
            how = "may not be read by this user" if not os.access(path / "energy_uj", os.R_OK) else "cannot be read"
            return [], f"{path}/energy_uj {how}"
        zones.append(zone)
    return zones, "" if zones else f"the system has no energy counters of processors ({folder})"
