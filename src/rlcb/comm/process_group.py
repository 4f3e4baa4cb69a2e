"""Process groups: P processes that compute the same updates in step and add up numbers over all of them.

Every rank calls the same operations in the same order and gets bit-identical results: sums always run from rank 0 up.
A group of one does nothing, so a sequential run is a group of one.

Memory model of `SharedMemoryGroup`: a rank writes its numbers, then its arrival counter; the others wait for the
counters, then read the numbers. See `shared_memory` for what that relies on.
"""

import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
from torch import Tensor

from rlcb.comm.control import Control
from rlcb.comm.shared_memory import fence, mapped

_SMALL = 512  # float64 values that cross at a time in `sum`
_TURN = 0.05  # seconds to wait for gloo at a time
_abandoned: list[Any] = []  # groups with an operation in progress: to free one would mean to wait for it
_SPINS = 100  # looks at the barrier before the core is offered to others


class GroupBroken(Exception):
    """A member of the group is gone; what was in progress has to be done again."""


@dataclass
class CommSeconds:
    """Where the time of an update went that was not spent computing."""

    reduce: float = 0.0  # averaging gradients
    wait: float = 0.0  # waiting for other ranks

    @property
    def total(self) -> float:
        """Both together."""
        return self.reduce + self.wait

    def reset(self) -> None:
        """Begin another update."""
        self.reduce = self.wait = 0.0


class SoloGroup:
    """A group of one."""

    rank, size = 0, 1

    def __init__(self) -> None:
        self.seconds = CommSeconds()

    def all_reduce_mean(self, vector: Tensor) -> None:
        """The mean of one vector is the vector."""

    def sum(self, values: Tensor) -> Tensor:
        """The sum of a float64 tensor over all ranks."""
        return values


class SharedMemoryGroup:
    """Ranks on one machine that have the same memory mapped, and a barrier that they wait at."""

    def __init__(self, control: Control, rank: int, descriptor: int, generation: int, heartbeat: Callable[[], None]):
        """`descriptor`: the group's memory; this object uses its first `header_bytes`."""
        self.rank, self.size, self.descriptor = rank, control.size, descriptor
        self.seconds = CommSeconds()
        self._control, self._generation, self._heartbeat = control, generation, heartbeat
        self._arrived = generation << 32  # arrivals of an earlier generation can never be mistaken for this one's
        self.header_bytes = 8 * _SMALL * self.size
        memory = mapped(descriptor, self.header_bytes)
        self._small = torch.frombuffer(memory, dtype=torch.float64, count=_SMALL * self.size).view(self.size, _SMALL)

    def sum(self, values: Tensor) -> Tensor:
        """Every rank writes its values, then every rank adds all of them up."""
        pieces = []
        for piece in torch.split(values.flatten(), _SMALL):
            self._small[self.rank, : len(piece)] = piece
            self.barrier()
            total = self._small[0, : len(piece)].clone()
            for rank in range(1, self.size):
                total += self._small[rank, : len(piece)]
            self.barrier()  # no process may write again before all have read
            pieces.append(total)
        return torch.cat(pieces).view_as(values)

    def norm(self, own: Tensor) -> Tensor:
        """The Euclidean norm of a vector of which each rank has the norm of its own part."""
        self._small[self.rank, 0] = own
        self.barrier()
        norm = vector_norm(self._small[:, 0]).float()
        # Nobody may write again before all have read. After a step the next barrier sees to that; a norm that is not
        # finite is followed by none, and a rank that read another number would take a step that the others leave out.
        if not torch.isfinite(norm):
            self.barrier()
        return norm

    def barrier(self) -> None:
        """Wait for all ranks. Arrivals are looked at before the generation: a barrier once passed stays passed."""
        started = time.perf_counter()
        self._arrived += 1
        arrivals, wanted, spins = self._control.arrivals, self._arrived, 0
        fence()
        arrivals[self.rank] = wanted
        while int(arrivals.min()) < wanted:
            spins += 1
            if spins > _SPINS:
                self._heartbeat()
                os.sched_yield()
            if self._control.generation != self._generation and int(arrivals.min()) < wanted:
                raise GroupBroken
        fence()
        self.seconds.wait += time.perf_counter() - started


class GlooGroup:
    """Ranks that talk over sockets through torch.distributed's gloo, also between machines.

    gloo does not notice a peer that falls silent, and an operation that waits for one cannot be cancelled. So a rank
    waits for every operation in short turns and calls `check` between them; when that raises GroupBroken, the
    operation is left to itself, with the sockets and tensors that belong to this group alone.
    """

    def __init__(self, rank: int, size: int, store: Any, timeout: float, check: Callable[[], None]):
        """`store`: where the ranks find each other, one of torch.distributed's."""
        from torch.distributed import ProcessGroupGloo

        self.rank, self.size, self.seconds, self._check = rank, size, CommSeconds(), check
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        patience = timedelta(seconds=10 * timeout)
        self._gloo: Any = None
        self._refusal: BaseException | None = None

        def meet() -> None:
            try:
                self._gloo = ProcessGroupGloo(store, rank, size, patience)
            except BaseException as error:  # told by the thread that waits
                self._refusal = error

        meeting = threading.Thread(target=meet, daemon=True)  # it waits for the other ranks and cannot be interrupted
        meeting.start()
        while meeting.is_alive():
            meeting.join(_TURN)
            check()
        if self._gloo is None:
            raise GroupBroken from self._refusal

    def all_reduce_mean(self, vector: Tensor) -> None:
        """Replace every rank's vector by the mean of all."""
        started = time.perf_counter()
        self._wait_for(self._gloo.allreduce([vector]))
        vector.div_(self.size)
        self.seconds.reduce += time.perf_counter() - started

    def sum(self, values: Tensor) -> Tensor:
        """Gather and add in rank order, so that the result does not depend on how gloo routes."""
        started = time.perf_counter()
        parts = [torch.empty_like(values) for _ in range(self.size)]
        self._wait_for(self._gloo.allgather([parts], [values]))
        total = parts[0]
        for part in parts[1:]:
            total = total + part
        self.seconds.wait += time.perf_counter() - started
        return total

    def _wait_for(self, work: Any) -> None:
        """Wait until an operation is done, unless the group is given up before."""
        while True:
            try:
                work.wait(timedelta(seconds=_TURN))
                return
            except RuntimeError as error:  # gloo reports a lost peer as one, and the end of a turn
                if work.is_completed():
                    raise GroupBroken from error
            try:
                self._check()
            except GroupBroken:
                _abandoned.append((self._gloo, work))
                raise

    def leave(self) -> None:
        """Close the sockets, unless an operation that was abandoned still uses them."""
        self._gloo = None


ProcessGroup = SoloGroup | SharedMemoryGroup | GlooGroup


def vector_norm(vector: Tensor) -> Tensor:
    """The Euclidean norm."""
    norm: Tensor = torch.linalg.vector_norm(vector)
    return norm
