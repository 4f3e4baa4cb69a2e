"""The command line: `rlcb VERB …` and the documented scripts. Each verb parses its flags and calls the program."""

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from rlcb import __version__
from rlcb.config.registry import ALGORITHMS, DEFAULT_ALGORITHM, MODES
from rlcb.flags import (
    ALIASES,
    PARALLEL_KEYS,
    Parser,
    add_keys,
    answered,
    finite,
    flag_of,
    overrides_of,
    positive,
    start_program,
    whole,
    whole_or_auto,
)

# The flags of the documented scripts, by the config key each one sets; `rlcb train` has one for every key.
TIMED_KEYS = ("name", "seed", "num_envs", "n_steps", "batch_size", "num_threads", "device", "precision",
              "log_every_seconds")  # fmt: skip
FIXED_KEYS = (*TIMED_KEYS, "total_timesteps", "n_epochs", "learning_rate", "gamma", "gae_lambda", "clip_range",
              "ent_coef", "vf_coef", "log_interval", "save_interval", "checkpoint_dir", "log_dir")  # fmt: skip
_AUTO = Path("auto")  # of --resume; a directory of that name is ./auto


def main(argv: Sequence[str] | None = None) -> int:
    """`rlcb VERB …`."""
    start_program()
    argv = list(sys.argv[1:] if argv is None else argv)
    parser = Parser("rlcb", "Train, time and compare reinforcement-learning algorithms on Procgen.")
    parser.add_argument("--version", action="version", version=f"rlcb {__version__}")
    verbs: dict[str, Callable[[Sequence[str]], int]] = {
        "train": train_verb,
        "evaluate": evaluate,
        "benchmark": benchmark_verb,
        "compare": compare_verb,
        "status": status_verb,
        "tune": tune_verb,
        "limits": limits_verb,
        "doctor": doctor,
    }
    parser.add_argument("verb", choices=tuple(verbs), help="what to do; `rlcb VERB --help` says more")
    parser.usage = f"rlcb [--help] [--version] {{{','.join(verbs)}}} …"
    arguments = parser.parse(argv[:1] or ["--help"])
    return verbs[arguments.verb](argv[1:])


def train_verb(argv: Sequence[str]) -> int:
    """`rlcb train ALGORITHM --mode MODE …`: all configuration keys are flags here."""
    from rlcb.config.schema import all_keys

    parser = Parser("rlcb train", "Train an algorithm for a time or a number of steps.")
    parser.add_argument("algorithm", choices=tuple(ALGORITHMS), nargs="?", help="not needed with --resume DIR")
    _add_mode(parser)
    _add_common(parser, "./benchmarks/<mode> for PPO, ./benchmarks/<algorithm>_<mode> for others")
    add_keys(parser, all_keys(), ALIASES)
    arguments = parser.parse(argv)
    if arguments.algorithm is None and arguments.resume in (None, _AUTO):
        parser.error(f"say which algorithm: {', '.join(ALGORITHMS)}")
    if arguments.duration_hours is not None and arguments.total_timesteps is not None:
        parser.error("--duration and --total-timesteps exclude each other")
    mode = arguments.mode or (ALGORITHMS[arguments.algorithm].modes[0] if arguments.resume is None else None)
    return _train(parser, arguments, arguments.algorithm, mode)


def train_script(prog: str, algorithm: str, mode: str, timed: bool, argv: Sequence[str] | None = None) -> int:
    """One of the documented training scripts."""
    from rlcb.config.schema import fields
    from rlcb.run.request import default_output

    what = "for a fixed time" if timed else "for a fixed number of steps"
    parser = Parser(prog, f"Train {algorithm.upper()} ({mode}) {what}.")
    _add_common(parser, f"./{default_output(algorithm, mode)}")
    keys = ("duration_hours", *TIMED_KEYS) if timed else FIXED_KEYS
    keys = (*keys, *PARALLEL_KEYS) if mode == "parallel" else keys
    known = {key for _, key, _ in fields(algorithm)}
    aliases = ALIASES if mode == "parallel" and ALGORITHMS[algorithm].aliases else None
    add_keys(parser, [key for key in keys if key in known], aliases)
    arguments = parser.parse(argv)
    if timed and arguments.duration_hours is None and arguments.resume in (None, _AUTO):
        parser.error("--duration HOURS is required")
    if not timed and arguments.resume in (None, _AUTO):
        arguments.duration_hours = "null"  # these stop by steps, whatever the file says
    return _train(parser, arguments, algorithm, mode)


