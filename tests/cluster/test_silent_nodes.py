"""Nodes that fall silent: their links are cut, or they freeze. Nothing is closed, so nobody is told."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from helpers.cluster_runs import ROLLOUT, events_of, flags, hosts, lines_of, needs_ray, wait_until
from helpers.clusters import SETTINGS
from helpers.network_nodes import NetworkNodes, network_nodes, why_not

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("silent nodes")]

PATIENCE = ("--worker-timeout", "20")  # a node counts as lost after half of it
Train = Callable[[str], "subprocess.Popen[bytes]"]


@pytest.fixture(scope="module")
def three_nodes() -> Iterator[NetworkNodes]:
    needs_ray()
    if reason := why_not():
        pytest.skip(reason)
    with network_nodes(2, 2, 2) as nodes:
        yield nodes


@pytest.fixture
def nodes(three_nodes: NetworkNodes) -> Iterator[NetworkNodes]:
    three_nodes.repair()
    yield three_nodes
    three_nodes.heal(0, 1, 2)


@pytest.fixture
def train(nodes: NetworkNodes, tmp_path: Path) -> Iterator[Train]:
    """Start a run with four workers on the head's machine and wait for its first updates."""
    processes: list[subprocess.Popen[bytes]] = []

    def begin(algorithm: str) -> "subprocess.Popen[bytes]":
        wait_until(lambda: not hosts())  # those of the test before have ended
        words = [*flags(algorithm, 10**6, tmp_path / "run"), "--cluster", nodes.address, *PATIENCE]
        command = [*nodes.inside(0), sys.executable, "-m", "rlcb", *words]
        with (tmp_path / "output").open("wb") as output:
            environment = {**os.environ, **SETTINGS}
            processes.append(subprocess.Popen(command, env=environment, stdout=output, stderr=subprocess.STDOUT))
        wait_until(lambda: processes[0].poll() is not None or len(updates(tmp_path / "run")) > 20)
        assert processes[0].poll() is None, (tmp_path / "output").read_text()
        return processes[0]

    yield begin
    for process in processes:
        process.kill()
        process.wait()


def updates(path: Path) -> list[int]:
    return [line["update"] for line in lines_of(path)] if list(path.glob("logs/*/metrics.jsonl")) else []


def wait_for_more(path: Path, than: int) -> None:
    """Wait until updates go on after this one."""
    wait_until(lambda: updates(path)[-1] > than + 20)


def lost(path: Path) -> list[str]:
    return [event["how"] for event in events_of(path) if event["event"] == "worker_lost"]


def stop(process: "subprocess.Popen[bytes]", path: Path) -> None:
    """End the run; every environment step must have been counted once."""
    process.send_signal(signal.SIGTERM)
    assert process.wait(120) == 128 + signal.SIGTERM, (path.parent / "output").read_text()
    assert "Traceback" not in (path.parent / "output").read_text()
    steps = [line["step"] for line in lines_of(path)]
    whole = [step for step in steps if step % ROLLOUT == 0]  # the last round of A3C may be smaller
    assert whole == [ROLLOUT * (n + 1) for n in range(len(whole))]
    assert len(steps) - len(whole) <= 1


def node_with_workers(nodes: NetworkNodes) -> int:
    """A node other than the head that has some."""
    counts = {node: len(workers_at(nodes, node)[0]) for node in (1, 2)}
    return max(counts, key=lambda node: counts[node])


def workers_at(nodes: NetworkNodes, node: int) -> tuple[list[psutil.Process], list[psutil.Process]]:
    """The processes of the workers on this node, and of those on the others."""
    there, all_of_them = nodes.processes(node), hosts()
    return [p for p in all_of_them if p in there], [p for p in all_of_them if p not in there]


@pytest.mark.parametrize("algorithm", ["ppo", "a2c", "impala", "a3c"])
def test_a_node_whose_link_is_cut(algorithm: str, nodes: NetworkNodes, train: Train, tmp_path: Path) -> None:
    path, process = tmp_path / "run", train(algorithm)
    there = node_with_workers(nodes)
    cut_off, beside = workers_at(nodes, there)
    nodes.cut(there)
    at = updates(path)[-1]
    wait_until(lambda: len(lost(path)) >= len(cut_off))
    wait_for_more(path, at)
    # On a busy machine Ray may notice it of some of the workers first and say so in its words.
    assert any(re.fullmatch(r"its node .* has not answered for 10 s", how) for how in lost(path)), lost(path)
    assert all(p.is_running() for p in beside)  # nobody who can be reached was ended
    stop(process, path)


