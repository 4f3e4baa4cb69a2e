"""The command line: `rlcb VERB …`."""

import io
import sys
from collections.abc import Callable, Sequence

from rlcb import __version__
from rlcb.commands.benchmark import benchmark_verb
from rlcb.commands.flags import Parser
from rlcb.commands.results import compare_script, compare_verb, evaluate
from rlcb.commands.train import train_script, train_verb, tune_verb

__all__ = ["compare_script", "doctor", "evaluate", "main", "train_script"]

# A terminal that cannot show ± or ✓ gets a question mark, not a traceback.
for _stream in (sys.stdout, sys.stderr):
    if isinstance(_stream, io.TextIOWrapper):
        _stream.reconfigure(errors="replace")


def main(argv: Sequence[str] | None = None) -> int:
    """`rlcb VERB …`."""
    argv = list(sys.argv[1:] if argv is None else argv)
    parser = Parser(prog="rlcb", description="Train, time and compare reinforcement-learning algorithms on Procgen.")
    parser.add_argument("--version", action="version", version=f"rlcb {__version__}")
    verbs: dict[str, Callable[[Sequence[str]], int]] = {
        "train": train_verb,
        "evaluate": evaluate,
        "benchmark": benchmark_verb,
        "compare": compare_verb,
        "tune": tune_verb,
        "doctor": doctor,
    }
    parser.add_argument("verb", choices=tuple(verbs), help="what to do; `rlcb VERB --help` says more")
    parser.usage = f"rlcb [--help] [--version] {{{','.join(verbs)}}} …"
    arguments = parser.parse(argv[:1] or ["--help"])
    return verbs[arguments.verb](argv[1:])


def doctor(argv: Sequence[str], prog: str = "rlcb doctor") -> int:
    """Check the installation and print what was found."""
    parser = Parser(prog=prog, description="Check the installation: what is there, what is missing, how to get it.")
    parser.parse(argv)
    from rlcb.doctor import examine

    return examine()