def _add_mode(parser: Parser) -> None:
    text = "how it runs, default sequential where the algorithm has that mode"
    parser.add_argument("--mode", choices=MODES, help=text)


def _add_config(parser: Parser) -> None:
    parser.add_argument("--config", type=Path, metavar="FILE", help="YAML file, default config/<algorithm>_<mode>.yaml")


def _add_common(parser: Parser, output_dir: str) -> None:
    _add_config(parser)
    parser.add_argument("--output-dir", type=Path, metavar="DIR", help=f"where the run is kept, default {output_dir}")
    text = "go on with the run in DIR as if it never stopped; auto: with the one in --output-dir, or start it there"
    parser.add_argument("--resume", type=Path, metavar="DIR|auto", help=text)
    _add_dry_run(parser)


def _add_dry_run(parser: Parser) -> None:
    text = "check everything, print what would be done, and do nothing"
    parser.add_argument("--dry-run", action="store_true", help=text)


def _train(parser: Parser, arguments: argparse.Namespace, algorithm: str | None, mode: str | None) -> int:
    """Run a training command."""
    from rlcb.run.request import Request
    from rlcb.train import train

    auto, dry_run = arguments.resume == _AUTO, arguments.dry_run
    usual = ALGORITHMS[algorithm].modes[0] if auto and algorithm else None
    overrides = overrides_of(parser, arguments, mode or usual)
    where = (arguments.config, arguments.output_dir, None if auto else arguments.resume)
    request = Request(parser.prog, algorithm, mode, overrides, *where, dry_run=dry_run, resume_auto=auto)
    return answered(parser.prog, lambda: train(request), prints_result=dry_run)


def limits_verb(argv: Sequence[str]) -> int:
    """`rlcb limits ALGORITHM --mode MODE …`: what this machine could reach; all configuration keys are flags here."""
    from rlcb.config.schema import all_keys
    from rlcb.limits.report import ROUNDS, SECONDS, show_limits

    parser = Parser("rlcb limits", "Measure environments, acting and training alone: the FPS this machine could reach.")
    add, usual = parser.add_argument, DEFAULT_ALGORITHM
    add("algorithm", choices=tuple(ALGORITHMS), nargs="?", default=usual, help=f"default {usual}")
    _add_mode(parser)
    _add_config(parser)
    add("--rounds", type=whole(1, 1000), default=ROUNDS, metavar="N", help=f"measurements, default {ROUNDS}")
    text = f"length of each part of a measurement, default {SECONDS:g}"
    add("--seconds", type=positive(600), default=SECONDS, metavar="X", help=text)
    parser.add_accept_disturbed()
    add_keys(parser, all_keys(), ALIASES)
    arguments = parser.parse(argv)
    algorithm, rounds, seconds = arguments.algorithm, arguments.rounds, arguments.seconds
    mode = arguments.mode or ALGORITHMS[algorithm].modes[0]
    overrides = overrides_of(parser, arguments, mode)

    def work() -> int:
        from rlcb.run.request import new_config, refuse_missing_mode, refuse_workers
        from rlcb.train import check_hardware, with_device

        refuse_missing_mode(algorithm, mode)
        config = new_config(algorithm, mode, arguments.config, overrides)
        refuse_workers(mode, overrides)
        check_hardware(config, mode)
        return show_limits(with_device(config, mode), mode, rounds, seconds, arguments.accept_disturbed)

    return answered(parser.prog, work, prints_result=True)


