"""Processes that share memory, stopped and killed at any moment: nothing torn, nothing counted twice."""

import json
from typing import Any

import pytest

from helpers.parameter_processes import FREE, MEANWHILE
from helpers.processes import HELPERS, python

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
