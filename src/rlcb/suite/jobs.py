"""How many runs of a suite train at the same time, and what each of them takes: cores, threads, memory."""

import os
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from rlcb.analysis.suites import SuiteRun
from rlcb.config.plan import make_plan, takes_one_thread, threads_each
from rlcb.config.registry import Kind
from rlcb.config.schema import Config
from rlcb.console import note
from rlcb.envs.families import canonical_env_name, spec_of
from rlcb.errors import UsageError
from rlcb.hardware import resolve_device, usable_cpus
from rlcb.run.memory import available_bytes, expected_bytes
from rlcb.suite.gpu_sharing import service
from rlcb.suite.settings import Suite
from rlcb.words import counted

MOST_JOBS = 1024
_GPU_CORES, _GPU_JOBS = 5, 3  # cores of each run on a GPU, and the most of such runs at a time
_MB = 2**20
Shares = tuple[tuple[int, ...], ...]


# Threads, whatever the number of jobs


def with_threads(suite: Suite, cores: int, kinds: Collection[Kind] | None = None) -> Suite:
    """The suite with a number of threads for every run of these kinds (all) that is given none, as it is kept.

    The rounding of results depends on it, so it follows from the cores and the suite's runs, never from --jobs. Runs
    by time are left as they are: they get the threads that their cores allow.
    """
    if suite.settings.duration_hours is not None:
        return suite
    decided = {
        kind: config.changed("hardware", num_threads=_own_threads(suite, kind, cores))
        for kind, config in suite.configs.items()
        if (kinds is None or kind in kinds) and config.hardware.num_threads is None and not _elsewhere(config, kind)
    }
    return replace(suite, configs={**suite.configs, **decided})


def lacks_threads(suite: Suite) -> bool:
    """Whether runs of fixed steps have no number of threads: an earlier version began the suite."""
    if suite.settings.duration_hours is not None:
        return False
    return any(
        config.hardware.num_threads is None and not _elsewhere(config, kind) for kind, config in suite.configs.items()
    )


