"""Starting a cluster for a run on a machine that is busy."""

import signal
import subprocess
from collections.abc import Callable

import psutil
import pytest

from helpers.cluster_runs import wait_until

pytest.importorskip("ray", reason="the extra [cluster] is not installed")

from rlcb.cluster import connect

SLOW = Exception("The current node timed out during startup. This could happen because …")


def failing(times: int, error: Exception) -> tuple[Callable[[], None], list[int]]:
    """What fails so many times, and a list of its calls."""
    calls: list[int] = []

    def init() -> None:
        calls.append(1)
        if len(calls) <= times:
            raise error

    return init, calls


def test_a_start_that_takes_too_long_is_repeated_without_what_it_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(connect.MARK, "a mark of this test alone")
    left = subprocess.Popen(["sleep", "600"])
    wait_until(lambda: connect.MARK in psutil.Process(left.pid).environ())  # its environment is there a moment later
    init, calls = failing(2, SLOW)
    connect._start(init)
    assert len(calls) == 3
    assert left.wait(60) == -signal.SIGKILL


def test_other_failures_and_lasting_ones_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(connect.MARK, "a mark of this test alone")
    for error, expected in ((SLOW, 4), (ValueError("wrong"), 1)):
        init, calls = failing(9, error)
        with pytest.raises(type(error), match=str(error)[:20]):
            connect._start(init)
        assert len(calls) == expected
