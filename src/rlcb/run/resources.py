"""Memory and processor time of the whole process tree."""

import resource
import time
from collections.abc import Callable

import psutil

from rlcb.hardware import usable_cpus

_AT_ONCE = 0.25  # seconds


class ResourceMeter:
    """Samples the tree when asked and remembers peak and mean."""

    def __init__(self, elsewhere: Callable[[], tuple[int, float]] = lambda: (0, 0.0), cores: int | None = None):
        """`elsewhere`: bytes and processor seconds of processes on other machines; `cores`: usable ones in all."""
        self._process, self._elsewhere = psutil.Process(), elsewhere
        self._started = self._last = time.perf_counter()
        self._cpu_at_last, self._busy = self._usage()[1], 0.0
        self._cores = cores or usable_cpus()
        self.peak_bytes = 0
        self._sum_bytes, self._samples = 0, 0
        self._latest = (0.0, 0.0)

    def sample(self) -> tuple[float, float]:
        """Memory in GB now, and the share of the usable cores busy since the last sample in percent.

        Looking at all processes takes milliseconds, so asking again at once gets the same answer.
        """
        if self._samples and time.perf_counter() - self._last < _AT_ONCE:
            return self._latest
        used, cpu = self._usage()
        self.peak_bytes = max(self.peak_bytes, used, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
        self._sum_bytes += used
        self._samples += 1
        now = time.perf_counter()
        busy = max(cpu - self._cpu_at_last, 0.0)  # a process that ended takes its time out of the sum
        share = busy / max(now - self._last, 1e-9) / self._cores
        self._last, self._cpu_at_last, self._busy = now, cpu, self._busy + busy
        self._latest = used / 2**30, 100 * share
        return self._latest

    def totals(self) -> dict[str, float | None]:
        """Peak and mean memory in GB and the mean share of the usable cores in percent."""
        elapsed = max(self._last - self._started, 1e-9)
        share = self._busy / elapsed / self._cores
        return {
            "peak_memory_gb": round(self.peak_bytes / 2**30, 3) if self._samples else None,
            "average_memory_gb": round(self._sum_bytes / self._samples / 2**30, 3) if self._samples else None,
            "cpu_percent": round(100 * share, 1) if self._samples else None,
        }

    def _usage(self) -> tuple[int, float]:
        """Bytes and processor seconds of all processes up to now."""
        used, seconds = self._elsewhere()
        for process in (self._process, *self._process.children(recursive=True)):
            try:
                memory, times = process.memory_info().rss, process.cpu_times()
            except psutil.NoSuchProcess:  # it ended between listing and asking
                continue
            used, seconds = used + memory, seconds + times.user + times.system
        return used, seconds
