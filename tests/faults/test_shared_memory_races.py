"""Processes that share memory, stopped and killed at any moment: nothing torn, nothing counted twice."""

import json
import math
import os
from threading import Thread, current_thread
from typing import Any

import pytest
import torch
from torch import Tensor

from helpers.parameter_processes import FREE, MEANWHILE
from helpers.processes import HELPERS, python
from rlcb.comm.control import Control
from rlcb.comm.process_group import SharedMemoryGroup, vector_norm

pytestmark = pytest.mark.xdist_group("races")


def test_a_stopped_process_holds_nobody_up_and_counts_are_exact_in_a_race() -> None:
    done = python(str(HELPERS / "parameter_processes.py"))
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert seen["went_on"]
    assert seen["counts"] == [[MEANWHILE, 0], MEANWHILE]
    assert seen["alone"] == {"lags": [0, 0], "finite": True}
    assert seen["late"] == {"unmoved": True, "lag": MEANWHILE, "moved_on": True}
    assert seen["ends"] == [0, 0]
    assert seen["arrivals"] == [MEANWHILE + FREE, 1 + FREE]
    assert seen["heartbeats"] == [MEANWHILE + FREE, FREE]
    for worker in seen["free"]:
        smallest, total = worker["lags"]
        assert smallest >= 0
        assert total <= FREE  # no gradient of the other's can be late for two
        assert worker["finite"]
    assert seen["moved"] > 1e-4


def test_ranks_agree_that_a_norm_is_not_finite(monkeypatch: pytest.MonkeyPatch) -> None:
    """One rank reads the others' norms late, when the first one is at its next barrier already."""
    control, memory = Control(os.memfd_create("control"), 2), os.memfd_create("group")
    groups = [SharedMemoryGroup(control, rank, memory, 0, lambda: None) for rank in range(2)]

    def read_late(vector: Tensor) -> Tensor:
        if current_thread().name == "1":
            arrived = int(control.arrivals[1])
            while int(control.arrivals[0]) <= arrived:
                os.sched_yield()
        return vector_norm(vector)

    monkeypatch.setattr("rlcb.comm.process_group.vector_norm", read_late)
    norms: dict[int, Tensor] = {}
    sums: dict[int, Tensor] = {}

    def work(rank: int) -> None:
        norms[rank] = groups[rank].norm(torch.tensor((math.inf, 1.0)[rank]))  # the first shard alone is not finite
        sums[rank] = groups[rank].sum(torch.tensor([1.0], dtype=torch.float64))

    threads = [Thread(target=work, args=(rank,), name=str(rank), daemon=True) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert [float(norms[rank]) for rank in range(2)] == [math.inf, math.inf]
    assert [float(sums[rank]) for rank in range(2)] == [2.0, 2.0]


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    """What real processes saw."""
    done = python(str(HELPERS / "versioned_weights_processes.py"))
    assert done.returncode == 0, done.stderr
    content: dict[str, Any] = json.loads(done.stdout)
    return content


@pytest.mark.parametrize("name", ["race", "slow race"])
def test_a_reader_beside_the_publisher_sees_whole_versions_in_order(found: dict[str, Any], name: str) -> None:
    race = found[name]
    assert (race["torn"], race["backwards"]) == (0, 0)
    assert race["versions"] >= 300
    assert race["last"] >= 5000


def test_a_killed_publisher_leaves_the_last_whole_versions(found: dict[str, Any]) -> None:
    verdicts = found["kills"]
    assert len(verdicts) > 200
    assert sum(verdict["in_the_middle"] for verdict in verdicts) >= 60, "too few were killed in the middle"
    assert verdicts[-1]["version"] > 140, "every publisher that was not killed at once has published"
    for what in ("torn", "backwards", "newest_lost", "older_lost"):
        assert [verdict for verdict in verdicts if verdict[what]] == [], what
