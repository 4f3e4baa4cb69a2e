"""Memory and processor time of the whole process tree."""

import resource
import time
from collections.abc import Callable, Iterable
from contextlib import suppress

import psutil

from rlcb.disturbance.meter import Amounts, DisturbanceMeter
from rlcb.hardware import Memory, memory_of, usable_cpus
from rlcb.run.energy import EnergyMeter

_AT_ONCE = 0.25  # seconds
_SHARE = 0.01  # of one core that looking at memory may take
MEASURES = ("pss", "rss")  # how memory can be measured, the better one first


class MemoryProbe:
    """Memory of some processes, looked at again only when that costs little in relation to the time since."""

    def __init__(self, processes: Callable[[], Iterable[psutil.Process]]):
        self._processes, self._latest, self._due = processes, Memory(), 0.0

    def __call__(self) -> Memory:
        """Their memory, as it was at the last look or is now."""
        if time.monotonic() >= self._due:
            before, found = time.thread_time(), Memory()
            for process in self._processes():
                try:
                    found += memory_of(process)
                except psutil.NoSuchProcess:  # it ended between listing and asking
                    continue
            self._latest = found
            self._due = time.monotonic() + (time.thread_time() - before) / _SHARE
        return self._latest


class ResourceMeter:
    """Samples the tree when asked and remembers peak and mean."""

    def __init__(
        self,
        elsewhere: Callable[[], tuple[Memory, float]] = lambda: (Memory(), 0.0),
        cores: int | None = None,
        disturbance: DisturbanceMeter | None = None,
        apart: int | None = None,
    ):
        """`elsewhere`: memory and processor seconds of processes on other machines; `cores`: usable ones in total.

        `disturbance`: None where the run's processes are not all in this process's tree; `apart`: a process in it
        that, with those it has started, is not the run's work.
        """
        self._process, self._elsewhere, self._disturbance = psutil.Process(), elsewhere, disturbance
        self._apart = apart
        self._energy = EnergyMeter(on_cluster=cores is not None)
        self._amounts: Amounts = {}
        self._probe = MemoryProbe(lambda: self._own(self._tree()))
        self._started = self._last = time.perf_counter()
        tree = self._tree()
        self._cpu_at_last, self._busy = _seconds(self._own(tree)) + elsewhere()[1], 0.0
        self._look(tree)
        self._cores = cores or usable_cpus()
        self.measure = "pss"  # until it is not known of some process
        self._peak, self._sum = dict.fromkeys(MEASURES, 0), dict.fromkeys(MEASURES, 0)
        self._samples = 0
        self._latest = (0.0, 0.0)

    def sample(self) -> tuple[float, float]:
        """Memory in GB, and the share of the usable cores busy since the last sample in percent.

        Looking at all processes takes milliseconds, so asking again at once gets the same answer; memory costs more
        and is that of the probe's last look.
        """
        if self._samples and time.perf_counter() - self._last < _AT_ONCE:
            return self._latest
        away, away_seconds = self._elsewhere()
        tree = self._tree()
        memory, cpu = self._probe() + away, _seconds(self._own(tree)) + away_seconds
        self._look(tree)
        self._energy.look()
        used = {"rss": memory.rss, "pss": memory.pss or 0}
        for name in MEASURES:
            self._peak[name] = max(self._peak[name], used[name])
            self._sum[name] += used[name]
        self._peak["rss"] = max(self._peak["rss"], resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
        if memory.pss is None:
            self.measure = "rss"
        self._samples += 1
        now = time.perf_counter()
        busy = max(cpu - self._cpu_at_last, 0.0)  # a process that ended takes its time out of the sum
        share = busy / max(now - self._last, 1e-9) / self._cores
        self._last, self._cpu_at_last, self._busy = now, cpu, self._busy + busy
        self._latest = used[self.measure] / 2**30, 100 * share
        return self._latest

    def amounts(self) -> Amounts:
        """Who used the cores between the last two looks at that; empty if there was none since this was last asked."""
        found, self._amounts = self._amounts, {}
        return found

    def totals(self) -> dict[str, float | str | None]:
        """Peak and mean memory in GB, how it was measured, the peak as RSS; the mean share of the cores in percent.

        Also how many cores that is, and the mean power of this machine's processors.
        """
        elapsed = max(self._last - self._started, 1e-9)
        share = self._busy / elapsed / self._cores
        peak, mean = self._peak[self.measure], self._sum[self.measure] / max(self._samples, 1)
        return {
            "peak_memory_gb": round(peak / 2**30, 3) if self._samples else None,
            "average_memory_gb": round(mean / 2**30, 3) if self._samples else None,
            "memory_measure": self.measure if self._samples else None,
            "peak_rss_gb": round(self._peak["rss"] / 2**30, 3) if self._samples else None,
            "cpu_percent": round(100 * share, 1) if self._samples else None,
            "busy_cores": round(share * self._cores, 3) if self._samples else None,
            **self._energy.totals(),
        }

    def _tree(self) -> list[psutil.Process]:
        return [self._process, *self._process.children(recursive=True)]

    def _own(self, tree: Iterable[psutil.Process]) -> list[psutil.Process]:
        """Those of a tree, in which parents precede their children, whose work is the run's."""
        if self._apart is None:
            return list(tree)
        own, apart = [], {self._apart}
        for process in tree:
            with suppress(psutil.NoSuchProcess):
                if process.pid in apart or process.ppid() in apart:
                    apart.add(process.pid)
                else:
                    own.append(process)
        return own

    def _look(self, tree: Iterable[psutil.Process]) -> None:
        if self._disturbance is not None:
            self._amounts = self._disturbance.look([process.pid for process in tree]) or self._amounts


def _seconds(tree: Iterable[psutil.Process]) -> float:
    """Processor seconds of these processes up to now."""
    total = 0.0
    for process in tree:
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system
    return total
