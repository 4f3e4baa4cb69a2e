"""What Linux tells about the use of the cores: files of /proc and /sys, as they are now. None: not readable here."""

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean

from rlcb.hardware import cgroup_folders, read_system_file

_FIELDS = 8  # of a core's line in /proc/stat: user, nice, system, idle, iowait, irq, softirq, steal
_MOST_CLOCKS = 4  # cores whose clock is read


def _ticks() -> int:
    return os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100


def _affinity() -> frozenset[int]:
    """The cores that this process may use; none where the system does not tell."""
    return frozenset(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else frozenset()


@dataclass(frozen=True)
class System:
    """Where these files are, and which cores to look at."""

    proc: Path = Path("/proc")
    cpus: Path = Path("/sys/devices/system/cpu")
    cgroups: Path = Path("/sys/fs/cgroup")
    cores: frozenset[int] = field(default_factory=_affinity)
    ticks: int = field(default_factory=_ticks)  # per second, the unit of CPU times in /proc


@dataclass(frozen=True)
class CoreTimes:
    """Seconds of several cores together since the system was started."""

    busy: float
    idle: float
    stolen: float


@dataclass(frozen=True)
class QuotaTimes:
    """Seconds of a cgroup: kept from running by its quota, and used by all of its processes."""

    throttled: float
    used: float | None


def core_times(system: System) -> CoreTimes | None:
    """The times of the cores to look at."""
    found: dict[int, list[int]] = {}
    for line in read_system_file(system.proc / "stat").splitlines():
        name, *values = line.split() or [""]
        if name.startswith("cpu") and name[3:].isdigit() and len(values) >= _FIELDS:
            found[int(name[3:])] = [int(value) for value in values[:_FIELDS]]
    if not system.cores or not system.cores <= found.keys():
        return None
    user, nice, kernel, idle, iowait, irq, softirq, stolen = (
        sum(values) / system.ticks for values in zip(*(found[core] for core in system.cores), strict=True)
    )
    return CoreTimes(user + nice + kernel + irq + softirq, idle + iowait, stolen)


def own_seconds(processes: Iterable[int], system: System) -> float:
    """CPU time of these processes, and of their children that have ended and were waited for."""
    total = 0
    for process in processes:
        # The name in parentheses may contain anything, also parentheses.
        values = read_system_file(system.proc / str(process) / "stat").rpartition(")")[2].split()
        total += sum(map(int, values[11:15]))
    return total / system.ticks


def waits(processes: Iterable[int], system: System) -> dict[tuple[int, str], float] | None:
    """Seconds that each thread of these processes was ready to run and waited for a core, by process and thread."""
    found: dict[tuple[int, str], float] = {}
    for process in processes:
        folder = system.proc / str(process) / "task"
        try:
            threads = os.listdir(folder)
        except OSError:  # it has ended
            continue
        for thread in threads:
            values = read_system_file(folder / thread / "schedstat").split()
            # A kernel that does not count them says 0 for everything, also for how often the thread ran.
            if len(values) == 3 and values[2] != "0":
                found[process, thread] = int(values[1]) * 1e-9
    return found or None


def quota_times(system: System) -> dict[Path, QuotaTimes]:
    """What the cgroups say that this process is in, version 2 and 1; none where no quota can be set."""
    found = {}
    for folder in cgroup_folders("cpu", system.cgroups, system.proc / "self" / "cgroup"):
        values = dict(line.split(" ", 1) for line in read_system_file(folder / "cpu.stat").splitlines() if " " in line)
        if "throttled_usec" in values:  # version 2
            used = int(values["usage_usec"]) * 1e-6 if "usage_usec" in values else None
            found[folder] = QuotaTimes(int(values["throttled_usec"]) * 1e-6, used)
        elif "throttled_time" in values:  # version 1, where another controller counts what is used
            account = system.cgroups / "cpuacct" / folder.relative_to(system.cgroups / "cpu")
            text = read_system_file(account / "cpuacct.usage").strip()
            used = int(text) * 1e-9 if text.isdigit() else None
            found[folder] = QuotaTimes(int(values["throttled_time"]) * 1e-9, used)
    return found


def clock_mhz(system: System) -> float | None:
    """The mean clock frequency of the first cores; a virtual machine often gives a constant."""
    first = sorted(system.cores)[:_MOST_CLOCKS]
    texts = [read_system_file(system.cpus / f"cpu{core}" / "cpufreq" / "scaling_cur_freq").strip() for core in first]
    known = [int(text) / 1000 for text in texts if text.isdigit()]
    if not known:
        lines = read_system_file(system.proc / "cpuinfo").splitlines()
        values = [line.partition(":")[2].strip() for line in lines if line.startswith("cpu MHz")]
        known = [float(values[core]) for core in first if core < len(values) and values[core]]
    return fmean(known) if known else None


def load_average(system: System) -> float | None:
    """Threads that ran or wanted to, mean over the last minute, of the whole machine."""
    words = read_system_file(system.proc / "loadavg").split()
    return float(words[0]) if words else None
