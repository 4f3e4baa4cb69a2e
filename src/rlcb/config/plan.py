"""How a run is carried out: every `auto` and `null` of its configuration decided from the cores; `rlcb tune`."""

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from rlcb.config.division import largest_division
from rlcb.config.gpu_plan import actor_choices, env_threads, gpu_choices, most_actors, placed
from rlcb.config.load import build_config
from rlcb.config.own_modules import import_words
from rlcb.config.registry import ALGORITHMS
from rlcb.config.schema import Config
from rlcb.console import say
from rlcb.disturbance.verdict import AGAIN, Disturbance
from rlcb.errors import ResourceError, WorkersLost
from rlcb.files import read_regular, refuse_to_replace, write_whole
from rlcb.hardware import resolve_device, usable_cpus

FEW_CORES = 2  # so few that actors and learners must share them
_LARGEST_LOG = 16 * 2**20  # bytes of a trial's log
_WORTH_IT = 1.05  # a change that costs memory or alters learning must gain at least this much


@dataclass(frozen=True)
class Plan:
    """The processes of a run and what each of them gets."""

    execution: str  # the module of rlcb.execution
    num_workers: int  # processes that act; 1 if sequential
    envs_per_worker: int
    num_learners: int  # processes that learn beside those that act; 0 where the execution has none
    num_slots: int  # rollouts under way between actors and learners; 0 where the execution has none
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
        threads = wanted or usable_cpus()
        device = resolve_device(config.hardware.device, threads)
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
    plan = Plan(execution, workers, each, learners, slots, min(wanted or share, share), device)
    if device == "cpu":
        return config, plan
    config = config.changed("hardware", **actor_choices(config, each))
    groups = config.hardware.env_groups
    if parallel.actor_device == "cpu" or not isinstance(groups, int):
        return config, plan
    if pool is not None and pool.room() == 0:
        raise WorkersLost("--actor-device cuda: no node of the cluster has a GPU with room for an actor")
    of_group = env_threads(groups * workers, cores) if pool is None else 1
    return config, replace(plan, env_threads=of_group, actor_device=parallel.actor_device)


