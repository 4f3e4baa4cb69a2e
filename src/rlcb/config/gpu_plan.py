"""How a run on a GPU is carried out: every `auto` of it decided."""

import os
import shutil
from importlib.util import find_spec
from typing import Any

from rlcb.config.schema import Config
from rlcb.errors import UsageError

_WORTH_COMPILING = 1_000_000  # environment steps, or the hours below: a shorter run ends before compiling has paid
_HOURS_WORTH_COMPILING = 0.05
_FEW_ENVS = 16  # so few that two groups would take longer than one


def gpu_choices(config: Config) -> dict[str, Any]:
    """Values in the place of `auto` in the section `hardware` for a run on a GPU."""
    return {"compile": _compile_choice(config), "env_groups": _group_choice(config)}


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
