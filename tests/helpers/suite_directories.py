"""What is in the directory of a suite."""

from pathlib import Path

from rlcb.analysis.suites import SuiteRun
from rlcb.suite.directory import has_plan, runs_of, stored


def suite_runs(output: Path) -> list[SuiteRun]:
    """The runs of a suite, once it is planned."""
    return runs_of(stored(output).settings, output) if has_plan(output) else []
