"""A trained policy: finding its checkpoint, verifying it, building the network."""

import contextlib
import hashlib
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from rlcb.config.registry import MODES
from rlcb.config.schema import EnvConfig
from rlcb.console import note, warn
from rlcb.envs.base import EnvSpec
from rlcb.envs.families import canonical_env_name, missing_mode, spec_of
from rlcb.errors import CheckpointUnusable, RlcbError, UsageError
from rlcb.networks import make_network
from rlcb.run.checkpoint import load_checkpoint, load_newest
from rlcb.run.directory import read_run

BENCHMARKS = Path("benchmarks")  # where runs go unless told otherwise
_NAME = re.compile(rf"(?P<algorithm>[a-z0-9]+)_(?P<mode>{'|'.join(MODES)})_(?:final|step_\d+)\.pt")


@dataclass(frozen=True)
class LoadedPolicy:
    """What a checkpoint says about the policy in it."""

    path: Path
    sha256: str
    algorithm: str
    mode: str
    env: EnvConfig
    network: str
    env_steps: int
    weights: dict[str, Tensor]

    def header(self) -> dict[str, Any]:
        """What an evaluation file says about the checkpoint."""
        kept = {name: getattr(self, name) for name in ("algorithm", "mode", "env_steps")}
        return {"checkpoint": self.path.name, "checkpoint_sha256": self.sha256, **kept}


def find_policy(where: Path | None, algorithm: str | None) -> LoadedPolicy:
    """The checkpoint in this file or directory, by default the newest under ./benchmarks."""
    if where is not None and not where.is_dir():
        trained = _read(where, load_checkpoint(where))
    else:
        trained = _newest_in(where or BENCHMARKS, algorithm)
    if where is None:
        note(f"newest checkpoint under ./{BENCHMARKS}: {trained.path}")
    if algorithm and trained.algorithm != algorithm:
        raise CheckpointUnusable(f"{trained.path}: made by {trained.algorithm}, but --algorithm says {algorithm}")
    return trained


def _newest_in(where: Path, algorithm: str | None) -> LoadedPolicy:
    """The newest undamaged checkpoint of the run in a directory, or of the newest run below it."""
    files = [path for folder in _folders(where) for path in folder.rglob("*.pt") if _NAME.fullmatch(path.name)]
    wanted = [path for path in files if algorithm in (None, _algorithm_of(path))]
    if not wanted:
        others = sorted({_algorithm_of(path) for path in files})
        there = f"; there are checkpoints of {', '.join(others)}" if others else ""
        looked_for = f"{algorithm or '<algorithm>'}_<mode>_final.pt and {algorithm or '<algorithm>'}_<mode>_step_<N>.pt"
        raise CheckpointUnusable(f"no checkpoint under {where}: looked for {looked_for}{there}")
    last = max(wanted, key=lambda path: path.lstat().st_mtime)
    path, content = load_newest(last.parent, _algorithm_of(last), warn)
    final = path.with_name(re.sub(r"_step_\d+\.pt$", "_final.pt", path.name))
    if final != path and final.is_file():
        with contextlib.suppress(CheckpointUnusable):  # load_newest has reported it
            other = load_checkpoint(final)
            if other["meta"]["env_steps"] == content["meta"]["env_steps"]:
                path, content = final, other
    return _read(path, content)


def _folders(where: Path) -> Iterable[Path]:
    """The folders of a directory's checkpoints: itself, and the one that the configuration of the run in it names."""
    yield where
    if (where / "run.json").is_file() and (where / "config.yaml").is_file():
        elsewhere = read_run(where)[0].logging.checkpoint_dir
        if elsewhere:
            yield Path(elsewhere)


def _algorithm_of(path: Path) -> str:
    match = _NAME.fullmatch(path.name)
    return match["algorithm"] if match else ""


def _read(path: Path, content: dict[str, Any]) -> LoadedPolicy:
    meta, match = content["meta"], _NAME.fullmatch(path.name)
    mode = "parallel" if len(content["workers"]) > 1 else "sequential"
    config = json.loads(meta["config"])
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return LoadedPolicy(
        path=path,
        sha256=digest,
        algorithm=meta["algorithm"],
        mode=match["mode"] if match else mode,
        env=EnvConfig.model_validate(config["env"]),
        network=config["training"]["network"],
        env_steps=meta["env_steps"],
        weights=content["policy"],
    )


def environment_for(trained: LoadedPolicy, name: str | None) -> tuple[EnvConfig, EnvSpec]:
    """The environment to play in and its shape: the one trained in, or another that the policy fits."""
    try:
        env = trained.env.model_copy(update={"name": canonical_env_name(name or trained.env.name)})
    except UsageError as error:
        raise UsageError(f"--env: {error}" if name else f"{trained.path}: {error}") from None
    if problem := missing_mode(env):
        raise UsageError(f"--env: the run's distribution mode does not exist there: {problem}")
    found = spec_of(env)
    if env.name != trained.env.name:
        expected = spec_of(trained.env)
        if expected != found:
            raise CheckpointUnusable(
                f"{trained.path}: trained in {trained.env.name} ({_words(expected)}), "
                f"does not fit {env.name} ({_words(found)})"
            )
    return env, found


def _words(spec: EnvSpec) -> str:
    return f"observations {shape_words(spec)}, {spec.num_actions} actions"


def shape_words(spec: EnvSpec) -> str:
    """The shape of the observations, pictures with their channels first as papers give it."""
    shape = spec.observation_shape
    return str((shape[2], shape[0], shape[1]) if spec.is_image else shape)


def build_policy(trained: LoadedPolicy, spec: EnvSpec, device: str) -> nn.Module:
    """The network with the checkpoint's weights."""
    try:
        policy = make_network(trained.network, spec)
        policy.load_state_dict(trained.weights)
    except (RlcbError, RuntimeError, TypeError, AttributeError) as error:
        reason = " ".join(str(error).split())[:200]
        raise CheckpointUnusable(f"{trained.path}: its weights do not fit: {reason}") from None
    return policy.to(device)