def test_a_link_that_heals(nodes: NetworkNodes, train: Train, tmp_path: Path) -> None:
    path, process = tmp_path / "run", train("ppo")
    there = node_with_workers(nodes)
    before, beside = workers_at(nodes, there)
    nodes.cut(there)
    wait_until(lambda: len(lost(path)) >= len(before))
    wait_for_more(path, updates(path)[-1])
    nodes.heal(there)
    wait_until(lambda: not any(p.is_running() for p in before))  # those that were given up are ended
    wait_for_more(path, updates(path)[-1])
    assert all(p.is_running() for p in beside)
    stop(process, path)


def test_a_short_interruption_costs_nobody(nodes: NetworkNodes, train: Train, tmp_path: Path) -> None:
    path, process = tmp_path / "run", train("ppo")
    there = node_with_workers(nodes)
    nodes.cut(there)
    time.sleep(3)  # less than a node may be silent
    nodes.heal(there)
    wait_for_more(path, updates(path)[-1])
    assert not lost(path)
    stop(process, path)


def test_two_nodes_at_once(nodes: NetworkNodes, train: Train, tmp_path: Path) -> None:
    path, process = tmp_path / "run", train("a2c")
    beside, cut_off = workers_at(nodes, 0)
    nodes.cut(1, 2)
    wait_until(lambda: len(lost(path)) >= len(cut_off))
    wait_for_more(path, updates(path)[-1])
    assert all(p.is_running() for p in beside)
    stop(process, path)


def test_a_frozen_node_that_comes_back(nodes: NetworkNodes, train: Train, tmp_path: Path) -> None:
    path, process = tmp_path / "run", train("ppo")
    there = node_with_workers(nodes)
    workers, beside = workers_at(nodes, there)
    frozen = nodes.freeze(there)
    wait_until(lambda: len(lost(path)) >= len(workers))
    assert "no heartbeat for 20 s, killed" in lost(path)
    wait_for_more(path, updates(path)[-1])
    for one in frozen:
        with contextlib.suppress(psutil.NoSuchProcess):
            one.resume()
    wait_for_more(path, updates(path)[-1])
    assert all(p.is_running() for p in beside)
    stop(process, path)


def test_a_whole_run_whose_node_is_cut_off_goes_on_elsewhere(nodes: NetworkNodes, tmp_path: Path) -> None:
    output = tmp_path / "out"
    words = ["benchmark", "--modes", "sequential", "--seeds", "1", "2", "--games", "CartPole-v1", "--num-threads", "2"]
    words += ["--num-envs", "8", "--n-steps", "32", "--batch-size", "128", "--total-timesteps", "1000000000"]
    words += ["--save-interval", "5", "--cluster", nodes.address, "--output-dir", str(output)]
    command = [*nodes.inside(0), sys.executable, "-m", "rlcb", *words]
    process = subprocess.Popen(command, env={**os.environ, **SETTINGS}, stdout=subprocess.DEVNULL)
    try:
        runs = [output / "CartPole-v1" / "ppo_sequential" / f"seed_{seed}" for seed in (1, 2)]
        wait_until(lambda: all(list(run.glob("checkpoints/*_step_[1-9]*.pt")) for run in runs))
        actors = {n: [p for p in nodes.processes(n) if "RunActor" in " ".join(p.cmdline())] for n in (0, 1, 2)}
        there = next(n for n in (1, 2) if actors[n])
        orphans = [child for actor in actors[there] for child in actor.children()]
        nodes.cut(there)
        events = output / "suite_events.jsonl"
        wait_until(lambda: "has not answered for 10 s" in events.read_text())
        (name,) = re.findall(r'"node_lost", "run": "(.*?)"', events.read_text())
        wait_until(lambda: f'"run_resumed", "run": "{name}"' in events.read_text())
        run = runs[int(name[-1]) - 1]
        wait_until(lambda: any(event["event"] == "resumed" and event["env_steps"] > 0 for event in events_of(run)))
        at = updates(run)[-1]
        wait_until(lambda: updates(run)[-1] > at)
        nodes.heal(there)
        assert psutil.wait_procs(orphans, timeout=60)[1] == []  # what nobody collects any more ends
        process.send_signal(signal.SIGTERM)
        assert process.wait(120) == 128 + signal.SIGTERM
    finally:
        process.kill()
        process.wait()
    for run in runs:
        assert updates(run) == list(range(1, len(updates(run)) + 1))
