"""How much memory a run will take, estimated before it starts, and how much there is."""

import math
import re
from pathlib import Path

from rlcb.config.plan import Plan
from rlcb.config.schema import Config
from rlcb.envs.base import EnvSpec
from rlcb.envs.families import family_of
from rlcb.hardware import cgroup_folders, read_system_file

_MB = 2**20
# Measured with Python 3.11 and torch 2.13 for the CPU on Linux, x86-64; see `expected_bytes`.
_CODE = 115 * _MB  # programs and libraries that all processes share
_PROCESS = 180 * _MB  # what a process has for itself once torch and this package are loaded
_LEARNING = 75 * _MB  # weights, moments, gradients and workspaces of one that learns
_PER_VALUE = {"nature": 17.5, "impala": 136.0}  # bytes of a forward and backward pass per number of an observation
_PER_SAMPLE = 4096  # bytes of the same in small networks


def expected_bytes(config: Config, plan: Plan, spec: EnvSpec) -> int:
    """The peak memory of all processes of a run together, pages that they share counted once; an estimate.

    It adds up what is known: processes, the environments' package in each of them that loads it, environments, rollouts
    and the intermediate results of a minibatch's forward and backward pass. The constants were obtained by reading
    /proc/<pid>/smaps_rollup of every process five times per second in short runs: of CartPole (a process by itself), of
    CoinRun with 8 environments (Procgen) and with 32 and minibatches of 1024 (intermediate results).
    """
    family, parallel = family_of(config.env.name), plan.execution != "sequential"
    envs, package = plan.envs_per_worker * family.env_bytes, family.package_bytes
    observation = math.prod(spec.observation_shape) * spec.observation_dtype.itemsize
    rollout = (config.training.n_steps + 1) * plan.envs_per_worker * observation
    learners = plan.num_learners or plan.num_workers
    whole = config.rollout_size if plan.execution == "async_gradients" else config.minibatch_size
    passes = _pass_bytes(config, whole // learners, spec) if plan.device == "cpu" else 0
    if plan.num_learners:
        share = plan.num_workers * rollout // plan.num_learners
        workers = plan.num_workers * (_PROCESS + package + envs) + plan.num_slots * rollout
        workers += plan.num_learners * (_PROCESS + _LEARNING + share + passes)
    else:
        workers = plan.num_workers * (_PROCESS + _LEARNING + package + envs + rollout + passes)
    return _CODE + (_PROCESS if parallel else 0) + workers


def _pass_bytes(config: Config, samples: int, spec: EnvSpec) -> int:
    """A forward and backward pass over this many samples, or over as many as go through the network at a time."""
    training = config.training
    at_once = min(samples, training.micro_batch_size or samples)
    network = ("nature" if spec.is_image else "mlp") if training.network == "auto" else training.network
    return int(at_once * (_PER_VALUE.get(network, 0.0) * math.prod(spec.observation_shape) + _PER_SAMPLE))


def available_bytes(root: Path = Path("/sys/fs/cgroup"), membership: Path = Path("/proc/self/cgroup")) -> int:
    """Memory that processes can still take: the least that the system and this process's cgroups have left."""
    import psutil

    left = [psutil.virtual_memory().available]
    for folder in cgroup_folders("memory", root, membership):
        limit = _number_in(folder / "memory.max", folder / "memory.limit_in_bytes")
        used = _number_in(folder / "memory.current", folder / "memory.usage_in_bytes")
        if limit is not None and used is not None:
            # Files that were read and are not used any more count, but give way.
            cached = _number_in(folder / "memory.stat", form=r"^(?:total_)?inactive_file (\d+)$") or 0
            left.append(limit - used + cached)
    return max(min(left), 0)


def _number_in(*files: Path, form: str = r"^(\d+)$") -> int | None:
    """The last number of this form in the first of the files that has one."""
    for file in files:
        if found := re.findall(form, read_system_file(file), re.MULTILINE):
            return int(found[-1])
    return None
