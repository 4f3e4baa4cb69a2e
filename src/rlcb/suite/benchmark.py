"""A benchmark: a matrix of training runs, then evaluation and report; can be interrupted anywhere and continued."""

from pathlib import Path

from rlcb.config.load import Given
from rlcb.config.plan import decided
from rlcb.console import filled
from rlcb.errors import RlcbError, UsageError
from rlcb.signals import StopRequest
from rlcb.suite.directory import check_room, event, has_plan, locked, refuse_differences, store, stored
from rlcb.suite.settings import Suite, build_suite
from rlcb.suite.work import Display, Work, clock


def benchmark(output: Path, file: Path | None, flags: Given) -> int:
    """Do what is not done yet of a suite; returns the exit code. Without file and flags it continues the stored one."""
    stop = StopRequest("the current run finishes its update and saves, then the suite stops")
    stop.install()
    wanted = build_suite(file, flags) if file or flags else None
    if wanted is None and not has_plan(output):
        raise UsageError(
            f"--output-dir {output}: holds no suite to continue; to start one give --suite FILE, --duration HOURS "
            "or --total-timesteps N"
        )
    with locked(output):
        suite = _agreed(output, wanted)
        stop.begin()  # from here on there are runs to save
        display = Display()
        work = Work(output, suite, stop, display)
        check_room(output, work.unfinished, suite.configs)
        store(output, suite)
        event(output, "suite_started", unfinished=len(work.unfinished))
        left = work.seconds_left(work.unfinished)
        display.line(filled("suite_banner.txt", work=work, time_left="" if left is None else clock(left)))
        try:
            return _do(work, stop, display)
        finally:
            display.close()


def _agreed(output: Path, wanted: Suite | None) -> Suite:
    """The suite stored in the directory, which must equal the one wanted; where there is none, that one."""
    if has_plan(output):
        suite = stored(output)
        if wanted:
            refuse_differences(output, suite, wanted)
        return suite
    assert wanted is not None
    configs = dict(wanted.configs)
    for pair, config in wanted.configs.items():
        if config.parallel.num_workers == "auto" and pair.endswith("_parallel"):
            configs[pair] = decided(config)  # measured once, so that all runs have the same number of workers
    return Suite(wanted.settings, configs)


def _do(work: Work, stop: StopRequest, display: Display) -> int:
    """Train, evaluate, report; failures are reported together at the end."""
    again = f"rlcb benchmark --output-dir {work.output}"
    work.train()
    if stop.signal is None:
        work.evaluate()
    report = work.report() if work.results and stop.signal is None else None
    if stop.signal is not None:
        event(work.output, "suite_interrupted", signal=stop.signal)
        display.line(f"Interrupted. What is finished is kept. Continue with: {again}")
        return stop.exit_code
    if report:
        display.line(f"Report: {report}")
    event(work.output, "suite_finished", failures=work.failures)
    if work.failures:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in work.failures.items())
        raise RlcbError(f"{len(work.failures)} failed ({reasons}); all else is done; try those again with: {again}")
    return 0
