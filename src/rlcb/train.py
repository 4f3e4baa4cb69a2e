"""From a command line to a running training: configuration, run directory, pre-flight, start."""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlcb.config.load import build_config
from rlcb.config.plan import Plan
from rlcb.config.registry import ALGORITHMS, DEFAULT_ALGORITHM
from rlcb.config.schema import Config
from rlcb.console import LINE, note
from rlcb.envs.families import family_of
from rlcb.errors import ResourceError, RlcbError, UsageError
from rlcb.hardware import package_version, prepare_process, resolve_device, usable_cpus
from rlcb.run.directory import RunDirectory, check_space, checkpoint_bytes, create_run, open_run, read_run
from rlcb.run.metrics import INSTALL_TENSORBOARD, want_tensorboard
from rlcb.signals import StopRequest

if TYPE_CHECKING:
    from rlcb.cluster.ray_pool import RayPool
    from rlcb.run.summary import Outcome

Overrides = Mapping[str, tuple[str, Any]]
# What may change when a run goes on: everything else would make it another run.
RESUMABLE_KEYS = ("total_timesteps", "duration_hours", "log_interval", "save_interval", "save_every_minutes",
                  "keep_checkpoints", "tensorboard", "device", "num_threads", "num_workers", "backend",
                  "worker_timeout", "cluster", "min_workers", "insecure", "num_learners", "num_slots",
                  "policy_update_frequency")  # fmt: skip


def launch(
    prog: str,
    algorithm: str,
    mode: str | None,
    overrides: Overrides,
    config_file: Path | None,
    output_dir: Path | None,
    resume: Path | None,
) -> int:
    """Check everything that can be checked, then train; returns the exit code. A resumed run knows its mode."""
    stop = StopRequest()
    stop.install()
    if resume:
        config, algorithm, mode = _resumed_config(resume, mode, overrides, config_file, output_dir)
        path = resume
    else:
        assert mode is not None
        refuse_missing_mode(algorithm, mode)
        config = _new_config(algorithm, mode, overrides, config_file, output_dir)
        path = output_dir or default_output(algorithm, mode)
    _check_tensorboard(config)
    check_device(config, mode)
    check_cluster(config, mode)

    def work() -> int:
        return _run(prog, path, config, algorithm, mode, stop, resume is not None)

    if config.parallel.cluster is None:
        return work()
    from rlcb.cluster.connect import guarded
    from rlcb.flags import answered

    return guarded(lambda: answered(prog, work), f"go on with --resume {path}")


def _run(prog: str, path: Path, config: Config, algorithm: str, mode: str, stop: StopRequest, resume: bool) -> int:
    """Decide what is left to decide, make or open the run's directory and train."""
    with _crew(config) as crew:
        stop.install()  # once more: Ray takes signals for itself when it starts
        if mode == "parallel":
            from rlcb.config.tune import decided

            config = decided(config, _say, crew)
        run = (open_run if resume else create_run)(path, config, algorithm, mode, note)
        try:
            check_space(run, checkpoint_bytes(config), config.logging.keep_checkpoints)
            return _train(prog, run, config, stop, resume, crew)
        except RlcbError as error:
            with contextlib.suppress(ResourceError):  # a full disk takes no record of being full
                run.event("failed", reason=str(error), exit_code=error.exit_code)
            raise
        finally:
            run.release()


def check_cluster(config: Config, mode: str) -> None:
    """Refuse a cluster that the mode has no use for, that is not installed, or that is open to everybody."""
    cluster = config.parallel.cluster
    if cluster is None or mode == "sequential":
        if cluster is not None:
            raise UsageError(f"--cluster {cluster}: a sequential run is one process; use --mode parallel for a cluster")
        return
    from rlcb.cluster.address import INSTALL, refuse_open, resolved

    if package_version("ray") is None:
        raise UsageError(f"--cluster {cluster}: Ray is not installed: {INSTALL}")
    refuse_open(resolved(cluster), config.parallel.insecure)
    workers, least = config.parallel.num_workers, config.parallel.min_workers
    if isinstance(workers, int) and least > workers:
        raise UsageError(f"min_workers {least} is more than num_workers {workers}; must be at most that")


@contextlib.contextmanager
def _crew(config: Config) -> "Iterator[RayPool | None]":
    """The cluster's crew while a run needs it; None: this machine's own processes."""
    if config.parallel.cluster is None:
        yield None
        return
    from rlcb.cluster.connect import prepare

    address = prepare(config.parallel.cluster)
    prepare_process(1)  # whatever learns is another process
    from rlcb.cluster.ray_pool import joined

    with joined(config, address) as crew:
        yield crew


