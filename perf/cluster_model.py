"""What a cluster of so many nodes should make, from costs measured on one machine; and a check of the network part.

    python perf/cluster_model.py                 # the table of docs/cluster.md
    sudo python perf/cluster_model.py --measure  # all-reduce in namespaces with shaped links, beside the formula
    python perf/cluster_model.py --parameter-server        # what a gradient takes A3C's parameter server, here

Weak scaling: every node brings the same environments, and a minibatch grows with the nodes. The formulas:

- all-reduce of G bytes over P ranks (gloo's ring): 2 (P − 1) · latency + 2 (P − 1)/P · G / bandwidth + P · c
- PPO: update = collect + learn + optimizer steps · all-reduce
- IMPALA: rollouts of all actors must pass the learners' link, and every version of the weights to every node
- A3C: every gradient to the parameter server, the weights back, and the server applies them one after the other
"""

import argparse
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median

GRADIENT = 4 * 608_944  # bytes: Nature CNN
STEP_BYTES = 64 * 64 * 3 + 30  # of a rollout: the frame, and what else belongs to a step


@dataclass(frozen=True)
class Node:
    """A machine, by what was measured on one: 16 cores of an Intel Xeon (docs/performance.md)."""

    update_steps: int = 4096  # environment steps per update of a node: 32 × 128
    ppo_update: float = 4096 / 6588  # seconds without any network, 16 workers
    ppo_optimizer_steps: int = 16  # 4 epochs × 4 minibatches
    impala_fps: float = 17_434  # of actors and learners together, 8 + 8
    acting_share: float = 0.5  # of IMPALA's cores
    a3c_gradient_steps: int = 128  # environment steps per gradient: 8 × 16
    a3c_fps: float = 6_478  # 4 workers, with other runs on the machine (docs/results.md)
    apply_seconds: float = 0.011  # a gradient and back, measured on 2 cores with --parameter-server


def allreduce(ranks: int, size: float, bandwidth: float, latency: float, handling: float = 50e-6) -> float:
    """Seconds for the mean of `size` bytes over so many ranks; bandwidth in bytes a second."""
    if ranks == 1:
        return 0.0
    return 2 * (ranks - 1) * latency + 2 * (ranks - 1) / ranks * size / bandwidth + ranks * handling


def ppo(nodes: int, bandwidth: float, latency: float, node: Node) -> float:
    """Environment steps a second; one rank per node crosses the network, the workers of a node share its link."""
    update = node.ppo_update + node.ppo_optimizer_steps * allreduce(nodes, GRADIENT, bandwidth, latency)
    return nodes * node.update_steps / update


def impala(nodes: int, bandwidth: float, node: Node) -> float:
    """Environment steps a second with one node of learners, the others acting."""
    acting = (nodes - 1) * node.impala_fps / node.acting_share / 2 if nodes > 1 else node.impala_fps
    learning = node.impala_fps / (1 - node.acting_share)
    link = bandwidth / (STEP_BYTES + GRADIENT * max(nodes - 1, 1) / node.update_steps)
    return min(acting, learning, link) if nodes > 1 else node.impala_fps


def a3c(nodes: int, bandwidth: float, node: Node) -> float:
    """Environment steps a second: the slowest of workers, the parameter server's link, the server."""
    link = bandwidth / GRADIENT * node.a3c_gradient_steps
    return min(nodes * node.a3c_fps, link, node.a3c_gradient_steps / node.apply_seconds)


def needed(nodes: int, latency: float, node: Node) -> float | None:
    """Bandwidth in bytes a second at which PPO keeps 90 % of its speed; None where latency alone costs more."""
    spare = node.ppo_update / 9 / node.ppo_optimizer_steps - 2 * (nodes - 1) * latency - nodes * 50e-6
    return 2 * (nodes - 1) / nodes * GRADIENT / spare if spare > 0 else None


def table(latency: float, node: Node) -> None:
    """Print the predictions as a Markdown table."""
    gigabits = {"1 Gb/s": 125e6, "10 Gb/s": 1250e6, "100 Gb/s": 12500e6}
    print("| nodes | network | PPO, steps/s (efficiency) | IMPALA, one node learns | A3C | PPO keeps 90 % from |")
    print("|---|---|---|---|---|---|")
    alone = ppo(1, 1.0, latency, node)
    for nodes in (1, 2, 10, 100, 1000):
        least = needed(nodes, latency, node) if nodes > 1 else 0.0
        words = "–" if nodes == 1 else f"{8 * least / 1e9:.1f} Gb/s" if least else "no bandwidth: latency"
        for name, bandwidth in gigabits.items() if nodes > 1 else [("none", 1e12)]:
            speed = ppo(nodes, bandwidth, latency, node)
            others = f"{impala(nodes, bandwidth, node):,.0f} | {a3c(nodes, bandwidth, node):,.0f}"
            print(f"| {nodes} | {name} | {speed:,.0f} ({speed / nodes / alone:.0%}) | {others} | {words} |")


# The check


def _run(*words: str) -> None:
    subprocess.run(words, check=True)


