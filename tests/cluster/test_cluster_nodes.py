"""Nodes of a real Ray cluster that are lost, join, or were the head."""

import json
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from helpers.cluster_runs import (
    ROLLOUT,
    Begin,
    ended,
    events_of,
    flags,
    hosts,
    lines_of,
    needs_ray,
    updates_after,
    wait_until,
)
from helpers.clusters import ray_cluster
from helpers.processes import rlcb, wait_for_line

if TYPE_CHECKING:
    pass

pytestmark = pytest.mark.cluster


def regrouped(path: Path) -> list[int]:
    """The sizes of the groups that took the place of others."""
    return [event["workers"] for event in events_of(path) if event["event"] == "regrouped"]


@pytest.mark.parametrize("algorithm", ["ppo", "impala"])
def test_a_lost_node_and_one_that_joins(algorithm: str, begin: Begin, tmp_path: Path) -> None:
    needs_ray()
    path = tmp_path / "run"
    with ray_cluster(1, 1, 2) as nodes:
        process = begin(*flags(algorithm, 100_000, path), "--cluster", nodes.address)
        wait_for_line(process, "Update 5 |")
        largest = max(nodes.worker_nodes, key=lambda node: node.get_resource_and_label_spec().num_cpus or 0)
        nodes.remove_node(largest, allow_graceful=False)
        after = updates_after(path, "worker_lost")
        nodes.add_node(num_cpus=2, object_store_memory=200 * 2**20)
        wait_until(lambda: len(hosts()) == 4)
        if algorithm == "ppo":  # it goes on while the new workers start
            wait_until(lambda: regrouped(path) == [2, 4])
        later = lines_of(path)[-1]["update"]
        wait_until(lambda: lines_of(path)[-1]["update"] > later + 5)
        process.send_signal(signal.SIGTERM)
        ended(process, 128 + signal.SIGTERM)
    assert lines_of(path)[-1]["update"] > after
    steps = [line["step"] for line in lines_of(path)]
    assert steps == [ROLLOUT * (n + 1) for n in range(len(steps))]
    summary = json.loads((path / "training_summary.json").read_text())
    assert [node["alive"] for node in summary["nodes"]].count(False) == 1
    assert regrouped(path) == ([2, 4] if algorithm == "ppo" else [])


def test_too_few_workers_end_the_run_with_a_checkpoint(begin: Begin, tmp_path: Path) -> None:
    needs_ray()
    path = tmp_path / "run"
    with ray_cluster(2, 2) as nodes:
        process = begin(*flags("ppo", 100_000, path), "--cluster", nodes.address, "--min-workers", "4")
        wait_for_line(process, "Update 10 |")
        nodes.remove_node(next(iter(nodes.worker_nodes)), allow_graceful=False)
        error = ended(process, 4)
    assert "min_workers is 4; saved; resume with --resume" in error
    saved = max(int(p.stem.rsplit("_", 1)[1]) for p in (path / "checkpoints").glob("*_step_*.pt"))
    assert saved >= 8 * ROLLOUT
    total = ("--total-timesteps", str(saved + 5 * ROLLOUT), "--cluster", "null", "--min-workers", "1")
    assert rlcb("train", "--resume", path, *total).returncode == 0
    assert lines_of(path)[-1]["step"] == saved + 5 * ROLLOUT


@pytest.mark.parametrize(("algorithm", "what"), [("ppo", "gcs"), ("impala", "gcs"), ("a3c", "node")])
def test_a_lost_head_ends_the_run(algorithm: str, what: str, begin: Begin, tmp_path: Path) -> None:
    needs_ray()
    path = tmp_path / "run"
    with ray_cluster(2, 2) as nodes:
        process = begin(*flags(algorithm, 100_000, path), "--cluster", nodes.address)
        wait_for_line(process, "Update 10 |")
        if what == "gcs":
            nodes.head_node.kill_gcs_server()
        else:
            nodes.head_node.kill_raylet()
        error = ended(process, 4, within=90)  # it takes 12 s
    assert f"resume with --resume {path}" in error
    assert "Traceback" not in error
    done = rlcb("train", "--resume", path, "--total-timesteps", str(12 * ROLLOUT), "--cluster", "null")
    assert done.returncode == 0, done.stderr
    steps = [line["step"] for line in lines_of(path)]
    assert steps == [ROLLOUT * (n + 1) for n in range(len(steps))]
