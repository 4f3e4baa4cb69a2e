"""Calls of Ray that fail, at random: requests, answers and calls under way. A failed call is not a dead worker."""

import json
from pathlib import Path

import pytest

from helpers.cluster_runs import TWO, assert_every_step_once, events_of, flags, needs_ray
from helpers.processes import rlcb

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("failing calls")]

PERCENT = 3
FAILING = {"num_failures": -1} | {f"{what}_failure_prob": PERCENT for what in ("req", "resp", "in_flight")}


@pytest.mark.parametrize("algorithm", ["ppo", "a3c"])
def test_failed_calls_cost_no_worker(algorithm: str, tmp_path: Path) -> None:
    needs_ray()
    path, updates = tmp_path / "run", 60
    given = [*flags(algorithm, updates, path, TWO), "--cluster", "local"]
    done = rlcb(*given, env={"RAY_testing_rpc_failure": json.dumps({"*": FAILING})}, timeout=540)
    assert done.returncode == 0, done.stdout + done.stderr
    assert_every_step_once(path, updates)
    # One whose calls fail for a whole minute may be taken for silent; none is taken for dead.
    lost = [event["how"] for event in events_of(path) if event["event"] == "worker_lost"]
    assert all("heartbeat" in how for how in lost), lost