def tune_verb(argv: Sequence[str]) -> int:
    """`rlcb tune`: measure what is fastest here and write it down."""
    parser = Parser("rlcb tune", "Measure workers, threads, environments and minibatch on this machine.")
    add, usual = parser.add_argument, DEFAULT_ALGORITHM
    add("algorithm", choices=tuple(ALGORITHMS), nargs="?", default=usual, help=f"default {usual}")
    add("--config", type=Path, metavar="FILE", help="what to tune, default config/<algorithm>_parallel.yaml")
    add("--output", type=Path, metavar="FILE", default=Path("config/tuned.yaml"), help="where to write")
    add("--updates", type=whole(1, 1000), default=2, metavar="N", help="updates timed in a trial, default 2")
    parser.add_accept_disturbed()
    add_keys(parser, ("name",))
    arguments = parser.parse(argv)
    from rlcb.config.plan import tune
    from rlcb.run.request import new_config
    from rlcb.train import with_device

    name = {"name": (flag_of("name"), arguments.name)} if arguments.name else {}
    what = (arguments.algorithm, "parallel", arguments.config, name)
    how = (arguments.output, arguments.updates, arguments.accept_disturbed)
    return answered(parser.prog, lambda: tune(with_device(new_config(*what), "parallel"), *how))


def evaluate(argv: Sequence[str] | None = None, prog: str = "rlcb evaluate", universal: bool = True) -> int:
    """`rlcb evaluate` and the two scripts; `universal`: takes --algorithm."""
    from rlcb.evaluation.evaluate import DEFAULT_SEED, Request
    from rlcb.evaluation.evaluate import evaluate as play_and_report

    parser = Parser(prog, "Play episodes with a trained policy and say how good it is.")
    add = parser.add_argument
    default = "default the newest under ./benchmarks"
    add("--checkpoint", type=Path, metavar="PATH", help=f"a checkpoint file or a run's directory, {default}")
    if universal:
        add("--algorithm", choices=tuple(ALGORITHMS), help="what the checkpoint must be of")
    add("--env", metavar="NAME", help="another environment of the same shape, default the one trained in")
    add("--num-episodes", type=whole(1, 10**6), default=100, metavar="N", help="episodes to count, default 100")
    add("--num-envs", type=whole(1, 4096), metavar="N", help="played together, default up to 128 with equal shares")
    add("--deterministic", action="store_true", help="take the likeliest action instead of drawing one")
    add("--levels", choices=("train", "unseen", "both"), default="train", help="Procgen: which levels, default train")
    text = f"seed of levels and actions, default {DEFAULT_SEED}"
    add("--seed", type=whole(0, 2**31 - 1), default=DEFAULT_SEED, metavar="N", help=text)
    add("--device", choices=("auto", "cpu", "cuda"), default="auto", help="auto, the default: cuda where there is one")
    add("--num-threads", type=whole(1, 1024), metavar="N", help="CPU threads, default what this machine allows")
    add("--render", action="store_true", help="first show some episodes in a window, where there is a display")
    add("--video", type=Path, metavar="FILE", help="also film some episodes: FILE.mp4 or FILE.gif")
    text = "where the results go, default <checkpoint>_evaluation.json beside the checkpoint"
    add("--output", type=Path, metavar="FILE", help=text)
    request = Request(**vars(parser.parse(argv)))
    return answered(prog, lambda: play_and_report(request, titled=universal and not prog.startswith("rlcb")))


def compare_verb(argv: Sequence[str]) -> int:
    """`rlcb compare RUN …`: any number of runs."""
    parser = Parser("rlcb compare", "Compare runs: metrics over seeds, tests of pairs, a verdict.")
    add = parser.add_argument
    add("paths", nargs="+", type=Path, metavar="RUN", help="a run's directory, or a folder with runs below it")
    default = Path("benchmarks") / "comparison"
    add("--output", type=Path, metavar="DIR", default=default, help=f"where the files go, default ./{default}")
    text = "mean reward that steps and time to reach are given for; default 80 %% of the way from untrained to the best"
    add("--reward-threshold", dest="threshold", type=finite, metavar="X", help=text)
    add("--seed", type=whole(0, 2**31 - 1), default=0, metavar="N", help="seed of the bootstrap, default 0")
    arguments = parser.parse(argv)
    from rlcb.report.compare import compare_any

    return answered(parser.prog, lambda: compare_any(**vars(arguments)), prints_result=True)


def status_verb(argv: Sequence[str]) -> int:
    """`rlcb status [DIR]`: what all runs below a folder are doing."""
    parser = Parser("rlcb status", "Show what every run below a folder is doing: state, progress, speed, reward.")
    add, default = parser.add_argument, Path("benchmarks")
    add("folder", nargs="?", type=Path, metavar="DIR", default=default, help=f"where to look, default ./{default}")
    text = "show it again every so many seconds, default 2, until Ctrl-C"
    add("--watch", nargs="?", type=positive(86400), const=2.0, metavar="SECONDS", help=text)
    add("--json", dest="as_json", action="store_true", help="one line of JSON instead of a table")
    arguments = parser.parse(argv)
    from rlcb.report.status import show_status

    return answered(parser.prog, lambda: show_status(**vars(arguments)), prints_result=True)