def measure(rate: str, ranks: int, rounds: int) -> float:
    """Median seconds of an all-reduce over ranks in network namespaces of their own, each link shaped to `rate`."""
    bridge, names = "rlcbbr", [f"rlcb{rank}" for rank in range(ranks)]
    _run("ip", "link", "add", bridge, "type", "bridge")
    _run("ip", "link", "set", bridge, "up")
    try:
        for rank, name in enumerate(names):
            _run("ip", "netns", "add", name)
            _run("ip", "link", "add", f"{name}h", "type", "veth", "peer", "name", "eth0", "netns", name)
            _run("ip", "link", "set", f"{name}h", "master", bridge)
            _run("ip", "link", "set", f"{name}h", "up")
            _run("ip", "-n", name, "addr", "add", f"10.77.0.{rank + 1}/24", "dev", "eth0")
            for device in ("lo", "eth0"):
                _run("ip", "-n", name, "link", "set", device, "up")
            shape = ("root", "tbf", "rate", rate, "burst", "128k", "latency", "100ms")
            _run("ip", "netns", "exec", name, "tc", "qdisc", "add", "dev", "eth0", *shape)
            _run("tc", "qdisc", "add", "dev", f"{name}h", *shape)
        members = [
            subprocess.Popen(
                ["ip", "netns", "exec", name, sys.executable, __file__, "--rank", str(rank), "--ranks", str(ranks),
                 "--rounds", str(rounds)],
                stdout=subprocess.PIPE, text=True,
            )
            for rank, name in enumerate(names)
        ]  # fmt: skip
        answers = [member.communicate(timeout=300)[0] for member in members]
        return float(answers[0])
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], check=False)
        _run("ip", "link", "del", bridge)


def member(rank: int, ranks: int, rounds: int) -> None:
    """One rank of the measurement; the first prints the median."""
    os.environ["GLOO_SOCKET_IFNAME"] = "eth0"
    os.environ["OMP_NUM_THREADS"] = "1"
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method="tcp://10.77.0.1:29777", rank=rank, world_size=ranks)
    gradient, seconds = torch.ones(GRADIENT // 4), []
    for _ in range(rounds + 3):
        dist.barrier()
        started = time.perf_counter()
        dist.all_reduce(gradient)
        seconds.append(time.perf_counter() - started)
    dist.barrier()
    if rank == 0:
        print(median(seconds[3:]))


def parameter_server(rounds: int) -> None:
    """Print what a gradient takes the parameter server, from sending it to having the weights, one worker at a time."""
    from rlcb.cluster.connect import prepare

    address = prepare("local", insecure=False)
    import numpy as np
    import ray

    from rlcb.cluster.connect import connected
    from rlcb.cluster.parameter_server import ParameterServer
    from rlcb.comm.control import Control
    from rlcb.comm.shared_parameters import SharedParameters
    from rlcb.config.load import build_config
    from rlcb.envs.families import spec_of
    from rlcb.execution.messages import AsyncSetup
    from rlcb.execution.worker import make_policy
    from rlcb.learner import Learner

    config = build_config(None, {"num_workers": ("", 1)}, mode="parallel", algorithm="a3c")
    page, parameters, work = (os.memfd_create(name) for name in ("page", "parameters", "work"))
    control = Control(page, 1)
    shared = SharedParameters(parameters, control.arrivals, worker=None, create=True)
    import torch

    Learner(make_policy(config, spec_of(config.env)), config, torch.Generator(), shared)
    setup = AsyncSetup(config, 0, 0, 1, parameters, work, Path(), 0, (0.0, 0.0, 0.0), (0,))
    with connected(config, address):
        there = ParameterServer.remote(setup, page, 1, os.getpid())  # type: ignore[attr-defined]
        gradient, seconds = np.ones(GRADIENT // 4, np.float32), []
        for number in range(rounds + 5):
            started = time.perf_counter()
            ray.get(there.apply.remote(0, 0, number, gradient, 1e-6))
            seconds.append(time.perf_counter() - started)
    print(f"a gradient and back: median {1000 * median(seconds[5:]):.2f} ms, least {1000 * min(seconds):.2f} ms")


def main() -> None:
    """Print the table, or measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--latency", type=float, default=50e-6, help="seconds between two nodes, one way")
    parser.add_argument("--measure", action="store_true", help="check the all-reduce (needs root)")
    parser.add_argument("--parameter-server", action="store_true", help="time A3C's parameter server")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--ranks", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.rank is not None:
        member(arguments.rank, arguments.ranks, arguments.rounds)
    elif arguments.parameter_server:
        parameter_server(5 * arguments.rounds)
    elif arguments.measure:
        print("| links | ranks | formula, ms | measured, ms | ratio |\n|---|---|---|---|---|")
        for rate, bandwidth in (("100mbit", 12.5e6), ("1gbit", 125e6)):
            for ranks in (2, 3, 4):
                formula, found = allreduce(ranks, GRADIENT, bandwidth, 20e-6), measure(rate, ranks, arguments.rounds)
                numbers = f"{1000 * formula:.1f} | {1000 * found:.1f} | {found / formula:.2f}"
                print(f"| {rate} | {ranks} | {numbers} |", flush=True)
    else:
        table(arguments.latency, Node())


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src"))
    main()
