"""The verbs of `rlcb`: what each one does, an example of it, and the help that lists them."""

import argparse
import platform
from dataclasses import dataclass
from pathlib import Path

from rlcb.flags import Parser

_PACKAGES = ("torch", "numpy", "gymnasium", "ale-py", "ray")


@dataclass(frozen=True)
class Verb:
    """One verb as help shows it."""

    group: str
    summary: str
    example: str


VERBS = {
    "train": Verb(
        "train", "train one algorithm for a given time or number of steps", "rlcb train ppo --env coinrun --duration 1h"
    ),
    "benchmark": Verb(
        "train", "run a suite: train algorithms × modes × seeds × games, evaluate each run, write a report",
        "rlcb benchmark --algorithms ppo impala --seeds 1 2 3 --duration 30m",
    ),
    "tune": Verb("train", "find the fastest number of workers, learners and threads for this machine", "rlcb tune ppo"),
    "evaluate": Verb(
        "measure", "run episodes with a trained policy and report the rewards",
        "rlcb evaluate --checkpoint benchmarks/sequential --levels both",
    ),
    "limits": Verb(
        "measure", "measure the maximum speed of environments, acting and learning on this machine",
        "rlcb limits ppo --mode parallel",
    ),
    "status": Verb("inspect", "show the state and progress of all runs in a directory", "rlcb status --watch"),
    "compare": Verb(
        "inspect", "compare runs: metrics across seeds, pairwise tests, a recommendation",
        "rlcb compare benchmarks/sequential benchmarks/parallel",
    ),
    "configs": Verb(
        "inspect", "list the built-in configurations and suites, or print one", "rlcb configs ppo_paper > mine.yaml"
    ),
    "import": Verb(
        "inspect", "import runs of Stable-Baselines3, CleanRL, RLlib or any TensorBoard log for comparison",
        "rlcb import sb3_logs --game CartPole-v1",
    ),
    "doctor": Verb(
        "setup", "check the installation, or with --env an environment, and say what to do about it", "rlcb doctor"
    ),
    "completion": Verb(
        "setup", "print a shell completion script for bash, zsh or fish", 'eval "$(rlcb completion bash)"'
    ),
}  # fmt: skip


class _Version(argparse.Action):
    """`--version`: this program's version, those of the packages that it computes with, and where its files are."""

    def __call__(self, parser: argparse.ArgumentParser, *given: object) -> None:
        """Print it and end the program."""
        from rlcb.config.named import folder
        from rlcb.hardware import code_version, package_version

        found = [f"Python {platform.python_version()}"]
        found += [f"{name} {version}" for name in _PACKAGES if (version := package_version(name))]
        print(f"rlcb {code_version()}", ", ".join(found), f"program: {Path(__file__).resolve().parents[1]}", sep="\n")
        print(f"configurations: {folder()}")
        parser.exit()


def overview() -> Parser:
    """The parser of `rlcb VERB`, whose help lists the verbs in groups."""
    what = "Train, time and compare reinforcement-learning algorithms on Procgen and Gymnasium environments."
    parser = Parser("rlcb", f"{what}\n`rlcb VERB --help` describes a verb and its options.", add_help=False)
    parser.usage = "rlcb VERB …"
    parser.add_argument("verb", choices=tuple(VERBS), metavar="VERB", help=argparse.SUPPRESS)
    for title in dict.fromkeys(verb.group for verb in VERBS.values()):
        lines = []
        for name, verb in VERBS.items():
            lines += [f"{name:<11} {verb.summary}", f"{'':<11} $ {verb.example}"] if verb.group == title else []
        parser.add_argument_group(title, "\n".join(lines))
    options = parser.add_argument_group("options")
    options.add_argument("-h", "--help", action="help", help="show this help and exit")
    options.add_argument("--version", action=_Version, nargs=0, help="show versions and installation paths and exit")
    return parser


def summary_of(verb: str, prog: str = "rlcb") -> str:
    """A verb's line as a sentence, for its own help, with the example unless a script does the same."""
    found = VERBS[verb]
    example = f"\n\nexample:\n  {found.example}" if prog.startswith("rlcb") else ""
    return f"{found.summary[0].upper()}{found.summary[1:]}.{example}"
