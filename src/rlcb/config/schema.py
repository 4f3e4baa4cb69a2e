"""The configuration of a run: every key, its type, its range, its default."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, get_args

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic.fields import FieldInfo

from rlcb import networks
from rlcb.config.registry import ALGORITHMS, DEFAULT_ALGORITHM, EXECUTIONS, Execution

if TYPE_CHECKING:
    _Network = str
else:
    _Network = Literal["auto", *networks.NAMES]

# YAML reads 25e6 as a float; here it is a count.
_Whole = BeforeValidator(lambda value: int(value) if isinstance(value, float) and value.is_integer() else value)
_Int = Annotated[int, _Whole]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


class EnvConfig(_Section):
    """Which environment, how many copies of it, which levels."""

    name: Annotated[str, Field(description="procgen-coinrun-v0, coinrun, … or a Gymnasium id")] = "procgen-coinrun-v0"
    num_envs: Annotated[_Int, Field(ge=1, le=16384, description="environments stepped together")] = 32
    seed: Annotated[_Int, Field(ge=0, le=2**31 - 1, description="seed of everything random")] = 42
    distribution_mode: Annotated[
        Literal["easy", "hard", "extreme", "memory"], Field(description="Procgen: difficulty of the levels")
    ] = "easy"
    num_levels: Annotated[_Int, Field(ge=0, le=2**31 - 1, description="Procgen: levels trained on, 0 for all")] = 200
    start_level: Annotated[_Int, Field(ge=0, le=2**31 - 1, description="Procgen: first level")] = 0


class ParallelConfig(_Section):
    """How a parallel run is divided; a sequential one ignores this section."""

    num_workers: Annotated[
        Annotated[int, _Whole, Field(ge=1, le=1024)] | Literal["auto"],
        Field(description="worker processes; auto: measured on this machine"),
    ] = 4
    num_envs_per_worker: Annotated[
        _Int | None, Field(ge=1, le=16384, description="environments of each worker; null: env.num_envs / num_workers")
    ] = None
    backend: Annotated[
        Literal["shared_memory", "gloo"], Field(description="how gradients cross: one machine's memory, or sockets")
    ] = "shared_memory"
    num_learners: Annotated[
        _Int | None, Field(ge=1, le=1024, description="IMPALA: learner processes; null: decided from the cores")
    ] = None
    num_slots: Annotated[
        _Int | None,
        Field(ge=1, le=65536, description="IMPALA: rollouts under way, bounds the policy lag; null: 2 per actor"),
    ] = None
    policy_update_frequency: Annotated[
        _Int, Field(ge=1, le=10**6, description="IMPALA: updates between the weights that actors get")
    ] = 1
    worker_timeout: Annotated[
        float, Field(gt=0, le=86400, description="seconds without a sign of life before a worker is replaced")
    ] = 60.0
    cluster: Annotated[
        str | None, Field(description="run on a Ray cluster: its ADDRESS (host:port), auto or local; null: here")
    ] = None
    min_workers: Annotated[
        _Int, Field(ge=1, le=1024, description="on a cluster: with fewer workers left the run is saved and ends")
    ] = 1
    insecure: Annotated[bool, Field(description="on a cluster: allow one beyond this machine without a token")] = False


class TrainingConfig(_Section):
    """How long, in what batches and with which network to learn."""

    total_timesteps: Annotated[_Int, Field(ge=1, le=10**12, description="environment steps to train for")] = 25_000_000
    duration_hours: Annotated[
        float | None, Field(gt=0, le=8760, description="hours to train for, instead of total_timesteps")
    ] = None
    n_steps: Annotated[_Int, Field(ge=1, le=65536, description="steps of each environment per rollout")] = 128
    batch_size: Annotated[_Int, Field(ge=1, le=2**24, description="samples per minibatch")] = 1024
    micro_batch_size: Annotated[
        _Int | None, Field(ge=1, le=2**24, description="samples per backward pass: less memory, same gradient")
    ] = None
    n_epochs: Annotated[_Int, Field(ge=1, le=1000, description="passes over each rollout")] = 4
    optimizer: Annotated[Literal["adam", "rmsprop"], Field(description="how gradients move the weights")] = "adam"
    learning_rate: Annotated[float, Field(gt=0, description="the optimizer's step size")] = 3e-4
    lr_schedule: Annotated[
        Literal["constant", "linear"], Field(description="keep the learning rate, or take it down to 0")
    ] = "constant"
    adam_eps: Annotated[float, Field(gt=0, le=1, description="Adam's epsilon")] = 1e-5
    rms_eps: Annotated[float, Field(gt=0, le=10, description="RMSProp's epsilon, added to the root")] = 0.01
    rms_decay: Annotated[float, Field(ge=0, lt=1, description="RMSProp's memory of squared gradients")] = 0.99
    gamma: Annotated[float, Field(ge=0, le=1, description="discount of future rewards")] = 0.999
    gae_lambda: Annotated[
        float, Field(ge=0, le=1, description="GAE's λ, IMPALA: V-trace's; 0 one step, 1 the whole return")
    ] = 0.95
    network: Annotated[_Network, Field(description="auto: nature for images, mlp for vectors")] = "auto"
    normalize_rewards: Annotated[bool, Field(description="divide rewards by the deviation of the return")] = True
    reward_norm_gamma: Annotated[
        float | None, Field(ge=0, le=1, description="discount in the reward normaliser, null for gamma")
    ] = None


class PpoConfig(_Section):
    """The coefficients of PPO's objective."""

    clip_range: Annotated[float, Field(gt=0, le=10, description="how far the policy ratio may move")] = 0.2
    clip_value: Annotated[bool, Field(description="clip the value's movement by clip_range too")] = False
    ent_coef: Annotated[float, Field(ge=0, le=10, description="weight of the entropy bonus")] = 0.01
    vf_coef: Annotated[float, Field(ge=0, le=100, description="weight of the value loss")] = 0.5
    max_grad_norm: Annotated[float, Field(gt=0, le=1e6, description="gradient norm is clipped to this")] = 0.5
    normalize_advantages: Annotated[bool, Field(description="per minibatch: mean 0, deviation 1")] = True


