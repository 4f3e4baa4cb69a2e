"""How a run is carried out: every `auto` and `null` of its configuration decided from the cores."""

from dataclasses import dataclass, replace
from typing import Any, Protocol

from rlcb.config.division import Given, gives_share, largest_division
from rlcb.config.gpu_plan import actor_choices, env_threads, gpu_choices, most_actors, placed
from rlcb.config.load import build_config
from rlcb.config.registry import ALGORITHMS
from rlcb.config.schema import Config
from rlcb.console import say
from rlcb.envs.families import foreseen_spec
from rlcb.envs.own_code import module_of
from rlcb.errors import UsageError, WorkersLost
from rlcb.hardware import resolve_device, usable_cpus
from rlcb.words import counted

FEW_CORES = 2  # so few that actors and learners must share them
_MOST_PER_CORE, _ALWAYS_ALLOWED = 4, 8  # processes of a kind: with more, they mostly wait for each other


@dataclass(frozen=True)
class Plan:
    """The processes of a run and what each of them gets."""

    execution: str  # the module of rlcb.execution
    num_workers: int  # processes that act; 1 if sequential
    envs_per_worker: int
    num_learners: int  # processes that learn beside those that act; 0 where the execution has none
    num_slots: int  # rollouts in flight between actors and learners; 0 where the execution has none
    threads: int  # torch's, in each process that learns
    device: str  # cpu or cuda, of the processes that learn
    env_threads: int = 0  # of each group of environments that a GPU acts for; 0: no GPU acts
    actor_device: str = "cpu"  # of the processes that act beside those that learn


class ClusterPool(Protocol):
    """A pool of workers on a cluster, as far as deciding needs to know it."""

    def cores(self) -> int | None:
        """Cores of all nodes."""

    def others(self) -> int:
        """Cores of the nodes other than this machine."""

    def room(self) -> int | None:
        """How many more workers could be started now; None: any number."""


def make_plan(config: Config, mode: str, pool: ClusterPool | None = None) -> tuple[Config, Plan]:
    """The configuration with its division decided, as it is saved with the run, and the plan that follows from it."""
    execution = ALGORITHMS[config.algorithm].executions[mode]
    wanted = config.hardware.num_threads
    if mode == "sequential":
        device = resolve_device(config.hardware.device, wanted or usable_cpus())
        threads = wanted or _own_threads(config, device, usable_cpus())
        chosen = gpu_choices(config) if device == "cuda" else {}
        of_group = env_threads(chosen["env_groups"], threads) if chosen else 0
        config = config.changed("hardware", device=device, **chosen)
        return config, Plan(execution, 1, config.env.num_envs, 0, 0, threads, device, of_group)
    config = decided(placed(config), pool)
    parallel, device = config.parallel, config.hardware.device
    workers, each, learners = parallel.num_workers, parallel.num_envs_per_worker, parallel.num_learners or 0
    assert isinstance(workers, int)
    assert each is not None
    if pool is not None and config.parallel_execution.shares_minibatches:
        workers = _with_room(config, workers, pool)
        each = config.env.num_envs // workers
    slots = (parallel.num_slots or 2 * workers) if config.parallel_execution.has_learners else 0
    # On a cluster workers get their threads from their nodes: here, what they would get if all nodes were equal.
    cores = (pool.cores() or 1) if pool is not None and not learners else usable_cpus()
    share = threads_each(0 if learners and pool is not None and pool.others() else workers, learners, cores)
    threads = min(wanted or _own_threads(config, device, share), share)
    plan = Plan(execution, workers, each, learners, slots, threads, device)
    if device == "cpu":
        return config, plan
    config = config.changed("hardware", **actor_choices(config, each))
    groups = config.hardware.env_groups
    if parallel.actor_device == "cpu" or not isinstance(groups, int):
        return config, plan
    if pool is not None and pool.room() == 0:
        raise WorkersLost("--actor-device cuda: no node of the cluster has enough free GPU memory for an actor")
    of_group = env_threads(groups * workers, cores) if pool is None else 1
    return config, replace(plan, env_threads=of_group, actor_device=parallel.actor_device)


def _own_threads(config: Config, device: str, most: int) -> int:
    """The threads of a process that learns, if no number is given."""
    return 1 if device == "cpu" and takes_one_thread(config) else most


def takes_one_thread(config: Config) -> bool:
    """Whether a process that learns on CPU cores is given one thread, if no number is given.

    Networks for vectors have no convolutions: with a second thread they are slower, because the threads wait for each
    other longer than the work takes that they share (docs/performance.md). Of a network of the user's own nothing is
    known, so it gets what the cores allow.
    """
    return not module_of(config.training.network) and not foreseen_spec(config.env).is_image


def _with_room(config: Config, wanted: int, pool: ClusterPool) -> int:
    """How many workers to begin with: as many as are wanted, or as there is room for; refused if too few."""
    room, least = pool.room(), config.parallel.min_workers
    if room is None or room >= wanted:
        return wanted
    size = largest_division(config, room)
    if size < least:
        raise WorkersLost(
            f"the cluster has room for {counted(room, 'worker')}, enough for a group of {size}, not {least}"
        )
    return size


