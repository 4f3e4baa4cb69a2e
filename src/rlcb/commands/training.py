"""The parsers of commands that have flags for config keys: train, its scripts, limits, tune and benchmark."""

from collections.abc import Callable, Sequence
from pathlib import Path

from rlcb.commands.keys import (
    ALIASES,
    FIXED_KEYS,
    PARALLEL_KEYS,
    TIMED_KEYS,
    add_keys,
    defaults_of,
    hide_keys,
    peek,
)
from rlcb.commands.overview import summary_of
from rlcb.commands.requests import AUTO, MOST_SEEDS
from rlcb.config.named import find_config, find_suite
from rlcb.config.registry import ALGORITHMS, DEFAULT_ALGORITHM, MODES, RESUMABLE_KEYS
from rlcb.flags import Parser, file_or_name, flag_of, positive, whole, whole_or_auto

_Add = Callable[..., object]  # add_argument of a parser or group


def train_parser(argv: Sequence[str]) -> Parser:
    """`rlcb train ALGORITHM …`; `argv` tells whose flags to list, all are taken."""
    from rlcb.config.load import default_output

    algorithm, mode = peek(argv)
    output = "./benchmarks/<mode> for PPO, ./benchmarks/<algorithm>_<mode> for others"
    if algorithm is None:
        parser = Parser("rlcb train", _algorithms(summary_of("train")))
    else:
        mode = mode or ALGORITHMS[algorithm].modes[0]
        output = f"./{default_output(algorithm, mode)}"
        modes = " and ".join(ALGORITHMS[algorithm].modes)
        what = f"Train {algorithm.upper()}: {ALGORITHMS[algorithm].summary or algorithm}. Modes: {modes}."
        example = f"\n\nexample:\n  rlcb train {algorithm} --mode {mode} --env coinrun --duration 1h"
        parser = Parser("rlcb train", f"{what}{example}", defaults_of(algorithm, mode))
    parser.usage = f"rlcb train {algorithm or 'ALGORITHM'} [--mode MODE] [--duration HOURS | --total-timesteps N] …"
    run = parser.add_argument_group("run")
    run.add_argument(
        "algorithm", choices=tuple(ALGORITHMS), nargs="?", help="algorithm to train; optional with --resume DIR"
    )
    _add_mode(run.add_argument, algorithm)
    _add_common(run.add_argument, output)
    if algorithm:
        add_keys(parser, _keys_of(algorithm), algorithm, mode, _aliases(algorithm))
        parser.epilog = _where_defaults_are(algorithm, mode or "")
    else:
        add_keys(parser, RESUMABLE_KEYS)
        parser.epilog = "These settings can be changed when a run is resumed; by default the run keeps its own.\n"
        parser.epilog += "`rlcb train ALGORITHM --help` lists every setting of an algorithm with its default."
    hide_keys(parser, ALIASES)
    return parser


def script_parser(prog: str, algorithm: str, mode: str, timed: bool) -> Parser:
    """One of the documented training scripts."""
    from rlcb.config.load import default_output

    what = "for a fixed time" if timed else "for a fixed number of steps"
    defaults = defaults_of(algorithm, mode)
    required = {"duration_hours": "none; required unless --resume is given"} if timed else {}
    parser = Parser(prog, f"Train {algorithm.upper()} ({mode}) {what}.", lambda: {**defaults(), **required})
    parser.usage = f"{prog} {'--duration HOURS ' if timed else ''}[options]"
    _add_common(parser.add_argument_group("run").add_argument, f"./{default_output(algorithm, mode)}")
    keys = ("duration_hours", *TIMED_KEYS) if timed else FIXED_KEYS
    keys = (*keys, *PARALLEL_KEYS) if mode == "parallel" else keys
    known = _keys_of(algorithm)
    aliases = _aliases(algorithm) if mode == "parallel" else None
    add_keys(parser, [key for key in keys if key in known], algorithm, mode, aliases)
    parser.epilog = _where_defaults_are(algorithm, mode)
    return parser


