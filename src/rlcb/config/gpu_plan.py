"""How a run on a GPU is carried out: every `auto` of it decided."""

import os
import shutil
from importlib.util import find_spec
from typing import Any

from rlcb.config.schema import Config
from rlcb.errors import UsageError
from rlcb.hardware import resolve_device

_WORTH_COMPILING = 1_000_000  # environment steps, or the hours below: a shorter run ends before compiling has paid
_HOURS_WORTH_COMPILING = 0.05
_FEW_ENVS = 16  # so few that two groups would take longer than one
_MOST_GPU_ACTORS = 2  # that act on a GPU: more would wait for each other there


def gpu_choices(config: Config) -> dict[str, Any]:
    """Values in the place of `auto` in the section `hardware` for a run on a GPU."""
    return {"compile": _compile_choice(config), "env_groups": _group_choice(config)}


def acting_device(config: Config) -> str:
    """Where IMPALA's actors compute actions; `auto` takes the learner's GPU, unless they are many or on a cluster."""
    wanted, actors = config.parallel.actor_device, config.parallel.num_workers
    if wanted != "auto":
        return wanted
    here = config.hardware.device == "cuda" and config.parallel.cluster is None
    return "cuda" if here and (actors == "auto" or actors <= _MOST_GPU_ACTORS) else "cpu"


def placed(config: Config) -> Config:
    """A parallel configuration with its devices decided: a GPU is for the one learner of an execution that has some."""
    if not config.parallel_execution.has_learners:
        return config.changed("hardware", device="cpu")
    device = resolve_device(config.hardware.device, config.hardware.num_threads)
    config = config.changed("hardware", device=device)
    refuse_misplaced(config)
    return config.changed("parallel", actor_device=acting_device(config))


def most_actors(config: Config, cores: int, beside_learner: bool = True) -> int:
    """How many actors this many cores can have, or a GPU; `beside_learner`: one on a GPU keeps one core busy."""
    if config.hardware.device != "cuda" or not config.parallel_execution.has_learners:
        return cores
    if acting_device(config) == "cuda":
        return min(cores, _MOST_GPU_ACTORS)
    return max(cores - 1, 1) if beside_learner else cores


def refuse_misplaced(config: Config) -> None:
    """Refuse actors and learners that the devices do not allow; `device: auto` is not decided yet."""
    device, learners = config.hardware.device, config.parallel.num_learners
    if device == "cuda" and learners is not None and learners > 1:
        raise UsageError(
            f"--device cuda: only one learner can use the GPU, but num_learners is {learners}; use --num-learners 1"
        )
    if device == "cpu" and config.parallel.actor_device == "cuda":
        raise UsageError("--actor-device cuda: the learner is on the CPU; use --device cuda or --actor-device cpu")


def actor_choices(config: Config, envs_per_actor: int) -> dict[str, Any]:
    """Values in the place of `auto` in the section `hardware` for IMPALA with its learner on a GPU."""
    chosen: dict[str, Any] = {"compile": _compile_choice(config)}
    if acting_device(config) == "cuda":
        wanted = config.hardware.env_groups
        groups = 1 if wanted == "auto" else wanted
        if envs_per_actor % groups:
            raise UsageError(f"--env-groups {groups}: must divide the environments of an actor, {envs_per_actor}")
        chosen["env_groups"] = groups
    return chosen


def env_threads(groups: int, cores: int) -> int:
    """Threads of each group's environments: three quarters of the cores among all groups, as was measured fastest."""
    return max(round(0.75 * cores / groups), 1)


def missing_compiler() -> str | None:
    """What torch.compile lacks here, in words."""
    if find_spec("triton") is None:
        return "Triton is not installed"
    found = any(shutil.which(name) for name in (os.environ.get("CC"), "cc", "gcc", "clang") if name)
    return None if found else "there is no C compiler (apt-get install gcc)"


def _compile_choice(config: Config) -> bool | str:
    wanted, training = config.hardware.compile, config.training
    missing = missing_compiler() if wanted in (True, "auto") else None
    if wanted is True and missing:
        raise UsageError(f"--compile true: {missing}; use --compile graphs")
    if wanted != "auto":
        return wanted
    hours = training.duration_hours
    long = hours >= _HOURS_WORTH_COMPILING if hours else training.total_timesteps >= _WORTH_COMPILING
    return True if long and not missing else "graphs"


def _group_choice(config: Config) -> int:
    wanted, num_envs = config.hardware.env_groups, config.env.num_envs
    if wanted == "auto":
        return 2 if num_envs >= _FEW_ENVS and num_envs % 2 == 0 else 1
    if num_envs % wanted:
        raise UsageError(f"--env-groups {wanted}: must divide num_envs, {num_envs}")
    return wanted
