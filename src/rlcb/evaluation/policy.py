"""A trained policy: finding its checkpoint, verifying it, building the network."""

import contextlib
import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from rlcb.config.environment import EnvConfig
from rlcb.config.registry import MODES
from rlcb.config.schema import TrainingConfig
from rlcb.console import note, warn
from rlcb.envs.base import EnvSpec
from rlcb.envs.families import canonical_env_name, make_ready, missing_mode, spec_of
from rlcb.envs.own_code import load, module_of
from rlcb.errors import CheckpointUnusable, RlcbError, UsageError
from rlcb.files import sha256_of
from rlcb.networks.policy import make_policy_network
from rlcb.run.checkpoint import load_checkpoint, load_newest
from rlcb.run.directory import LARGEST_CHECKPOINT, read_run

BENCHMARKS = Path("benchmarks")  # where runs go unless told otherwise
_POLICY_KEYS = ("network", "normalize_observations")  # a checkpoint of an earlier version need not have all
_NAME = re.compile(rf"(?P<algorithm>[a-z0-9]+)_(?P<mode>{'|'.join(MODES)})_(?:final|step_\d+)\.pt")


@dataclass(frozen=True)
class LoadedPolicy:
    """What a checkpoint says about the policy in it."""

    path: Path
    sha256: str
    algorithm: str
    mode: str
    env: EnvConfig
    training: TrainingConfig  # of which the network matters
    env_steps: int
    weights: dict[str, Tensor]


def find_policy(where: Path | None, algorithm: str | None) -> LoadedPolicy:
    """The checkpoint in this file or directory, by default the newest under ./benchmarks."""
    if where is not None and not os.path.isdir(where):
        trained = _read(where, load_checkpoint(where))
    else:
        trained = _newest_in(where or BENCHMARKS, algorithm)
    if where is None:
        note(f"newest checkpoint under ./{BENCHMARKS}: {trained.path}")
    if algorithm and trained.algorithm != algorithm:
        raise CheckpointUnusable(f"{trained.path}: trained with {trained.algorithm}, not {algorithm} (--algorithm)")
    return trained


def _newest_in(where: Path, algorithm: str | None) -> LoadedPolicy:
    """The newest undamaged checkpoint of the run in a directory, or of the newest run below it."""
    folders = [where]
    if all(os.path.isfile(where / name) for name in ("run.json", "config.yaml")):
        elsewhere = read_run(where)[0].logging.checkpoint_dir
        folders += [Path(elsewhere)] if elsewhere else []
    files = [path for folder in folders for path in folder.rglob("*.pt") if _NAME.fullmatch(path.name)]
    wanted = [path for path in files if algorithm in (None, _algorithm_of(path))]
    if not wanted:
        others = sorted({_algorithm_of(path) for path in files})
        there = f"; there are checkpoints of {', '.join(others)}" if others else ""
        looked_for = f"{algorithm or '<algorithm>'}_<mode>_final.pt and {algorithm or '<algorithm>'}_<mode>_step_<N>.pt"
        raise CheckpointUnusable(f"no checkpoint under {where}: looked for {looked_for}{there}")
    last = max(wanted, key=lambda path: path.lstat().st_mtime)
    path, content = load_newest(last.parent, _algorithm_of(last), warn)
    final = path.with_name(re.sub(r"_step_\d+\.pt$", "_final.pt", path.name))
    if final != path and os.path.isfile(final):
        with contextlib.suppress(CheckpointUnusable):  # load_newest has reported it
            other = load_checkpoint(final)
            if other["meta"]["env_steps"] == content["meta"]["env_steps"]:
                path, content = final, other
    return _read(path, content)


def _algorithm_of(path: Path) -> str:
    match = _NAME.fullmatch(path.name)
    return match["algorithm"] if match else ""


def _read(path: Path, content: dict[str, Any]) -> LoadedPolicy:
    meta, match = content["meta"], _NAME.fullmatch(path.name)
    mode = match["mode"] if match else "parallel" if len(content["workers"]) > 1 else "sequential"
    config = json.loads(meta["config"])
    try:
        digest = sha256_of(path, LARGEST_CHECKPOINT)
    except OSError as error:
        raise CheckpointUnusable(f"{path}: cannot be read: {error.strerror}") from None
    return LoadedPolicy(
        path=path,
        sha256=digest,
        algorithm=meta["algorithm"],
        mode=mode,
        env=EnvConfig.model_validate(config["env"]),
        training=TrainingConfig.model_validate(
            {key: config["training"][key] for key in _POLICY_KEYS if key in config["training"]}
        ),
        env_steps=meta["env_steps"],
        weights=content["policy"],
    )


def environment_for(trained: LoadedPolicy, name: str | None) -> tuple[EnvConfig, EnvSpec]:
    """The environment to play in and its shape: the one trained in, or another that the policy fits."""
    try:
        module = module_of(name) if name else None
        if module:
            load(module)
        wanted = name.partition(":")[2] if name and module else name or trained.env.name
        env = trained.env.model_copy(update={"name": canonical_env_name(wanted)})
    except UsageError as error:
        raise UsageError(f"--env: {error}" if name else f"{trained.path}: {error}") from None
    if problem := missing_mode(env):
        raise UsageError(f"--env: the distribution mode of the run does not exist there: {problem}")
    make_ready(env.name)
    found = spec_of(env)
    if env.name != trained.env.name and (expected := spec_of(trained.env)) != found:
        words = [f"observations {shape_words(spec)}, {spec.action_words}" for spec in (expected, found)]
        raise CheckpointUnusable(
            f"{trained.path}: trained in {trained.env.name} ({words[0]}), which does not match {env.name} ({words[1]})"
        )
    return env, found


def shape_words(spec: EnvSpec) -> str:
    """The shape of the observations, pictures with their channels first as papers give it."""
    shape = spec.observation_shape
    return str((shape[2], shape[0], shape[1]) if spec.is_image else shape)


def build_policy(trained: LoadedPolicy, spec: EnvSpec, device: str) -> nn.Module:
    """The network with the checkpoint's weights."""
    try:
        policy = make_policy_network(trained.training, spec)
        policy.load_state_dict(trained.weights)
    except (RlcbError, RuntimeError, TypeError, AttributeError) as error:
        reason = " ".join(str(error).split())[:200]
        raise CheckpointUnusable(f"{trained.path}: its weights do not match the network: {reason}") from None
    return policy.to(device)
