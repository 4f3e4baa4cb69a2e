"""A benchmark: a matrix of training runs, then evaluation and report; can be interrupted anywhere and continued."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlcb.config.schema import Config
from rlcb.console import filled
from rlcb.errors import RlcbError, UsageError
from rlcb.signals import StopRequest
from rlcb.suite.directory import check_room, event, has_plan, locked, refuse_differences, store, stored
from rlcb.suite.display import Display, clock
from rlcb.suite.settings import Suite, build_suite
from rlcb.suite.work import Work


def benchmark(output: Path, file: Path | None, flags: Mapping[str, tuple[str, Any]]) -> int:
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
    return Suite(wanted.settings, {pair: _divided(pair, config) for pair, config in wanted.configs.items()})


def _divided(pair: str, config: Config) -> Config:
    """The configuration with the number of workers measured, if it is to be: once, so that all runs have the same."""
    if config.parallel.num_workers != "auto" or not pair.endswith("_parallel"):
        return config
    from rlcb.config.plan import decided

    return decided(config)


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
