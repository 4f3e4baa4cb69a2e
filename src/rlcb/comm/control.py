"""A page of shared memory between a supervisor and its workers: heartbeats, the group's generation, the stop request.

Memory model: every word has one writer (a worker its own heartbeat and arrival, the supervisor the rest) and is an
aligned 64-bit integer, which processors write and read whole. Nothing but the barrier of `process_group` draws
conclusions from the order of two words; that order is secured there.
"""

import numpy as np

from rlcb.comm.shared_memory import mapped

_LINE = 8  # int64 per cache line: words of different writers must not share one


class Control:
    """The page; supervisor and workers each map it by its descriptor."""

    def __init__(self, descriptor: int, size: int):
        self.descriptor, self.size = descriptor, size
        memory = mapped(descriptor, 8 * _LINE * (2 + 3 * size))
        words = np.frombuffer(memory, np.int64).reshape(-1, _LINE)[:, 0]
        self._common = words[:2]
        self.heartbeats = words[2 : 2 + size]  # one counter per worker
        self.arrivals = words[2 + size : 2 + 2 * size]  # one counter per worker: barriers reached, or gradients applied
        self.incarnations = words[2 + 2 * size :]  # per place: which of the processes that have been there counts

    @property
    def generation(self) -> int:
        """How often the group was formed; a change tells workers inside a collective operation to abandon it."""
        return int(self._common[0])

    def next_generation(self) -> int:
        """Make workers abandon what they are doing together."""
        self._common[0] += 1
        return self.generation

    @property
    def stop(self) -> bool:
        """Whether the run was asked to end after its current update."""
        return bool(self._common[1])

    def request_stop(self) -> None:
        """Ask the run to end after its current update."""
        self._common[1] = 1


class Heartbeat:
    """One worker's counter on the control page; the supervisor replaces a worker whose counter stands still."""

    def __init__(self, control: Control, index: int):
        self._counters, self._index = control.heartbeats, index

    def __call__(self) -> None:
        """Count one up."""
        self._counters[self._index] += 1


def no_heartbeat() -> None:
    """The heartbeat of a process that is not watched."""
