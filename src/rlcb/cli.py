"""The command line: verbs that parse, call and print."""

import argparse
import difflib
import io
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
PARALLEL_KEYS = ("num_workers", "num_envs_per_worker")


# A terminal that cannot show ± or ✓ gets a question mark, not a traceback.
for _stream in (sys.stdout, sys.stderr):
    if isinstance(_stream, io.TextIOWrapper):
        _stream.reconfigure(errors="replace")


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
    verbs = {"train": _train_verb, "tune": _tune_verb, "doctor": doctor}
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


def _train_verb(argv: Sequence[str]) -> int:
    """`rlcb train ALGORITHM --mode MODE …`: all configuration keys are flags here."""
    from rlcb.config import fields

    parser = Parser(prog="rlcb train", description="Train an algorithm for a time or a number of steps.")
    parser.add_argument("algorithm", choices=("ppo",), nargs="?", help="not needed with --resume")
    parser.add_argument("--mode", choices=("sequential", "parallel"), help="how it runs, default sequential")
    _add_common(parser, "./benchmarks/<mode>")
    _add_keys(parser, [key for _, key, _ in fields()])
    arguments = parser.parse(argv)
    if arguments.algorithm is None and arguments.resume is None:
        parser.error("say which algorithm: ppo")
    if arguments.duration_hours is not None and arguments.total_timesteps is not None:
        parser.error("--duration and --total-timesteps exclude each other")
    return _guarded(parser.prog, arguments, arguments.algorithm or "ppo", arguments.mode)


def _tune_verb(argv: Sequence[str]) -> int:
    """`rlcb tune`: measure what is fastest here and write it down."""
    parser = Parser(
        prog="rlcb tune", description="Measure workers, threads, environments and minibatch on this machine."
    )
    parser.add_argument("--config", type=Path, metavar="FILE", help="what to tune, default config/ppo_parallel.yaml")
    parser.add_argument("--output", type=Path, metavar="FILE", default=Path("config/tuned.yaml"), help="where to write")
    parser.add_argument("--updates", type=int, default=2, metavar="N", help="updates timed for each trial, default 2")
    _add_keys(parser, ("name",))
    arguments = parser.parse(argv)
    if not 1 <= arguments.updates <= 1000:
        parser.error("--updates must be a whole number from 1 to 1000")
    from rlcb.errors import RlcbError
    from rlcb.launch import tuned

    try:
        return tuned(arguments.config, arguments.name, arguments.output, arguments.updates)
    except RlcbError as error:
        print(f"{parser.prog}: error: {error}", file=sys.stderr)
        return error.exit_code


def train_script(prog: str, algorithm: str, mode: str, timed: bool, argv: Sequence[str] | None = None) -> int:
    """One of the documented training scripts."""
    what = "for a fixed time" if timed else "for a fixed number of steps"
    parser = Parser(prog=prog, description=f"Train {algorithm.upper()} ({mode}) {what}.")
    _add_common(parser, f"./benchmarks/{mode}")
    keys = ("duration_hours", *TIMED_KEYS) if timed else FIXED_KEYS
    _add_keys(parser, (*keys, *PARALLEL_KEYS) if mode == "parallel" else keys)
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


def _guarded(prog: str, arguments: argparse.Namespace, algorithm: str, mode: str | None) -> int:
    """Run a training command; an expected failure becomes one line and its exit code."""
    from rlcb.errors import RlcbError
    from rlcb.launch import launch
    from rlcb.yamlfile import parse_scalar

    reserved = ("algorithm", "mode", "config", "output_dir", "resume")
    given = {key: value for key, value in vars(arguments).items() if key not in reserved and value is not None}
    overrides = {key: (flag_of(key), parse_scalar(value)) for key, value in given.items()}
    if mode == "parallel" and "num_envs" in overrides:
        # In parallel commands --num-envs counts each worker's.
        overrides.setdefault("num_envs_per_worker", overrides["num_envs"])
        if overrides["num_envs_per_worker"][1] != overrides.pop("num_envs")[1]:
            print(f"{prog}: error: --num-envs and --num-envs-per-worker mean the same here and differ", file=sys.stderr)
            return 2
    try:
        return launch(prog, algorithm, mode, overrides, arguments.config, arguments.output_dir, arguments.resume)
    except RlcbError as error:
        print(f"{prog}: error: {error}", file=sys.stderr)
        return error.exit_code
