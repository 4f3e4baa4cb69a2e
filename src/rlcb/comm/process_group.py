"""Process groups: P processes that compute the same updates in step and add up numbers over all of them.

Every rank calls the same operations in the same order and gets bit-identical results: sums always run from rank 0 up.
A group of one does nothing, so a sequential run is a group of one.

Memory model of `SharedMemoryGroup`: a rank writes its numbers, then its arrival counter; the others wait for the
counters, then read the numbers. See `memory_order` for what that relies on.
"""

import mmap
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Protocol

import torch
from torch import Tensor

from rlcb.comm.control import Control
from rlcb.comm.memory_order import fence

_SMALL = 512  # float64 values that cross at a time in `sum`
_SPINS = 100  # looks at the barrier before the core is offered to others


class GroupBroken(Exception):
    """A member of the group is gone; what was under way has to be done again."""


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


class ProcessGroup(Protocol):
    """What a worker needs of the others."""

    rank: int
    size: int
    seconds: CommSeconds

    def sum(self, values: Tensor) -> Tensor:
        """The sum of a float64 tensor over all ranks."""

    def leave(self) -> None:
        """Release what the group holds, whether it is whole or broken."""


class SoloGroup:
    """A group of one."""

    rank, size = 0, 1

    def __init__(self) -> None:
        self.seconds = CommSeconds()

    def all_reduce_mean(self, vector: Tensor) -> None:
        """The mean of one vector is the vector."""

    def sum(self, values: Tensor) -> Tensor:
        """The sum of one is itself."""
        return values

    def leave(self) -> None:
        """Nothing is held."""


class SharedMemoryGroup:
    """Ranks on one machine that have the same memory mapped, and a barrier that they wait at."""

    def __init__(self, control: Control, rank: int, descriptor: int, generation: int, heartbeat: Callable[[], None]):
        """`descriptor`: the group's memory; this object uses its first `header_bytes`."""
        self.rank, self.size, self.descriptor = rank, control.size, descriptor
        self.seconds = CommSeconds()
        self._control, self._generation, self._heartbeat = control, generation, heartbeat
        self._arrived = generation << 32  # arrivals of an earlier generation can never be mistaken for this one's
        self.header_bytes = 8 * _SMALL * self.size
        memory = self.map(self.header_bytes)
        self._small = torch.frombuffer(memory, dtype=torch.float64, count=_SMALL * self.size).view(self.size, _SMALL)

    def map(self, length: int) -> mmap.mmap:
        """Map the first bytes of the group's memory, which grows to that length."""
        if os.fstat(self.descriptor).st_size < length:
            os.ftruncate(self.descriptor, length)  # the same length from every rank, whoever comes first
        return mmap.mmap(self.descriptor, length)

    def sum(self, values: Tensor) -> Tensor:
        """Every rank writes its values, then every rank adds all of them up."""
        pieces = []
        for piece in torch.split(values.flatten(), _SMALL):
            self._small[self.rank, : len(piece)] = piece
            self.barrier()
            total = self._small[0, : len(piece)].clone()
            for rank in range(1, self.size):
                total += self._small[rank, : len(piece)]
            self.barrier()  # nobody may write again before all have read
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

    def leave(self) -> None:
        """The memory is unmapped with the object."""


class GlooGroup:
    """Ranks that talk over sockets through torch.distributed's gloo, also between machines."""

    def __init__(self, rank: int, size: int, store: Any, timeout: float):
        """`store`: where the ranks find each other, one of torch.distributed's."""
        import torch.distributed as dist

        self.rank, self.size, self.seconds = rank, size, CommSeconds()
        self._dist = dist
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        patience = timedelta(seconds=10 * timeout)
        self._run(dist.init_process_group, "gloo", store=store, rank=rank, world_size=size, timeout=patience)

    def all_reduce_mean(self, vector: Tensor) -> None:
        """Replace every rank's vector by the mean of all."""
        started = time.perf_counter()
        self._run(self._dist.all_reduce, vector)
        vector.div_(self.size)
        self.seconds.reduce += time.perf_counter() - started

    def sum(self, values: Tensor) -> Tensor:
        """Gather and add in rank order, so that the result does not depend on how gloo routes."""
        started = time.perf_counter()
        parts = [torch.empty_like(values) for _ in range(self.size)]
        self._run(self._dist.all_gather, parts, values)
        total = parts[0]
        for part in parts[1:]:
            total = total + part
        self.seconds.wait += time.perf_counter() - started
        return total

    def leave(self) -> None:
        """Close the sockets."""
        self._dist.destroy_process_group()

    @staticmethod
    def _run(function: Any, *arguments: Any, **options: Any) -> None:
        try:
            function(*arguments, **options)
        except RuntimeError as error:  # gloo reports a lost peer as one
            raise GroupBroken from error


def vector_norm(vector: Tensor) -> Tensor:
    """The Euclidean norm."""
    norm: Tensor = torch.linalg.vector_norm(vector)
    return norm
