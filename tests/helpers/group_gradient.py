"""Runs a group of real processes and compares its averaged gradient with one process's on the union of the batches.

usage: group_gradient.py WORKERS; prints a JSON object.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch

from rlcb.algorithms.returns import Samples, make_samples
from rlcb.comm.control import Control, no_heartbeat
from rlcb.comm.process_group import SharedMemoryGroup
from rlcb.config.load import build_config
from rlcb.execution.worker import Worker

CONFIG = build_config(None, {"num_envs": ("", 8), "n_steps": ("", 16), "batch_size": ("", 128), "n_epochs": ("", 1)})


def member(rank: int, size: int, control: int, memory: int, result: str) -> None:
    """One process of the group: a rollout, its gradient, the average; then 20 updates."""
    torch.set_num_threads(1)
    group = SharedMemoryGroup(Control(control, size), rank, memory, 0, no_heartbeat)
    worker = Worker(CONFIG, rank=rank, size=size)
    worker.learner.join(group)
    before = worker.learner.weights.clone()
    rollout = worker.collector.collect()
    rewards = torch.randn(rollout.rewards.shape, generator=torch.Generator().manual_seed(rank))
    batch = make_samples(rollout, rewards, CONFIG)
    worker.learner.gradient_of(batch)
    norm = worker.learner.parameters.reduce()
    content: dict[str, Any] = {
        "part": worker.learner.parameters.reduced.clone(),
        "norm": norm,
        "batch": dict(vars(batch)),
    }
    content = {**content, "batch": {key: tensor.clone() for key, tensor in content["batch"].items()}}
    for _ in range(20):
        rollout = worker.collector.collect()
        worker.learner.update(rollout, torch.randn(rollout.rewards.shape), 1e-3)
    moved = bool((worker.learner.weights != before).any())
    torch.save({**content, "weights": worker.learner.weights, "moved": moved}, result)


def main(size: int, folder: Path) -> None:
    """Start the group, compute the union's gradient here, compare."""
    control, memory = os.memfd_create("control"), os.memfd_create("memory")
    Control(control, size)
    results = [folder / f"{rank}.pt" for rank in range(size)]
    processes = [
        subprocess.Popen(
            [sys.executable, __file__, *map(str, (rank, size, control, memory, results[rank]))],
            pass_fds=(control, memory),
        )
        for rank in range(size)
    ]
    if any(process.wait(timeout=300) for process in processes):
        sys.exit("a member of the group failed")
    found = [torch.load(path, weights_only=True) for path in results]
    union = Samples(**{key: torch.cat([each["batch"][key] for each in found]) for key in found[0]["batch"]})
    alone = Worker(CONFIG)
    alone.learner.gradient_of(union)
    expected, first = alone.learner.gradient, found[0]
    mean = torch.cat([each["part"] for each in found])  # every member averages its part, in the order of the ranks
    verdict = {
        "relative_error": float((mean - expected).norm() / expected.norm()),
        "relative_error_of_norm": abs(float(first["norm"] / expected.norm()) - 1),
        "equal_norms": all(torch.equal(each["norm"], first["norm"]) for each in found),
        "equal_weights_after_20_updates": all(torch.equal(each["weights"], first["weights"]) for each in found),
        "weights_moved": all(each["moved"] for each in found),
    }
    print(json.dumps(verdict))


if __name__ == "__main__":
    if len(sys.argv) > 2:
        member(*map(int, sys.argv[1:5]), sys.argv[5])  # type: ignore[arg-type]
    else:
        with tempfile.TemporaryDirectory() as folder:
            main(int(sys.argv[1]), Path(folder))
