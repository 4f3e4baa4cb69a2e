"""The command line: verbs that parse, call and print."""

import argparse
import difflib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from rlcb import __version__

# The flags of the documented scripts, by the config key each one sets; `rlcb train` has one for every key.
TIMED_KEYS = ("name", "seed", "num_envs", "n_steps", "batch_size", "num_threads", "device")
FIXED_KEYS = (*TIMED_KEYS, "total_timesteps", "n_epochs", "learning_rate", "gamma", "gae_lambda", "clip_range",
              "ent_coef", "vf_coef", "log_interval", "save_interval", "checkpoint_dir", "log_dir")  # fmt: skip
_FLAG_NAMES = {"name": "--env", "duration_hours": "--duration"}
# What may change when a run goes on: everything else would make it another run.
RESUMABLE_KEYS = ("total_timesteps", "duration_hours", "log_interval", "save_interval", "save_every_minutes",
                  "keep_checkpoints", "tensorboard", "device", "num_threads")  # fmt: skip


class Parser(argparse.ArgumentParser):
    """argparse that answers a mistake with one line, and with what was probably meant."""

    def __init__(self, **options: Any):
        super().__init__(allow_abbrev=False, **options)

    def error(self, message: str) -> NoReturn:
        """Print one line and exit with 2."""
        self.exit(2, f"{self.prog}: error: {message}; see {self.prog} --help\n")

    def parse(self, argv: Sequence[str]) -> argparse.Namespace:
        """Parse all of `argv`; an unknown flag is answered with the nearest known one."""
        arguments, unknown = self.parse_known_args(argv)
        if unknown:
            known = [flag for action in self._actions for flag in action.option_strings]
            close = difflib.get_close_matches(unknown[0].split("=")[0], known, 1)
            self.error(f"unknown argument {unknown[0]}" + (f", did you mean {close[0]}?" if close else ""))
        return arguments


def flag_of(key: str) -> str:
    """The flag that sets a config key."""
    return _FLAG_NAMES.get(key, "--" + key.replace("_", "-"))


def main(argv: Sequence[str] | None = None) -> int:
    """`rlcb VERB …`."""
    argv = list(sys.argv[1:] if argv is None else argv)
    parser = Parser(prog="rlcb", description="Train, time and compare reinforcement-learning algorithms on Procgen.")
    parser.add_argument("--version", action="version", version=f"rlcb {__version__}")
    parser.add_argument("verb", choices=("train", "doctor"), help="what to do; `rlcb VERB --help` says more")
    parser.usage = "rlcb [--help] [--version] {train,doctor} …"
    arguments = parser.parse(argv[:1] or ["--help"])
    if arguments.verb == "doctor":
        return doctor(argv[1:], "rlcb doctor")
    return _train_verb(argv[1:])


def doctor(argv: Sequence[str], prog: str) -> int:
    """Check the installation and print what was found."""
    parser = Parser(prog=prog, description="Check the installation: what is there, what is missing, how to get it.")
    parser.parse(argv)
    from rlcb.doctor import examine

    return examine()


def _train_verb(argv: Sequence[str]) -> int:
    """`rlcb train ALGORITHM --mode MODE …`: all configuration keys are flags here."""
    from rlcb.config import fields

    parser = Parser(prog="rlcb train", description="Train an algorithm for a time or a number of steps.")
    parser.add_argument("algorithm", choices=("ppo",), nargs="?", help="not needed with --resume")
    parser.add_argument("--mode", choices=("sequential",), default="sequential", help="how it runs")
    _add_common(parser, "./benchmarks/<mode>")
    _add_keys(parser, [key for _, key, _ in fields()])
    arguments = parser.parse(argv)
    if arguments.algorithm is None and arguments.resume is None:
        parser.error("say which algorithm: ppo")
    if arguments.duration_hours is not None and arguments.total_timesteps is not None:
        parser.error("--duration and --total-timesteps exclude each other")
    return _guarded(parser.prog, arguments, arguments.algorithm or "ppo", arguments.mode)


def train_script(prog: str, algorithm: str, mode: str, timed: bool, argv: Sequence[str] | None = None) -> int:
    """One of the documented training scripts."""
    what = "for a fixed time" if timed else "for a fixed number of steps"
    parser = Parser(prog=prog, description=f"Train {algorithm.upper()} ({mode}) {what}.")
    _add_common(parser, f"./benchmarks/{mode}")
    _add_keys(parser, ("duration_hours", *TIMED_KEYS) if timed else FIXED_KEYS)
    arguments = parser.parse(sys.argv[1:] if argv is None else argv)
    if timed and arguments.duration_hours is None and arguments.resume is None:
        parser.error("--duration HOURS is required")
    if not timed and arguments.resume is None:
        arguments.duration_hours = "null"  # these stop by steps, whatever the file says
    return _guarded(prog, arguments, algorithm, mode)


def _add_common(parser: Parser, output_dir: str) -> None:
    parser.add_argument("--config", type=Path, metavar="FILE", help="YAML file, default config/<algorithm>_<mode>.yaml")
    parser.add_argument("--output-dir", type=Path, metavar="DIR", help=f"where the run is kept, default {output_dir}")
    parser.add_argument("--resume", type=Path, metavar="DIR", help="go on with the run in DIR as if it never stopped")


def _add_keys(parser: Parser, keys: Sequence[str]) -> None:
    """A flag for each key; values are checked together with the file's, so all arrive as text."""
    from rlcb.config import allowed_values, fields

    by_key = {key: field for _, key, field in fields()}
    for key in keys:
        field = by_key[key]
        text = f"{field.description}: {allowed_values(field)}"
        parser.add_argument(flag_of(key), dest=key, metavar="VALUE", help=text.replace("%", "%%"))
    parser.epilog = "What no flag gives comes from the config file, and what that leaves out from the defaults."


def _guarded(prog: str, arguments: argparse.Namespace, algorithm: str, mode: str) -> int:
    """Run a training command; an expected failure becomes one line and its exit code."""
    from rlcb.errors import RlcbError
    from rlcb.launch import launch
    from rlcb.yamlfile import parse_scalar

    reserved = ("algorithm", "mode", "config", "output_dir", "resume")
    given = {key: value for key, value in vars(arguments).items() if key not in reserved and value is not None}
    overrides = {key: (flag_of(key), parse_scalar(value)) for key, value in given.items()}
    try:
        return launch(prog, algorithm, mode, overrides, arguments.config, arguments.output_dir, arguments.resume)
    except RlcbError as error:
        print(f"{prog}: error: {error}", file=sys.stderr)
        return error.exit_code
