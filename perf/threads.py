"""Times steps of networks without convolutions with one and with two threads, in turn within one process.

usage: .venv/bin/python perf/threads.py [--seconds 20]

Printed is the fastest step of each, which other programs on the machine disturb least.
"""

import argparse
import os
import time
from collections.abc import Callable
from importlib import import_module

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # as in runs; read when torch is loaded
os.environ["OMP_NUM_THREADS"] = "2"

import numpy as np
import torch

from rlcb.envs.base import EnvSpec

CASES = [("mlp", 4, 32, False), ("mlp", 4, 128, True), ("mlp", 4, 1024, True), ("mlp256", 17, 32, False)]
CASES += [("mlp256", 17, batch, True) for batch in (128, 256, 512, 1024)]


def step_of(name: str, size: int, batch: int, learns: bool) -> Callable[[], None]:
    """One optimizer step on random observations, or with `learns` False one action for each."""
    network = import_module(f"rlcb.networks.{name}").make(EnvSpec((size,), np.dtype(np.float32), num_actions=2))
    optimizer = torch.optim.Adam(network.parameters())
    observations = torch.randn(batch, size)

    def learn() -> None:
        logits, values = network(observations)
        loss = torch.log_softmax(logits, 1)[:, 0].mean() + values.square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    def act() -> None:
        with torch.no_grad():
            torch.multinomial(torch.softmax(network(observations)[0], 1), 1)

    return learn if learns else act


def fastest(step: Callable[[], None], seconds: float) -> dict[int, float]:
    """Milliseconds of the fastest step by the number of threads, which changes every four steps."""
    found = {1: float("inf"), 2: float("inf")}
    end, turns = time.perf_counter() + seconds, 0
    while time.perf_counter() < end:
        threads = 1 + turns % 2
        turns += 1
        torch.set_num_threads(threads)
        step()
        for _ in range(3):
            began = time.perf_counter()
            step()
            found[threads] = min(found[threads], 1000 * (time.perf_counter() - began))
    return found


def main() -> None:
    """Print a row of a table for each case."""
    parser = argparse.ArgumentParser(description="Small networks with one and with two threads.")
    parser.add_argument("--seconds", type=float, default=20.0, help="of each case")
    seconds = parser.parse_args().seconds
    for name, size, batch, learns in CASES:
        found = fastest(step_of(name, size, batch, learns), seconds)
        what = "learning" if learns else "acting"
        print(f"| {name} | {what}, {batch} | {found[1]:.2f} | {found[2]:.2f} | {found[2] / found[1]:.2f} |", flush=True)


if __name__ == "__main__":
    main()