def limits_parser(argv: Sequence[str]) -> Parser:
    """`rlcb limits ALGORITHM …`; `argv` tells whose flags to list, all are taken."""
    from rlcb.limits.report import ROUNDS, SECONDS

    algorithm, mode = peek(argv)
    algorithm = algorithm or DEFAULT_ALGORITHM
    mode = mode or ALGORITHMS[algorithm].modes[0]
    parser = Parser("rlcb limits", summary_of("limits"), defaults_of(algorithm, mode))
    parser.usage = "rlcb limits [ALGORITHM] [--mode MODE] …"
    group = parser.add_argument_group("what to measure")
    _add_algorithm(group.add_argument)
    _add_mode(group.add_argument, algorithm)
    _add_config(group.add_argument)
    group.add_argument(
        "--rounds", type=whole(1, 1000), default=ROUNDS, metavar="N", help="repetitions of each measurement"
    )
    text = "length of each measurement"
    group.add_argument("--seconds", type=positive(600), default=SECONDS, metavar="SECONDS", help=text)
    _add_accept_disturbed(group.add_argument)
    add_keys(parser, _keys_of(algorithm), algorithm, mode, _aliases(algorithm))
    parser.epilog = _where_defaults_are(algorithm, mode)
    hide_keys(parser, ALIASES)
    return parser


def tune_parser() -> Parser:
    """`rlcb tune ALGORITHM …`."""
    parser = Parser("rlcb tune", summary_of("tune"))
    parser.usage = "rlcb tune [ALGORITHM] …"
    group = parser.add_argument_group("what to tune")
    _add_algorithm(group.add_argument)
    _add_config(group.add_argument, "<algorithm>_parallel")
    group.add_argument("--updates", type=whole(1, 1000), default=2, metavar="N", help="updates measured per candidate")
    output = Path("config/tuned.yaml")
    group.add_argument("--output", type=Path, metavar="FILE", default=output, help="file for the fastest settings")
    _add_accept_disturbed(group.add_argument)
    add_keys(parser, ("name", "imports"))
    parser.epilog = f"Without {flag_of('name')}, the environment of the configuration is used."
    return parser


def benchmark_parser() -> Parser:
    """`rlcb benchmark …`: the settings of a suite file are flags here, and so are config keys."""
    from rlcb.config.values import extra, metavar_of
    from rlcb.suite.jobs import MOST_JOBS
    from rlcb.suite.keys import PASSED_ON
    from rlcb.suite.schema import SuiteConfig

    parser = Parser("rlcb benchmark", summary_of("benchmark"))
    parser.usage = "rlcb benchmark [--suite NAME|FILE] [--duration HOURS | --total-timesteps N] …"
    group = parser.add_argument_group("run")
    text = "name of a built-in suite (see `rlcb configs`) or path of a YAML file"
    group.add_argument("--suite", type=file_or_name(find_suite), metavar="NAME|FILE", help=text)
    default = Path("benchmarks") / "suite"
    text = "directory for all results; a suite that already exists there is resumed or extended"
    group.add_argument("--output-dir", type=Path, metavar="DIR", default=default, help=text)
    text = "number of concurrent runs; auto: as many as the cores allow; default auto, 1 for timed runs, "
    text += "as many as fit with --cluster"
    group.add_argument("--jobs", type=whole_or_auto(1, MOST_JOBS), metavar="N|auto", help=text)
    text = "repeat finished runs that were disturbed by other programs; the earlier results are kept in DIR/…/seed_N.1"
    group.add_argument("--repeat-disturbed", action="store_true", help=text)
    _add_dry_run(group.add_argument)
    group = parser.add_argument_group("suite (also keys of the suite file)")
    usual = {}
    for key, field in SuiteConfig.model_fields.items():
        if key != "overrides":
            several = isinstance(field.default, list | dict)
            if field.default not in (None, {}):
                usual[key] = " ".join(map(str, field.default)) if several else f"{field.default:g}"
            text = field.description or ""
            text = "variants of the suite file to run; default all" if key == "variants" else text
            metavar, many = extra(field, "metavar") or metavar_of(field), "+" if several else None
            group.add_argument(flag_of(key), dest=key, nargs=many, metavar=metavar, help=text)
        if key == "seeds":
            text = f"instead of {flag_of(key)}: the seeds 1 to N (no key of the file)"
            group.add_argument("--num-seeds", type=whole(1, MOST_SEEDS), metavar="N", help=text)
    parser.defaults = lambda: usual
    add_keys(parser, PASSED_ON)
    parser.epilog = (
        "A setting applies to every run whose algorithm has it; without a flag each run uses the default of its\n"
        "algorithm and mode (see rlcb train ALGORITHM --mode MODE --help). --num-envs is the total of a run.\n"
        "To add seeds, games or algorithms to a suite, give its directory and all values:\n"
        "  rlcb benchmark --output-dir DIR --num-seeds 6\n"
        "Exit code 1: a run, an evaluation or the report failed and the rest is complete; repeat the command to retry."
    )
    return parser


