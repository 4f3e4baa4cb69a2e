"""From a request to a running training: configuration, checks, plan, run directory, execution."""

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from rlcb.announce import print_banner, print_plan
from rlcb.config.division import division_note
from rlcb.config.gpu_plan import refuse_misplaced
from rlcb.config.load import default_output
from rlcb.config.plan import Plan, fewer_workers_note, make_plan, refuse_crowd
from rlcb.config.precision import with_precision
from rlcb.config.registry import ALGORITHMS
from rlcb.config.schema import Config
from rlcb.console import note, say, warn
from rlcb.envs.families import make_ready
from rlcb.envs.own_code import permitted_flags
from rlcb.envs.registered import refuse_unshared
from rlcb.errors import OwnCodeFailed, ResourceError, RlcbError, UsageError, WorkersLost
from rlcb.hardware import cuda_problem, describe_gpus, package_version, prepare_process, resolve_device
from rlcb.run.directory import (
    RunDirectory,
    check_output,
    create_run,
    open_run,
)
from rlcb.run.ending import resume_flag
from rlcb.run.fit import Fit, check_fit
from rlcb.run.gpu_failures import gpu_failures, less_memory
from rlcb.run.history import Metrics
from rlcb.run.own_failures import TRACEBACK, write_traceback
from rlcb.run.request import Request, decide_resume, requested_config, settings_file
from rlcb.run.sinks import INSTALL_TENSORBOARD, check_tracker, want_tensorboard
from rlcb.run.space import check_space, checkpoint_bytes
from rlcb.signals import StopRequest
from rlcb.words import typed

if TYPE_CHECKING:  # it imports torch and Ray
    from rlcb.cluster.ray_pool import RayPool
    from rlcb.run.summary import Outcome

_CLUSTER_ATTEMPTS = 3  # Ray may end the process that starts it, for instance when one of its calls fails


@dataclass(frozen=True)
class Trained:
    """Where a run is, and what stopped it before its end: a signal, 0 for the program that called; None: nothing."""

    path: Path
    signal: int | None = None

    @property
    def exit_code(self) -> int:
        """0, or 128 + the signal's number."""
        return 128 + self.signal if self.signal else 0


def train(request: Request, stop: StopRequest) -> Trained:
    """Check everything that can be checked, then train, or with `dry_run` print the plan; `stop`: what signals mean."""
    stop.install()
    if request.resume_auto:
        decided = decide_resume(request)
        if isinstance(decided, Path):
            return Trained(decided)
        request = decided
    config, mode = requested_config(request)
    path = request.resume or request.output_dir or default_output(config.algorithm, mode)
    if not request.resume:
        check_output(path, config, mode)
    if not want_tensorboard(config.logging.tensorboard) and config.logging.tensorboard == "auto":
        note(f"TensorBoard is not installed, so no event files are written: {INSTALL_TENSORBOARD}")
    check_tracker(config.logging.track)
    check_hardware(config, mode)
    if request.from_python and mode == "parallel":
        refuse_unshared(config.env.name, config.modules)
    cluster = config.parallel.cluster
    if mode == "sequential" or cluster is None or request.dry_run:
        config = with_device(config, mode)
    if mode == "parallel" and (words := division_note(config, request.overrides)):
        note(words)
    if mode == "parallel" and (words := fewer_workers_note(config, request.overrides)):
        note(words)
    if request.dry_run:
        file = settings_file(request, config.algorithm, mode)
        print_plan(path, config, mode, resume=request.resume is not None, file=file)
        return Trained(path)
    if cluster is None:
        return Trained(path, _run(request, path, config, mode, stop))
    return Trained(path, _run_on_cluster(request, path, config, mode, cluster))


