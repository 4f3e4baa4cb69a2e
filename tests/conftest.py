"""Fixtures that every layer may use."""

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from helpers.processes import start_rlcb

# Test processes share the cores with each other and with what they start. Read when torch is loaded.
os.environ.update(OMP_NUM_THREADS="1", OMP_WAIT_POLICY="passive")


@pytest.fixture
def start() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start commands in the background; whatever still runs at the end of the test is killed."""
    processes: list[subprocess.Popen[str]] = []

    def begin(*arguments: str | Path, fresh: bool = False) -> subprocess.Popen[str]:
        processes.append(start_rlcb(*arguments, fresh=fresh))
        return processes[-1]

    yield begin
    for process in processes:
        process.kill()
        process.communicate()
