"""What a checkpoint must hold: keys, types, ranges, and tensors of the sizes that its configuration implies.

All of it is checked on the description of an archive, before the bytes of a tensor are read.
"""

import json
import math
from datetime import datetime
from typing import Annotated, Any

import torch
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from rlcb.config.environment import EnvConfig
from rlcb.config.registry import ALGORITHMS
from rlcb.config.schema import Config, TrainingConfig
from rlcb.envs.base import EnvSpec
from rlcb.envs.episodes import WINDOW
from rlcb.envs.families import canonical_env_name, environment_identity, family_of, foreign_state, missing_mode, spec_of
from rlcb.envs.own_code import import_named
from rlcb.errors import NotPermitted, UsageError
from rlcb.learner import MOMENTS
from rlcb.networks.policy import make_policy_network
from rlcb.run.archive import TensorHeader

FORMAT = 1
_GPU_GENERATOR = (16,)  # the shape of a GPU's random generator: its seed and its offset, 8 bytes each
_STATE_BYTES = 2**20  # most bytes of an environment's state at the start of an episode …
_STATE_FACTOR = 16  # … beside this many times its family's usual size …
_STATE_BYTES_PER_STEP = 16  # … and for each number of its actions: Gymnasium's hold all since the episode began


class Unfit(Exception):
    """The content is not what a checkpoint must hold; says in a phrase why."""


def _dated(text: str) -> str:
    try:
        zoned = datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        zoned = False
    if not zoned:
        raise ValueError("a time with its zone")
    return text


_Count = Annotated[int, Field(ge=0, le=2**53)]  # a larger one is not exact as a float
_Amount = Annotated[float, Field(ge=0, le=1e100)]  # the square is finite
_Real = Annotated[float, Field(ge=-1e100, le=1e100)]
_Tensors = dict[str, TensorHeader]


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, arbitrary_types_allowed=True)


class Meta(_Record):
    """What a checkpoint is of."""

    model_config = ConfigDict(extra="ignore")

    algorithm: str
    env: str
    env_steps: _Count
    updates: _Count
    config: str
    versions: dict[str, str]


class _Progress(_Record):
    env_steps: _Count
    updates: _Count
    skipped_steps: _Count
    bad_updates_in_a_row: _Count


class _Episodes(_Record):
    first: list[Annotated[list[_Real], Field(max_length=1)]]
    recent_returns: Annotated[list[_Real], Field(max_length=WINDOW)]
    recent_lengths: Annotated[list[_Count], Field(max_length=WINDOW)]
    num_episodes: _Count
    best_mean: _Real | None
    best_episode: _Real | None


class _Totals(_Record):
    episodes: _Episodes
    seconds: _Amount
    started: Annotated[str, AfterValidator(_dated)]
    worker_restarts: _Count


class _Worker(_Record):
    acting: TensorHeader
    learning: TensorHeader
    observation: str | None


class _UnderWay(_Record):
    returns: list[_Real] = Field(alias="return")
    lengths: list[_Count] = Field(alias="length")


class _Content(_Record):
    meta: Meta
    policy: _Tensors
    optimizer: _Tensors
    normalizer: tuple[_Amount, _Real, _Amount] = Field(strict=False)
    progress: _Progress
    run: _Totals
    workers: list[_Worker]
    envs: list[TensorHeader]
    episode: _UnderWay
    discounted: list[_Real]


class _SavedTraining(_Record):
    model_config = ConfigDict(extra="ignore")

    network: str
    normalize_observations: bool = False
    optimizer: str | None = None  # the algorithm's own, where it is not a setting


class _SavedConfig(_Record):
    model_config = ConfigDict(extra="ignore")

    env: EnvConfig
    training: _SavedTraining


