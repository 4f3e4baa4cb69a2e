"""Runs on a real Ray cluster of three nodes, all of them on this machine; kills and lost nodes are real too."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from helpers.cluster_runs import (
    ROLLOUT,
    TWO,
    Begin,
    assert_every_step_once,
    ended,
    events_of,
    flags,
    hosts,
    lines_of,
    needs_ray,
)
from helpers.clusters import SETTINGS, ray_cluster
from helpers.processes import rlcb, wait_for_line
from rlcb.analysis.load import load_run
from rlcb.run.checkpoint import load_checkpoint

if TYPE_CHECKING:
    from ray.cluster_utils import Cluster

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("three nodes")]


@pytest.fixture(scope="module")
def cluster() -> "Iterator[Cluster]":
    needs_ray()
    with ray_cluster(1, 2, 2) as three_nodes:
        yield three_nodes


@pytest.mark.parametrize("algorithm", ["ppo", "a2c", "impala", "a3c"])
def test_every_algorithm_finishes(algorithm: str, cluster: "Cluster", tmp_path: Path) -> None:
    path = tmp_path / "run"
    done = rlcb(*flags(algorithm, 30, path), "--cluster", cluster.address, env=SETTINGS)
    assert done.returncode == 0, done.stdout + done.stderr
    assert_every_step_once(path, 30)
    summary = json.loads((path / "training_summary.json").read_text())
    assert summary["status"] == "finished"
    assert sum(node["workers"] for node in summary["nodes"]) == 4
    assert sorted(node["cores"] for node in summary["nodes"]) == [1, 2, 2]
    used = [node for node in summary["nodes"] if node["workers"]]
    assert len(used) >= 2
    assert all(node["alive"] and node["peak_memory_gb"] > 0.05 and node["threads"] for node in used)
    assert [node["driver"] for node in summary["nodes"]].count(True) == 1
    assert summary["memory_measure"] == "pss"
    assert re.search(r"Nodes:\n(.*\n)*.* cores?, \d (worker|actor)s?, peak memory", done.stdout)
    run = load_run(path)
    assert re.fullmatch(r"3 nodes: \S+ 1 core, \S+ 2 cores, \S+ 2 cores", run.task.machine)
    assert run.cores == min(run.hardware["logical_cores"], 4 + (run.num_learners or 0))  # all nodes are on one machine
    assert (path / "checkpoints" / f"{algorithm}_parallel_final.pt").exists()
    if algorithm in {"impala", "a3c"}:
        assert {"lag/mean", "lag/max"} <= lines_of(path)[-1].keys()
    assert not hosts()  # nothing of the run is left on the cluster


def test_bit_identical_to_local_processes(cluster: "Cluster", tmp_path: Path) -> None:
    algorithm, there, here = "ppo", tmp_path / "there", tmp_path / "here"
    assert rlcb(*flags(algorithm, 10, there), "--cluster", cluster.address, env=SETTINGS).returncode == 0
    assert rlcb(*flags(algorithm, 10, here), "--backend", "gloo").returncode == 0
    weights = [load_checkpoint(path / "checkpoints" / f"{algorithm}_parallel_final.pt") for path in (there, here)]
    for name, tensor in weights[0]["policy"].items():
        assert tensor.equal(weights[1]["policy"][name]), name


@pytest.mark.parametrize("algorithm", ["ppo", "impala", "a3c"])
def test_a_killed_worker_is_replaced(algorithm: str, cluster: "Cluster", begin: Begin, tmp_path: Path) -> None:
    path, updates = tmp_path / "run", 200
    process = begin(*flags(algorithm, updates, path, TWO), "--cluster", cluster.address)
    wait_for_line(process, "Update 5 |")
    hosts()[0].send_signal(signal.SIGKILL)
    ended(process, 0)
    assert_every_step_once(path, updates)
    lost = [event for event in events_of(path) if event["event"] == "worker_lost"]
    assert len(lost) == 1
    assert lost[0]["how"] == "its process or node died"


def test_an_actor_killed_by_ray_is_replaced(cluster: "Cluster", begin: Begin, tmp_path: Path) -> None:
    path, updates = tmp_path / "run", 200
    process = begin(*flags("impala", updates, path, TWO), "--cluster", cluster.address)
    wait_for_line(process, "Update 5 |")
    kill = "import ray, sys\nray.init(sys.argv[1], namespace='rlcb', logging_level='ERROR')\n"
    kill += "names = [a['name'] for a in ray.util.list_named_actors(all_namespaces=True) if 'actor 1' in a['name']]\n"
    kill += "ray.kill(ray.get_actor(names[0]))\nprint('killed', len(names))"
    done = subprocess.run(
        [sys.executable, "-c", kill, cluster.address], env={**os.environ, **SETTINGS},
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert "killed 1" in done.stdout, done.stdout + done.stderr
    ended(process, 0)
    assert_every_step_once(path, updates)
    assert [event["worker"] for event in events_of(path) if event["event"] == "worker_lost"] == ["actor 1"]


def test_a_stopped_worker_is_noticed(cluster: "Cluster", begin: Begin, tmp_path: Path) -> None:
    path, updates = tmp_path / "run", 100
    process = begin(*flags("impala", updates, path, TWO), "--cluster", cluster.address, "--worker-timeout", "15")
    wait_for_line(process, "Update 5 |")
    hosts()[0].send_signal(signal.SIGSTOP)
    ended(process, 0)
    assert_every_step_once(path, updates)
    gone = time.monotonic() + 60
    while hosts() and time.monotonic() < gone:
        time.sleep(0.2)
    assert not hosts()


def test_a_signal_ends_and_saves_and_the_run_goes_on_here(cluster: "Cluster", begin: Begin, tmp_path: Path) -> None:
    path = tmp_path / "run"
    process = begin(*flags("ppo", 5000, path, TWO), "--cluster", cluster.address)
    wait_for_line(process, "Update 5 |")
    process.send_signal(signal.SIGTERM)
    ended(process, 128 + signal.SIGTERM)
    before = lines_of(path)[-1]["update"]
    total = ("--total-timesteps", str((before + 5) * ROLLOUT), "--cluster", "null", "--backend", "shared_memory")
    done = rlcb("train", "--resume", path, *total)
    assert done.returncode == 0, done.stderr
    assert_every_step_once(path, before + 5)


def test_a_suite_goes_there(cluster: "Cluster", tmp_path: Path) -> None:
    given = ("--games", "CartPole-v1", "--seeds", "1", "--total-timesteps", "2048", "--eval-episodes", "2")
    size = ("--num-envs", "16", "--n-steps", "32", "--batch-size", "128", "--num-workers", "2", "--num-threads", "1")
    where = ("--cluster", cluster.address, "--output-dir", tmp_path / "suite")
    done = rlcb("benchmark", *given, *size, *where, env=SETTINGS)
    assert done.returncode == 0, done.stdout + done.stderr
    summaries = {p.parent.parent.name: json.loads(p.read_text()) for p in tmp_path.rglob("training_summary.json")}
    assert sum(node["workers"] for node in summaries["ppo_parallel"]["nodes"]) == 2
    assert "nodes" not in summaries["ppo_sequential"]
    judged = re.search(r"speed-up of PPO Parallel \(2 workers\): .* PPO Sequential on .*, \d+ cores?\n", done.stdout)
    assert judged or "disturbed" in done.stdout  # by other programs, so that no speed is judged
    assert re.search(r"steps, on 3\s+nodes: ", done.stdout)


def test_a_missing_token_and_another_version_are_told(cluster: "Cluster", tmp_path: Path) -> None:
    given = (*flags("ppo", 5, tmp_path / "run"), "--cluster", cluster.address)
    wrong = rlcb(*given, env={**SETTINGS, "RAY_AUTH_TOKEN": "0" * 32}, timeout=90)
    wrong.assert_one_line_error(4, "token")
    pretend = tmp_path / "sitecustomize.py"
    pretend.write_text(
        "import sys\nif 'rlcb' in ' '.join(sys.orig_argv):\n    import ray\n    ray.__version__ = '2.0.0'\n"
    )
    search = os.pathsep.join(filter(None, (str(tmp_path), os.environ.get("PYTHONPATH"))))
    other = rlcb(*given, env={**SETTINGS, "PYTHONPATH": search}, timeout=90)
    other.assert_one_line_error(4, "install the same")
