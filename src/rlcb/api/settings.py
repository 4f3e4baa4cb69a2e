"""The parameters of the functions: names and types of the flags, for editors and type checkers.

The values are checked when a function is called, by the schema that checks flags and files. Type checkers cannot read
the schema, so names and types stand here again, and tests/unit/test_call_settings.py compares them with it.
"""

from collections.abc import Sequence
from os import PathLike
from typing import Literal, TypedDict

FilePath = str | PathLike[str]
Auto = Literal["auto"]


class CommonSettings(TypedDict, total=False):
    """Settings of a run that a suite can give to all of its runs."""

    num_envs: int
    distribution_mode: Literal["easy", "hard", "extreme", "memory"]
    num_levels: int
    start_level: int
    frame_skip: int
    frame_stack: int
    repeat_action_probability: float | None
    noop_max: int
    episodic_life: bool
    clip_rewards: bool
    num_workers: int | Auto
    num_envs_per_worker: int | None
    backend: Literal["shared_memory", "gloo"]
    worker_timeout: float
    cluster: str | None
    min_workers: int
    insecure: bool
    oversubscribe: bool
    duration: float | str | None
    total_timesteps: int | None
    n_steps: int
    batch_size: int
    micro_batch_size: int | None
    n_epochs: int
    optimizer: Literal["adam", "rmsprop"]
    learning_rate: float
    lr_schedule: Literal["constant", "linear"]
    adam_eps: float
    rms_eps: float
    rms_decay: float
    gamma: float
    gae_lambda: float
    network: str
    normalize_observations: bool
    log_std_init: float
    normalize_rewards: bool
    reward_norm_gamma: float | None
    clip_range: float
    clip_value: bool
    ent_coef: float
    vf_coef: float
    max_grad_norm: float
    normalize_advantages: bool
    log_interval: int
    log_every_seconds: float
    save_interval: int
    save_every_minutes: float | Literal["null"]
    keep_checkpoints: int
    tensorboard: bool | Auto
    track: Literal["wandb"] | None
    device: Literal["cpu", "cuda", "auto"]
    num_threads: int | None
    precision: Literal["fp32", "bf16", "auto"]
    compile: bool | Literal["auto", "graphs"]
    deterministic: bool
    env_groups: int | Auto
    num_learners: int | None
    actor_device: Literal["cpu", "cuda", "auto"]
    num_slots: int | None
    policy_update_frequency: int
    vtrace_clip_rho_threshold: float
    vtrace_clip_c_threshold: float
    vtrace_clip_pg_rho_threshold: float


class TrainSettings(CommonSettings, total=False):
    """Parameters of `rlcb.train`: the flags of `rlcb train`."""

    config: FilePath | None
    output_dir: FilePath | None
    env: str
    imports: Sequence[str]
    seed: int
    variant: str | None
    checkpoint_dir: FilePath | None
    log_dir: FilePath | None
    num_actors: int | Auto
    num_envs_per_actor: int | None


class BenchmarkSettings(CommonSettings, total=False):
    """Parameters of `rlcb.benchmark`: the flags of `rlcb benchmark`."""

    suite: FilePath | None
    jobs: int | Auto | None
    repeat_disturbed: bool
    algorithms: Sequence[str]
    modes: Sequence[str]
    seeds: Sequence[int]
    num_seeds: int | None
    games: Sequence[str]
    imports: Sequence[str]
    eval_episodes: int
    cool_down: float
    config: FilePath | None
    variants: Sequence[str]


class EvaluateSettings(TypedDict, total=False):
    """Parameters of `rlcb.evaluate`: the flags of `rlcb evaluate`."""

    algorithm: str | None
    deterministic: bool
    env: str | None
    imports: Sequence[str]
    levels: Literal["train", "unseen", "both"]
    num_episodes: int
    num_envs: int | None
    seed: int
    device: Literal["auto", "cpu", "cuda"]
    num_threads: int | None
    output: FilePath | None
    video: FilePath | None
    render: bool


class CompareSettings(TypedDict, total=False):
    """Parameters of `rlcb.compare`: the flags of `rlcb compare`."""

    reward_threshold: float | Literal["published"] | Sequence[float | Literal["published"]] | None
    seed: int