def check_content(content: Any, config: Config | None) -> EnvSpec:
    """Raise Unfit unless this describes a checkpoint, with `config` one of that run; returns what it was trained on."""
    checked = _typed(content)
    if config is not None:
        _refuse_foreign(checked.meta, config)
    if checked.meta.algorithm not in ALGORITHMS:
        raise Unfit(f"made with algorithm {shown(checked.meta.algorithm)}, which is unknown to this version")
    env, training = _saved_config(checked.meta)
    if config is not None:
        env, training = config.env, config.training
    try:
        import_named(env.imports, training.network)
        env = env.model_copy(update={"name": canonical_env_name(env.name)})
        if problem := missing_mode(env):
            raise Unfit(f"trained in an unknown environment: {problem}")
        spec = spec_of(env)
        shapes = _network_shapes(training, spec)
    except NotPermitted:
        raise  # nothing is wrong with the checkpoint
    except UsageError as error:
        raise Unfit(str(error)) from None
    _check_counts(checked, env.num_envs)
    _check_weights(checked, shapes, training.optimizer)
    _check_states(checked, env, spec)
    return spec


def check_types(content: Any) -> Meta:
    """Raise Unfit unless this has the keys and types of a checkpoint; returns what it is of."""
    return _typed(content).meta


def _typed(content: Any) -> _Content:
    if not isinstance(content, dict) or not isinstance(content.get("meta"), dict):
        raise Unfit("not a checkpoint of this program")
    found = content["meta"].get("format")
    if type(found) is not int or found != FORMAT:
        other = found if type(found) is int and abs(found) < 10**9 else "that is not a number"
        raise Unfit(f"has format {other}; this version reads format {FORMAT}")
    try:
        return _Content.model_validate(content)
    except ValidationError as error:
        raise Unfit(problem_of(error)) from None


def problem_of(error: ValidationError) -> str:
    """The first problem in a phrase: the key, and what is wrong with its value."""
    first = error.errors(include_input=False, include_context=False, include_url=False)[0]
    place = ".".join(shown(str(part)) for part in first["loc"])
    what = first["msg"].removeprefix("Input should be ").removeprefix("Value error, ")
    what = what.partition(" or instance of ")[0].replace("an instance of TensorHeader", "a tensor")
    wanted = {"missing": "is missing", "extra_forbidden": "is unknown"}.get(first["type"], f"must be {what}")
    return f"{place} {wanted}"


def shown(text: str) -> str:
    """Text of a file as a message may quote it: short and without control characters."""
    return "".join(letter if letter.isprintable() else "?" for letter in text[:120])


def _refuse_foreign(meta: Meta, config: Config) -> None:
    """A state of another game must never reach the game's own code: it trusts what it is given."""
    expected = {"algorithm": config.algorithm, "env": environment_identity(config.env)}
    found = {"algorithm": meta.algorithm, "env": meta.env}
    for key, value in expected.items():
        if found[key] != value:
            raise Unfit(f"made with {key} {shown(found[key])}, this run has {value}")
    if problem := foreign_state(config.env.name, meta.versions):
        raise Unfit(shown(problem))


def _saved_config(meta: Meta) -> tuple[EnvConfig, TrainingConfig]:
    """What the checkpoint's own configuration says of environment, network and optimizer."""
    try:
        saved = _SavedConfig.model_validate(json.loads(meta.config))
        training = saved.training.model_dump(exclude_none=True)
        return saved.env, TrainingConfig.model_validate({**ALGORITHMS[meta.algorithm].training, **training})
    except ValidationError as error:
        raise Unfit(f"its configuration cannot be read: {problem_of(error)}") from None
    except (ValueError, RecursionError):
        raise Unfit("its configuration cannot be read: invalid JSON") from None


def _network_shapes(training: TrainingConfig, spec: EnvSpec) -> dict[str, tuple[int, ...]]:
    """The shapes of a network's weights by their names, without the weights."""
    with torch.device("meta"):
        return {name: tuple(tensor.shape) for name, tensor in make_policy_network(training, spec).state_dict().items()}


