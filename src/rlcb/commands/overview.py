"""The verbs of `rlcb`: what each one does, an example of it, and the help that lists them."""

import argparse
import platform
from dataclasses import dataclass
from pathlib import Path

from rlcb.flags import Parser

_PACKAGES = ("torch", "numpy", "gymnasium", "procgen-mirror", "ray")


@dataclass(frozen=True)
class Verb:
    """One verb as help shows it."""

    group: str
    summary: str
    example: str


VERBS = {
    "train": Verb(
        "train", "train an algorithm for a time or a number of steps", "rlcb train ppo --env coinrun --duration 1h"
    ),
    "benchmark": Verb(
        "train", "train algorithms × modes × seeds × games, evaluate each run, write a report",
        "rlcb benchmark --algorithms ppo impala --seeds 1 2 3 --duration 30m",
    ),
    "tune": Verb("train", "find the fastest division into workers and threads on this machine", "rlcb tune ppo"),
    "evaluate": Verb(
        "measure", "play episodes with a trained policy and report the rewards",
        "rlcb evaluate --checkpoint benchmarks/sequential --levels both",
    ),
    "limits": Verb(
        "measure", "measure environments, acting and learning alone: the FPS this machine could reach",
        "rlcb limits ppo --mode parallel",
    ),
    "status": Verb("look", "show what every run below a folder is doing", "rlcb status --watch"),
    "compare": Verb(
        "look", "compare runs: metrics over seeds, tests of pairs, a verdict",
        "rlcb compare benchmarks/sequential benchmarks/parallel",
    ),
    "configs": Verb(
        "look", "list the configurations and suites of the package, or print one", "rlcb configs ppo_paper > mine.yaml"
    ),
    "import": Verb(
        "look", "read runs of Stable-Baselines3, CleanRL, RLlib or any TensorBoard log, to compare with",
        "rlcb import sb3_logs --game CartPole-v1",
    ),
    "doctor": Verb("check", "check the installation: what is there, what is missing, how to get it", "rlcb doctor"),
    "completion": Verb(
        "check", "print a script that completes commands in bash, zsh or fish", 'eval "$(rlcb completion bash)"'
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
    parser = Parser("rlcb", f"{what}\n`rlcb VERB --help` says more about a verb.", add_help=False)
    parser.usage = "rlcb VERB …"
    parser.add_argument("verb", choices=tuple(VERBS), metavar="VERB", help=argparse.SUPPRESS)
    for title in dict.fromkeys(verb.group for verb in VERBS.values()):
        lines = []
        for name, verb in VERBS.items():
            lines += [f"{name:<11} {verb.summary}", f"{'':<11} $ {verb.example}"] if verb.group == title else []
        parser.add_argument_group(title, "\n".join(lines))
    options = parser.add_argument_group("options")
    options.add_argument("-h", "--help", action="help", help="show this help and exit")
    options.add_argument("--version", action=_Version, nargs=0, help="show versions and places and exit")
    return parser


def summary_of(verb: str, prog: str = "rlcb") -> str:
    """A verb's line as a sentence, for its own help, with the example unless a script does the same."""
    found = VERBS[verb]
    example = f"\n\nexample:\n  {found.example}" if prog.startswith("rlcb") else ""
    return f"{found.summary[0].upper()}{found.summary[1:]}.{example}"
