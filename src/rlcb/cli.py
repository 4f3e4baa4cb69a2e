"""The command line: `rlcb VERB …` and the documented scripts. Each verb parses its flags and calls the program."""

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from rlcb.commands import other, training
from rlcb.commands.keys import overrides_of, permit_named
from rlcb.commands.overview import overview
from rlcb.commands.requests import AUTO, request_of, suite_request, train_request
from rlcb.config.registry import ALGORITHMS
from rlcb.errors import UsageError
from rlcb.flags import Parser, answered, start_program
from rlcb.signals import StopRequest

if TYPE_CHECKING:
    from rlcb.run.request import Request

_Read = TypeVar("_Read")


def main(argv: Sequence[str] | None = None) -> int:
    """`rlcb VERB …`."""
    start_program()
    argv = list(sys.argv[1:] if argv is None else argv)
    verbs: dict[str, Callable[[Sequence[str]], int]] = {
        "train": train_verb,
        "benchmark": benchmark_verb,
        "tune": tune_verb,
        "evaluate": evaluate,
        "limits": limits_verb,
        "status": status_verb,
        "compare": compare_verb,
        "configs": configs_verb,
        "import": import_verb,
        "doctor": doctor,
        "completion": completion_verb,
    }
    arguments = overview().parse(argv[:1] or ["--help"])
    return verbs[arguments.verb](argv[1:])


def train_verb(argv: Sequence[str]) -> int:
    """`rlcb train ALGORITHM --mode MODE …`: all configuration keys are flags here."""
    parser = training.train_parser(argv)
    arguments = parser.parse(argv)
    return _train(parser, _checked(parser, lambda: train_request(parser.prog, arguments)))


def train_script(prog: str, algorithm: str, mode: str, timed: bool, argv: Sequence[str] | None = None) -> int:
    """One of the documented training scripts."""
    parser = training.script_parser(prog, algorithm, mode, timed)
    arguments = parser.parse(argv)
    if timed and arguments.duration_hours is None and arguments.resume in (None, AUTO):
        parser.error("--duration HOURS is required")
    if not timed and arguments.resume in (None, AUTO):
        arguments.duration_hours = "null"  # these stop by steps, whatever the file says
    return _train(parser, _checked(parser, lambda: request_of(prog, arguments, algorithm, mode)))


def _checked(parser: Parser, read: Callable[[], _Read]) -> _Read:
    """What the arguments ask for; those that contradict each other are answered as other wrong flags are."""
    try:
        return read()
    except UsageError as error:
        parser.error(str(error))


def _train(parser: Parser, request: "Request") -> int:
    """Run a training command."""
    from rlcb.training import train

    return answered(parser.prog, lambda: train(request, StopRequest()).exit_code, prints_result=request.dry_run)


def limits_verb(argv: Sequence[str]) -> int:
    """`rlcb limits ALGORITHM --mode MODE …`: what this machine could reach; all configuration keys are flags here."""
    parser = training.limits_parser(argv)
    arguments = parser.parse(argv)
    algorithm, rounds, seconds = arguments.algorithm, arguments.rounds, arguments.seconds
    mode = arguments.mode or ALGORITHMS[algorithm].modes[0]
    overrides = _checked(parser, lambda: overrides_of(arguments, algorithm, mode))

    def work() -> int:
        from rlcb.limits.report import show_limits
        from rlcb.run.request import new_config, refuse_missing_mode, refuse_workers
        from rlcb.training import check_hardware, with_device

        refuse_missing_mode(algorithm, mode)
        config = new_config(algorithm, mode, arguments.config, overrides)
        refuse_workers(mode, overrides)
        check_hardware(config, mode)
        return show_limits(with_device(config, mode), mode, rounds, seconds, arguments.accept_disturbed)

    return answered(parser.prog, work, prints_result=True)


def tune_verb(argv: Sequence[str]) -> int:
    """`rlcb tune`: measure what is fastest here and write it down."""
    parser = training.tune_parser()
    arguments = parser.parse(argv)
    from rlcb.config.tune import tune
    from rlcb.run.request import new_config
    from rlcb.training import with_device

    def work() -> int:
        given = overrides_of(arguments, arguments.algorithm, "parallel")
        config = new_config(arguments.algorithm, "parallel", arguments.config, given)
        how = (arguments.output, arguments.updates, arguments.accept_disturbed)
        return tune(with_device(config, "parallel"), *how)

    return answered(parser.prog, work)


