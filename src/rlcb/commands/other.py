"""The parsers of commands without flags for config keys: evaluate, compare, import, status, configs and others."""

import argparse
from pathlib import Path

from rlcb.commands.overview import summary_of
from rlcb.config.registry import ALGORITHMS
from rlcb.envs.families import GAMES, find
from rlcb.flags import Parser, finite, positive, whole

SHELLS = ("bash", "zsh", "fish")
_MOST_SEED = 2**31 - 1
_LONGEST_NAME = 80


def evaluate_parser(prog: str = "rlcb evaluate", universal: bool = True) -> Parser:
    """`rlcb evaluate` and the two scripts; `universal`: takes --algorithm."""
    from rlcb.evaluation.evaluate import DEFAULT_SEED

    parser = Parser(prog, summary_of("evaluate", prog))
    parser.usage = f"{prog} [--checkpoint PATH] [--num-episodes N] …"
    add = parser.add_argument_group("policy").add_argument
    text = "checkpoint file or run directory; default the newest checkpoint under ./benchmarks"
    add("--checkpoint", type=Path, metavar="PATH", help=text)
    if universal:
        add("--algorithm", choices=tuple(ALGORITHMS), help="reject checkpoints of any other algorithm")
    add("--deterministic", action="store_true", help="take the most probable action instead of sampling")
    add = parser.add_argument_group("episodes").add_argument
    add(
        "--env",
        metavar="ENV",
        help="another environment with the same observation and action spaces; default the training environment",
    )
    text = "your module that defines the environment or network of the run; may be repeated; RLCB_IMPORT names more"
    add("--import", dest="imports", action="append", default=[], metavar="MODULE", help=text)
    levels = ("train", "unseen", "both")
    add("--levels", choices=levels, default="train", help="Procgen: training levels, unseen levels, or both")
    add("--num-episodes", type=whole(1, 10**6), default=100, metavar="N", help="number of episodes")
    text = "environments stepped in parallel; default up to 128, each with the same number of episodes"
    add("--num-envs", type=whole(1, 4096), metavar="N", help=text)
    text = "random seed of levels and actions"
    add("--seed", type=whole(0, _MOST_SEED), default=DEFAULT_SEED, metavar="N", help=text)
    add = parser.add_argument_group("hardware").add_argument
    add("--device", choices=("auto", "cpu", "cuda"), default="auto", help="auto: cuda if there is a GPU, otherwise cpu")
    text = "CPU threads; default chosen for this machine's cores"
    add("--num-threads", type=whole(1, 1024), metavar="N", help=text)
    add = parser.add_argument_group("output").add_argument
    text = "JSON file for the results; default <checkpoint>_evaluation.json next to the checkpoint"
    add("--output", type=Path, metavar="FILE", help=text)
    add("--video", type=Path, metavar="FILE", help="record some episodes as well: FILE.mp4 or FILE.gif")
    add("--render", action="store_true", help="first show some episodes in a window (needs a display)")
    return parser


def compare_parser() -> Parser:
    """`rlcb compare RUN …`."""
    parser = Parser("rlcb compare", summary_of("compare"))
    parser.usage = "rlcb compare RUN … [--output DIR] [--watch [SECONDS]] [--reward-threshold X …] [--seed N]"
    add = parser.add_argument_group("runs").add_argument
    add("paths", nargs="+", type=Path, metavar="RUN", help="run directory, or a directory that contains runs")
    add = parser.add_argument_group("analysis").add_argument
    text = (
        "mean reward used for time-to-threshold and steps-to-threshold; default 80 %% of the way from untrained to "
        "best. Several, or 'published' (rewards of the published PPO curve of each game): a table of the time to each"
    )
    add("--reward-threshold", dest="threshold", nargs="+", type=reward_level, metavar="X", help=text)
    add("--seed", type=whole(0, _MOST_SEED), default=0, metavar="N", help="random seed of the bootstrap")
    add = parser.add_argument_group("output").add_argument
    default = Path("benchmarks") / "comparison"
    add("--output", type=Path, metavar="DIR", default=default, help="directory for the report, plots and tables")
    text = "update the report every SECONDS (30 if not given) until all runs have finished"
    add("--watch", nargs="?", type=positive(86400), const=30.0, metavar="SECONDS", help=text)
    return parser


def reward_level(text: str) -> float | str:
    """A reward, or the word for published ones, for argparse."""
    from rlcb.analysis.reaching import PUBLISHED

    if text == PUBLISHED:
        return text
    try:
        return finite(text)
    except argparse.ArgumentTypeError as error:
        raise argparse.ArgumentTypeError(f"{error}, nor '{PUBLISHED}'; give RUN … before the levels") from None


