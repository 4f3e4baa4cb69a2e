"""The functions of `import rlcb`: each takes the flags of the command of its name and does the same work."""

import os
from collections.abc import Iterable
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Unpack
from warnings import warn

from rlcb.analysis import load
from rlcb.analysis.frames import Runs
from rlcb.analysis.run import Run
from rlcb.api.process import borrowed_process, pass_on
from rlcb.api.settings import BenchmarkSettings, CompareSettings, EvaluateSettings, FilePath, TrainSettings
from rlcb.commands.keys import permit_named
from rlcb.commands.requests import AUTO, OnUpdate, suite_request, train_request
from rlcb.errors import RlcbError, RlcbWarning
from rlcb.flags import parameter_of
from rlcb.signals import CallerStop

if TYPE_CHECKING:
    from rlcb.evaluation.results import Evaluated
    from rlcb.report.compare import Compared

_NOT_IN_CALLS = ("dry_run",)
_COMPARISON = Path("benchmarks") / "comparison"
_SUITE = Path("benchmarks") / "suite"


@dataclass(frozen=True, eq=False)
class Benchmark:
    """A suite that is done: its directory, its runs and, where one was written, the report."""

    path: Path
    runs: Runs
    report: Path | None


def train(
    algorithm: str | None = None,
    mode: str | None = None,
    *,
    resume: "FilePath | Run | None" = None,
    on_update: OnUpdate | None = None,
    quiet: bool = False,
    **settings: Unpack[TrainSettings],
) -> Run:
    """Train as `rlcb train` does and return the run; the parameters are its flags with underscores.

    `resume`: a run or its directory, or "auto". `on_update` gets the metrics of each update as a dict; if it returns
    False, the run is saved and stops. `quiet`: nothing is printed. Ctrl-C saves after the update, then Interrupted is
    raised.
    """
    from rlcb.commands.training import train_parser
    from rlcb.training import train as do

    words = [algorithm or "", *(("--mode", mode) if mode else ())]
    given = {"algorithm": algorithm, "mode": mode, "resume": _run_or_auto(resume), **settings}
    stop = CallerStop()
    with borrowed_process(quiet):
        arguments = train_parser(words).take(given, _NOT_IN_CALLS)
        arguments.dry_run = False
        request = train_request("rlcb train", arguments, parameter_of, on_update)
        done = do(replace(request, from_python=True), stop)
    run = load.load_run(done.path)
    if done.signal:
        stop.signal = done.signal
        pass_on(stop, f"{run.reason}; saved in {run.path}, resume with rlcb.train(resume={str(run.path)!r})", run)
    return run


def evaluate(
    checkpoint: "FilePath | Run | None" = None, *, quiet: bool = False, **settings: Unpack[EvaluateSettings]
) -> "Evaluated":
    """Play episodes with a trained policy as `rlcb evaluate` does; the parameters are its flags with underscores.

    `checkpoint`: a run, its directory or a checkpoint file; by default the newest below ./benchmarks.
    """
    from rlcb.commands.other import evaluate_parser
    from rlcb.evaluation.evaluate import ANSWER, Request
    from rlcb.evaluation.evaluate import evaluate as do

    stop = CallerStop(ANSWER)
    with borrowed_process(quiet):
        arguments = evaluate_parser().take({"checkpoint": _place(checkpoint), **settings})
        arguments.imports = permit_named(vars(arguments))
        done = do(Request(**vars(arguments)), stop)
    if done.signal:
        kept = f"the episodes that had finished are in {done.file}" if done.results else "no episode had finished"
        pass_on(stop, f"interrupted; {kept}")
    return done


def load_runs(*places: FilePath) -> Runs:
    """Read runs, and all runs in folders of runs; one that cannot be read is left out with a warning."""
    return Runs(load.load_runs([Path(place) for place in places], _warn))


def compare(
    *runs: "FilePath | Run | Iterable[FilePath | Run]",
    output: FilePath | None = _COMPARISON,
    **settings: Unpack[CompareSettings],
) -> "Compared":
    """Compare runs as `rlcb compare` does; the parameters are its flags with underscores.

    `runs`: runs, their directories, or folders of them. `output`: where the report is written; None: nowhere.
    """
    from rlcb.commands.other import compare_parser
    from rlcb.report.compare import Question, compare_runs

    arguments = compare_parser().take({**settings}, ("paths", "output", "watch"))
    several = [[one] if isinstance(one, Run | str | PathLike) else one for one in runs]
    named = [one if isinstance(one, Run) else Path(one) for some in several for one in some]
    where = None if output is None else Path(output)
    return compare_runs(Question(named, arguments.threshold, arguments.seed), where, _warn)


def benchmark(
    *, output_dir: FilePath = _SUITE, quiet: bool = False, **settings: Unpack[BenchmarkSettings]
) -> Benchmark:
    """Do what is not done yet of a suite as `rlcb benchmark` does; the parameters are its flags with underscores."""
    from rlcb.commands.training import benchmark_parser
    from rlcb.suite.benchmark import ANSWER
    from rlcb.suite.benchmark import benchmark as do

    stop = CallerStop(ANSWER)
    with borrowed_process(quiet):
        arguments = benchmark_parser().take({"output_dir": output_dir, **settings}, _NOT_IN_CALLS)
        arguments.dry_run = False
        code = do(**suite_request(arguments, parameter_of), stop=stop, from_python=True)
    if code > 128:
        stop.signal = code - 128
        pass_on(stop, f"interrupted; finished runs are kept, resume the suite in {output_dir}")
    elif code:
        raise RlcbError(f"the suite in {output_dir} ended with exit code {code}")
    page = Path(output_dir) / "report" / "report.html"
    return Benchmark(Path(output_dir), load_runs(output_dir), page if page.is_file() else None)


def _place(given: "FilePath | Run | None") -> "FilePath | None":
    return given.path if isinstance(given, Run) else given


def _run_or_auto(given: "FilePath | Run | None") -> "FilePath | None":
    """A run to resume; the text auto is the word, a path of that name a directory."""
    place = _place(given)
    return f"./{AUTO}" if isinstance(place, PathLike) and os.fspath(place) == AUTO else place


def _warn(text: str) -> None:
    warn(text, RlcbWarning, stacklevel=4)
