"""What the tests of faults in parallel runs have in common: how runs are begun, how they end, what they tell."""

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

Start = Callable[..., subprocess.Popen[str]]


def shared_names() -> set[str]:
    return {name for name in os.listdir("/dev/shm") if "rlcb" in name or "torch" in name or "psm_" in name}


@contextmanager
def leaving_nothing(start: Start, children: Callable[[int], list[psutil.Process]]) -> Iterator[Start]:
    """Starts runs; none that has ended may have left a process or a name in shared memory."""
    names, started = shared_names(), []

    def go(*arguments: str | Path, fresh: bool = False) -> subprocess.Popen[str]:
        started.append(start(*arguments, fresh=fresh))
        return started[-1]

    yield go
    for process in started:
        if process.poll() is not None:
            _, alive = psutil.wait_procs(children(process.pid), timeout=60)
            assert alive == []
    assert shared_names() - names == set()


def ended(process: subprocess.Popen[str], code: int) -> tuple[str, str]:
    """What a run had left to say; it must end with this code and without a traceback."""
    out, err = process.communicate(timeout=200)
    assert process.returncode == code, out + err
    assert "Traceback" not in out + err
    return out, err


def losses(path: Path) -> list[tuple[str, str]]:
    """Who was lost, and how."""
    events = [json.loads(line) for line in (path / "events.jsonl").read_text().splitlines()]
    return [(event["worker"], event["how"]) for event in events if event["event"] == "worker_lost"]


def summary(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((path / "training_summary.json").read_text())
    return found
