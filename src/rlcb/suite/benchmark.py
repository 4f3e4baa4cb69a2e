"""A benchmark: a matrix of training runs, then evaluation and report; can be interrupted anywhere and continued."""

from contextlib import closing
from pathlib import Path

from rlcb.config.load import Given
from rlcb.config.plan import decided
from rlcb.config.precision import with_precision
from rlcb.config.registry import Kind
from rlcb.config.schema import Config
from rlcb.console import clock, filled
from rlcb.errors import RlcbError, UsageError
from rlcb.run.directory import set_aside
from rlcb.signals import StopRequest
from rlcb.suite.directory import (
    check_room,
    check_unlocked,
    disturbed_runs,
    event,
    has_plan,
    locked,
    refuse_differences,
    resumable,
    store,
    stored,
)
from rlcb.suite.display import Display
from rlcb.suite.evaluation import Evaluations
from rlcb.suite.gpu_sharing import shared_gpu
from rlcb.suite.jobs import core_shares, waves, with_threads
from rlcb.suite.settings import Suite, build_suite
from rlcb.suite.training import Training
from rlcb.suite.work import Work


def benchmark(
    output: Path,
    file: Path | None,
    flags: Given,
    jobs: int | str | None = None,
    dry_run: bool = False,
    repeat_disturbed: bool = False,
) -> int:
    """Do what is not done yet of a suite; returns the exit code. Without file and flags it continues the stored one.

    `jobs`: how many runs train at a time: a number, auto, or None for what is usual for such a suite.
    `dry_run`: print what would be done, after all that could refuse it; nothing is started, measured or written.
    `repeat_disturbed`: move finished runs aside that other programs disturbed, so that they are done again.
    """
    stop = StopRequest("every run under way finishes its update and saves, then the suite stops")
    stop.install()
    wanted = build_suite(file, flags) if file or flags else None
    if wanted is None and not has_plan(output):
        raise UsageError(
            f"--output-dir {output}: holds no suite to continue; to start one give --suite FILE, --duration HOURS "
            "or --total-timesteps N"
        )
    if dry_run:
        return _print_plan(output, wanted, stop, jobs, repeat_disturbed)
    with locked(output):
        suite = _agreed(output, wanted)
        stop.begin()  # from here on there are runs to save
        display = Display()
        try:
            for run in disturbed_runs(suite.settings, output) if repeat_disturbed else ():
                set_aside(run.path)
            work = Work(output, suite, stop, display, jobs)
            check_room(output, work.unfinished, suite.configs)
            store(output, suite)
            event(output, "suite_started", unfinished=len(work.unfinished), jobs=work.jobs.count)
            display.line(_banner(work))
            with shared_gpu(work.jobs.on_gpu and work.jobs.count > 1):
                return _do(work, jobs, f"rlcb benchmark --output-dir {output}" + (f" --jobs {jobs}" if jobs else ""))
        finally:
            display.close()


def _agreed(output: Path, wanted: Suite | None) -> Suite:
    """The suite stored in the directory, which must equal the one wanted; where there is none, that one."""
    suite = _planned(output, wanted)
    configs, measured = dict(suite.configs), dict[str, str]()
    for kind, config in suite.configs.items():
        # Measured once, so that all runs are carried out alike, and variants do not differ by chance.
        if config.hardware.precision == "auto" and kind.pair in measured:
            configs[kind] = config.changed("hardware", precision=measured[kind.pair])
        elif config.hardware.precision == "auto":
            configs[kind] = with_precision(config, kind.mode)
            measured[kind.pair] = configs[kind].hardware.precision
    return Suite(suite.settings, configs)


def _planned(output: Path, wanted: Suite | None) -> Suite:
    """The same before anything is measured, with numbers of workers, and of threads if the suite is a new one."""
    suite = _chosen(output, wanted)
    here = {kind: decided(config) for kind, config in suite.configs.items() if _is_decided_here(config, kind)}
    suite = Suite(suite.settings, {**suite.configs, **here})
    return suite if has_plan(output) else with_threads(suite, len(core_shares()))


def _is_decided_here(config: Config, kind: Kind) -> bool:
    """Whether this machine's cores decide about the workers and learners of a parallel configuration."""
    here = config.parallel.cluster is None or config.parallel.num_workers == "auto"
    return kind.is_parallel and here


def _chosen(output: Path, wanted: Suite | None) -> Suite:
    """The same, with every `auto` of a new suite as it was given."""
    if not has_plan(output):
        assert wanted is not None
        return wanted
    suite = stored(output)
    if wanted:
        refuse_differences(output, suite, wanted)
    return suite


def _print_plan(
    output: Path, wanted: Suite | None, stop: StopRequest, jobs: int | str | None, repeat_disturbed: bool
) -> int:
    check_unlocked(output)
    suite = _planned(output, wanted)
    with closing(Display()) as display:
        work = Work(output, suite, stop, display, jobs)
        again = disturbed_runs(suite.settings, output) if repeat_disturbed else []
        work.results = {run: result for run, result in work.results.items() if run not in again}
        check_room(output, work.unfinished, suite.configs)
        display.line(_banner(work))
        together = list(waves(work.unfinished, work.jobs, suite)) if work.jobs.count > 1 else []
        display.line(filled("suite_plan.txt", work=work, again=again, resumable=resumable, together=together))
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
        display.line(f"Interrupted. What is finished is kept. Continue with: {again}")
        return stop.exit_code
    if report:
        display.line(f"Report: {report}")
    disturbed = sum(result.disturbed for result in work.results.values())
    if disturbed:
        runs = "1 run was" if disturbed == 1 else f"{disturbed} runs were"
        display.line(f"{runs} disturbed by other programs; repeat on a quiet machine: {again} --repeat-disturbed")
    event(work.output, "suite_finished", failures=work.failures)
    if work.failures:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in work.failures.items())
        raise RlcbError(f"{len(work.failures)} failed ({reasons}); all else is done; try those again with: {again}")
    return 0
