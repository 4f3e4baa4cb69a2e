"""Measures how fast a run's processes step environments, act and train: one of these at a time, all at once."""

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from multiprocessing.connection import wait
from statistics import fmean
from typing import Any

from rlcb.comm.pool import WorkerDied, WorkerHandle, WorkerPool
from rlcb.config.plan import Plan
from rlcb.config.schema import Config
from rlcb.disturbance.verdict import Disturbance
from rlcb.disturbance.watch import Watch
from rlcb.errors import WorkersLost
from rlcb.execution.messages import LimitSetup, Measure
from rlcb.hardware import usable_cpus
from rlcb.limits.formula import ACTING, ENV, TRAINING, Rates, Shape

_WARM_UP = 0.3  # seconds of each activity before the first round
_POLL = 0.2  # seconds between two looks whether to stop
_ACT, _LEARN = "act", "learn"  # the two kinds of processes, which are the same ones unless there are learners


def shape_of(config: Config, plan: Plan, cores: int) -> Shape:
    """How the speeds of this run's processes are combined on this many cores."""
    epochs = config.training.n_epochs
    if not plan.num_learners:
        return Shape(epochs, in_turn=plan.device == "cuda" and config.hardware.env_groups != 1)
    acting, learning = plan.num_workers, plan.num_learners * plan.threads
    shares = min(acting / cores, 1.0), min(learning / cores, 1.0)
    return Shape(epochs, True, *shares, apart=acting + learning <= cores or plan.device == "cuda")


def processes_of(config: Config, plan: Plan, shape: Shape, cores: int) -> tuple[list[LimitSetup], list[LimitSetup]]:
    """The processes that act and those that learn; where the same do both, all of them and none.

    Actors and learners that share cores are so many here that either side could keep all cores busy.
    """
    workers, learners, threads = plan.num_workers, plan.num_learners, plan.threads
    if plan.execution == "sequential":
        return [LimitSetup(config, threads, plan.device, plan.env_threads or threads, 0, 1, config.minibatch_items)], []
    if not learners:
        alone = plan.execution == "async_gradients"  # each worker has a configuration and minibatches of its own
        share = config.changed("env", num_envs=plan.envs_per_worker) if alone else config
        size = 1 if alone else workers
        items, env_threads = share.minibatch_items // size, threads if threads > 1 else 0
        return [LimitSetup(share, threads, "cpu", env_threads, r % size, size, items) for r in range(workers)], []
    if plan.device == "cuda":
        return [_gpu_or_cpu_actor(config, plan, rank) for rank in range(workers)], [_gpu_learner(config, plan)]
    items, envs = config.minibatch_items // learners, config.env.num_envs
    actors = workers if shape.apart else max(workers, cores)
    learning = learners if shape.apart else max(learners, cores // threads)
    return (
        [LimitSetup(config, 1, "cpu", 0, rank % workers, workers, 1) for rank in range(actors)],
        # They step no environment: one is enough to know what observations look like.
        [LimitSetup(config, threads, "cpu", 0, 0, envs, items) for _ in range(learning)],
    )


def _gpu_learner(config: Config, plan: Plan) -> LimitSetup:
    """IMPALA's learner on a GPU, which has memory for the rollouts of all environments."""
    alone = config.changed("hardware", env_groups=1)
    return LimitSetup(alone, plan.threads, plan.device, 0, 0, 1, config.minibatch_items)


def _gpu_or_cpu_actor(config: Config, plan: Plan, rank: int) -> LimitSetup:
    """An actor beside a learner on a GPU; one that acts there itself learns from nothing but its own environments."""
    if plan.actor_device == "cpu":
        return LimitSetup(config, 1, "cpu", 0, rank, plan.num_workers, 1)
    each = plan.envs_per_worker
    own = config.changed("env", num_envs=each).changed("training", batch_size=each * config.training.n_steps)
    return LimitSetup(own, 1, plan.actor_device, plan.env_threads, 0, 1, 1)


def phases_of(shape: Shape) -> tuple[dict[str, str], ...]:
    """What each kind of process does in the phases of a round; the others are idle."""
    if shape.apart:
        return {_ACT: ENV, _LEARN: TRAINING}, {_ACT: ACTING, _LEARN: TRAINING}
    return {_ACT: ENV}, {_ACT: ACTING}, {_LEARN: TRAINING}


def measure(
    config: Config, plan: Plan, rounds: int, seconds: float, timeout: float, stop: Callable[[], bool] = lambda: False
) -> tuple[list[Rates], Shape, Disturbance]:
    """Every process's speeds in each round, how to combine them, and what disturbed it; WorkersLost where that fails.

    `seconds`: of each phase; `timeout`: of everything; `stop`: whether to give up, asked repeatedly.
    """
    cores = usable_cpus()
    shape = shape_of(config, plan, cores)
    setups = processes_of(config, plan, shape, cores)
    deadline, pool = time.monotonic() + timeout, WorkerPool()
    control = pool.control("rlcb-limits", sum(map(len, setups)))
    watch = Watch()

    def answers(handles: Sequence[WorkerHandle]) -> list[Any]:
        """The next message of each process, in their order."""
        found: dict[WorkerHandle, Any] = {}
        while len(found) < len(handles):
            if stop():
                raise WorkersLost("a signal stopped the measurement")
            if time.monotonic() > deadline:
                raise WorkersLost(f"measuring the limit of this machine took more than {timeout:.0f} seconds")
            silent = {handle.channel: handle for handle in handles if handle not in found}
            for channel in wait(list(silent), _POLL):
                found[silent[channel]] = silent[channel].receive()
        return [found[handle] for handle in handles]

    def do(phase: dict[str, str], duration: float) -> dict[str, list[float]]:
        """One phase of all processes that have something to do in it, at the same time."""
        busy = [(handle, activity) for kind, activity in phase.items() for handle in kinds[kind]]
        for handle, activity in busy:
            handle.send(Measure(activity, duration))
        found: dict[str, list[float]] = {activity: [] for activity in phase.values()}
        for (_, activity), rate in zip(busy, answers([handle for handle, _ in busy]), strict=True):
            found[activity].append(rate)
        watch.look()
        return found

    with ExitStack() as started:
        handles = []
        for index, setup in enumerate(setup for kind in setups for setup in kind):
            handles.append(pool.start("limit_worker", index, setup, control, ()))
            started.callback(handles[-1].end)
        actors, learners = handles[: len(setups[0])], handles[len(setups[0]) :]
        kinds = {_ACT: actors, _LEARN: learners or actors}
        try:
            answers(handles)  # all are ready
            for phase in phases_of(shape):
                do(phase, min(_WARM_UP, seconds))
            rates = [_joined([do(phase, seconds) for phase in phases_of(shape)]) for _ in range(rounds)]
            return rates, shape, watch.verdict()
        except WorkerDied as died:
            raise WorkersLost(f"a process that measured the limit of this machine was lost: {died.how}") from None


def _joined(phases: Sequence[dict[str, list[float]]]) -> Rates:
    """A round's speeds; an activity that was measured in several phases has the mean of them."""
    names = {name for phase in phases for name in phase}
    found = {name: [phase[name] for phase in phases if name in phase] for name in names}
    return {name: [fmean(values) for values in zip(*several, strict=True)] for name, several in found.items()}