def _keys_of(algorithm: str) -> list[str]:
    from rlcb.config.schema import fields

    return [key for _, key, _ in fields(algorithm)]


def _aliases(algorithm: str) -> dict[str, str]:
    """The other names of flags that an algorithm has."""
    return {name: key for name, key in ALIASES.items() if name in ALGORITHMS[algorithm].aliases}


def _algorithms(text: str) -> str:
    """A description followed by the algorithms, a line each."""
    lines = [f"  {name:<8} {entry.summary} ({', '.join(entry.modes)})" for name, entry in ALGORITHMS.items()]
    return "\n".join((text, "", "algorithms:", *lines))


def _where_defaults_are(algorithm: str, mode: str) -> str:
    from rlcb.config.named import default_file

    file = default_file(algorithm, mode)
    source = f"those of {file}" if file else "built in"
    order = "Flags override the configuration file, and the file overrides the built-in defaults."
    return f"The defaults shown are {source}.\n{order}"


def _add_algorithm(add: _Add) -> None:
    add("algorithm", choices=tuple(ALGORITHMS), nargs="?", default=DEFAULT_ALGORITHM, help="algorithm to use")


def _add_mode(add: _Add, algorithm: str | None) -> None:
    others = [name for name, entry in ALGORITHMS.items() if entry.modes[0] != MODES[0]]
    usual = ALGORITHMS[algorithm].modes[0] if algorithm else f"{MODES[0]}, {MODES[1]} for {' and '.join(others)}"
    add("--mode", choices=MODES, help=f"a single process or several worker processes; default {usual}")


def _add_config(add: _Add, usual: str = "<algorithm>_<mode>") -> None:
    text = f"name of a built-in configuration (see `rlcb configs`) or path of a YAML file; default {usual}"
    add("--config", type=file_or_name(find_config), metavar="NAME|FILE", help=text)


def _add_common(add: _Add, output_dir: str) -> None:
    _add_config(add)
    add("--output-dir", type=Path, metavar="DIR", help=f"directory of the run; default {output_dir}")
    add(
        "--resume",
        type=_run_or_auto,
        metavar="DIR|auto",
        help="resume the run in DIR; auto: resume the run in --output-dir if there is one, otherwise start it",
    )
    _add_dry_run(add)


def _run_or_auto(text: str) -> Path | str:
    """Reads the word auto, or a directory; ./auto is a directory."""
    return text if text == AUTO else Path(text)


def _add_dry_run(add: _Add) -> None:
    add("--dry-run", action="store_true", help="check all settings, print what would be done, and exit")


def _add_accept_disturbed(add: _Add) -> None:
    add("--accept-disturbed", action="store_true", help="accept measurements that other programs disturbed")