def refuse_missing_mode(algorithm: str, mode: str) -> None:
    """Refuse a mode that the algorithm does not have."""
    modes = ALGORITHMS[algorithm].modes
    if mode not in modes:
        instead = ALGORITHMS[algorithm].instead.get(mode)
        hint = f"; its {mode} form is {instead.upper()}: rlcb train {instead} --mode {mode}" if instead else ""
        raise UsageError(f"--mode {mode}: {algorithm} has {' and '.join(modes)} alone{hint}")


def default_output(algorithm: str, mode: str) -> Path:
    """Where a run goes that was not told where to."""
    return Path("benchmarks") / (mode if algorithm == DEFAULT_ALGORITHM else f"{algorithm}_{mode}")


def tuned(algorithm: str, config_file: Path | None, env: str | None, output: Path, updates: int) -> int:
    """Tune a parallel configuration on this machine and write it."""
    from rlcb.config.tune import tune

    overrides: dict[str, tuple[str, Any]] = {"name": ("--env", env)} if env else {}
    return tune(_new_config(algorithm, "parallel", overrides, config_file, None), output, updates, _say)


def _say(text: str) -> None:
    print(text, flush=True)


def _by_steps_or_time(overrides: Overrides) -> dict[str, tuple[str, Any]]:
    """The flags; a number of steps given there takes the place of a duration given elsewhere."""
    changes = dict(overrides)
    if "total_timesteps" in changes:
        changes.setdefault("duration_hours", ("--total-timesteps", None))
    return changes


def _new_config(
    algorithm: str, mode: str, overrides: Overrides, config_file: Path | None, output_dir: Path | None
) -> Config:
    """The file's configuration (by default the algorithm's own) with the flags on top."""
    if config_file is None:
        default = Path("config") / f"{algorithm}_{mode}.yaml"
        config_file = default if default.exists() else None
    changes = _by_steps_or_time(overrides)
    if output_dir:
        # Naming the run's place brings home the folders that a file put elsewhere.
        for key in ("checkpoint_dir", "log_dir"):
            changes.setdefault(key, ("--output-dir", None))
    return build_config(config_file, changes, mode=mode, algorithm=algorithm)


def _resumed_config(
    path: Path, mode: str | None, overrides: Overrides, config_file: Path | None, output_dir: Path | None
) -> tuple[Config, str, str]:
    """The configuration a run was started with, with what may change on top."""
    for given, flag in ((config_file, "--config"), (output_dir, "--output-dir")):
        if given:
            raise UsageError(f"{flag}: not together with --resume, which takes it from the run")
    for key, (flag, _) in overrides.items():
        if key not in RESUMABLE_KEYS:
            raise UsageError(f"{flag}: cannot change when a run is resumed; start a new run instead")
    config, algorithm, before = read_run(path)
    mode = mode or before
    refuse_missing_mode(algorithm, mode)
    changes = _by_steps_or_time(overrides)
    if "num_workers" in changes or mode != before:
        changes["num_envs_per_worker"] = ("--num-workers", None)  # the total stays what it is
    return build_config(None, changes, base=config, mode=mode), algorithm, mode


def check_device(config: Config, mode: str) -> None:
    """Refuse a GPU that is not there, or that the mode has no use for."""
    if config.hardware.device == "cuda":
        if mode == "parallel":
            other = "; use --mode sequential for a GPU" if "sequential" in ALGORITHMS[config.algorithm].modes else ""
            raise UsageError(f"--device cuda: parallel {config.algorithm.upper()} runs on CPU cores{other}")
        resolve_device("cuda")


def _check_tensorboard(config: Config) -> None:
    if not want_tensorboard(config.logging.tensorboard) and config.logging.tensorboard == "auto":
        note(f"TensorBoard is not installed, its files are not written: {INSTALL_TENSORBOARD}")


