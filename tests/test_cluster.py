"""Runs on a real Ray cluster of three nodes, all of them on this machine; kills and lost nodes are real too."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from clusters import SETTINGS, ours, ray_cluster
from conftest import rlcb, wait_for_line
from rlcb.cluster.address import Address, is_loopback, resolved
from rlcb.cluster.placement import Place, spread
from rlcb.errors import UsageError
from rlcb.run.checkpoint import load_checkpoint

if TYPE_CHECKING:
    from ray.cluster_utils import Cluster

CART = (
    "--env",
    "CartPole-v1",
    "--n-steps",
    "32",
    "--num-threads",
    "1",
    "--tensorboard",
    "false",
    "--log-interval",
    "1",
)
FOUR = ("--mode", "parallel", "--num-workers", "4", "--num-envs", "4")
ROLLOUT = 4 * 4 * 32
BATCH = {"ppo": ("--batch-size", "128", "--n-epochs", "1"), "impala": ("--batch-size", "128")}
Begin = Callable[..., "subprocess.Popen[str]"]


def flags(algorithm: str, updates: int, path: Path) -> list[str | Path]:
    total = ("--total-timesteps", str(updates * ROLLOUT), "--output-dir", path)
    return ["train", algorithm, *FOUR, *CART, *BATCH.get(algorithm, ()), *total]


def lines_of(path: Path) -> list[dict[str, Any]]:
    (log,) = (path / "logs").glob("*/metrics.jsonl")
    return [json.loads(line) for line in log.read_text().splitlines()]


def events_of(path: Path) -> list[dict[str, Any]]:
    file = path / "events.jsonl"  # there is none before the first
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def assert_every_step_once(path: Path, updates: int) -> None:
    assert [line["step"] for line in lines_of(path)] == [ROLLOUT * (n + 1) for n in range(updates)]
    assert json.loads((path / "training_summary.json").read_text())["total_timesteps"] == updates * ROLLOUT


def hosts() -> list[psutil.Process]:
    """The processes on this machine that run a child of a run."""
    return [p for p in ours() if "ray::Host" in " ".join(p.info["cmdline"] or ())]


def ended(process: "subprocess.Popen[str]", code: int, within: float = 240) -> str:
    out, err = process.communicate(timeout=within)
    assert process.returncode == code, out + err
    return err


def needs_ray() -> None:
    if find_spec("ray") is None:  # not imported yet: it reads its settings when it is
        pytest.skip("the extra [cluster] is not installed")


@pytest.fixture(scope="module")
def cluster() -> "Iterator[Cluster]":
    needs_ray()
    with ray_cluster(1, 2, 2) as three_nodes:
        yield three_nodes


@pytest.fixture
def begin(start: Begin, monkeypatch: pytest.MonkeyPatch) -> Begin:
    """Start a run that knows the token."""
    for name, value in SETTINGS.items():
        monkeypatch.setenv(name, value)
    return start


# What needs no cluster


def test_workers_go_where_the_cores_are() -> None:
    assert spread(4, {"a": 4, "b": 4}, None) == [Place("a", 2)] * 2 + [Place("b", 2)] * 2
    assert spread(5, {"a": 1, "b": 8}, None) == [Place("b", 1)] * 5  # eight cores for four are more than one for one
    assert spread(9, {"a": 1, "b": 8}, None) == [Place("b", 1)] * 8 + [Place("a", 1)]
    assert spread(2, {"a": 16}, 3) == [Place("a", 3)] * 2
    assert spread(3, {"here": 4, "b": 2}, 1, last={"here"}) == [Place("b", 1)] * 2 + [Place("here", 1)]
    assert spread(2, {"here": 4, "b": 2}, 1, last={"here"}) == [Place("b", 1)] * 2
    assert len(spread(9, {"a": 2, "b": 3, "empty": 0}, None)) == 5  # no more than there are cores


def test_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    assert resolved("local") == Address(None)
    assert resolved("10.0.0.7:6379") == Address("10.0.0.7", 6379)
    assert str(resolved("[::1]:6379")) == "::1:6379"
    monkeypatch.setenv("RAY_ADDRESS", "head:1234")
    assert resolved("auto") == Address("head", 1234)
    for wrong in ("10.0.0.7", "ray://10.0.0.7:10001", ":6379", "head:port", "head:0", "head:70000"):
        with pytest.raises(UsageError, match="must be HOST:PORT"):
            resolved(wrong)
    assert is_loopback("127.0.0.1")
    assert is_loopback("localhost")
    assert not is_loopback("192.0.2.1")
    assert not is_loopback("no-such-host.invalid")


def test_a_cluster_beyond_this_machine_needs_a_token(tmp_path: Path) -> None:
    no_token = {"HOME": str(tmp_path), "RAY_AUTH_TOKEN": "", "RAY_AUTH_TOKEN_PATH": "", "RAY_AUTH_MODE": "token"}
    given = ("--cluster", "192.0.2.77:6379", "--output-dir", tmp_path / "run")
    rlcb("train", *FOUR, "ppo", *CART, *given, env=no_token).assert_one_line_error(2, "token", "--insecure")
    # What is not refused any more is not there either.
    done = rlcb("train", *FOUR, "ppo", *CART, *given, "--insecure", env=no_token)
    done.assert_one_line_error(4, "nobody answers", "ray start --head")
    assert not (tmp_path / "run").exists()


def test_bad_requests_get_one_line(tmp_path: Path) -> None:
    output = ("--output-dir", tmp_path / "run")
    rlcb("train", "ppo", *CART, "--cluster", "local", *output).assert_one_line_error(2, "sequential", "--mode parallel")
    rlcb("train", "ppo", *FOUR, *CART, "--cluster", "laptop", *output).assert_one_line_error(2, "'laptop'", "HOST:PORT")
    many = rlcb("train", "ppo", *FOUR, *CART, "--cluster", "local", "--min-workers", "5", *output)
    many.assert_one_line_error(2, "min_workers 5 is more than num_workers 4")
    nowhere = {"RAY_ADDRESS": ""}
    if not Path("/tmp/ray/ray_current_cluster").exists():
        done = rlcb("train", "ppo", *FOUR, *CART, "--cluster", "auto", *output, env=nowhere)
        done.assert_one_line_error(4, "ray start --head", "local")


def test_without_ray_the_exact_command_is_named(tmp_path: Path) -> None:
    hide = "import importlib.metadata as m\nreal = m.version\n"
    hide += (
        "def version(name):\n    if name == 'ray':\n        raise m.PackageNotFoundError(name)\n    return real(name)\n"
    )
    (tmp_path / "sitecustomize.py").write_text(hide + "m.version = version\n")
    env = {"PYTHONPATH": os.pathsep.join(filter(None, (str(tmp_path), os.environ.get("PYTHONPATH"))))}
    output = ("--output-dir", tmp_path / "run")
    done = rlcb("train", "ppo", *FOUR, *CART, "--cluster", "local", *output, env=env)
    done.assert_one_line_error(2, "pip install 'rl-cluster-benchmark[cluster]'")
    assert rlcb(*flags("ppo", 2, tmp_path / "here"), env=env).returncode == 0


def test_somebody_else_at_the_address(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        address = f"127.0.0.1:{deaf.getsockname()[1]}"
        begun = time.monotonic()
        done = rlcb("train", "ppo", *FOUR, *CART, "--cluster", address, "--output-dir", tmp_path / "run", env=SETTINGS)
    assert done.returncode == 4, done.stderr
    assert address in done.stderr
    assert "Traceback" not in done.stderr
    assert time.monotonic() - begun < 60  # it gives up after 25 s


# On three nodes


@pytest.mark.cluster
@pytest.mark.parametrize("algorithm", ["ppo", "a2c", "impala", "a3c"])
def test_every_algorithm_finishes(algorithm: str, cluster: "Cluster", tmp_path: Path) -> None:
    path = tmp_path / "run"
    done = rlcb(*flags(algorithm, 30, path), "--cluster", cluster.address, env=SETTINGS)
    assert done.returncode == 0, done.stdout + done.stderr
    assert_every_step_once(path, 30)
    summary = json.loads((path / "training_summary.json").read_text())
    assert summary["status"] == "finished"
    assert sum(node["workers"] for node in summary["nodes"]) == 4
    assert len(summary["nodes"]) >= 2
    assert all(node["alive"] and node["peak_memory_gb"] > 0.05 for node in summary["nodes"])
    assert re.search(r"Nodes:\n.* cores, \d (worker|actor)s?, peak memory", done.stdout)
    assert (path / "checkpoints" / f"{algorithm}_parallel_final.pt").exists()
    if algorithm in {"impala", "a3c"}:
        assert {"lag/mean", "lag/max"} <= lines_of(path)[-1].keys()
    assert not hosts()  # nothing of the run is left on the cluster


@pytest.mark.cluster
def test_bit_identical_to_local_processes(cluster: "Cluster", tmp_path: Path) -> None:
    algorithm, there, here = "ppo", tmp_path / "there", tmp_path / "here"
    assert rlcb(*flags(algorithm, 10, there), "--cluster", cluster.address, env=SETTINGS).returncode == 0
    assert rlcb(*flags(algorithm, 10, here), "--backend", "gloo").returncode == 0
    weights = [load_checkpoint(path / "checkpoints" / f"{algorithm}_parallel_final.pt") for path in (there, here)]
    for name, tensor in weights[0]["policy"].items():
        assert tensor.equal(weights[1]["policy"][name]), name


@pytest.mark.cluster
@pytest.mark.parametrize("algorithm", ["ppo", "impala", "a3c"])
def test_a_killed_worker_is_replaced(algorithm: str, cluster: "Cluster", begin: Begin, tmp_path: Path) -> None:
    path, updates = tmp_path / "run", 200
    process = begin(*flags(algorithm, updates, path), "--cluster", cluster.address)
    wait_for_line(process, "Update 5 |")
    hosts()[0].send_signal(signal.SIGKILL)
    ended(process, 0)
    assert_every_step_once(path, updates)
    lost = [event for event in events_of(path) if event["event"] == "worker_lost"]
    assert len(lost) == 1
    assert lost[0]["how"] == "its process or node died"


@pytest.mark.cluster
def test_an_actor_killed_by_ray_is_replaced(cluster: "Cluster", begin: Begin, tmp_path: Path) -> None:
    path, updates = tmp_path / "run", 200
    process = begin(*flags("impala", updates, path), "--cluster", cluster.address)
    wait_for_line(process, "Update 5 |")
    kill = "import ray, sys\nray.init(sys.argv[1], namespace='rlcb', logging_level='ERROR')\n"
    kill += "names = [a['name'] for a in ray.util.list_named_actors(all_namespaces=True) if 'actor 2' in a['name']]\n"
    kill += "ray.kill(ray.get_actor(names[0]))\nprint('killed', len(names))"
    done = subprocess.run(
        [sys.executable, "-c", kill, cluster.address], env={**os.environ, **SETTINGS},
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert "killed 1" in done.stdout, done.stdout + done.stderr
    ended(process, 0)
    assert_every_step_once(path, updates)
    assert [event["worker"] for event in events_of(path) if event["event"] == "worker_lost"] == ["actor 2"]


@pytest.mark.cluster
def test_a_stopped_worker_is_noticed(cluster: "Cluster", begin: Begin, tmp_path: Path) -> None:
    path, updates = tmp_path / "run", 100
    process = begin(*flags("impala", updates, path), "--cluster", cluster.address, "--worker-timeout", "15")
    wait_for_line(process, "Update 5 |")
    hosts()[0].send_signal(signal.SIGSTOP)
    ended(process, 0)
    assert_every_step_once(path, updates)
    gone = time.monotonic() + 60
    while hosts() and time.monotonic() < gone:
        time.sleep(0.2)
    assert not hosts()


@pytest.mark.cluster
def test_a_signal_ends_and_saves_and_the_run_goes_on_here(cluster: "Cluster", begin: Begin, tmp_path: Path) -> None:
    path = tmp_path / "run"
    process = begin(*flags("ppo", 5000, path), "--cluster", cluster.address)
    wait_for_line(process, "Update 5 |")
    process.send_signal(signal.SIGTERM)
    ended(process, 128 + signal.SIGTERM)
    before = lines_of(path)[-1]["update"]
    total = ("--total-timesteps", str((before + 5) * ROLLOUT), "--cluster", "null", "--backend", "shared_memory")
    done = rlcb("train", "--resume", path, *total)
    assert done.returncode == 0, done.stderr
    assert_every_step_once(path, before + 5)


@pytest.mark.cluster
def test_a_suite_goes_there(cluster: "Cluster", tmp_path: Path) -> None:
    given = ("--games", "CartPole-v1", "--seeds", "1", "--total-timesteps", "2048", "--eval-episodes", "2")
    size = ("--num-envs", "16", "--n-steps", "32", "--batch-size", "128", "--num-workers", "2", "--num-threads", "1")
    where = ("--cluster", cluster.address, "--output-dir", tmp_path / "suite")
    done = rlcb("benchmark", *given, *size, *where, env=SETTINGS)
    assert done.returncode == 0, done.stdout + done.stderr
    summaries = {p.parent.parent.name: json.loads(p.read_text()) for p in tmp_path.rglob("training_summary.json")}
    assert sum(node["workers"] for node in summaries["ppo_parallel"]["nodes"]) == 2
    assert "nodes" not in summaries["ppo_sequential"]


@pytest.mark.cluster
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


# With nodes that come and go


@pytest.mark.cluster
@pytest.mark.parametrize("algorithm", ["ppo", "impala"])
def test_a_lost_node_and_one_that_joins(algorithm: str, begin: Begin, tmp_path: Path) -> None:
    needs_ray()
    path = tmp_path / "run"
    with ray_cluster(1, 1, 2) as nodes:
        process = begin(*flags(algorithm, 100_000, path), "--cluster", nodes.address)
        wait_for_line(process, "Update 5 |")
        largest = max(nodes.worker_nodes, key=lambda node: node.get_resource_and_label_spec().num_cpus or 0)
        nodes.remove_node(largest, allow_graceful=False)
        after = _updates_after(path, "worker_lost")
        nodes.add_node(num_cpus=2, object_store_memory=200 * 2**20)
        _wait_until(lambda: len(hosts()) == 4)
        later = lines_of(path)[-1]["update"]
        _wait_until(lambda: lines_of(path)[-1]["update"] > later + 5)
        process.send_signal(signal.SIGTERM)
        ended(process, 128 + signal.SIGTERM)
    assert lines_of(path)[-1]["update"] > after
    steps = [line["step"] for line in lines_of(path)]
    assert steps == [ROLLOUT * (n + 1) for n in range(len(steps))]
    summary = json.loads((path / "training_summary.json").read_text())
    assert [node["alive"] for node in summary["nodes"]].count(False) == 1
    if algorithm == "ppo":
        sizes = [event["workers"] for event in events_of(path) if event["event"] == "regrouped"]
        assert sizes == [2, 4]


@pytest.mark.cluster
def test_too_few_workers_end_the_run_with_a_checkpoint(begin: Begin, tmp_path: Path) -> None:
    needs_ray()
    path = tmp_path / "run"
    with ray_cluster(2, 2) as nodes:
        process = begin(*flags("ppo", 100_000, path), "--cluster", nodes.address, "--min-workers", "4")
        wait_for_line(process, "Update 10 |")
        nodes.remove_node(next(iter(nodes.worker_nodes)), allow_graceful=False)
        error = ended(process, 4)
    assert "min_workers is 4; saved; go on with --resume" in error
    saved = max(int(p.stem.rsplit("_", 1)[1]) for p in (path / "checkpoints").glob("*_step_*.pt"))
    assert saved >= 8 * ROLLOUT
    total = ("--total-timesteps", str(saved + 5 * ROLLOUT), "--cluster", "null", "--min-workers", "1")
    assert rlcb("train", "--resume", path, *total).returncode == 0
    assert lines_of(path)[-1]["step"] == saved + 5 * ROLLOUT


@pytest.mark.cluster
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
    assert f"go on with --resume {path}" in error
    assert "Traceback" not in error
    done = rlcb("train", "--resume", path, "--total-timesteps", str(12 * ROLLOUT), "--cluster", "null")
    assert done.returncode == 0, done.stderr
    steps = [line["step"] for line in lines_of(path)]
    assert steps == [ROLLOUT * (n + 1) for n in range(len(steps))]


def _updates_after(path: Path, event: str) -> int:
    """Wait until this has happened and a few updates more are done; the number of the last one."""
    _wait_until(lambda: any(one["event"] == event for one in events_of(path)))
    at: int = lines_of(path)[-1]["update"]
    _wait_until(lambda: lines_of(path)[-1]["update"] > at + 5)
    return at


def _wait_until(true: Callable[[], bool], seconds: float = 180) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.2)