def _with_room(config: Config, wanted: int, pool: ClusterPool) -> int:
    """How many workers to begin with: as many as are wanted, or as there is room for; refused if too few."""
    room, least = pool.room(), config.parallel.min_workers
    if room is None or room >= wanted:
        return wanted
    size = largest_division(config, room)
    if size < least:
        raise WorkersLost(f"the cluster has room for {room} workers, which leaves a group of {size}; {least} must be")
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
        say(f"The cluster has {pool.cores()} cores: {workers} {ALGORITHMS[config.algorithm].worker}s")
        config = divided(config, Division(workers))
    if workers == "auto":
        cores = usable_cpus()
        division = computed_division(config, cores)
        say(f"Chosen for {cores} core{'s' if cores > 1 else ''}: {division.words(config, cores)}")
        return divided(config, division)
    if not config.parallel_execution.has_learners or config.parallel.num_learners:
        return config
    if config.hardware.device == "cuda":
        return divided(config, Division(workers, 1))
    cores, unrolls = usable_cpus(), config.minibatch_items
    actors_here = 0 if pool is not None and pool.others() else workers
    # Where actors leave no core free both sides share all of them, and two learners were measured to beat one.
    room = max(cores - actors_here, cores // 2, min(cores, FEW_CORES))
    return divided(config, Division(workers, _most_learners(unrolls, room)))


# Dividing and measuring


@dataclass(frozen=True)
class Division:
    """How a run is divided: processes that act, and where others learn, how many of those."""

    workers: int
    learners: int = 0

    def words(self, config: Config, cores: int) -> str:
        """For people: '4 actors, 8 learners × 1 thread'."""
        noun = ALGORITHMS[config.algorithm].worker
        threads = threads_each(self.workers, self.learners, cores)
        if config.hardware.device == "cuda":
            return f"{self.workers} {noun}{'s' if self.workers > 1 else ''}, 1 learner on the GPU"
        learners = f", {self.learners} learners" if self.learners else ""
        return f"{self.workers} {noun}s{learners} × {threads} {'threads' if threads > 1 else 'thread'}"


def computed_division(config: Config, cores: int) -> Division:
    """The division for so many cores that is among the fastest wherever it was measured (docs/performance.md)."""
    if not config.parallel_execution.has_learners:
        return Division(max(largest_division(config, cores // (config.hardware.num_threads or 1)), 1))
    unrolls, given = config.minibatch_items, config.parallel.num_learners
    slots = config.parallel.num_slots or cores  # one at least for each actor
    if config.hardware.device == "cuda":
        return Division(largest_division(config, min(most_actors(config, cores), slots)), 1)
    if cores <= FEW_CORES:  # too few to divide: both sides share all of them
        return Division(largest_division(config, min(cores, slots)), given or _most_learners(unrolls, cores))
    # Learning from a sample once takes about as long as acting for it. What learners cannot use, actors get.
    actors = max(cores // (1 + config.training.n_epochs), 1)
    learners = given or _most_learners(unrolls, cores - actors)
    used = learners * threads_each(actors, learners, cores)
    return Division(largest_division(config, min(max(cores - used, actors), slots)), learners)


def _most_learners(unrolls: int, most: int) -> int:
    """The largest number of learners up to `most` that divides a minibatch's environments evenly."""
    return max(count for count in range(1, max(min(most, unrolls), 1) + 1) if unrolls % count == 0)


def threads_each(workers: int, learners: int, cores: int) -> int:
    """Threads of a process that learns: an equal share of the cores, less one for each actor beside the learners."""
    return max((cores - workers) // learners if learners else cores // workers, 1)


def worker_counts(num_envs: int, minibatch: int, cores: int) -> list[int]:
    """Numbers of workers worth trying: powers of two and all cores, as far as environments and minibatches divide."""
    counts = {2**power for power in range(cores.bit_length()) if 2**power <= cores} | {cores}
    return sorted(count for count in counts if num_envs % count == 0 and minibatch % count == 0)


def actor_divisions(num_envs: int, unrolls: int, cores: int) -> list[Division]:
    """Actors and learners worth trying: learning is most of the work, but on few cores all of them share."""
    counts = sorted({max(cores // 4, 1), max(cores // 2, 1), min(cores, FEW_CORES)})
    actors = [count for count in counts if num_envs % count == 0] or [1]
    tried = (Division(count, _most_learners(unrolls, learners)) for count in actors for learners in (1, *counts))
    return list(dict.fromkeys(tried))


def divisions(config: Config, cores: int) -> list[Division]:
    """What is worth trying for this configuration."""
    if config.parallel_execution.has_learners and config.hardware.device == "cuda":
        most = most_actors(config, cores)
        counts = (max(most // 4, 1), max(most // 2, 1), most)
        return list(dict.fromkeys(Division(largest_division(config, count), 1) for count in counts))
    if config.parallel_execution.has_learners:
        found = actor_divisions(config.env.num_envs, config.minibatch_items, cores)
        given = config.parallel.num_learners
        return list(dict.fromkeys(Division(one.workers, given or one.learners) for one in found))
    return [Division(count) for count in worker_counts(config.env.num_envs, config.minibatch_size, cores)]


def divided(config: Config, division: Division) -> Config:
    """The configuration divided like this, the total unchanged."""
    learners = {"num_learners": division.learners} if division.learners else {}
    return _rebuilt(config, num_workers=division.workers, num_envs_per_worker=None, **learners)


def _rebuilt(config: Config, **changes: Any) -> Config:
    """A parallel run's configuration with other values, checked again."""
    return build_config(None, {key: (key, value) for key, value in changes.items()}, base=config, mode="parallel")


def measure(config: Config, division: Division, updates: int, accept_disturbed: bool) -> float:
    """Steps per second of a real, short parallel run; ResourceError if other programs disturbed it twice."""
    for _ in range(2):
        speed, disturbance = _trial(config, division, updates)
        if accept_disturbed or not disturbance.disturbed:
            return speed
    raise ResourceError(f"a trial run was disturbed twice: {disturbance.words}; nothing is concluded; {AGAIN}")


def _trial(config: Config, division: Division, updates: int) -> tuple[float, Disturbance]:
    """The speed of such a run after its first update, which is warm-up, and what other programs took of its cores."""
    length = {"total_timesteps": (updates + 1) * config.rollout_size, "duration_hours": None}
    places = {"tensorboard": False, "checkpoint_dir": None, "log_dir": None}
    trial = _rebuilt(divided(config, division), num_threads=None, **length, **places)
    with tempfile.TemporaryDirectory(prefix="rlcb-tune-") as folder:
        file, run = Path(folder) / "trial.yaml", Path(folder) / "run"
        file.write_text(trial.to_yaml())
        # Started like a suite's runs: it is killed if this process dies.
        command = [sys.executable, "-m", "rlcb.suite.process", str(os.getpid())]
        command += ["train", config.algorithm, "--mode", "parallel", *import_words(config)]
        done = subprocess.run(
            [*command, "--config", str(file), "--output-dir", str(run)], capture_output=True, text=True, check=False
        )
        if done.returncode:
            words = division.words(config, usable_cpus())
            raise ResourceError(f"a trial run with {words} failed: {done.stderr.strip().splitlines()[-1]}")
        log = run / "logs" / f"{config.algorithm.upper()}_Parallel" / "metrics.jsonl"
        lines = read_regular(log, _LARGEST_LOG).splitlines()
        summary = json.loads(read_regular(run / "training_summary.json", _LARGEST_LOG))
    first, last = json.loads(lines[0]), json.loads(lines[-1])
    speed = float((last["step"] - first["step"]) / (last["time"] - first["time"]))
    return speed, Disturbance(**summary["disturbance"])


def fastest_division(config: Config, updates: int, accept_disturbed: bool) -> tuple[Division, float]:
    """The fastest division of this configuration here, and its speed; prints what is measured."""
    cores = usable_cpus()
    # The actors' first rollouts arrive all at once: the lasting speed shows a few updates later.
    updates = 3 * updates if config.parallel_execution.has_learners else updates
    say(f"Measuring what is fastest on {cores} cores ({config.env.num_envs} environments in all):")
    speeds: dict[Division, float] = {}
    for division in divisions(config, cores):
        speeds[division] = measure(config, division, updates, accept_disturbed)
        say(f"  {division.words(config, cores)}: {speeds[division]:,.0f} FPS")
    best = max(speeds, key=lambda division: speeds[division])
    say(f"Chosen: {best.words(config, cores)}, the fastest")
    return best, speeds[best]


def tune(config: Config, output: Path, updates: int, accept_disturbed: bool) -> int:
    """Workers and threads, then environments, then the minibatch, each by measurement; writes a ready configuration."""
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        refuse_to_replace(output)
    except OSError as error:
        raise ResourceError(f"--output {output}: cannot be written: {error.strerror}") from None
    division, speed = fastest_division(config, updates, accept_disturbed)
    best = divided(config, division)
    say("Trying more environments and larger minibatches (they change what is learned per step, so they must pay):")
    for key, values in (
        ("num_envs", [best.env.num_envs * 2, best.env.num_envs * 4]),
        ("batch_size", [best.minibatch_size * 2, best.minibatch_size * 4]),
    ):
        for value in values:
            trial = _rebuilt(best, **{key: value, "num_envs_per_worker": None})
            if trial.minibatch_size < trial.training.batch_size:
                break
            found = measure(trial, division, updates, accept_disturbed)
            keep = found > _WORTH_IT * speed
            say(f"  {key} {value}: {found:,.0f} FPS, {'kept' if keep else 'not worth it'}")
            if not keep:
                break
            best, speed = trial, found
    text = f"# Tuned on this machine by `rlcb tune`: {speed:,.0f} FPS.\n{best.to_yaml()}"
    write_whole(output, text.encode())
    say(f"Written: {output}; use it with: rlcb train {config.algorithm} --mode parallel --config {output}")
    return 0