def _run_on_cluster(request: Request, path: Path, config: Config, mode: str, cluster: str) -> int | None:
    """`_run` in a process of its own, which is connected to the cluster."""
    from rlcb.cluster.connect import guarded, prepare

    if request.on_update:
        raise UsageError("on_update cannot be used with a cluster: the run has its own process; read metrics.jsonl")

    def work() -> int:
        stop = StopRequest()
        stop.install()
        placed = with_device(config, mode)  # here: CUDA that was used before a fork cannot be used after it
        address = prepare(cluster, config.parallel.insecure)
        prepare_process(1)  # other processes learn
        from rlcb.cluster.ray_pool import joined

        with joined(placed, address) as pool:
            stop.install()  # again: should Ray have replaced the signal handlers or caught what they raise
            _run(request, path, placed, mode, stop, pool)
            return stop.exit_code

    begun = time.time()
    for attempt in range(1, _CLUSTER_ATTEMPTS + 1):
        code = guarded(work)
        if code is not None:
            return code - 128 if code > 128 else None
        if request.resume or (path.exists() and path.stat().st_ctime >= begun):
            raise WorkersLost(f"Ray on this machine has stopped; resume with {resume_flag(path)}{permitted_flags()}")
        warn(f"Ray ended before the run began (attempt {attempt} of {_CLUSTER_ATTEMPTS})")
    raise WorkersLost(f"--cluster {cluster}: Ray could not be started; nothing was written; see the logs in /tmp/ray")


# Checks before anything is started


def check_hardware(config: Config, mode: str) -> None:
    """Refuse a GPU or a cluster that the mode does not use, that is not there, or a cluster open to everybody.

    Without a cluster, too many processes for this machine's cores are refused as well.
    """
    cluster = config.parallel.cluster
    if mode == "parallel" and cluster is None:
        refuse_crowd(config)
    if mode == "parallel" and config.parallel_execution.has_learners:
        refuse_misplaced(config)
    if config.hardware.device == "cuda":
        if mode == "parallel" and not config.parallel_execution.has_learners:
            command = _gpu_command(config.algorithm)
            raise UsageError(f"--device cuda: parallel {config.algorithm.upper()} runs on CPU cores{command}")
        if cluster is None:
            resolve_device("cuda", config.hardware.num_threads)
    if cluster is None:
        return
    if mode == "sequential":
        raise UsageError(f"--cluster {cluster}: a sequential run has one process; use --mode parallel on a cluster")
    check_cluster(cluster, config.parallel.insecure)
    workers, least = config.parallel.num_workers, config.parallel.min_workers
    if isinstance(workers, int) and least > workers:
        raise UsageError(f"min_workers {least} is more than num_workers {workers}; must be at most that")


def check_cluster(cluster: str, insecure: bool) -> None:
    """Refuse a cluster if Ray is not installed, or if others could use it."""
    from rlcb.cluster.address import INSTALL, resolved
    from rlcb.cluster.security import refuse_open

    if package_version("ray") is None:
        raise UsageError(f"--cluster {cluster}: Ray is not installed: {INSTALL}")
    refuse_open(resolved(cluster), insecure)


def _gpu_command(algorithm: str) -> str:
    """How the algorithm would be trained on a GPU, for the end of a line; empty where it has no such mode."""
    if "sequential" not in ALGORITHMS[algorithm].modes:
        return ""
    return f"; to use the GPU: {typed(f'rlcb train {algorithm} --mode sequential --device cuda')}"


def with_device(config: Config, mode: str) -> Config:
    """The configuration with `cuda` or `cpu` in the place of `device: auto`, with the reason for `cpu` in a note.

    A GPU that was asked for and is not there is refused; it must be where learners run, on this machine.
    """
    wanted, threads, learners = config.hardware.device, config.hardware.num_threads, config.parallel.num_learners or 1
    if wanted == "cpu":
        return config
    if mode == "parallel" and not config.parallel_execution.has_learners:
        command = _gpu_command(config.algorithm)
        if command and describe_gpus()["gpus"] and cuda_problem(threads) is None:
            note(f"--device auto selects the CPU: parallel {config.algorithm.upper()} runs on CPU cores{command}")
        return config.changed("hardware", device="cpu")
    problem = cuda_problem(threads)
    if wanted == "cuda" and problem is not None:
        where = "learners run on this machine, not on the nodes of the cluster: " if config.parallel.cluster else ""
        raise UsageError(f"--device cuda: {where}{problem}; or use --device cpu")
    if problem is None and wanted == "auto" and mode == "parallel" and learners > 1:
        problem = f"num_learners is {learners}, but only one learner can use a GPU"
    if problem is not None:
        note(f"--device auto selects the CPU: {problem}")
    return config.changed("hardware", device="cuda" if problem is None else "cpu")


# Running


