"""The configuration of a run: every key, its type, its range, its default."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from pydantic import BaseModel, Field
from pydantic.fields import FieldInfo

from rlcb import networks
from rlcb.config.environment import EnvConfig
from rlcb.config.registry import ALGORITHMS, DEFAULT_ALGORITHM, EXECUTIONS, VARIANT_NAME, Execution
from rlcb.config.section import Section, Whole, setting
from rlcb.config.values import MOST_HOURS, Hours
from rlcb.config.yaml_file import dump_yaml
from rlcb.envs.families import keys_of_others
from rlcb.envs.own_code import MODULE_NAME, module_of

_OWN = f"^{MODULE_NAME}:[A-Za-z_]\\w*$"  # module:Class
if TYPE_CHECKING:
    _Network = str
else:
    _Network = Literal["auto", *networks.NAMES] | Annotated[str, Field(pattern=_OWN)]

_Int = Annotated[int, Whole]


class ParallelConfig(Section):
    """How a parallel run is divided; a sequential one ignores this section."""

    group: ClassVar[str] = "parallel"
    num_workers: Annotated[int, Whole, Field(ge=1, le=1024)] | Literal["auto"] = setting(
        4, "worker processes; auto: chosen for this machine's cores"
    )
    num_envs_per_worker: _Int | None = setting(
        None,
        "environments per worker; null: env.num_envs / num_workers; with num_workers auto, the total env.num_envs is "
        "kept and this decides the number of workers",
        ge=1,
        le=16384,
    )
    backend: Literal["shared_memory", "gloo"] = setting(
        "shared_memory", "all-reduce of gradients: shared memory (one machine) or gloo (sockets)"
    )
    num_learners: _Int | None = setting(None, "learner processes; null: chosen for this machine's cores", ge=1, le=1024)
    actor_device: Literal["cpu", "cuda", "auto"] = setting(
        "auto", "device for actor inference; auto: the learner's GPU if it has one and there are few actors"
    )
    num_slots: _Int | None = setting(
        None, "rollout buffers; their number bounds the policy lag; null: 2 per actor", ge=1, le=65536
    )
    policy_update_frequency: _Int = setting(1, "learner updates between weight updates of the actors", ge=1, le=10**6)
    worker_timeout: float = setting(
        60.0, "replace a worker that sends no heartbeat for this long", metavar="SECONDS", gt=0, le=86400
    )
    cluster: str | None = setting(
        None, "train on a Ray cluster: host:port, auto or local; null: on this machine", metavar="ADDRESS"
    )
    min_workers: _Int = setting(
        1, "cluster: minimum number of workers; with fewer, the run is saved and stops", ge=1, le=1024
    )
    insecure: bool = setting(False, "cluster: allow a remote cluster without an authentication token")
    oversubscribe: bool = setting(False, "on this machine: allow many more processes than there are cores")


class TrainingConfig(Section):
    """How long, in what batches and with which network to learn."""

    total_timesteps: _Int = setting(25_000_000, "total environment steps", group="length", ge=1, le=10**12)
    duration_hours: Hours | None = setting(
        None,
        "training time, instead of a number of steps: 1h, 30m, 90s or a number of hours",
        "HOURS",
        "length",
        gt=0,
        le=MOST_HOURS,
    )
    n_steps: _Int = setting(128, "rollout length: steps of each environment per update", ge=1, le=65536)
    batch_size: _Int = setting(1024, "minibatch size in samples", ge=1, le=2**24)
    micro_batch_size: _Int | None = setting(
        None, "gradient accumulation: samples per backward pass; null: the whole minibatch", ge=1, le=2**24
    )
    n_epochs: _Int = setting(4, "epochs over each rollout", ge=1, le=1000)
    optimizer: Literal["adam", "rmsprop"] = setting("adam", "optimizer")
    learning_rate: float = setting(3e-4, "learning rate", gt=0)
    lr_schedule: Literal["constant", "linear"] = setting(
        "constant", "learning rate schedule: constant, or linear decay to 0"
    )
    adam_eps: float = setting(1e-5, "Adam epsilon", gt=0, le=1)
    rms_eps: float = setting(0.01, "RMSProp epsilon, added after the square root", gt=0, le=10)
    rms_decay: float = setting(0.99, "RMSProp decay rate of the mean squared gradient", ge=0, lt=1)
    gamma: float = setting(0.99, "discount factor γ", ge=0, le=1)
    gae_lambda: float = setting(
        0.95, "λ of GAE (of V-trace in IMPALA): 0 for one-step targets, 1 for full returns", ge=0, le=1
    )
    network: _Network = setting(
        "auto",
        "policy and value network; auto: nature for images, mlp for vectors; MODULE:CLASS: your own",
        group="network",
    )
    log_std_init: float = setting(
        0.0, "continuous actions: initial log standard deviation of the policy", group="network", ge=-20, le=2
    )
    normalize_observations: bool = setting(
        False, "vector observations: normalise by running mean and standard deviation", group="network"
    )
    normalize_rewards: bool = setting(True, "divide rewards by the standard deviation of the discounted return")
    reward_norm_gamma: float | None = setting(
        None, "discount factor of the reward normalisation; null: gamma", ge=0, le=1
    )


class PpoConfig(Section):
    """The coefficients of PPO's objective."""

    clip_range: float = setting(0.2, "clipping range of the probability ratio", gt=0, le=10)
    clip_value: bool = setting(False, "also clip the change of the value function to clip_range")
    ent_coef: float = setting(0.01, "entropy coefficient", ge=0, le=10)
    vf_coef: float = setting(0.5, "value loss coefficient", ge=0, le=100)
    max_grad_norm: float = setting(0.5, "gradient clipping: maximum norm", gt=0, le=1e6)
    normalize_advantages: bool = setting(True, "normalise advantages per minibatch to mean 0, standard deviation 1")


