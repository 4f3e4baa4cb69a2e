"""The configuration of a run: every key, its type, its range, its default."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, get_args, get_origin

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic.fields import FieldInfo

from rlcb import networks
from rlcb.config.registry import ALGORITHMS, DEFAULT_ALGORITHM, EXECUTIONS, VARIANT_NAME, Execution
from rlcb.config.yaml_file import dump_yaml

if TYPE_CHECKING:
    _Network = str
else:
    _Network = Literal["auto", *networks.NAMES]

# YAML reads 25e6 as a float; here it is a count.
Whole = BeforeValidator(lambda value: int(value) if isinstance(value, float) and value.is_integer() else value)
_Int = Annotated[int, Whole]


def setting(default: Any, description: str, **limits: Any) -> Any:
    """A key's default, what it means, and the limits of its values as pydantic's Field takes them."""
    return Field(default, description=description, **limits)


class Section(BaseModel):
    """A part of a settings file: nothing unknown in it, nothing converted, nothing changed later."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


class EnvConfig(Section):
    """Which environment, how many copies of it, which levels."""

    name: str = setting("procgen-coinrun-v0", "procgen-coinrun-v0, coinrun, … or a Gymnasium id")
    num_envs: _Int = setting(32, "environments stepped together", ge=1, le=16384)
    seed: _Int = setting(42, "seed of everything random", ge=0, le=2**31 - 1)
    distribution_mode: Literal["easy", "hard", "extreme", "memory"] = setting(
        "easy", "Procgen: difficulty of the levels"
    )
    num_levels: _Int = setting(200, "Procgen: levels trained on, 0 for all", ge=0, le=2**31 - 1)
    start_level: _Int = setting(0, "Procgen: first level", ge=0, le=2**31 - 1)


class ParallelConfig(Section):
    """How a parallel run is divided; a sequential one ignores this section."""

    num_workers: Annotated[int, Whole, Field(ge=1, le=1024)] | Literal["auto"] = setting(
        4, "worker processes; auto: as many as suit this machine's cores"
    )
    num_envs_per_worker: _Int | None = setting(
        None, "environments of each worker; null: env.num_envs / num_workers", ge=1, le=16384
    )
    backend: Literal["shared_memory", "gloo"] = setting(
        "shared_memory", "how gradients cross: one machine's memory, or sockets"
    )
    num_learners: _Int | None = setting(None, "IMPALA: learner processes; null: decided from the cores", ge=1, le=1024)
    actor_device: Literal["cpu", "cuda", "auto"] = setting(
        "auto",
        "IMPALA: where actors compute actions; auto: on the learner's GPU if it has one and they are few, else cpu",
    )
    num_slots: _Int | None = setting(
        None, "IMPALA: rollouts under way, bounds the policy lag; null: 2 per actor", ge=1, le=65536
    )
    policy_update_frequency: _Int = setting(1, "IMPALA: updates between the weights that actors get", ge=1, le=10**6)
    worker_timeout: float = setting(60.0, "seconds without a sign of life before a worker is replaced", gt=0, le=86400)
    cluster: str | None = setting(None, "run on a Ray cluster: its ADDRESS (host:port), auto or local; null: here")
    min_workers: _Int = setting(1, "on a cluster: with fewer workers left the run is saved and ends", ge=1, le=1024)
    insecure: bool = setting(False, "on a cluster: allow one beyond this machine without a token")


class TrainingConfig(Section):
    """How long, in what batches and with which network to learn."""

    total_timesteps: _Int = setting(25_000_000, "environment steps to train for", ge=1, le=10**12)
    duration_hours: float | None = setting(None, "hours to train for, instead of total_timesteps", gt=0, le=8760)
    n_steps: _Int = setting(128, "steps of each environment per rollout", ge=1, le=65536)
    batch_size: _Int = setting(1024, "samples per minibatch", ge=1, le=2**24)
    micro_batch_size: _Int | None = setting(
        None, "samples per backward pass: less memory, same gradient", ge=1, le=2**24
    )
    n_epochs: _Int = setting(4, "passes over each rollout", ge=1, le=1000)
    optimizer: Literal["adam", "rmsprop"] = setting("adam", "how gradients move the weights")
    learning_rate: float = setting(3e-4, "the optimizer's step size", gt=0)
    lr_schedule: Literal["constant", "linear"] = setting("constant", "keep the learning rate, or take it down to 0")
    adam_eps: float = setting(1e-5, "Adam's epsilon", gt=0, le=1)
    rms_eps: float = setting(0.01, "RMSProp's epsilon, added to the root", gt=0, le=10)
    rms_decay: float = setting(0.99, "RMSProp's memory of squared gradients", ge=0, lt=1)
    gamma: float = setting(0.999, "discount of future rewards", ge=0, le=1)
    gae_lambda: float = setting(
        0.95, "GAE's λ: 0 one step, 1 the whole return; IMPALA: factor of V-trace's c, 1 as published", ge=0, le=1
    )
    network: _Network = setting("auto", "auto: nature for images, mlp for vectors")
    normalize_rewards: bool = setting(True, "divide rewards by the deviation of the return")
    reward_norm_gamma: float | None = setting(None, "discount in the reward normaliser, null for gamma", ge=0, le=1)


