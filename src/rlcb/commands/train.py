"""Training: `rlcb train`, the documented training scripts, `rlcb tune`."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from rlcb.commands.flags import Parser, add_keys, answered, flag_of, whole

# The flags of the documented scripts, by the config key each one sets; `rlcb train` has one for every key.
TIMED_KEYS = ("name", "seed", "num_envs", "n_steps", "batch_size", "num_threads", "device")
FIXED_KEYS = (*TIMED_KEYS, "total_timesteps", "n_epochs", "learning_rate", "gamma", "gae_lambda", "clip_range",
              "ent_coef", "vf_coef", "log_interval", "save_interval", "checkpoint_dir", "log_dir")  # fmt: skip
PARALLEL_KEYS = ("num_workers", "num_envs_per_worker")


def train_verb(argv: Sequence[str]) -> int:
    """`rlcb train ALGORITHM --mode MODE …`: all configuration keys are flags here."""
    from rlcb.config import fields
    from rlcb.launch import ALGORITHMS

    parser = Parser(prog="rlcb train", description="Train an algorithm for a time or a number of steps.")
    parser.add_argument("algorithm", choices=tuple(ALGORITHMS), nargs="?", help="not needed with --resume")
    parser.add_argument("--mode", choices=("sequential", "parallel"), help="how it runs, default sequential")
    _add_common(parser, "./benchmarks/<mode>")
    add_keys(parser, [key for _, key, _ in fields()])
    arguments = parser.parse(argv)
    if arguments.algorithm is None and arguments.resume is None:
        parser.error(f"say which algorithm: {', '.join(ALGORITHMS)}")
    if arguments.duration_hours is not None and arguments.total_timesteps is not None:
        parser.error("--duration and --total-timesteps exclude each other")
    return _trained(parser.prog, arguments, arguments.algorithm or "ppo", arguments.mode)


def train_script(prog: str, algorithm: str, mode: str, timed: bool, argv: Sequence[str] | None = None) -> int:
    """One of the documented training scripts."""
    what = "for a fixed time" if timed else "for a fixed number of steps"
    parser = Parser(prog=prog, description=f"Train {algorithm.upper()} ({mode}) {what}.")
    _add_common(parser, f"./benchmarks/{mode}")
    keys = ("duration_hours", *TIMED_KEYS) if timed else FIXED_KEYS
    add_keys(parser, (*keys, *PARALLEL_KEYS) if mode == "parallel" else keys)
    arguments = parser.parse(sys.argv[1:] if argv is None else argv)
    if timed and arguments.duration_hours is None and arguments.resume is None:
        parser.error("--duration HOURS is required")
    if not timed and arguments.resume is None:
        arguments.duration_hours = "null"  # these stop by steps, whatever the file says
    return _trained(prog, arguments, algorithm, mode)


def _add_common(parser: Parser, output_dir: str) -> None:
    parser.add_argument("--config", type=Path, metavar="FILE", help="YAML file, default config/<algorithm>_<mode>.yaml")
    parser.add_argument("--output-dir", type=Path, metavar="DIR", help=f"where the run is kept, default {output_dir}")
    parser.add_argument("--resume", type=Path, metavar="DIR", help="go on with the run in DIR as if it never stopped")


def _trained(prog: str, arguments: argparse.Namespace, algorithm: str, mode: str | None) -> int:
    """Run a training command."""
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
    where = (arguments.config, arguments.output_dir, arguments.resume)
    return answered(prog, lambda: launch(prog, algorithm, mode, overrides, *where))


def tune_verb(argv: Sequence[str]) -> int:
    """`rlcb tune`: measure what is fastest here and write it down."""
    parser = Parser(
        prog="rlcb tune", description="Measure workers, threads, environments and minibatch on this machine."
    )
    parser.add_argument("--config", type=Path, metavar="FILE", help="what to tune, default config/ppo_parallel.yaml")
    parser.add_argument("--output", type=Path, metavar="FILE", default=Path("config/tuned.yaml"), help="where to write")
    parser.add_argument(
        "--updates", type=whole(1, 1000), default=2, metavar="N", help="updates timed in a trial, default 2"
    )
    add_keys(parser, ("name",))
    arguments = parser.parse(argv)
    from rlcb.launch import tuned

    return answered(parser.prog, lambda: tuned(arguments.config, arguments.name, arguments.output, arguments.updates))
