"""`hardware.precision: auto` decided: how fast this machine trains the configured network in fp32 and in bf16."""

import json
import os
import subprocess
import sys

from rlcb.config.schema import Config
from rlcb.console import say
from rlcb.disturbance.verdict import Disturbance
from rlcb.errors import ResourceError
from rlcb.hardware import usable_cpus

_SAFE = "fp32"  # what every network can be trained in


def with_precision(config: Config, mode: str) -> Config:
    """The configuration with the faster precision in the place of `auto`; prints what was measured.

    fp32 where other programs disturbed the measurement twice: a run does not fail for that, and nothing is concluded.
    """
    if config.hardware.precision != "auto":
        return config
    speeds, disturbance = _measured(config, mode)
    if disturbance.disturbed:
        speeds, disturbance = _measured(config, mode)
    if disturbance.disturbed:
        say(f"Precision: {_SAFE}, because the measurement was disturbed: {disturbance.words}")
        return config.changed("hardware", precision=_SAFE)
    faster = max(speeds, key=lambda name: speeds[name])
    words = ", ".join(f"{name} {speed:,.0f}" for name, speed in speeds.items())
    say(f"Precision: {faster}, the faster one (training samples per second: {words})")
    return config.changed("hardware", precision=faster)


def _measured(config: Config, mode: str) -> tuple[dict[str, float], Disturbance]:
    """Samples learned from per second, by precision, in one of the run's processes; and what disturbed it."""
    cores, items = usable_cpus(), config.minibatch_items
    threads = min(config.hardware.num_threads or cores, cores)
    on_gpu = config.hardware.device == "cuda"  # also IMPALA's one learner
    if mode == "parallel" and not on_gpu:  # a process gets about a core and a core's share of the minibatch
        threads, items = 1, max(items // cores, 1)
    order = {
        "config": {"algorithm": config.algorithm, **config.model_dump(mode="json")},
        "items": items,
        "threads": threads,
        "device": config.hardware.device if mode == "sequential" or on_gpu else "cpu",
    }
    command = [sys.executable, "-m", "rlcb.limits.precision_trial", str(os.getpid())]
    done = subprocess.run(command, input=json.dumps(order), capture_output=True, text=True, check=False)
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise ResourceError(f"--precision auto: the measurement failed: {reason}; use --precision fp32")
    found = json.loads(done.stdout.splitlines()[-1])
    return found["speeds"], Disturbance(**found["disturbance"])
