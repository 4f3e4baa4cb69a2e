"""Publishes in one process and reads in another; kills the publisher at any moment, many times. Prints a JSON object.

Every entry of a vector is its version, so a mixture of two shows. torch is imported once: the publishers are forks.
"""

import json
import os
import random
import signal
import time
from collections.abc import Callable
from typing import Any, NoReturn

import torch

from rlcb.comm.versioned_weights import VersionedWeights

LENGTH = 30_000
VERSIONS = 5_000  # at least so many are published in a race
SEEN = 300  # and at least so many of them seen
KILLS = 200


def forked(work: Callable[[], NoReturn]) -> int:
    """Do this in another process; returns its id."""
    child = os.fork()
    if child == 0:
        try:
            work()
        finally:
            os._exit(1)
    return child


def kill(child: int) -> None:
    """End the process with SIGKILL."""
    os.kill(child, signal.SIGKILL)
    see_killed(child)


def see_killed(child: int) -> None:
    """Wait until the process was killed; anything else that ended it is an error of its own."""
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status), "the publisher failed by itself"


def publish_on(descriptor: int) -> NoReturn:
    """Publish one version after the other, in two parts, at an uneven pace."""
    published, vector, draw = VersionedWeights(descriptor, LENGTH), torch.empty(LENGTH), random.Random(3)
    version = published.read(vector)
    while True:
        version += 1
        vector.fill_(version)
        published.publish(version, vector[:1000], vector[1000:])
        until = time.perf_counter() + draw.choice((0.0, 0.0, 0.00002, 0.0001))
        while time.perf_counter() < until:
            pass  # sleeping would give the reader all the time it wants


def race(into: torch.Tensor) -> dict[str, int]:
    """Read while another process publishes, until enough was seen."""
    descriptor = os.memfd_create("race")
    published = VersionedWeights(descriptor, LENGTH)
    child = forked(lambda: publish_on(descriptor))
    found = {"reads": 0, "versions": 0, "torn": 0, "backwards": 0, "last": 0}
    while found["versions"] < SEEN or found["last"] < VERSIONS:
        version = published.read(into)
        found["reads"] += 1
        found["torn"] += not bool((into == version).all())
        found["backwards"] += version < found["last"]
        found["versions"] += version != found["last"]
        found["last"] = version
        os.sched_yield()  # in case the two have but one core
    kill(child)
    os.close(descriptor)
    return found


class Deadly:
    """A part whose turn the publisher does not survive."""

    def numel(self) -> NoReturn:
        """Die."""
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError


def die_publishing(descriptor: int, *before: int) -> NoReturn:
    """Be killed in the middle of the next version, when parts of these lengths have been written."""
    published = VersionedWeights(descriptor, LENGTH)
    version = published.read(torch.empty(LENGTH)) + 1
    parts: list[Any] = [torch.full((length,), float(version)) for length in before]
    published.publish(version, *parts, Deadly())  # type: ignore[arg-type]
    raise AssertionError


def judge(descriptor: int, before: int) -> dict[str, int]:
    """What a process that comes afterwards finds."""
    published, vector = VersionedWeights(descriptor, LENGTH), torch.empty(LENGTH)
    version = published.read(vector)
    in_the_middle = bool(published._words[0] > published._words[8])
    found = {"version": version, "in_the_middle": int(in_the_middle), "backwards": int(version < before)}
    found["torn"] = int(not bool((vector == version).all()))
    found["newest_lost"] = int(not bool((published.read_version(version) == version).all()))
    try:
        older = published.read_version(version - 1)
    except LookupError:
        found["older_lost"] = int(not in_the_middle and version > 1)
    else:
        found["older_lost"] = int(in_the_middle or not bool((older == version - 1).all()))
    return found


def kills() -> list[dict[str, int]]:
    """Publishers, each killed at some moment, the next one going on where it was."""
    descriptor, draw = os.memfd_create("kills"), random.Random(5)
    published, vector = VersionedWeights(descriptor, LENGTH), torch.empty(LENGTH)
    published.publish(1, torch.ones(LENGTH))
    verdicts = [judge(descriptor, 1)]
    for number in range(KILLS):
        if number % 10 < 3:
            lengths = ((), (LENGTH // 2,), (LENGTH // 2, LENGTH - LENGTH // 2))[number % 10]
            see_killed(forked(lambda lengths=lengths: die_publishing(descriptor, *lengths)))  # type: ignore[misc]
        else:
            child = forked(lambda: publish_on(descriptor))
            while published.read(vector) == verdicts[-1]["version"]:
                os.sched_yield()
            time.sleep(draw.random() * 0.003)
            kill(child)
        verdicts.append(judge(descriptor, verdicts[-1]["version"]))
    return verdicts


if __name__ == "__main__":
    torch.set_num_threads(1)
    slow = torch.empty(2 * LENGTH, dtype=torch.float64)[::2]  # copying takes longer than publishing
    print(json.dumps({"race": race(torch.empty(LENGTH)), "slow race": race(slow), "kills": kills()}))