def evaluate(argv: Sequence[str] | None = None, prog: str = "rlcb evaluate", universal: bool = True) -> int:
    """`rlcb evaluate` and the two scripts; `universal`: takes --algorithm."""
    arguments = other.evaluate_parser(prog, universal).parse(argv)
    permit_named(vars(arguments))
    from rlcb.evaluation.evaluate import ANSWER, Request
    from rlcb.evaluation.evaluate import evaluate as play_and_report

    request, titled = Request(**vars(arguments)), universal and not prog.startswith("rlcb")
    return answered(prog, lambda: play_and_report(request, StopRequest(ANSWER), titled).exit_code)


def compare_verb(argv: Sequence[str]) -> int:
    """`rlcb compare RUN …`: any number of runs."""
    parser = other.compare_parser()
    given = vars(parser.parse(argv))
    seconds = given.pop("watch")

    def work() -> int:
        from rlcb.report.compare import Question, compare_any
        from rlcb.report.watch import watch_comparison

        if seconds is None:
            return compare_any(**given)
        return watch_comparison(Question(given["paths"], given["threshold"], given["seed"]), given["output"], seconds)

    return answered(parser.prog, work, prints_result=True)


def import_verb(argv: Sequence[str]) -> int:
    """`rlcb import LOG …`: runs of other programs."""
    parser = other.import_parser()
    arguments = vars(parser.parse(argv))
    levels = [arguments[name] for name in ("distribution_mode", "num_levels")]
    if levels.count(None) == 1 or (levels[0] is None and arguments["start_level"] is not None):
        parser.error("--distribution-mode and --num-levels must be given together, and --start-level only with both")
    from rlcb.report.importing import import_logs

    return answered(parser.prog, lambda: import_logs(**arguments), prints_result=True)


def status_verb(argv: Sequence[str]) -> int:
    """`rlcb status [DIR]`: what all runs below a folder are doing."""
    parser = other.status_parser()
    arguments = parser.parse(argv)
    from rlcb.report.status import show_status

    return answered(parser.prog, lambda: show_status(**vars(arguments)), prints_result=True)


def compare_script(prog: str, argv: Sequence[str] | None = None) -> int:
    """`compare_results.py`: a sequential and a parallel run side by side."""
    arguments = other.compare_script_parser(prog).parse(argv)
    from rlcb.report.two_runs import compare_two

    return answered(prog, lambda: compare_two(**vars(arguments)), prints_result=True)


def benchmark_verb(argv: Sequence[str]) -> int:
    """`rlcb benchmark …`: a whole suite; the settings of a suite file are flags here, and so are config keys."""
    parser = training.benchmark_parser()
    arguments = parser.parse(argv)
    request = _checked(parser, lambda: suite_request(arguments))
    from rlcb.suite.benchmark import ANSWER, benchmark

    return answered(
        parser.prog, lambda: benchmark(**request, stop=StopRequest(ANSWER)), prints_result=request["dry_run"]
    )


def configs_verb(argv: Sequence[str]) -> int:
    """`rlcb configs [NAME]`: the configurations and suites of the package."""
    parser = other.configs_parser()
    name = parser.parse(argv).name
    from rlcb.commands.configs import print_configs

    return answered(parser.prog, lambda: print_configs(name), prints_result=True)


def doctor(argv: Sequence[str], prog: str = "rlcb doctor") -> int:
    """Check the installation and print what was found."""
    other.doctor_parser(prog).parse(argv)
    from rlcb.doctor import examine

    return answered(prog, examine, prints_result=True)


def completion_verb(argv: Sequence[str]) -> int:
    """`rlcb completion SHELL`: a script for the shell, on standard output."""
    parser = other.completion_parser()
    shell = parser.parse(argv).shell
    from rlcb.commands.completion import print_script

    return answered(parser.prog, lambda: print_script(shell), prints_result=True)