def _train(
    prog: str, run: RunDirectory, config: Config, stop: StopRequest, resume: bool, crew: "RayPool | None"
) -> int:
    """Set the process up, import the heavy half of the program and run it."""
    threads = prepare_process(threads_for(config, run.mode, crew))
    device = resolve_device(config.hardware.device if run.mode == "sequential" else "cpu")
    if device == "cpu" and config.hardware.device == "auto":
        note("no CUDA device: training on the CPU")
    print(banner(run, config, device, threads), flush=True)
    execution = import_module(f"rlcb.execution.{ALGORITHMS[run.algorithm].executions[run.mode]}")
    train: Callable[..., Outcome] = execution.train
    parallel = config.parallel
    workers = parallel.num_workers if run.mode == "parallel" else 1
    assert isinstance(workers, int)
    plan = Plan(
        ALGORITHMS[run.algorithm].executions[run.mode],
        workers,
        config.env.num_envs // workers,
        parallel.num_learners or 0,
        parallel.num_slots or 2 * workers,
        threads,
        device,
    )
    if run.mode == "parallel":
        from rlcb.comm.pool import LocalPool

        train = partial(train, pool=crew or LocalPool())
    outcome = train(run, config, plan, resume, stop)
    if outcome.status == "interrupted":
        run.event("interrupted", signal=stop.signal, env_steps=outcome.env_steps)
        command = prog if prog.startswith("rlcb") else f"python {prog}"
        print(f"Interrupted and saved. Resume with: {command} --resume {run.path}", flush=True)
        return stop.exit_code
    return 0


def threads_for(config: Config, mode: str, crew: "RayPool | None" = None) -> int:
    """Threads of each process that learns: what was asked for, or an equal share of what this machine allows.

    Workers on a cluster get theirs from the node that they land on; here it is what they would get if all were equal.
    """
    from rlcb.config.tune import threads_each

    wanted, usable = config.hardware.num_threads, usable_cpus()
    if mode == "sequential":
        return wanted or usable
    workers, learners = config.parallel.num_workers, config.parallel.num_learners
    assert isinstance(workers, int)
    if crew is not None:
        share = max(usable // learners if crew.others() else (usable - workers) // learners, 1) if learners else 0
        return min(wanted or 1024, share or max((crew.cores() or 1) // workers, 1))
    share = threads_each(workers, learners, usable)
    noun = "learner" if learners else "worker"
    if wanted and wanted > share:
        note(f"num_threads {wanted} for each {noun} is more than the {usable} usable cores allow: {share} each")
    if workers > usable:
        note(f"{workers} {ALGORITHMS[config.algorithm].worker}s share {usable} cores: fewer would be faster")
    return min(wanted or share, share)


def banner(run: RunDirectory, config: Config, device: str, threads: int) -> str:
    """What is about to run, for a person."""
    env, training = config.env, config.training
    timed = training.duration_hours
    kind = "Timed Benchmark" if timed else "Fixed Steps"
    lines = [LINE, f"{run.algorithm.upper()} {run.mode.capitalize()} Training - {kind}", LINE]
    lines.append(f"Environment: {env.name}")
    if family_of(env.name).has_levels:
        levels = f"{env.num_levels} from {env.start_level}" if env.num_levels else "all"
        lines.append(f"Levels: {levels}, {env.distribution_mode}")
    if run.mode == "parallel":
        if config.parallel.cluster:
            lines.append(f"Cluster: {config.parallel.cluster}")
        noun = ALGORITHMS[run.algorithm].worker
        lines.append(f"{noun.capitalize()}s: {config.parallel.num_workers}")
        lines.append(f"Envs per {noun}: {config.parallel.num_envs_per_worker}")
        if config.parallel.num_learners:
            lines.append(f"Learners: {config.parallel.num_learners}")
    lines.append(f"{'Total' if run.mode == 'parallel' else 'Num'} environments: {env.num_envs}")
    lines.append(f"Rollout: {training.n_steps} steps, {_portions(config)}")
    if config.minibatch_size < training.batch_size and not ALGORITHMS[run.algorithm].whole_rollout:
        lines.append(f"Note: batch_size {training.batch_size} exceeds the rollout, which is learned from whole")
    lines.append(f"Duration: {timed:g} hours" if timed else f"Total timesteps: {training.total_timesteps:,}")
    each = f" per {'learner' if config.parallel.num_learners else 'worker'}" if run.mode == "parallel" else ""
    lines.append(f"Device: {device} (CPU threads{each}: {threads})")
    lines.append(f"Output: {run.path}")
    return "\n".join([*lines, LINE])


def _portions(config: Config) -> str:
    epochs = config.training.n_epochs
    if ALGORITHMS[config.algorithm].executions.get("parallel") == "async_gradients":
        share = config.training.n_steps * (config.parallel.num_envs_per_worker or 1)
        return f"a gradient from each worker's {share} steps"
    if ALGORITHMS[config.algorithm].whole_rollout:
        return f"learned from as one batch of {config.minibatch_size}"
    return f"minibatches of {config.minibatch_size}, {epochs} epoch{'s' * (epochs > 1)}"