class ImpalaConfig(_Section):
    """The coefficients of IMPALA's objective, a sum over the samples of a minibatch."""

    vtrace_clip_rho_threshold: Annotated[
        float, Field(ge=0, le=1e6, description="ρ̄: ratios are cut here in the value targets")
    ] = 1.0
    vtrace_clip_c_threshold: Annotated[
        float, Field(ge=0, le=1e6, description="c̄: ratios are cut here in how far back a surprise reaches")
    ] = 1.0
    vtrace_clip_pg_rho_threshold: Annotated[float, Field(ge=0, le=1e6, description="ρ̄ of the policy gradient")] = 1.0
    ent_coef: Annotated[float, Field(ge=0, le=10, description="weight of the entropy bonus")] = 0.01
    vf_coef: Annotated[float, Field(ge=0, le=100, description="weight of the value loss")] = 0.5
    max_grad_norm: Annotated[float, Field(gt=0, le=1e6, description="gradient norm is clipped to this")] = 40.0


class A2cConfig(_Section):
    """The coefficients of the objective of A2C and A3C."""

    ent_coef: Annotated[float, Field(ge=0, le=10, description="weight of the entropy bonus")] = 0.01
    vf_coef: Annotated[float, Field(ge=0, le=100, description="weight of the value loss")] = 0.5
    max_grad_norm: Annotated[float, Field(gt=0, le=1e6, description="gradient norm is clipped to this")] = 0.5
    normalize_advantages: Annotated[bool, Field(description="per update: mean 0, deviation 1")] = False


class LoggingConfig(_Section):
    """What is written where, and how often."""

    log_interval: Annotated[_Int, Field(ge=1, le=10**9, description="updates between console lines")] = 1
    save_interval: Annotated[_Int, Field(ge=1, le=10**9, description="updates between checkpoints")] = 100
    save_every_minutes: Annotated[
        float | None, Field(gt=0, le=1e6, description="also checkpoint after this much time, null for never")
    ] = 10.0
    keep_checkpoints: Annotated[_Int, Field(ge=2, le=10**6, description="newest step checkpoints kept")] = 5
    tensorboard: Annotated[
        bool | Literal["auto"], Field(description="write TensorBoard events; auto: if it is installed")
    ] = "auto"
    checkpoint_dir: Annotated[str | None, Field(description="null: checkpoints/ in the output directory")] = None
    log_dir: Annotated[str | None, Field(description="null: logs/ in the output directory")] = None


class HardwareConfig(_Section):
    """Where the tensors live and how many threads work on them."""

    device: Annotated[Literal["cpu", "cuda", "auto"], Field(description="auto: cuda where there is one")] = "cpu"
    num_threads: Annotated[
        _Int | None, Field(ge=1, le=1024, description="CPU threads, null for what this machine allows")
    ] = None


