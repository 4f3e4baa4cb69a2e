"""A benchmark: a matrix of training runs, then evaluation and report; can be interrupted anywhere and continued."""

import shlex
from collections.abc import Mapping
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlcb.config.division import Given
from rlcb.config.gpu_plan import placed
from rlcb.config.plan import decided
from rlcb.config.precision import with_precision
from rlcb.config.registry import Kind
from rlcb.config.schema import Config
from rlcb.console import clock, filled, warn
from rlcb.envs.families import make_ready
from rlcb.envs.own_code import permitted_flags
from rlcb.envs.registered import refuse_unshared
from rlcb.errors import RlcbError, UsageError, WorkersLost
from rlcb.run.directory import set_aside
from rlcb.signals import StopRequest
from rlcb.suite.directory import (
    check_room,
    check_unlocked,
    disturbed_runs,
    event,
    has_plan,
    locked,
    resumable,
    settings_file,
    store,
    stored,
)
from rlcb.suite.display import Display
from rlcb.suite.evaluation import Evaluations
from rlcb.suite.extension import additions, continued
from rlcb.suite.gpu_sharing import shared_gpu
from rlcb.suite.jobs import core_shares, lacks_threads, with_threads
from rlcb.suite.schema import LISTS
from rlcb.suite.settings import BUDGETS, IMPORTS, WHERE, Suite, build_suite, moved
from rlcb.suite.training import Training
from rlcb.suite.work import Work
from rlcb.words import counted, typed

if TYPE_CHECKING:
    from rlcb.suite.cluster import Cluster

ANSWER = "the current runs finish their update and save, then the suite stops"  # to a signal
_CLUSTER_ATTEMPTS = 3  # Ray may end the process that uses it, for instance when one of its calls fails


def benchmark(
    output: Path,
    file: Path | None,
    flags: Given,
    jobs: int | str | None = None,
    dry_run: bool = False,
    repeat_disturbed: bool = False,
    *,
    stop: StopRequest,
    from_python: bool = False,
) -> int:
    """Do what is not done yet of a suite; returns the exit code. Without file and flags it continues the stored one.

    `stop`: what signals mean meanwhile.
    `jobs`: how many runs train at a time: a number, auto, or None for what is usual for such a suite.
    `dry_run`: print what would be done, after all that could refuse it; nothing is started, measured or written.
    `repeat_disturbed`: move finished runs aside that other programs disturbed, so that they are done again.
    `from_python`: this process is a program's, which may know environments that the processes of runs do not.
    """
    stop.install()
    where = {key: flags[key][1] for key in WHERE if key in flags}
    wanted = _wanted(output, file, flags, where)
    if wanted is None and not has_plan(output):
        raise UsageError(
            f"--output-dir {output}: contains no suite to resume; to start one give --suite NAME|FILE, "
            "--duration HOURS or --total-timesteps N"
        )
    settings = (wanted or stored(output)).settings
    for game in settings.games if from_python else ():
        refuse_unshared(game, settings.overrides.get(IMPORTS, ()))
    how = permitted_flags() + (f" --jobs {jobs}" if jobs else "")
    again = typed(f"rlcb benchmark --output-dir {shlex.quote(str(output))}{how}")

    def work(stop: StopRequest) -> int:
        if dry_run:
            suite = _planned(output, _chosen(output, wanted, where))
            return _print_plan(output, suite, stop, jobs, repeat_disturbed)
        with locked(output):
            suite = _agreed(output, _chosen(output, wanted, where))
            return _carry_out(output, suite, stop, jobs, repeat_disturbed, again)

    cluster = where.get("cluster", settings.cluster)
    if cluster in (None, "local"):
        return work(stop)
    from rlcb.cluster.connect import guarded

    def connected_work() -> int:
        own = StopRequest(ANSWER)  # this is a process of its own
        own.install()
        return work(own)

    for _ in range(_CLUSTER_ATTEMPTS):  # the suite continues where it was
        code = guarded(connected_work)
        if code is not None:
            return code
        warn("Ray terminated the process that was connected to the cluster")
    raise WorkersLost(f"Ray on this machine has stopped; resume with: {again}")


def _wanted(output: Path, file: Path | None, flags: Given, where: Mapping[str, Any]) -> Suite | None:
    """The suite that a command asks for; None: that of the directory as it is, perhaps somewhere else.

    Without a file and a training length, the flags are on top of the settings that the directory's suite has.
    `where`: the keys among them that may change.
    """
    if not has_plan(output) or file or any(key in flags for key in BUDGETS):
        return build_suite(file, flags) if file or flags else None
    if set(flags) <= {*WHERE, IMPORTS}:
        return None
    only_more = set(flags) <= {*LISTS, *WHERE, IMPORTS}
    return build_suite(settings_file(output), flags, moved(stored(output), where).configs if only_more else {})


def _carry_out(
    output: Path, suite: Suite, stop: StopRequest, jobs: int | str | None, repeat_disturbed: bool, again: str
) -> int:
    """Do what is not done yet; `again`: the command that continues."""
    with _cluster_of(suite, output, jobs) as cluster, closing(Display()) as display:
        stop.install()  # again: should Ray have replaced the signal handlers or caught what they raise
        stop.begin()  # from here on there are runs to save
        for run in disturbed_runs(suite.settings, output) if repeat_disturbed else ():
            set_aside(run.path)
        work = Work(output, suite, stop, display, jobs, cluster)
        _check(work, cluster)
        added = additions(output, suite)
        store(output, suite)
        if added:
            event(output, "suite_extended", added=added.values, runs=added.runs)
            display.line(f"Added to the suite in {output}: {added}")
        event(output, "suite_started", unfinished=len(work.unfinished), jobs=work.machines.count)
        display.line(_banner(work))
        with shared_gpu(cluster is None and work.jobs.on_gpu and work.jobs.count > 1):
            return _do(work, jobs, again)