def import_parser() -> Parser:
    """`rlcb import LOG …`."""
    parser = Parser("rlcb import", summary_of("import"))
    parser.usage = "rlcb import LOG … [--name NAME] [--algorithm NAME] [--game ENV] [--seed N] [--output DIR]"
    parser.epilog = "Labels that are not given are inferred from the logs and directory names, and printed."
    add = parser.add_argument_group("logs").add_argument
    text = "monitor.csv, TensorBoard events, progress.csv or result.json, or a directory that contains such files"
    add("paths", nargs="+", type=Path, metavar="LOG", help=text)
    text = "log to read if a directory has several; default the first found, in this order"
    add("--format", dest="wanted", choices=("monitor", "progress", "tensorboard"), help=text)
    text = "YAML file that names the tag or column of the reward; see docs/import.md"
    add("--mapping", type=Path, metavar="FILE", help=text)
    add = parser.add_argument_group("labels").add_argument
    add("--name", type=words, metavar="NAME", help="label in tables and legends; default program and algorithm")
    add("--algorithm", type=words, metavar="NAME", help="algorithm")
    add("--game", type=words, metavar="ENV", help="environment: a Procgen game or a Gymnasium id")
    add("--seed", type=whole(0, 2**53), metavar="N", help="random seed, if a single run is imported")
    modes = tuple(dict.fromkeys(mode for game in GAMES for mode in find(game)[0].distribution_modes(game)))
    add("--distribution-mode", choices=modes, help="Procgen: difficulty of the training levels; default unknown")
    add("--num-levels", type=whole(0, 2**31 - 1), metavar="N", help="Procgen: number of training levels; 0: unlimited")
    add("--start-level", type=whole(0, 2**31 - 1), metavar="N", help="Procgen: first training level")
    add = parser.add_argument_group("output").add_argument
    default = Path("benchmarks") / "external"
    text = "directory for the imported runs, each as ENV/NAME/seed_N"
    add("--output", type=Path, metavar="DIR", default=default, help=text)
    return parser


def words(text: str) -> str:
    """Text of sensible length without control characters, for argparse."""
    if not text.strip() or len(text) > _LONGEST_NAME or not text.isprintable():
        raise argparse.ArgumentTypeError(f"expected 1 to {_LONGEST_NAME} printable characters")
    return text.strip()


def status_parser() -> Parser:
    """`rlcb status [DIR]`."""
    parser = Parser("rlcb status", summary_of("status"))
    parser.epilog = "Shows the state, progress, speed and reward of each run."
    parser.usage = "rlcb status [DIR] [--watch [SECONDS]] [--json]"
    add = parser.add_argument_group("runs").add_argument
    add("folder", nargs="?", type=Path, metavar="DIR", default=Path("benchmarks"), help="directory to search")
    add = parser.add_argument_group("output").add_argument
    text = "refresh every SECONDS (2 if not given) until Ctrl-C"
    add("--watch", nargs="?", type=positive(86400), const=2.0, metavar="SECONDS", help=text)
    add("--json", dest="as_json", action="store_true", help="print one line of JSON instead of a table")
    return parser


def compare_script_parser(prog: str) -> Parser:
    """`compare_results.py`: a sequential and a parallel run side by side."""
    parser = Parser(prog, "Compare a sequential and a parallel run; either may be omitted.")
    add = parser.add_argument_group("runs").add_argument
    add("--sequential", metavar="DIR", help="directory of the sequential run")
    add("--parallel", metavar="DIR", help="directory of the parallel run")
    add("--newest", type=Path, metavar="DIR", help="use the newest run under DIR for each one that is not given")
    add = parser.add_argument_group("output").add_argument
    text = "plot file: .png, .svg or .pdf; comparison_report.txt is written next to it"
    add("--output", type=Path, metavar="FILE", default=Path("comparison.png"), help=text)
    return parser


def configs_parser() -> Parser:
    """`rlcb configs [NAME]`."""
    parser = Parser("rlcb configs", summary_of("configs"))
    parser.usage = "rlcb configs [NAME]"
    text = "configuration or suite to print; default: list all"
    parser.add_argument_group("file").add_argument("name", nargs="?", metavar="NAME", help=text)
    return parser


def doctor_parser(prog: str = "rlcb doctor") -> Parser:
    """`rlcb doctor` and `quick_test.py`."""
    parser = Parser(prog, summary_of("doctor", prog))
    text = "also fetch Procgen's engine if it is not on this machine"
    parser.add_argument_group("repair").add_argument("--fix", action="store_true", help=text)
    parser.usage = f"{prog} [--fix] [--env ENV [--import MODULE]]"
    add = parser.add_argument_group("environment").add_argument
    add("--env", metavar="ENV", help="check this environment instead: a game, a Gymnasium id or MODULE:ID")
    text = "your module that registers the environment; may be repeated; RLCB_IMPORT names more"
    add("--import", dest="imports", action="append", default=[], metavar="MODULE", help=text)
    return parser


def completion_parser() -> Parser:
    """`rlcb completion SHELL`."""
    install = (
        'bash: add  eval "$(rlcb completion bash)"  to ~/.bashrc',
        'zsh:  add  eval "$(rlcb completion zsh)"  to ~/.zshrc, after compinit',
        "fish: rlcb completion fish > ~/.config/fish/completions/rlcb.fish",
    )
    parser = Parser(
        "rlcb completion",
        "\n".join((summary_of("completion"), "", "to enable it permanently:", *(f"  {line}" for line in install))),
    )
    parser.add_argument_group("shell").add_argument("shell", choices=SHELLS, help="your shell")
    return parser