def _own_threads(suite: Suite, kind: Kind, cores: int) -> int:
    """Threads of a run's learning processes: sequential runs divide the cores, parallel workers have one each.

    A network that makes use of one thread has one.
    """
    config = suite.configs[kind]
    if kind.is_parallel:
        workers, learners = _processes(config)
        return useful_threads(suite, kind, threads_each(workers, learners, cores)) if learners else 1
    sequential = sum(not other.is_parallel for other in suite.settings.kinds)
    alike = sequential * len(suite.settings.seeds) * len(suite.settings.games)
    if on_gpu(suite, kind):
        return max(cores // min(alike, gpu_jobs(cores)), 1)
    return useful_threads(suite, kind, max(cores // alike, 1))


def useful_threads(suite: Suite, kind: Kind, threads: int) -> int:
    """These threads, or one if the networks of all games take one; all runs of a kind have the same number."""
    config, games = suite.configs[kind], [canonical_env_name(game) for game in suite.settings.games]
    return 1 if all(takes_one_thread(config.changed("env", name=game)) for game in games) else threads


def gpu_jobs(cores: int) -> int:
    """The most runs at a time that use the GPU of a machine with this many cores."""
    return max(min(cores // _GPU_CORES, _GPU_JOBS), 1)


def _elsewhere(config: Config, kind: Kind) -> bool:
    """Whether runs use a cluster, whose nodes decide their threads."""
    return kind.is_parallel and config.parallel.cluster is not None


def on_gpu(suite: Suite, kind: Kind) -> bool:
    """Whether runs of a kind have a GPU; that of a node need not be one of this machine."""
    config = suite.configs[kind]
    if kind.is_parallel and (suite.settings.cluster or not _has_one_learner(config)):
        return False
    return (config.hardware.device if suite.settings.cluster else resolve_device(config.hardware.device)) == "cuda"


def _has_one_learner(config: Config) -> bool:
    """Whether one process learns beside those that act, as it must to use the GPU."""
    return config.parallel_execution.has_learners and config.parallel.num_learners == 1


def _processes(config: Config) -> tuple[int, int]:
    """Workers and learners of a parallel configuration that is decided."""
    workers = config.parallel.num_workers
    assert isinstance(workers, int)
    return workers, config.parallel.num_learners or 0


# Jobs


@dataclass(frozen=True)
class JobPlan:
    """How many runs train at the same time, and how much of the machine each takes."""

    count: int  # the most at a time
    shares: Shares  # the cores that may be used, in as many shares as count
    claims: dict[Kind, int]  # kind → shares that a run of it takes
    threads: dict[Kind, int]  # kind → threads that its runs are given because they share the machine
    on_gpu: bool = False  # some of the runs use the GPU

    @property
    def claims_text(self) -> str:
        """What a run of each kind takes; variants that take the same are named together."""
        found: dict[str, int] = {}
        for kind, claim in self.claims.items():
            same = len({other for like, other in self.claims.items() if like.pair == kind.pair}) == 1
            found[kind.pair if same else kind.label] = claim
        return ", ".join(f"{name} {claim}" for name, claim in found.items())

    def at_once(self, run: SuiteRun) -> int:
        """How many runs like this one can train at the same time."""
        return min(self.count, len(self.shares) // self.claims[run.kind])

    def beside(self, run: SuiteRun, others: Sequence[SuiteRun]) -> int:
        """The most of the others that can train at the same time as this run."""
        room, found = len(self.shares) - self.claims[run.kind], 0
        for claim in sorted(self.claims[other.kind] for other in others):
            if claim > room or found + 1 >= self.count:
                break
            room, found = room - claim, found + 1
        return found


def core_shares() -> Shares:
    """The cores that may be used, in equal shares: a core each, or several if a quota allows fewer than there are."""
    cores, count = sorted(os.sched_getaffinity(0)), usable_cpus()
    bounds = [number * len(cores) // count for number in range(count + 1)]
    return tuple(tuple(cores[low:high]) for low, high in pairwise(bounds))


def plan_jobs(wanted: int | str | None, suite: Suite, runs: Sequence[SuiteRun], shares: Shares) -> JobPlan:
    """The plan for the runs that are left; `wanted`: a number of jobs, auto, or None for the usual."""
    cores, timed = len(shares), suite.settings.duration_hours is not None
    if wanted is None:
        wanted = 1 if timed or lacks_threads(suite) else "auto"
    if wanted != 1 and lacks_threads(suite):
        raise UsageError(
            f"--jobs {wanted}: this suite was started without a fixed number of threads per run, so its results would "
            "depend on --jobs; resume it with --jobs 1, or start a new one in another directory"
        )
    needs = {kind: _need(suite, kind, cores) for kind in suite.configs}
    with_gpu = any(on_gpu(suite, kind) for kind in suite.configs)
    if isinstance(wanted, str):
        count = cores // min(needs.values())
        if with_gpu:  # in slices of time several runs are slower than one after the other
            count = min(count, gpu_jobs(cores)) if service() else 1
    else:
        count = min(wanted, cores)
        if count < wanted:
            note(
                f"--jobs {wanted}: there {'is' if cores == 1 else 'are'} {counted(cores, 'usable core')}, so at most "
                f"{counted(count, 'run')} can train concurrently"
            )
    count = max(min(count, len(runs)), 1)
    claims, threads = {}, {}
    for kind, config in suite.configs.items():
        divides = timed and not kind.is_parallel and not config.hardware.num_threads
        claims[kind] = max(0 if divides else needs[kind], cores // count)
        if timed and count > 1 and not config.hardware.num_threads and not _elsewhere(config, kind):
            share = threads_each(*(_processes(config) if kind.is_parallel else (1, 0)), claims[kind])
            threads[kind] = share if with_gpu else useful_threads(suite, kind, share)
    if timed and count > 1:
        note("several timed runs share the cores, so their rewards and speeds depend on --jobs")
    return JobPlan(count, shares, claims, threads, with_gpu)


def _need(suite: Suite, kind: Kind, cores: int) -> int:
    """Cores that a run keeps busy, at most all of them; a run on a cluster has the machine to itself."""
    config = suite.configs[kind]
    if _elsewhere(config, kind):
        return cores
    if not kind.is_parallel:
        return min(config.hardware.num_threads or _own_threads(suite, kind, cores), cores)
    (workers, learners), threads = _processes(config), config.hardware.num_threads or 1
    return min(workers + learners * threads if learners else workers * threads, cores)


# Room


class CorePool:
    """Cores in shares: which of them the runs in progress have."""

    def __init__(self, shares: Shares):
        self._shares = shares
        self._taken: dict[SuiteRun, list[int]] = {}  # numbers of shares

    @property
    def holders(self) -> list[SuiteRun]:
        """The runs that have cores."""
        return list(self._taken)

    @property
    def free(self) -> list[int]:
        """The numbers of the free shares."""
        used = {share for shares in self._taken.values() for share in shares}
        return [share for share in range(len(self._shares)) if share not in used]

    def take(self, run: SuiteRun, count: int) -> tuple[int, ...]:
        """The cores of this many free shares, which are the run's own until it leaves; there must be as many."""
        self._taken[run] = self.free[:count]
        return tuple(core for share in self._taken[run] for core in self._shares[share])

    def leave(self, run: SuiteRun) -> None:
        """A run has ended."""
        del self._taken[run]


class Room:
    """The cores and the memory that the runs in progress have."""

    def __init__(self, plan: JobPlan, suite: Suite, available: Callable[[], int] = available_bytes):
        """`available`: the bytes of memory that can be had now."""
        self.plan = plan
        self.shortage = ""  # why a run has to wait for memory, once one had to
        self._suite, self._available = suite, available
        self._at_first = available() if plan.count > 1 else 0
        self._cores = CorePool(plan.shares)
        self._memory: dict[tuple[Kind, str], int] = {}  # of a run of a kind and a game

    def take(self, run: SuiteRun) -> tuple[int, ...]:
        """The cores for a run, which are its own until it leaves; none where there is no room for it now."""
        cores, claim = self._cores, self.plan.claims[run.kind]
        if len(cores.holders) >= self.plan.count or len(cores.free) < claim or not self._has_memory(run):
            return ()
        return cores.take(run, claim)

    def leave(self, run: SuiteRun) -> None:
        """A run has ended."""
        self._cores.leave(run)

    def _has_memory(self, run: SuiteRun) -> bool:
        """Whether a run's memory can be had beside the others'; a run that is alone is not asked for it."""
        others = self._cores.holders
        if not others:
            return True
        own = self._expected(run)
        together, free = own + sum(map(self._expected, others)), self._available()
        if own <= free and together <= self._at_first:
            return True
        self.shortage = self.shortage or (
            f"Memory: {len(others) + 1} concurrent runs would need about {together / _MB:,.0f} MB; "
            f"{self._at_first / _MB:,.0f} MB were free before the first run, {free / _MB:,.0f} MB are free now: "
            "waiting for other runs to finish"
        )
        return False

    def _expected(self, run: SuiteRun) -> int:
        key = run.kind, run.game
        if key not in self._memory:
            self._memory[key] = expected_memory(self._suite, run)
        return self._memory[key]


def expected_memory(suite: Suite, run: SuiteRun) -> int:
    """The bytes of memory that a run will take, roughly."""
    config = suite.configs[run.kind].changed("env", name=canonical_env_name(run.game))
    # A node's GPU cannot be asked for from here; a run on one takes less of the node's memory than one without.
    device = "cuda" if suite.settings.cluster is None and on_gpu(suite, run.kind) else "cpu"
    config, plan = make_plan(config.changed("hardware", device=device), run.kind.mode)
    return expected_bytes(config, plan, spec_of(config.env))


def waves(runs: Sequence[SuiteRun], plan: JobPlan, suite: Suite) -> Iterator[list[SuiteRun]]:
    """What would run beside what if all runs took equally long."""
    waiting = list(runs)
    while waiting:
        room = Room(plan, suite)
        together = [run for run in waiting if room.take(run)]
        yield together
        waiting = [run for run in waiting if run not in together]