def _cluster_of(suite: Suite, output: Path, jobs: int | str | None) -> "AbstractContextManager[Cluster | None]":
    """Be connected to the suite's cluster, if it has one."""
    if suite.settings.cluster is None:
        return nullcontext()
    from rlcb.suite.cluster import joined  # it imports Ray

    return joined(suite, output, jobs)


def _check(work: Work, cluster: "Cluster | None") -> None:
    """Refuse runs that find no room on this machine's disk, or on any node of the cluster."""
    check_room(work.output, work.unfinished, work.suite.configs)
    if cluster:
        cluster.check_needs(work.unfinished)
    else:
        for game in dict.fromkeys(run.game for run in work.unfinished):
            make_ready(game)


def _agreed(output: Path, chosen: Suite) -> Suite:
    """The suite with all that is decided or measured when it begins."""
    suite = _planned(output, chosen)
    configs, measured = dict(suite.configs), dict[str, str]()
    for kind, config in suite.configs.items():
        # Measured once, so that all runs are carried out alike, and variants do not differ by chance.
        if config.hardware.precision == "auto" and kind.pair in measured:
            configs[kind] = config.changed("hardware", precision=measured[kind.pair])
        elif config.hardware.precision == "auto":
            configs[kind] = with_precision(config, kind.mode)
            measured[kind.pair] = configs[kind].hardware.precision
    return replace(suite, configs=configs)


def _planned(output: Path, suite: Suite) -> Suite:
    """The same before anything is measured, with numbers of workers, and of threads if the suite is a new one."""
    here = {kind: _divided(config) for kind, config in suite.configs.items() if _is_decided_here(config, kind)}
    suite = replace(suite, configs={**suite.configs, **here})
    earlier = stored(output) if has_plan(output) else None
    if earlier and lacks_threads(earlier):  # runs that are added have none either
        return suite
    return with_threads(
        suite, len(core_shares()), [kind for kind in suite.configs if not earlier or kind not in earlier.configs]
    )


def _divided(config: Config) -> Config:
    """A parallel configuration with numbers of workers and learners; `device: auto` is left to each run.

    It must be known for the numbers nevertheless: a GPU has one learner, and runs with several take the CPU.
    """
    if config.hardware.device != "auto":
        return decided(config)
    found = decided(placed(config)).changed("hardware", device="auto")
    return found.changed("parallel", actor_device=config.parallel.actor_device)


def _is_decided_here(config: Config, kind: Kind) -> bool:
    """Whether this machine's cores decide about the workers and learners of a parallel configuration."""
    here = config.parallel.cluster is None or config.parallel.num_workers == "auto"
    return kind.is_parallel and here


def _chosen(output: Path, wanted: Suite | None, where: Mapping[str, Any]) -> Suite:
    """The suite stored in the directory with what the one wanted adds to it; where there is none, that one.

    `where`: the keys that were given of those that may change.
    """
    if not has_plan(output):
        assert wanted is not None
        return wanted
    suite = moved(stored(output), where) if where else stored(output)
    return continued(output, suite, wanted) if wanted else suite


def _print_plan(output: Path, suite: Suite, stop: StopRequest, jobs: int | str | None, repeat_disturbed: bool) -> int:
    check_unlocked(output)
    with _cluster_of(suite, output, jobs) as cluster, closing(Display()) as display:
        work = Work(output, suite, stop, display, jobs, cluster)
        again = disturbed_runs(suite.settings, output) if repeat_disturbed else []
        work.results = {run: result for run, result in work.results.items() if run not in again}
        _check(work, cluster)
        if added := additions(output, suite):
            display.line(f"Would be added to the suite in {output}: {added}")
        display.line(_banner(work))
        together = work.machines.outlook(work.unfinished)
        left = None if suite.settings.duration_hours else work.seconds_left(work.unfinished)  # in the banner otherwise
        time_left = "" if left is None else clock(left)
        values = {"work": work, "resumable": resumable, "together": together, "time_left": time_left, "again": again}
        display.line(filled("suite_plan.txt", **values, cluster=cluster))
    return 0


def _banner(work: Work) -> str:
    left = work.seconds_left(work.unfinished)
    return filled("suite_banner.txt", work=work, time_left="" if left is None else clock(left))


def _do(work: Work, jobs: int | str | None, again: str) -> int:
    """Train, evaluate, report; failures are reported together at the end. `again`: the command that continues."""
    stop, display = work.stop, work.display
    Training(work).train()
    if stop.signal is None:
        Evaluations(work, jobs if isinstance(jobs, int) else None).evaluate()
    report = work.report() if work.results and stop.signal is None else None
    if stop.signal is not None:
        event(work.output, "suite_interrupted", signal=stop.signal)
        display.line(f"Interrupted. Finished runs are kept. Resume with: {again}")
        return stop.exit_code
    disturbed = sum(result.disturbed for result in work.results.values())
    if disturbed:
        runs = f"{counted(disturbed, 'run')} {'was' if disturbed == 1 else 'were'}"
        display.line(f"{runs} disturbed by other programs; repeat on a quiet machine: {again} --repeat-disturbed")
    if report:
        display.line(f"Report: {report}")  # the last line, wherever it is read from
    event(work.output, "suite_finished", failures=work.failures)
    if work.failures:
        # Each run's own command to resume it is left out: the suite's resumes all of them.
        reasons = "; ".join(f"{name}: {reason.partition('; resume ')[0]}" for name, reason in work.failures.items())
        raise RlcbError(f"{len(work.failures)} failed ({reasons}); everything else is complete; to retry: {again}")
    return 0
