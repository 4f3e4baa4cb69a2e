"""Actors that ask for a share of a GPU on a real Ray cluster whose nodes declare GPUs that they do not have.

Ray places by what is declared. The actors then compute with "cpu:0", torch's other name of the nodes' memory, in the
way that they would on a GPU.
"""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from helpers.cluster_runs import ROLLOUT, ended, flags, lines_of, needs_ray
from helpers.clusters import SETTINGS, ray_cluster
from helpers.processes import ROOT, run, wait_for_line

pytestmark = pytest.mark.cluster

# `rlcb …` that believes to have a GPU here, and whose learner and actors use the memory of CPUs in its place.
_PROGRAM = """
import sys
from dataclasses import replace
from rlcb import training
from rlcb.config import gpu_plan
from rlcb.cli import main
make_plan, training.cuda_problem = training.make_plan, lambda threads=None: None
gpu_plan.resolve_device = lambda wanted, threads: "cuda"
def changed(*arguments):
    config, plan = make_plan(*arguments)
    return config, replace(plan, device="cpu:0", actor_device="cpu:0")
training.make_plan = changed
sys.exit(main(sys.argv[1:]))
"""
_FREE = """
import ray, sys
ray.init(sys.argv[1], namespace="rlcb", logging_level="ERROR")
print("free GPUs:", ray.available_resources()["GPU"])
"""
ON_GPU = ("--device", "cuda", "--actor-device", "cuda", "--num-learners", "1", "--compile", "false")
TWO = ("--mode", "parallel", "--num-workers", "2", "--num-envs", "8")


def command(path: Path, updates: int, address: str) -> list[str]:
    words = (*flags("impala", updates, path, TWO), *ON_GPU, "--cluster", address)
    return [sys.executable, "-c", _PROGRAM, *map(str, words)]


def test_actors_on_a_gpu_go_to_the_node_that_has_one(tmp_path: Path) -> None:
    needs_ray()
    path, pipes = tmp_path / "run", {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with ray_cluster(1, 4, 2, gpus=(0, 0, 1)) as nodes:
        words, environment = command(path, 100_000, nodes.address), {**os.environ, **SETTINGS}
        process = subprocess.Popen(words, cwd=ROOT, env=environment, text=True, **pipes)
        try:
            wait_for_line(process, "Update 5 |")
            free = run([sys.executable, "-c", _FREE, nodes.address], env=SETTINGS)
            process.send_signal(signal.SIGTERM)
            ended(process, 128 + signal.SIGTERM)
        finally:
            process.kill()
    assert "free GPUs: 0.5" in free.stdout, free.stdout + free.stderr
    steps = [line["step"] for line in lines_of(path)]
    assert steps == [ROLLOUT * (n + 1) for n in range(len(steps))]
    found = json.loads((path / "training_summary.json").read_text())["nodes"]
    assert sorted((node["cores"], node["workers"]) for node in found) == [(1, 0), (2, 2), (4, 0)]


def test_a_cluster_without_a_gpu_is_refused_in_one_line(tmp_path: Path) -> None:
    needs_ray()
    done = run(command(tmp_path / "run", 5, "local"), env={"CUDA_VISIBLE_DEVICES": ""})
    done.assert_one_line_error(4, "--actor-device cuda: no node of the cluster has enough free GPU memory for an actor")
    assert not (tmp_path / "run").exists()


def test_a_learner_needs_its_gpu_on_this_machine(tmp_path: Path) -> None:
    needs_ray()
    words = (*flags("impala", 5, tmp_path / "run", TWO), *ON_GPU, "--cluster", "local")
    done = run([sys.executable, "-m", "rlcb", *map(str, words)], env={"CUDA_VISIBLE_DEVICES": ""})
    done.assert_one_line_error(2, "--device cuda: learners run on this machine, not on the nodes of the cluster: ")
    assert not (tmp_path / "run").exists()
