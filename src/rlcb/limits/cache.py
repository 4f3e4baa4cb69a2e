"""The limits that were measured on this machine, in a file of the user's cache. Nothing in it is trusted."""

import os
import platform
from dataclasses import asdict, fields
from datetime import datetime
from pathlib import Path
from typing import Any

from rlcb.analysis.untrusted import number, read_object
from rlcb.config.plan import Plan
from rlcb.config.schema import Config
from rlcb.console import note
from rlcb.envs.families import family_of
from rlcb.errors import ResourceError, UsageError
from rlcb.files import cache_folder, write_json
from rlcb.hardware import code_version, cpu_model, describe_gpus, package_version, usable_cpus
from rlcb.limits.formula import Limit

_FORMAT = 1
_LARGEST = 4 * 2**20  # bytes of the file
_MOST_ENTRIES = 500  # the newest ones are kept

Entry = dict[str, Any]


def cache_file() -> Path:
    """Where the limits are kept."""
    return cache_folder() / "limits.json"


def key_of(config: Config, plan: Plan, mode: str) -> dict[str, Any]:
    """Everything that a limit depends on: the machine, the versions, and what the run's processes do."""
    import psutil

    sharing = plan.num_learners or (plan.num_workers if config.parallel_execution.shares_minibatches else 1)
    whole = config.minibatch_size // plan.num_workers if plan.execution == "async_gradients" else config.minibatch_size
    on_gpu = {
        "env_threads": plan.env_threads,
        "optimizer": config.training.optimizer,  # its step is part of the recorded one
        **{key: getattr(config.hardware, key) for key in ("compile", "deterministic", "env_groups")},
    }
    return {
        "cpu": cpu_model(),
        "cores": usable_cpus(),
        "memory_gb": round(psutil.virtual_memory().total / 2**30, 1),
        "gpus": describe_gpus()["gpus"] if plan.device == "cuda" else [],
        "rlcb": code_version(),
        "torch": package_version("torch"),
        "python": platform.python_version(),
        "algorithm": config.algorithm,
        "mode": mode,
        "env": config.env.name,
        "imports": config.modules,
        "distribution_mode": config.env.distribution_mode,
        **{key: getattr(config.env, key) for key in family_of(config.env.name).keys},
        "num_envs": config.env.num_envs,
        "num_workers": plan.num_workers,
        "num_learners": plan.num_learners,
        "threads": plan.threads,
        "device": plan.device,
        **({"actor_device": plan.actor_device} if plan.actor_device != "cpu" else {}),
        **(on_gpu if plan.device == "cuda" else {}),
        "precision": config.hardware.precision,
        "network": config.training.network,
        "normalize_observations": config.training.normalize_observations,
        "n_steps": config.training.n_steps,
        "minibatch_per_process": whole // (sharing if mode == "parallel" else 1),
        "micro_batch_size": config.training.micro_batch_size,
        "n_epochs": config.training.n_epochs,
    }


def find(key: dict[str, Any]) -> Limit | None:
    """The limit that was measured for this key, None where none was; a file that cannot be used is noted."""
    return next((limit for entry in _entries() if entry["key"] == key and (limit := _limit(entry))), None)


def store(key: dict[str, Any], limit: Limit) -> Path:
    """Add a limit to the file, in the place of the one before it; returns the file."""
    path = cache_file()
    others = [entry for entry in _entries() if entry["key"] != key]
    entries = [*others[1 - _MOST_ENTRIES :], {"key": key, "limit": asdict(limit)}]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ResourceError(f"{path.parent}: cannot be written to: {error.strerror}") from None
    # Of two programs that write at the same time one loses its entry: that limit is measured again.
    write_json(path, {"format": _FORMAT, "limits": entries})
    return path


def _entries() -> list[Entry]:
    """What the file holds, as far as it can be used; none where there is no file."""
    path = cache_file()
    try:
        if not os.path.lexists(path):
            return []
        content = read_object(path, _LARGEST)
    except UsageError as error:
        note(f"{path}: {error}; ignored; it will be replaced by the next measurement")
        return []
    found = content.get("limits")
    if content.get("format") != _FORMAT or not isinstance(found, list):
        note(f"{path}: not a file with limits of this program; ignored; it will be replaced by the next measurement")
        return []
    return [
        entry for entry in found if isinstance(entry, dict) and isinstance(entry.get("key"), dict) and _limit(entry)
    ]


def _limit(entry: Entry) -> Limit | None:
    """The limit in an entry; None if it is not one."""
    values = entry.get("limit")
    if not isinstance(values, dict):
        return None
    *names, when = (field.name for field in fields(Limit))
    found = {name: number(values.get(name)) for name in names}
    try:
        measured = datetime.fromisoformat(values[when]).isoformat()
    except (KeyError, TypeError, ValueError):
        return None
    known = {name: value for name, value in found.items() if value is not None and value > 0}
    return Limit(**known, measured=measured) if len(known) == len(found) else None
