"""An actor without environments, network or torch: it fills real slots with what is due to their stamps, and dies.

It is started by `rlcb.comm.pool.LocalWorker` and speaks the real messages. Nothing in it is slow to import, so a
test can afford to lose it many times.
"""

import contextlib
import math
import mmap
import os
import random
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlcb.comm.tickets import Filled, Ticket
from rlcb.execution.messages import ActorSetup, Started
from rlcb.signals import die_with

LINE = 8  # int64 between signs of life on the control page
STOPS = (3, 0, 10)  # this actor, in this life, stops dead in the middle of this rollout


@dataclass(frozen=True)
class Place:
    """Where one array of a slot lies in the memory."""

    offset: int
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class LightSetup:
    """What an actor is told, and where the memory's owner has put everything."""

    actor: ActorSetup
    num_threads: int
    length: int
    stamps: tuple[int, ...]  # offset of each slot's stamps
    places: tuple[tuple[Place, ...], ...]  # of each slot's arrays


def pattern(stamp: int, index: int, shape: tuple[int, ...], dtype: str) -> NDArray[Any]:
    """What the array at this position must hold in the rollout with this stamp: 24 bits, which every type can tell."""
    factor = np.uint64((stamp * 0x9E3779B97F4A7C15 + index * 0xC2B2AE3D27D4EB4F) % 2**64 | 1)
    values = np.arange(1, math.prod(shape) + 1, dtype=np.uint64) * factor >> np.uint64(40)
    return (values & np.uint64(1) if dtype == "|b1" else values).astype(dtype).reshape(shape)


class LightMemory:
    """The slots, written to as `SlotMemory` does."""

    def __init__(self, setup: LightSetup):
        self._memory, self._setup = mmap.mmap(setup.actor.memory.slots, setup.length), setup

    def fill(self, ticket: Ticket) -> Iterator[int]:
        """Fill a slot, a time step at a time."""
        stamps = np.frombuffer(self._memory, np.int64, 2, self._setup.stamps[ticket.slot])
        stamps[:] = (ticket.stamp, 0)
        places = self._setup.places[ticket.slot]
        arrays = [np.ndarray(each.shape, each.dtype, self._memory, each.offset) for each in places]
        due = [pattern(ticket.stamp, index, each.shape, each.dtype) for index, each in enumerate(places)]
        for t in range(max(map(len, arrays))):
            yield t
            for array, values in zip(arrays, due, strict=True):
                array[t : t + 1] = values[t : t + 1]
        stamps[1] = ticket.stamp


def act(channel: "Connection[Any, Any]", setup: LightSetup, heartbeats: NDArray[np.int64]) -> None:
    """Fill what is handed out, at an uneven pace, until some rollout is the last: it stays unfinished."""
    actor, life = setup.actor.index, setup.actor.incarnation
    draw = random.Random(f"{setup.actor.seed_key} {actor} {life}")
    slots, version = LightMemory(setup), np.frombuffer(mmap.mmap(setup.actor.memory.weights, 8), np.int64)
    last, last_step = draw.randrange(60, 200), draw.randrange(setup.actor.config.training.n_steps + 1)
    channel.send(Started(1))
    count = 0
    while True:
        handed: Ticket = channel.recv()
        ticket = replace(handed, incarnation=life, rollout=count, version=int(version[0]))
        for t in slots.fill(ticket):
            heartbeats[actor] += 1
            if draw.random() < 0.1:
                time.sleep(draw.choice((0.0, 0.0002, 0.001, 0.001, 0.02)))
            if (count, t) == (last, last_step):
                os.kill(os.getpid(), signal.SIGKILL)
            if (actor, life, count, t) == (*STOPS, last_step):
                os.kill(os.getpid(), signal.SIGSTOP)
        count += 1
        channel.send(Filled(ticket, {"waiting": 0.0}))


def main() -> None:
    """Wait for the set-up, then act until the end."""
    connection, control, size, _, parent = (int(word) for word in sys.argv[2:7])
    die_with(parent)
    channel: Connection[Any, Any] = Connection(connection)
    words = np.frombuffer(mmap.mmap(control, 8 * LINE * (2 + 2 * size)), np.int64).reshape(-1, LINE)[:, 0]
    with contextlib.suppress(EOFError, ConnectionError):  # the test is over
        act(channel, channel.recv(), words[2 : 2 + size])


if __name__ == "__main__":
    main()