def _check_counts(content: _Content, num_envs: int) -> None:
    """Numbers that are there twice, or that belong together, agree."""
    meta, progress, episodes = content.meta, content.progress, content.run.episodes
    envs, workers = len(content.envs), len(content.workers)
    per_env = (content.episode.returns, content.episode.lengths, content.discounted)
    agreed = {
        "meta and progress": (meta.env_steps, meta.updates) == (progress.env_steps, progress.updates),
        "env_steps and updates": max(progress.updates, progress.bad_updates_in_a_row) <= progress.env_steps,
        "envs and workers": (envs, workers) == (0, 0) or (envs == num_envs and workers and num_envs % workers == 0),
        "envs and unfinished episodes": all(len(values) == envs for values in per_env),
        "run.episodes.first and num_envs": len(episodes.first) == num_envs,
        "recent_returns and recent_lengths": len(episodes.recent_returns) == len(episodes.recent_lengths),
    }
    for what, agree in agreed.items():
        if not agree:
            raise Unfit(f"{what} are inconsistent")


def _check_weights(content: _Content, shapes: dict[str, tuple[int, ...]], optimizer: str) -> None:
    """Weights are the network's, and the optimizer has a number for each of them."""
    _check_tensors("policy", content.policy, shapes)
    total = (sum(math.prod(shape) for shape in shapes.values()),)
    _check_tensors("optimizer", content.optimizer, {"step": (), **dict.fromkeys(MOMENTS[optimizer], total)})


def _check_tensors(place: str, found: _Tensors, shapes: dict[str, tuple[int, ...]]) -> None:
    if different := sorted(found.keys() ^ shapes.keys()):
        what = "is missing" if different[0] in shapes else "is unknown"
        raise Unfit(f"does not fit: {place}.{shown(different[0])} {what}")
    for name, shape in shapes.items():
        if found[name].shape != shape or found[name].dtype != torch.float32:
            there = f"{found[name].dtype} of shape {found[name].shape}".removeprefix("torch.")
            raise Unfit(f"does not fit: {place}.{name} is {there}, must be float32 of shape {shape}")


def _check_states(content: _Content, env: EnvConfig, spec: EnvSpec) -> None:
    """States of environments and of random generators are bytes, not more of them than there can be."""
    generator = tuple(torch.Generator().get_state().shape)
    for number, worker in enumerate(content.workers):
        for name, header in (("acting", worker.acting), ("learning", worker.learning)):
            shapes = (generator, _GPU_GENERATOR) if name == "acting" else (generator,)
            if header.dtype != torch.uint8 or header.shape not in shapes:
                raise Unfit(f"workers.{number}.{name} is not the state of a random generator")
    most = _STATE_BYTES + _STATE_FACTOR * family_of(env.name).state_bytes
    most += _STATE_BYTES_PER_STEP * math.prod(spec.action_shape) * content.progress.env_steps // env.num_envs
    for number, header in enumerate(content.envs):
        if header.dtype != torch.uint8 or len(header.shape) != 1 or header.size > most:
            raise Unfit(f"envs.{number} is not the state of an environment: must be at most {most:,} bytes")


def not_finite(content: dict[str, Any]) -> tuple[str, str] | None:
    """Section and name of the first weights or moments that are not finite; None if all are."""
    tensors = ((part, name, tensor) for part in ("policy", "optimizer") for name, tensor in content[part].items())
    return next(((part, name) for part, name, tensor in tensors if not torch.isfinite(tensor).all()), None)


def check_values(content: dict[str, Any]) -> None:
    """Raise Unfit unless all weights and moments are finite and all generators' states are states."""
    if found := not_finite(content):
        raise Unfit(f"{'.'.join(found)} is not finite")
    for name in ("step", "exp_avg_sq", "square_avg"):
        if name in content["optimizer"] and (content["optimizer"][name] < 0).any():
            raise Unfit(f"optimizer.{name} is negative")
    for number, worker in enumerate(content["workers"]):
        for name in ("acting", "learning"):
            if not _is_generator_state(worker[name]):
                raise Unfit(f"workers.{number}.{name} is not the state of a random generator")


def _is_generator_state(state: torch.Tensor) -> bool:
    """Whether a random generator can be set to it: one of a CPU, or one of a GPU with its offset, a multiple of 4."""
    if tuple(state.shape) == _GPU_GENERATOR:
        return 0 <= int(state.view(torch.int64)[1]) < 2**62 and int(state.view(torch.int64)[1]) % 4 == 0
    try:
        torch.Generator().set_state(state)
    except RuntimeError:
        return False
    return True