class PpoConfig(Section):
    """The coefficients of PPO's objective."""

    clip_range: float = setting(0.2, "how far the policy ratio may move", gt=0, le=10)
    clip_value: bool = setting(False, "clip the value's movement by clip_range too")
    ent_coef: float = setting(0.01, "weight of the entropy bonus", ge=0, le=10)
    vf_coef: float = setting(0.5, "weight of the value loss", ge=0, le=100)
    max_grad_norm: float = setting(0.5, "gradient norm is clipped to this", gt=0, le=1e6)
    normalize_advantages: bool = setting(True, "per minibatch: mean 0, deviation 1")


class ImpalaConfig(Section):
    """The coefficients of IMPALA's objective, a sum over the samples of a minibatch."""

    vtrace_clip_rho_threshold: float = setting(1.0, "ρ̄: ratios are cut here in the value targets", ge=0, le=1e6)
    vtrace_clip_c_threshold: float = setting(
        1.0, "c̄: ratios are cut here in how far back a surprise reaches", ge=0, le=1e6
    )
    vtrace_clip_pg_rho_threshold: float = setting(1.0, "ρ̄ of the policy gradient", ge=0, le=1e6)
    ent_coef: float = setting(0.01, "weight of the entropy bonus", ge=0, le=10)
    vf_coef: float = setting(0.5, "weight of the value loss", ge=0, le=100)
    max_grad_norm: float = setting(40.0, "gradient norm is clipped to this", gt=0, le=1e6)


class A2cConfig(Section):
    """The coefficients of the objective of A2C and A3C."""

    ent_coef: float = setting(0.01, "weight of the entropy bonus", ge=0, le=10)
    vf_coef: float = setting(0.5, "weight of the value loss", ge=0, le=100)
    max_grad_norm: float = setting(0.5, "gradient norm is clipped to this", gt=0, le=1e6)
    normalize_advantages: bool = setting(False, "per update: mean 0, deviation 1")


class LoggingConfig(Section):
    """What is written where, and how often."""

    log_interval: _Int = setting(1, "updates between console lines", ge=1, le=10**9)
    log_every_seconds: float = setting(
        10.0, "least time between console lines where they go to no terminal, 0 for any", ge=0, le=1e6
    )
    save_interval: _Int = setting(100, "updates between checkpoints", ge=1, le=10**9)
    save_every_minutes: float | None = setting(
        10.0, "also checkpoint after this much time, null for never", gt=0, le=1e6
    )
    keep_checkpoints: _Int = setting(5, "newest step checkpoints kept", ge=2, le=10**6)
    tensorboard: bool | Literal["auto"] = setting("auto", "write TensorBoard events; auto: if it is installed")
    checkpoint_dir: str | None = setting(None, "null: checkpoints/ in the output directory")
    log_dir: str | None = setting(None, "null: logs/ in the output directory")
    variant: Annotated[str, Field(pattern=f"^{VARIANT_NAME}$")] | None = setting(
        None, "a name for these settings, which comparisons show and keep apart"
    )


class HardwareConfig(Section):
    """Where the tensors live and how many threads work on them."""

    device: Literal["cpu", "cuda", "auto"] = setting(
        "cpu", "cuda: one GPU, for sequential runs and IMPALA's learner; auto: where there is one"
    )
    num_threads: _Int | None = setting(None, "CPU threads, null for what this machine allows", ge=1, le=1024)
    precision: Literal["fp32", "bf16", "auto"] = setting(
        "fp32", "what the network computes in, weights stay fp32; auto: the faster one, measured"
    )
    compile: bool | Literal["auto", "graphs"] = setting(
        "auto", "on a GPU: true torch.compile in CUDA graphs, graphs those alone, false one operation at a time"
    )
    deterministic: bool = setting(False, "on a GPU: repeat bit for bit, with slower kernels; CPU runs always do")
    env_groups: Annotated[int, Whole, Field(ge=1, le=64)] | Literal["auto"] = setting(
        "auto", "on a GPU: groups of environments that step in turn while it computes the other groups' actions"
    )


class Config(Section):
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
    def samples_per_item(self) -> int:
        """Samples in an item of this algorithm's minibatches."""
        return self.minibatch_size // self.minibatch_items

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
        return dump_yaml(self.as_used())


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
    whole = field.annotation
    words: list[str] = []
    for part in (whole,) if get_origin(whole) is Literal else get_args(whole) or (whole,):
        kind, *details = get_args(part) if get_origin(part) is Annotated else (part,)
        if get_origin(part) is Literal:
            choices = get_args(part)
            words.append("one of " + ", ".join(choices) if len(choices) > 1 else choices[0])
        elif kind in (int, float):
            limits = [*field.metadata, *(item for detail in details for item in getattr(detail, "metadata", ()))]
            words.append(_range_words("a number" if kind is float else "a whole number", limits))
        elif kind is str and details:
            words.append("up to 40 letters, digits and - (not first)")
        else:
            words.append({bool: "true or false", str: "text", type(None): "null"}[kind])
    return " or ".join(words)


def _range_words(noun: str, metadata: list[Any]) -> str:
    limits = {
        name: getattr(item, name) for item in metadata for name in ("gt", "ge", "lt", "le") if hasattr(item, name)
    }
    low = f" above {limits['gt']}" if "gt" in limits else f" from {limits['ge']}" if "ge" in limits else ""
    high = f" {'up ' if 'gt' in limits else ''}to {limits['le']}" if "le" in limits else ""
    high = f" and below {limits['lt']}" if "lt" in limits else high
    return f"{noun}{low}{high}"
