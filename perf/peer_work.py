"""What the sides of perf/peers.py have in common: the work, the clock, the memory, and the line that a worker prints.

Every worker runs with the Python of its peer's virtual environment, so this imports nothing but psutil.
"""

import argparse
import contextlib
import json
import os
import platform
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psutil

GAME, DISTRIBUTION, NUM_LEVELS, NUM_ACTIONS = "coinrun", "easy", 200, 15
PARAMETERS = 608_944  # of the Nature CNN with a policy head and a value head
_SECONDS_BETWEEN_SAMPLES = 0.5


@dataclass(frozen=True)
class Work:
    """What every side does in one update."""

    n_steps: int  # of each environment
    batch_size: int  # of an optimizer step
    n_epochs: int
    warm_up: int  # updates that are not timed
    gamma: float
    gae_lambda: float
    learning_rate: float
    num_envs: int = 32

    @property
    def steps_per_update(self) -> int:
        """Environment steps of an update."""
        return self.num_envs * self.n_steps


WORK = {
    "ppo": Work(128, 1024, 4, warm_up=1, gamma=0.999, gae_lambda=0.95, learning_rate=3e-4),
    "impala": Work(128, 1024, 1, warm_up=3, gamma=0.999, gae_lambda=1.0, learning_rate=4e-4),
    "a2c": Work(5, 160, 1, warm_up=20, gamma=0.99, gae_lambda=1.0, learning_rate=7e-4),
}


@dataclass
class Clock:
    """Times whole updates: from the end of the warm-up to the first end of one after `seconds` or `most_steps`."""

    work: Work
    seconds: float
    most_steps: int | None = None  # that a run makes, including its warm-up
    marks: list[tuple[int, float]] = field(default_factory=list)  # environment steps and time, from the warm-up's end

    def update_ended(self, env_steps: int, now: float | None = None) -> bool:
        """Note that updates have used so many steps in all; True once enough is timed."""
        now = time.perf_counter() if now is None else now
        if env_steps >= self.work.warm_up * self.work.steps_per_update and not self.enough:
            self.marks.append((env_steps, now))
        return self.enough

    @property
    def enough(self) -> bool:
        """Whether the timed updates took as long as they should, or made all their steps."""
        if len(self.marks) < 2:
            return False
        (_, first), (steps, last) = self.marks[0], self.marks[-1]
        return last - first >= self.seconds or (self.most_steps is not None and steps >= self.most_steps)

    def result(self) -> dict[str, float]:
        """Speed, updates, steps and seconds of the timed updates."""
        if not self.enough:
            raise SystemExit(f"training ended before {self.seconds} s were timed")
        (first_steps, first), (last_steps, last) = self.marks[0], self.marks[-1]
        steps, seconds = last_steps - first_steps, last - first
        updates = steps / self.work.steps_per_update
        return {"fps": steps / seconds, "updates": updates, "env_steps": steps, "seconds": seconds}


class PeakMemory:
    """The most memory that a process and its descendants held together, sampled by a thread."""

    def __init__(self, pid: int):
        self.mb = 0.0
        self._process = psutil.Process(pid)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def _sample(self) -> None:
        while True:
            with contextlib.suppress(psutil.Error):  # the process has ended
                family = [self._process, *self._process.children(recursive=True)]
                self.mb = max(self.mb, sum(map(memory_of, family)) / 2**20)
            if self._ended.wait(_SECONDS_BETWEEN_SAMPLES):
                return

    @classmethod
    @contextlib.contextmanager
    def of(cls, pid: int) -> Iterator["PeakMemory"]:
        """Sample while the block runs."""
        peak = cls(pid)
        peak._thread.start()
        try:
            yield peak
        finally:
            peak._ended.set()
            peak._thread.join()


def memory_of(process: psutil.Process) -> int:
    """Bytes of one process, shared pages divided among those that share them where the system says how many do."""
    try:
        full = process.memory_full_info()
        return int(getattr(full, "pss", full.rss))
    except psutil.Error:  # it has ended, or belongs to somebody else
        return 0


def worker_options(peer: str, algorithms: Sequence[str]) -> argparse.ArgumentParser:
    """The flags that every worker has."""
    parser = argparse.ArgumentParser(description=f"Time {peer} on CoinRun; prints one JSON line at its end.")
    parser.add_argument("algorithm", choices=tuple(algorithms))
    parser.add_argument("--seconds", type=float, required=True, help="least time that is timed, after the warm-up")
    parser.add_argument("--seed", type=int, default=1, help="seed of levels, network and actions")
    return parser


def add_log_options(parser: argparse.ArgumentParser) -> None:
    """The flags of those workers that can log every episode, for perf/time_to_reward.py."""
    parser.add_argument("--total-timesteps", type=int, metavar="N", help="end after so many steps, too")
    parser.add_argument("--log", type=Path, metavar="DIR", help="folder for a log of all episodes")


def refuse_other_size(found: int) -> None:
    """End the program unless the network has the parameters of the one that is compared."""
    if found != PARAMETERS:
        raise SystemExit(f"the network has {found} parameters, not {PARAMETERS}: this would be other work")


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def print_result(clock: Clock, peak: PeakMemory, packages: Sequence[str], **more: Any) -> None:
    """Print the line that perf/peers.py reads."""
    versions = {name: version(name) for name in packages} | {"python": platform.python_version()}
    print("\n" + json.dumps({**clock.result(), "peak_memory_mb": peak.mb, "versions": versions, **more}), flush=True)