class Config(_Section):
    """A whole run. `algorithm` selects one of the algorithms' sections; it is not written in files."""

    algorithm: Annotated[str, Field(exclude=True)] = DEFAULT_ALGORITHM
    env: EnvConfig = EnvConfig()
    parallel: ParallelConfig = ParallelConfig()
    training: TrainingConfig = TrainingConfig()
    ppo: PpoConfig = PpoConfig()
    impala: ImpalaConfig = ImpalaConfig()
    a2c: A2cConfig = A2cConfig()
    logging: LoggingConfig = LoggingConfig()
    hardware: HardwareConfig = HardwareConfig()

    @property
    def rollout_size(self) -> int:
        """Environment steps per update."""
        return self.env.num_envs * self.training.n_steps

    @property
    def minibatch_size(self) -> int:
        """Samples per optimizer step: batch_size, or the whole rollout where that is smaller or always learned from."""
        whole = ALGORITHMS[self.algorithm].whole_rollout
        return self.rollout_size if whole else min(self.training.batch_size, self.rollout_size)

    @property
    def minibatch_items(self) -> int:
        """The same in items of this algorithm's minibatches: samples, or environments with all their steps."""
        whole_unrolls = ALGORITHMS[self.algorithm].whole_unrolls
        return self.minibatch_size // self.training.n_steps if whole_unrolls else self.minibatch_size

    @property
    def parallel_execution(self) -> Execution:
        """How this run's algorithm is executed in parallel mode."""
        return EXECUTIONS[ALGORITHMS[self.algorithm].executions["parallel"]]

    @property
    def objective(self) -> PpoConfig | ImpalaConfig | A2cConfig:
        """The section of this run's algorithm."""
        section: PpoConfig | ImpalaConfig | A2cConfig = getattr(self, ALGORITHMS[self.algorithm].section)
        return section

    def changed(self, section: str, **values: Any) -> Self:
        """The configuration with other values in one section; nothing is validated."""
        return self.model_copy(update={section: getattr(self, section).model_copy(update=values)})

    def as_used(self) -> dict[str, dict[str, Any]]:
        """Every key that counts for this run's algorithm, by section."""
        everything = self.model_dump(mode="json")
        used: dict[str, dict[str, Any]] = {}
        for section, key, _ in fields(self.algorithm):
            used.setdefault(section, {})[key] = everything[section][key]
        return used

    def to_yaml(self) -> str:
        """The configuration as YAML, complete, in the order of the sections."""
        return yaml.safe_dump(self.as_used(), sort_keys=False, allow_unicode=True)


def fields(algorithm: str) -> Iterator[tuple[str, str, FieldInfo]]:
    """Every (section, key, field) of an algorithm's configuration."""
    entry = ALGORITHMS[algorithm]
    other_sections = {other.section for other in ALGORITHMS.values()} - {entry.section}
    other_executions = (EXECUTIONS[name] for name in EXECUTIONS if name not in entry.executions.values())
    without = {*entry.without, *(key for execution in other_executions for key in execution.keys)}
    for section, info in Config.model_fields.items():
        model = info.annotation
        if section == "algorithm" or section in other_sections:
            continue
        assert isinstance(model, type)
        assert issubclass(model, BaseModel)
        for key, field in model.model_fields.items():
            if key not in without:
                yield section, key, field


def all_keys() -> dict[str, FieldInfo]:
    """Every key that some algorithm has."""
    return {key: field for algorithm in reversed(ALGORITHMS) for _, key, field in fields(algorithm)}


def allowed_values(field: FieldInfo) -> str:
    """What a field takes, in words: 'a whole number from 1 to 16384'."""
    parts = [arg for arg in (get_args(field.annotation) or (field.annotation,)) if not isinstance(arg, BeforeValidator)]
    words: list[str] = []
    for part in parts:
        if part is bool:
            words.append("true or false")
        elif part in (int, float) or get_args(part)[:1] == (int,):
            limits = [*field.metadata, *(item for arg in get_args(part)[1:] for item in getattr(arg, "metadata", ()))]
            words.append(_range_words("a number" if part is float else "a whole number", limits))
        elif part is str:
            words.append("text")
        elif part is type(None):
            words.append("null")
        else:
            choices = get_args(part) or (part,)
            words.append("one of " + ", ".join(map(str, choices)) if len(choices) > 1 else str(choices[0]))
    if all(isinstance(part, str) for part in parts):
        return "one of " + ", ".join(map(str, parts))
    return " or ".join(words)


def _range_words(noun: str, metadata: list[Any]) -> str:
    limits = {
        name: getattr(item, name) for item in metadata for name in ("gt", "ge", "lt", "le") if hasattr(item, name)
    }
    low = f" above {limits['gt']}" if "gt" in limits else f" from {limits['ge']}" if "ge" in limits else ""
    high = f" {'up ' if 'gt' in limits else ''}to {limits['le']}" if "le" in limits else ""
    high = f" and below {limits['lt']}" if "lt" in limits else high
    return f"{noun}{low}{high}"
