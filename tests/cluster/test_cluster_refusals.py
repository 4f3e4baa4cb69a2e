"""Clusters that are not there, not ours or not installed: one line that says so."""

import os
import re
import socket
import time
from pathlib import Path

import pytest

from helpers.cluster_runs import CART, FOUR, TWO, flags, needs_ray
from helpers.clusters import SETTINGS, ray_cluster
from helpers.processes import rlcb
from rlcb.envs import engine


def test_a_cluster_beyond_this_machine_needs_a_token(tmp_path: Path) -> None:
    no_token = {"HOME": str(tmp_path), "RAY_AUTH_TOKEN": "", "RAY_AUTH_TOKEN_PATH": "", "RAY_AUTH_MODE": "token"}
    given = ("--cluster", "192.0.2.77:6379", "--output-dir", tmp_path / "run")
    rlcb("train", *FOUR, "ppo", *CART, *given, env=no_token).assert_one_line_error(2, "token", "--insecure")
    # What is not refused any more is not there either.
    done = rlcb("train", *FOUR, "ppo", *CART, *given, "--insecure", env=no_token)
    done.assert_one_line_error(4, "no answer", "ray start --head")
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
    assert rlcb(*flags("ppo", 2, tmp_path / "here", TWO), env=env).returncode == 0


@pytest.mark.cluster
def test_a_node_without_procgens_engine_is_named(tmp_path: Path) -> None:
    needs_ray()
    with ray_cluster(2) as cluster:
        cluster.add_node(num_cpus=2, env_vars={engine.FOLDER: "/nowhere"})
        words = ("train", "ppo", *FOUR, "--num-envs", "4", "--n-steps", "16", "--batch-size", "64")
        done = rlcb(*words, "--cluster", cluster.address, "--output-dir", tmp_path / "run", env=SETTINGS)
    assert done.returncode == 4, done.stderr
    last = done.stderr.strip().splitlines()[-1]
    assert re.match(r"rlcb train: error: node [\d.]+: RLCB_PROCGEN=/nowhere: Procgen's engine is not there; ", last)


def test_somebody_else_at_the_address(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        address = f"127.0.0.1:{deaf.getsockname()[1]}"
        begun = time.monotonic()
        done = rlcb("train", "ppo", *FOUR, *CART, "--cluster", address, "--output-dir", tmp_path / "run", env=SETTINGS)
    assert done.returncode == 4, done.stderr
    assert address in done.stderr
    assert "Traceback" not in done.stderr
    assert time.monotonic() - begun < 60  # it gives up after 25 s
