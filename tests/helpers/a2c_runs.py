"""Runs of A2C and A3C that are compared bit for bit."""

import json
from pathlib import Path
from typing import Any

from helpers.processes import rlcb
from rlcb.run.checkpoint import load_checkpoint

SMALL = ("--n-steps", "16", "--num-threads", "1", "--tensorboard", "false")
ROLLOUT = 8 * 16


def division(mode: str, workers: int) -> tuple[str, ...]:
    many = ("--num-workers", str(workers)) if mode == "parallel" else ()
    return "--mode", mode, *many, "--num-envs", str(8 // workers), *SMALL


def trained(path: Path, algorithm: str, mode: str, workers: int, *more: str | Path) -> Path:
    done = rlcb("train", algorithm, *division(mode, workers), *more, "--output-dir", path)
    assert done.returncode == 0, done.stderr
    return path


def learned(path: Path) -> tuple[Any, ...]:
    """Everything that a run learned, to the bit, and how it says it went; not how long it took."""
    (file,) = (path / "checkpoints").glob("*_final.pt")
    content = load_checkpoint(file)
    tensors = {**content["policy"], "square_avg": content["optimizer"]["square_avg"]}
    (log,) = (path / "logs").glob("*/metrics.jsonl")
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    history = [{k: v for k, v in line.items() if not k.startswith(("time", "resource", "lag"))} for line in lines]
    weights = {name: tensor.numpy().tobytes() for name, tensor in tensors.items()}
    return weights, history, content["normalizer"], content["run"]["episodes"], content["progress"]