def decided(config: Config, pool: ClusterPool | None = None) -> Config:
    """A parallel configuration with numbers of workers and learners: measured, or chosen from the cores."""
    if pool is not None and "backend" in config.parallel_execution.keys:
        config = config.changed("parallel", backend="gloo")  # gradients are exchanged over sockets there
    workers = config.parallel.num_workers
    if pool is not None and workers == "auto":  # a worker for every core, as far as the division allows
        others = pool.others() if config.parallel_execution.has_learners else 0
        cores = others or pool.cores() or 1
        workers = largest_division(config, most_actors(config, cores, beside_learner=not others))
        has = counted(pool.cores() or 0, "core")
        say(f"The cluster has {has}: {counted(workers, ALGORITHMS[config.algorithm].worker)}")
        config = divided(config, Division(workers))
    if workers == "auto":
        cores = usable_cpus()
        division = computed_division(config, cores)
        say(f"Chosen for {counted(cores, 'core')}: {division.words(config, cores)}")
        return divided(config, division)
    if not config.parallel_execution.has_learners or config.parallel.num_learners:
        return config
    if config.hardware.device == "cuda":
        return divided(config, Division(workers, 1))
    cores, unrolls = usable_cpus(), config.minibatch_items
    actors_here = 0 if pool is not None and pool.others() else workers
    # Where actors leave no core free both sides share all of them, and two learners were measured to beat one.
    room = max(cores - actors_here, cores // 2, min(cores, FEW_CORES))
    return divided(config, Division(workers, most_learners(unrolls, room)))


def refuse_crowd(config: Config) -> None:
    """Refuse a parallel run on this machine with far more processes than it has cores, unless that is wanted."""
    cores, parallel = usable_cpus(), config.parallel
    most = max(_MOST_PER_CORE * cores, _ALWAYS_ALLOWED)
    for count, noun in (
        (parallel.num_workers, ALGORITHMS[config.algorithm].worker),
        (parallel.num_learners, "learner"),
    ):
        if isinstance(count, int) and count > most and not parallel.oversubscribe:
            valid = f"1 to {most}" + ("" if noun == "learner" else " or auto")
            raise UsageError(
                f"--num-{noun}s: {counted(count, noun)} on {counted(cores, 'usable core')} would mostly wait for "
                f"each other; valid here: {valid}; to start them nevertheless, add --oversubscribe"
            )


# Dividing


@dataclass(frozen=True)
class Division:
    """How a run is divided: processes that act, and where others learn, how many of those."""

    workers: int
    learners: int = 0

    def words(self, config: Config, cores: int) -> str:
        """For people: '4 actors, 8 learners × 1 thread'."""
        workers = counted(self.workers, ALGORITHMS[config.algorithm].worker)
        if config.hardware.device == "cuda":
            return f"{workers}, 1 learner on the GPU"
        learners = f", {counted(self.learners, 'learner')}" if self.learners else ""
        share = threads_each(self.workers, self.learners, cores)
        threads = min(config.hardware.num_threads or _own_threads(config, "cpu", share), share)
        return f"{workers}{learners} × {counted(threads, 'thread')}"


def computed_division(config: Config, cores: int) -> Division:
    """The division for this many cores that is among the fastest wherever it was measured (docs/performance.md)."""
    if not config.parallel_execution.has_learners:
        return Division(max(largest_division(config, cores // (config.hardware.num_threads or 1)), 1))
    unrolls, given = config.minibatch_items, config.parallel.num_learners
    slots = config.parallel.num_slots or cores  # one at least for each actor
    if config.hardware.device == "cuda":
        return Division(largest_division(config, min(most_actors(config, cores), slots)), 1)
    if cores <= FEW_CORES:  # too few to divide: both sides share all of them
        return Division(largest_division(config, min(cores, slots)), given or most_learners(unrolls, cores))
    # Learning from a sample once takes about as long as acting for it. What learners cannot use, actors get.
    actors = max(cores // (1 + config.training.n_epochs), 1)
    learners = given or most_learners(unrolls, cores - actors)
    used = learners * threads_each(actors, learners, cores)
    return Division(largest_division(config, min(max(cores - used, actors), slots)), learners)


def fewer_workers_note(config: Config, overrides: Given) -> str | None:
    """What to add where a share of environments alone leaves fewer workers than suit the cores; None: nothing."""
    parallel, execution = config.parallel, config.parallel_execution
    workers = parallel.num_workers
    if "num_workers" in overrides or not gives_share(overrides) or workers == "auto" or parallel.cluster is not None:
        return None
    if not execution.has_learners and not execution.shares_minibatches:
        return None  # of asynchronous workers the number is part of the method
    cores, each, noun = usable_cpus(), parallel.num_envs_per_worker or 0, ALGORITHMS[config.algorithm].worker
    usual = computed_division(config, cores).workers
    if workers >= usual:
        return None
    flag = overrides["num_envs_per_worker"][0]
    return (
        f"{flag} is per {noun}: for the {counted(usual, noun)} that suit {cores} cores, add --num-{noun}s {usual} "
        f"({usual} × {each} = {usual * each} environments)"
    )


def most_learners(unrolls: int, most: int) -> int:
    """The largest number of learners up to `most` that divides a minibatch's environments evenly."""
    return max(count for count in range(1, max(min(most, unrolls), 1) + 1) if unrolls % count == 0)


def threads_each(workers: int, learners: int, cores: int) -> int:
    """Threads of a process that learns: an equal share of the cores, less one for each actor beside the learners."""
    return max((cores - workers) // learners if learners else cores // workers, 1)


def divided(config: Config, division: Division) -> Config:
    """The configuration divided like this, the total unchanged."""
    learners = {"num_learners": division.learners} if division.learners else {}
    return rebuilt(config, num_workers=division.workers, num_envs_per_worker=None, **learners)


def rebuilt(config: Config, **changes: Any) -> Config:
    """A parallel run's configuration with other values, checked again."""
    return build_config(None, {key: (key, value) for key, value in changes.items()}, base=config, mode="parallel")
