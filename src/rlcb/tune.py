"""Finds by measurement how a run is best divided on this machine."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rlcb.config import Config
from rlcb.config_file import build_config
from rlcb.errors import ResourceError
from rlcb.hardware import usable_cpus

Say = Callable[[str], None]
WORTH_IT = 1.05  # a change that costs memory or alters learning must gain at least this much


def worker_counts(num_envs: int, minibatch: int, cores: int) -> list[int]:
    """Numbers of workers worth trying: powers of two and all cores, as far as environments and minibatches divide."""
    counts = {2**power for power in range(cores.bit_length()) if 2**power <= cores} | {cores}
    return sorted(count for count in counts if num_envs % count == 0 and minibatch % count == 0)


def measure(config: Config, workers: int, updates: int) -> float:
    """Steps per second of a real, short parallel run; its first update is warm-up."""
    changes = {
        "num_workers": workers,
        "num_envs_per_worker": None,
        "num_threads": None,
        "total_timesteps": (updates + 1) * config.rollout_size,
        "duration_hours": None,
        "tensorboard": False,
        "checkpoint_dir": None,
        "log_dir": None,
    }
    trial = build_config(None, {key: (key, value) for key, value in changes.items()}, base=config, mode="parallel")
    with tempfile.TemporaryDirectory(prefix="rlcb-tune-") as folder:
        file, run = Path(folder) / "trial.yaml", Path(folder) / "run"
        file.write_text(trial.to_yaml())
        command = [sys.executable, "-m", "rlcb", "train", "ppo", "--mode", "parallel"]
        done = subprocess.run(
            [*command, "--config", str(file), "--output-dir", str(run)], capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise ResourceError(f"a trial run with {workers} workers failed: {done.stderr.strip().splitlines()[-1]}")
        lines = (run / "logs" / "PPO_Parallel" / "metrics.jsonl").read_text().splitlines()
    first, last = json.loads(lines[0]), json.loads(lines[-1])
    return float((last["step"] - first["step"]) / (last["time"] - first["time"]))


def choose_workers(config: Config, say: Say, updates: int = 2) -> tuple[int, float]:
    """The fastest number of workers for this configuration here, and its speed."""
    cores = usable_cpus()
    say(f"Measuring how many workers are fastest on {cores} cores ({config.env.num_envs} environments in all):")
    speeds: dict[int, float] = {}
    for workers in worker_counts(config.env.num_envs, config.minibatch_size, cores):
        speeds[workers] = measure(config, workers, updates)
        say(f"  {workers} workers × {max(cores // workers, 1)} threads: {speeds[workers]:,.0f} FPS")
    best = max(speeds, key=lambda workers: speeds[workers])
    say(f"Chosen: {best} workers, the fastest")
    return best, speeds[best]


def with_workers(config: Config, workers: int) -> Config:
    """The configuration divided among this many workers, the total unchanged."""
    changes: dict[str, Any] = {"num_workers": workers, "num_envs_per_worker": None}
    return build_config(None, {key: (key, value) for key, value in changes.items()}, base=config, mode="parallel")


def tune(config: Config, output: Path, updates: int, say: Say) -> int:
    """Workers and threads, then environments, then the minibatch, each by measurement; writes a ready configuration."""
    workers, speed = choose_workers(config, say, updates)
    best = with_workers(config, workers)
    say("Trying more environments and larger minibatches (they change what is learned per step, so they must pay):")
    for key, values in (
        ("num_envs", [best.env.num_envs * 2, best.env.num_envs * 4]),
        ("batch_size", [best.minibatch_size * 2, best.minibatch_size * 4]),
    ):
        for value in values:
            changes: dict[str, Any] = {key: value, "num_envs_per_worker": None}
            flags = {name: (name, entry) for name, entry in changes.items()}
            trial = build_config(None, flags, base=best, mode="parallel")
            if trial.minibatch_size < trial.training.batch_size:
                break
            found = measure(trial, workers, updates)
            keep = found > WORTH_IT * speed
            say(f"  {key} {value}: {found:,.0f} FPS, {'kept' if keep else 'not worth it'}")
            if not keep:
                break
            best, speed = trial, found
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(f"# Tuned on this machine by `rlcb tune`: {speed:,.0f} FPS.\n{best.to_yaml()}", encoding="utf-8")
    say(f"Written: {output}; use it with: rlcb train ppo --mode parallel --config {output}")
    return 0