def _run(
    request: Request, path: Path, config: Config, mode: str, stop: StopRequest, pool: "RayPool | None" = None
) -> int | None:
    """Decide what is left to decide, make or open the run's directory and train; returns the signal that stopped it.

    `pool`: the cluster's workers.
    """
    make_ready(config.env.name)
    config, plan = make_plan(with_precision(config, mode), mode, pool)
    prepare_process(plan.threads)  # what is tried next may import torch
    fit = check_fit(config)
    stop.begin()  # from here on there is a run that can be saved and resumed
    run = (open_run if request.resume else create_run)(path, config, mode)
    try:
        with gpu_failures(less_memory(config.algorithm), lambda: _how_to_go_on(request, run)):
            return _train_in(run, request, config, plan, fit, stop, pool)
    except OwnCodeFailed as failure:
        where = write_traceback(run.path / TRACEBACK, failure)
        error = OwnCodeFailed(f"{failure}{where}; {_how_to_go_on(request, run)}", failure.kind, failure.traceback)
        _record_failure(run, error)
        if failure.__cause__ is None:  # it came from another process
            error.add_note(failure.traceback)
        raise error from failure.__cause__
    except RlcbError as error:
        _record_failure(run, error)
        raise
    finally:
        run.release()


def _record_failure(run: RunDirectory, error: RlcbError) -> None:
    """Say in the run's events why it ended."""
    with contextlib.suppress(ResourceError):  # a full disk takes no record of being full
        run.event("failed", reason=str(error), exit_code=error.exit_code)


def _train_in(
    run: RunDirectory,
    request: Request,
    config: Config,
    plan: Plan,
    fit: Fit,
    stop: StopRequest,
    pool: "RayPool | None",
) -> int | None:
    """Train in the run's directory, which is locked; returns the signal that stopped it."""
    check_space(run.checkpoints, checkpoint_bytes(config, run.mode, fit), config.logging.keep_checkpoints)
    print_banner(run, config, plan, fit, settings_file(request, run.algorithm, run.mode))
    from rlcb.comm.pool import WorkerPool
    from rlcb.execution.supervisor import Job
    from rlcb.run.recorder import Recorder

    execution = import_module(f"rlcb.execution.{plan.execution}")
    recorder = Recorder(run, config, plan, pool, _reported(request, stop))
    state = recorder.restore() if request.resume else None
    with recorder:
        execution.train(Job(config, plan, recorder, stop, pool or WorkerPool()), state)
        outcome = recorder.finish()
        if outcome.status == "finished" and pool is None and not (outcome.jobs_beside or outcome.disturbance.disturbed):
            outcome = _with_limit(outcome, run, config, stop)
        recorder.show_summary(outcome)
    if outcome.status != "interrupted":
        return None
    run.event("interrupted", signal=stop.signal, env_steps=outcome.progress.env_steps)
    say(f"Interrupted and saved. Resume with: {_resume_command(request, run)}")
    return stop.signal


def _reported(request: Request, stop: StopRequest) -> Callable[[Metrics], None] | None:
    """What is done with the metrics of each update; None: nothing."""
    on_update = request.on_update
    if on_update is None:
        return None

    def report(metrics: Metrics) -> None:
        if on_update(dict(metrics)) is False:
            stop.ask()

    return report


def _resume_command(request: Request, run: RunDirectory) -> str:
    return typed(f"{request.prog} {resume_flag(run.path)}{permitted_flags()}")


def _how_to_go_on(request: Request, run: RunDirectory) -> str:
    """How a run that failed can be continued, if it has a checkpoint."""
    saved = any(run.checkpoints.glob(f"{run.prefix}_*.pt"))
    command = f"resume from the last checkpoint with: {_resume_command(request, run)}"
    return command if saved else "nothing was saved yet"


def _with_limit(outcome: "Outcome", run: RunDirectory, config: Config, stop: StopRequest) -> "Outcome":
    """The outcome of a run whose workers have ended, with what this machine could reach."""
    from rlcb.limits.report import command_for, limit_of_run

    fps = outcome.history.steady_fps()
    if fps is None:
        return outcome
    known = limit_of_run(config, outcome.plan, run.mode, outcome.seconds, fps, lambda: stop.signal is not None)
    return replace(outcome, limit=known, limit_command=command_for(run.algorithm, run.mode, run.path / "config.yaml"))