def compare_script(prog: str, argv: Sequence[str] | None = None) -> int:
    """`compare_results.py`: a sequential and a parallel run side by side."""
    parser = Parser(prog, "Compare a sequential and a parallel run; either may be left out.")
    add = parser.add_argument
    add("--sequential", metavar="DIR", help="the sequential run's directory")
    add("--parallel", metavar="DIR", help="the parallel run's directory")
    add("--newest", type=Path, metavar="DIR", help="take the newest below DIR of what is not named")
    text = "the picture, .png, .svg or .pdf, default ./comparison.png; comparison_report.txt is written beside it"
    add("--output", type=Path, metavar="FILE", default=Path("comparison.png"), help=text)
    arguments = parser.parse(argv)
    from rlcb.report.two_runs import compare_two

    return answered(prog, lambda: compare_two(**vars(arguments)), prints_result=True)


def benchmark_verb(argv: Sequence[str]) -> int:
    """`rlcb benchmark …`: a whole suite; the settings of a suite file are flags here, and so are config keys."""
    from rlcb.config.yaml_file import parse_scalar
    from rlcb.suite.benchmark import benchmark
    from rlcb.suite.jobs import MOST_JOBS
    from rlcb.suite.keys import PASSED_ON
    from rlcb.suite.settings import SuiteConfig

    what = "Train algorithms × modes × variants × seeds × games, evaluate each, write a report."
    parser = Parser("rlcb benchmark", what)
    parser.add_argument("--suite", type=Path, metavar="FILE", help="YAML file with the settings that follow as keys")
    default = Path("benchmarks") / "suite"
    text = f"where all of it is kept, default ./{default}; a suite that is there already is continued"
    parser.add_argument("--output-dir", type=Path, metavar="DIR", default=default, help=text)
    text = "runs that train at the same time; auto: as many as the cores allow; default auto, for runs by time 1, "
    text += "with --cluster as many as fit"
    parser.add_argument("--jobs", type=whole_or_auto(1, MOST_JOBS), metavar="N|auto", help=text)
    text = "run finished runs again that other programs disturbed; what they left is kept in DIR/…/seed_N.1"
    parser.add_argument("--repeat-disturbed", action="store_true", help=text)
    _add_dry_run(parser)
    for key, field in SuiteConfig.model_fields.items():
        if key != "overrides":
            several = isinstance(field.default, list | dict)
            usual = " ".join(map(str, field.default)) if several else field.default
            text = f"{field.description}" + ("" if usual is None else f"; default {usual}")
            text = "names of the suite file's variants to run; default all" if key == "variants" else text
            parser.add_argument(flag_of(key), dest=key, nargs="+" if several else None, metavar="VALUE", help=text)
    add_keys(parser, PASSED_ON)
    parser.epilog = "--num-envs counts all environments of a run, in either mode. Exit code 1: a run, an evaluation "
    parser.epilog += "or the report failed and all else is done; start again to retry."
    given = {key: value for key, value in vars(parser.parse(argv)).items() if value is not None}
    output, file, dry_run = given.pop("output_dir"), given.pop("suite", None), given.pop("dry_run")
    jobs, repeat = given.pop("jobs", None), given.pop("repeat_disturbed")
    values = {k: [parse_scalar(one) for one in v] if isinstance(v, list) else parse_scalar(v) for k, v in given.items()}
    flags = {key: (flag_of(key), value) for key, value in values.items()}
    return answered(parser.prog, lambda: benchmark(output, file, flags, jobs, dry_run, repeat), prints_result=dry_run)


def doctor(argv: Sequence[str], prog: str = "rlcb doctor") -> int:
    """Check the installation and print what was found."""
    parser = Parser(prog, "Check the installation: what is there, what is missing, how to get it.")
    parser.parse(argv)
    from rlcb.doctor import examine

    return answered(prog, examine, prints_result=True)