class ImpalaConfig(Section):
    """The coefficients of IMPALA's objective, a sum over the samples of a minibatch."""

    vtrace_clip_rho_threshold: float = setting(
        1.0, "ρ̄: clipping threshold of the importance weights in the value targets", ge=0, le=1e6
    )
    vtrace_clip_c_threshold: float = setting(1.0, "c̄: clipping threshold of the trace coefficients", ge=0, le=1e6)
    vtrace_clip_pg_rho_threshold: float = setting(
        1.0, "ρ̄ for the policy gradient: clipping threshold of its importance weights", ge=0, le=1e6
    )
    ent_coef: float = setting(0.01, "entropy coefficient", ge=0, le=10)
    vf_coef: float = setting(0.5, "value loss coefficient", ge=0, le=100)
    max_grad_norm: float = setting(40.0, "gradient clipping: maximum norm", gt=0, le=1e6)


class A2cConfig(Section):
    """The coefficients of the objective of A2C and A3C."""

    ent_coef: float = setting(0.01, "entropy coefficient", ge=0, le=10)
    vf_coef: float = setting(0.5, "value loss coefficient", ge=0, le=100)
    max_grad_norm: float = setting(0.5, "gradient clipping: maximum norm", gt=0, le=1e6)
    normalize_advantages: bool = setting(False, "normalise advantages per update to mean 0, standard deviation 1")


class LoggingConfig(Section):
    """What is written where, and how often."""

    group: ClassVar[str] = "logging and files"
    log_interval: _Int = setting(1, "updates between console lines", ge=1, le=10**9)
    log_every_seconds: float = setting(
        10.0, "minimum time between console lines if output is not a terminal", metavar="SECONDS", ge=0, le=1e6
    )
    save_interval: _Int = setting(100, "updates between checkpoints", ge=1, le=10**9)
    save_every_minutes: float | None = setting(
        10.0, "also save a checkpoint at least this often; null: off", metavar="MINUTES", gt=0, le=1e6
    )
    keep_checkpoints: _Int = setting(5, "number of most recent step checkpoints to keep", ge=2, le=10**6)
    tensorboard: bool | Literal["auto"] = setting("auto", "write TensorBoard events; auto: if TensorBoard is installed")
    track: Literal["wandb"] | None = setting(None, "also send metrics to Weights & Biases; null: to nobody")
    checkpoint_dir: str | None = setting(
        None, "checkpoint directory; null: checkpoints/ in the output directory", metavar="DIR"
    )
    log_dir: str | None = setting(None, "log directory; null: logs/ in the output directory", metavar="DIR")
    variant: Annotated[str, Field(pattern=f"^{VARIANT_NAME}$")] | None = setting(
        None, "name for these settings; comparisons show it and group runs by it", metavar="NAME"
    )


class HardwareConfig(Section):
    """Where the tensors live and how many threads work on them."""

    group: ClassVar[str] = "hardware"
    device: Literal["cpu", "cuda", "auto"] = setting(
        "cpu", "cuda: one GPU (sequential runs and the IMPALA learner); auto: the GPU if there is one"
    )
    num_threads: _Int | None = setting(None, "CPU threads; null: chosen for this machine's cores", ge=1, le=1024)
    precision: Literal["fp32", "bf16", "auto"] = setting(
        "fp32", "compute precision of the network (weights stay fp32); auto: the faster one, measured at start"
    )
    compile: bool | Literal["auto", "graphs"] = setting(
        "auto",
        "GPU: true: torch.compile and CUDA graphs; graphs: CUDA graphs only; false: neither; "
        "auto: true for long runs, otherwise graphs",
    )
    deterministic: bool = setting(False, "GPU: bit-for-bit reproducible, with slower kernels; CPU runs always are")
    env_groups: Annotated[int, Whole, Field(ge=1, le=64)] | Literal["auto"] = setting(
        "auto", "GPU: number of environment groups; one group steps while actions for the others are computed"
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
    def modules(self) -> list[str]:
        """The user's own modules that every process of the run imports."""
        network = module_of(self.training.network)
        return [*self.env.imports, *([network] if network and network not in self.env.imports else [])]

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
        # Files of runs without imports, and with few processes, are what they were before there were these keys.
        unused = {*keys_of_others(self.env.name), *(() if self.env.imports else ("imports",))}
        unused |= set() if self.parallel.oversubscribe else {"oversubscribe"}
        used: dict[str, dict[str, Any]] = {}
        for section, key, _ in fields(self.algorithm):
            if key not in unused:
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
