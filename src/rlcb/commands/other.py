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
    text = "a checkpoint file or a run's directory; default the newest below ./benchmarks"
    add("--checkpoint", type=Path, metavar="PATH", help=text)
    if universal:
        add("--algorithm", choices=tuple(ALGORITHMS), help="refuse checkpoints of another algorithm")
    add("--deterministic", action="store_true", help="take the most probable action instead of sampling")
    add = parser.add_argument_group("episodes").add_argument
    add("--env", metavar="ENV", help="another environment of the same shape; default the one trained in")
    text = "a module of yours that the run needs, with its environment or network; can be given several times"
    add("--import", dest="imports", action="append", default=[], metavar="MODULE", help=text)
    levels = ("train", "unseen", "both")
    add("--levels", choices=levels, default="train", help="Procgen: levels of the training, unseen ones, or both")
    add("--num-episodes", type=whole(1, 10**6), default=100, metavar="N", help="number of episodes")
    text = "environments stepped in parallel; default up to 128 with equal shares of the episodes"
    add("--num-envs", type=whole(1, 4096), metavar="N", help=text)
    text = "random seed of levels and actions"
    add("--seed", type=whole(0, _MOST_SEED), default=DEFAULT_SEED, metavar="N", help=text)
    add = parser.add_argument_group("hardware").add_argument
    add("--device", choices=("auto", "cpu", "cuda"), default="auto", help="auto: cuda if there is a GPU, otherwise cpu")
    text = "CPU threads; default chosen for this machine's cores"
    add("--num-threads", type=whole(1, 1024), metavar="N", help=text)
    add = parser.add_argument_group("output").add_argument
    text = "JSON file of the results; default <checkpoint>_evaluation.json beside the checkpoint"
    add("--output", type=Path, metavar="FILE", help=text)
    add("--video", type=Path, metavar="FILE", help="also record some episodes: FILE.mp4 or FILE.gif")
    add("--render", action="store_true", help="first show some episodes in a window, where there is a display")
    return parser


def compare_parser() -> Parser:
    """`rlcb compare RUN …`."""
    parser = Parser("rlcb compare", summary_of("compare"))
    parser.usage = "rlcb compare RUN … [--output DIR] [--watch [SECONDS]] [--reward-threshold X] [--seed N]"
    add = parser.add_argument_group("runs").add_argument
    add("paths", nargs="+", type=Path, metavar="RUN", help="a run's directory, or a folder with runs below it")
    add = parser.add_argument_group("analysis").add_argument
    text = "mean reward for time and steps to reach it; default 80 %% of the way from untrained to the best"
    add("--reward-threshold", dest="threshold", type=finite, metavar="X", help=text)
    add("--seed", type=whole(0, _MOST_SEED), default=0, metavar="N", help="random seed of the bootstrap")
    add = parser.add_argument_group("output").add_argument
    default = Path("benchmarks") / "comparison"
    add("--output", type=Path, metavar="DIR", default=default, help="where reports, pictures and tables are written")
    text = (
        "while runs are under way keep the page current: look every 30 seconds, or the given number, until all are done"
    )
    add("--watch", nargs="?", type=positive(86400), const=30.0, metavar="SECONDS", help=text)
    return parser


def import_parser() -> Parser:
    """`rlcb import LOG …`."""
    parser = Parser("rlcb import", summary_of("import"))
    parser.usage = "rlcb import LOG … [--name NAME] [--algorithm NAME] [--game ENV] [--seed N] [--output DIR]"
    parser.epilog = "What is not given is taken from the files and the names of their folders, and printed."
    add = parser.add_argument_group("logs").add_argument
    text = "a folder with monitor.csv, TensorBoard events, progress.csv or result.json in it or below, or such a file"
    add("paths", nargs="+", type=Path, metavar="LOG", help=text)
    text = "read this where a folder has several; default the first of them that is there"
    add("--format", dest="wanted", choices=("monitor", "progress", "tensorboard"), help=text)
    text = "YAML file that says which tag or column is the reward; see docs/import.md"
    add("--mapping", type=Path, metavar="FILE", help=text)
    add = parser.add_argument_group("labels").add_argument
    add("--name", type=words, metavar="NAME", help="what tables and legends call it; default program and algorithm")
    add("--algorithm", type=words, metavar="NAME", help="the algorithm")
    add("--game", type=words, metavar="ENV", help="the environment, a Procgen game or a Gymnasium id")
    add("--seed", type=whole(0, 2**53), metavar="N", help="the random seed, where one run is imported")
    modes = tuple(dict.fromkeys(mode for game in GAMES for mode in find(game)[0].distribution_modes(game)))
    add("--distribution-mode", choices=modes, help="Procgen: the levels that it was trained on; default unknown")
    add("--num-levels", type=whole(0, 2**31 - 1), metavar="N", help="Procgen: their number, 0 for all")
    add("--start-level", type=whole(0, 2**31 - 1), metavar="N", help="Procgen: the first of them")
    add = parser.add_argument_group("output").add_argument
    default = Path("benchmarks") / "external"
    text = "where runs are written, each as ENV/NAME/seed_N"
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
    parser.epilog = "Of each run: state, progress, speed and reward."
    parser.usage = "rlcb status [DIR] [--watch [SECONDS]] [--json]"
    add = parser.add_argument_group("runs").add_argument
    add("folder", nargs="?", type=Path, metavar="DIR", default=Path("benchmarks"), help="where to look")
    add = parser.add_argument_group("output").add_argument
    text = "repeat until Ctrl-C, every 2 seconds or the given number"
    add("--watch", nargs="?", type=positive(86400), const=2.0, metavar="SECONDS", help=text)
    add("--json", dest="as_json", action="store_true", help="one line of JSON instead of a table")
    return parser


def compare_script_parser(prog: str) -> Parser:
    """`compare_results.py`: a sequential and a parallel run side by side."""
    parser = Parser(prog, "Compare a sequential and a parallel run; either may be left out.")
    add = parser.add_argument_group("runs").add_argument
    add("--sequential", metavar="DIR", help="the sequential run's directory")
    add("--parallel", metavar="DIR", help="the parallel run's directory")
    add("--newest", type=Path, metavar="DIR", help="take the newest below DIR of what is not named")
    add = parser.add_argument_group("output").add_argument
    text = "the picture, .png, .svg or .pdf; comparison_report.txt is written beside it"
    add("--output", type=Path, metavar="FILE", default=Path("comparison.png"), help=text)
    return parser


def configs_parser() -> Parser:
    """`rlcb configs [NAME]`."""
    parser = Parser("rlcb configs", summary_of("configs"))
    parser.usage = "rlcb configs [NAME]"
    text = "print this configuration or suite; default: list all"
    parser.add_argument_group("file").add_argument("name", nargs="?", metavar="NAME", help=text)
    return parser


def doctor_parser(prog: str = "rlcb doctor") -> Parser:
    """`rlcb doctor` and `quick_test.py`."""
    return Parser(prog, summary_of("doctor", prog))


def completion_parser() -> Parser:
    """`rlcb completion SHELL`."""
    install = (
        'bash: add  eval "$(rlcb completion bash)"  to ~/.bashrc',
        'zsh:  add  eval "$(rlcb completion zsh)"  to ~/.zshrc, after compinit',
        "fish: rlcb completion fish > ~/.config/fish/completions/rlcb.fish",
    )
    parser = Parser(
        "rlcb completion", "\n".join((summary_of("completion"), "", "to keep it:", *(f"  {line}" for line in install)))
    )
    parser.add_argument_group("shell").add_argument("shell", choices=SHELLS, help="the shell that reads the script")
    return parser
