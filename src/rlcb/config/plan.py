"""How a run is carried out: every `auto` and `null` of its configuration decided, from the cores or by measuring."""

from dataclasses import dataclass
from typing import Protocol

from rlcb.config.registry import ALGORITHMS
from rlcb.config.schema import Config
from rlcb.config.tune import FEW_CORES, Division, divided, fastest_division, threads_each
from rlcb.hardware import resolve_device, usable_cpus


@dataclass(frozen=True)
class Plan:
    """The processes of a run and what each of them gets."""

    execution: str  # the module of rlcb.execution
    num_workers: int  # processes that act; 1 if sequential
    envs_per_worker: int
    num_learners: int  # processes that learn beside those that act; 0 where the execution has none
    num_slots: int  # rollouts under way between actors and learners; 0 where the execution has none
    threads: int  # torch's, in each process that learns
    device: str  # cpu or cuda


class ClusterPool(Protocol):
    """A pool of workers on a cluster, as far as deciding needs to know it."""

    def cores(self) -> int | None:
        """Cores of all nodes."""

    def others(self) -> int:
        """Cores of the nodes other than this machine."""


def make_plan(config: Config, mode: str, pool: ClusterPool | None = None) -> tuple[Config, Plan]:
    """The configuration with its division decided, as it is saved with the run, and the plan that follows from it."""
    execution = ALGORITHMS[config.algorithm].executions[mode]
    wanted = config.hardware.num_threads
    if mode == "sequential":
        threads = wanted or usable_cpus()
        device = resolve_device(config.hardware.device, threads)
        return config, Plan(execution, 1, config.env.num_envs, 0, 0, threads, device)
    config = decided(config, pool)
    parallel = config.parallel
    workers, each, learners = parallel.num_workers, parallel.num_envs_per_worker, parallel.num_learners or 0
    assert isinstance(workers, int)
    assert each is not None
    slots = (parallel.num_slots or 2 * workers) if config.parallel_execution.has_learners else 0
    share = _share_of_threads(workers, learners, pool)
    return config, Plan(execution, workers, each, learners, slots, min(wanted or share, share), device="cpu")


def decided(config: Config, pool: ClusterPool | None = None) -> Config:
    """A parallel configuration with numbers of workers and learners: measured, or chosen from the cores."""
    if pool is not None:
        config = _decided_on_cluster(config, pool)
    workers = config.parallel.num_workers
    if workers == "auto":
        return divided(config, fastest_division(config)[0])
    if not config.parallel_execution.has_learners or config.parallel.num_learners:
        return config
    cores, unrolls = usable_cpus(), config.minibatch_items
    actors_here = 0 if pool is not None and pool.others() else workers
    # Where actors leave no core free both sides share all of them, and two learners were measured to beat one.
    room = max(cores - actors_here, cores // 2, min(cores, FEW_CORES))
    learners = max(count for count in range(1, min(room, unrolls) + 1) if unrolls % count == 0)
    return divided(config, Division(workers, learners))


def _decided_on_cluster(config: Config, pool: ClusterPool) -> Config:
    """Gradients cross by sockets there; `auto` means a worker for every core, as far as the division allows."""
    if ALGORITHMS[config.algorithm].executions["parallel"] == "data_parallel":
        config = config.changed("parallel", backend="gloo")
    if config.parallel.num_workers != "auto":
        return config
    cores = (config.parallel_execution.has_learners and pool.others()) or pool.cores() or 1
    workers = largest_division(config, cores)
    print(f"The cluster has {pool.cores()} cores: {workers} {ALGORITHMS[config.algorithm].worker}s", flush=True)
    return divided(config, Division(workers))


def largest_division(config: Config, most: int) -> int:
    """The largest number of workers, at most `most`, that divides the environments evenly; 0 if `most` is 0.

    Where workers learn from shares of a minibatch, those are even, too.
    """
    sizes = [config.env.num_envs]
    if config.parallel_execution.shares_minibatches:
        sizes.append(config.minibatch_size)
    return max((n for n in range(1, most + 1) if all(size % n == 0 for size in sizes)), default=0)


def _share_of_threads(workers: int, learners: int, pool: ClusterPool | None) -> int:
    """Threads of a process that learns: an equal share of the cores.

    Workers on a cluster get theirs from their node; here it is what they would get if all nodes were equal.
    """
    if pool is None:
        return threads_each(workers, learners, usable_cpus())
    if not learners:
        return threads_each(workers, 0, pool.cores() or 1)
    return threads_each(0 if pool.others() else workers, learners, usable_cpus())
