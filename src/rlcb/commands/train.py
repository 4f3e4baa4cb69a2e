"""Training: `rlcb train`, the documented training scripts, `rlcb tune`."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from rlcb.catalog import ALGORITHMS, MODES
from rlcb.commands.flags import Parser, add_aliases, add_keys, answered, flag_of, whole

# The flags of the documented scripts, by the config key each one sets; `rlcb train` has one for every key.
TIMED_KEYS = ("name", "seed", "num_envs", "n_steps", "batch_size", "num_threads", "device")
FIXED_KEYS = (*TIMED_KEYS, "total_timesteps", "n_epochs", "learning_rate", "gamma", "gae_lambda", "clip_range",
              "ent_coef", "vf_coef", "log_interval", "save_interval", "checkpoint_dir", "log_dir")  # fmt: skip
PARALLEL_KEYS = ("num_workers", "num_envs_per_worker", "cluster", "min_workers", "insecure")
ALIASES = {"num_actors": "num_workers", "num_envs_per_actor": "num_envs_per_worker"}  # flags of parallel IMPALA


def train_verb(argv: Sequence[str]) -> int:
    """`rlcb train ALGORITHM --mode MODE …`: all configuration keys are flags here."""
    from rlcb.config import all_keys

    parser = Parser(prog="rlcb train", description="Train an algorithm for a time or a number of steps.")
    parser.add_argument("algorithm", choices=tuple(ALGORITHMS), nargs="?", help="not needed with --resume")
    parser.add_argument(
        "--mode", choices=("sequential", "parallel"), help="how it runs, default sequential (A3C: parallel)"
    )
    _add_common(parser, "./benchmarks/<mode> for PPO, ./benchmarks/<algorithm>_<mode> for others")
    add_keys(parser, list(all_keys()))
    add_aliases(parser, ALIASES)
    arguments = parser.parse(argv)
    if arguments.algorithm is None and arguments.resume is None:
        parser.error(f"say which algorithm: {', '.join(ALGORITHMS)}")
    if arguments.duration_hours is not None and arguments.total_timesteps is not None:
        parser.error("--duration and --total-timesteps exclude each other")
    algorithm = arguments.algorithm or "ppo"
    mode = arguments.mode or (MODES[algorithm][0] if arguments.resume is None else None)
    return _trained(parser.prog, arguments, algorithm, mode)


def train_script(prog: str, algorithm: str, mode: str, timed: bool, argv: Sequence[str] | None = None) -> int:
    """One of the documented training scripts."""
    from rlcb.config import fields
    from rlcb.launch import default_output

    what = "for a fixed time" if timed else "for a fixed number of steps"
    parser = Parser(prog=prog, description=f"Train {algorithm.upper()} ({mode}) {what}.")
    _add_common(parser, f"./{default_output(algorithm, mode)}")
    keys = ("duration_hours", *TIMED_KEYS) if timed else FIXED_KEYS
    keys = (*keys, *PARALLEL_KEYS) if mode == "parallel" else keys
    known = {key for _, key, _ in fields(algorithm)}
    add_keys(parser, [key for key in keys if key in known])
    if mode == "parallel" and ALGORITHMS[algorithm].aliases:
        add_aliases(parser, ALIASES)
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
    # In parallel commands --num-envs counts each worker's.
    per_worker = {"num_envs": "num_envs_per_worker"} if mode == "parallel" else {}
    for name, key in {**ALIASES, **per_worker}.items():
        if name in overrides:
            meant = overrides.pop(name)
            if overrides.setdefault(key, meant)[1] != meant[1]:
                same = f"{flag_of(name)} and {flag_of(key)} mean the same here and differ"
                print(f"{prog}: error: {same}", file=sys.stderr)
                return 2
    where = (arguments.config, arguments.output_dir, arguments.resume)
    return answered(prog, lambda: launch(prog, algorithm, mode, overrides, *where))


def tune_verb(argv: Sequence[str]) -> int:
    """`rlcb tune`: measure what is fastest here and write it down."""
    parser = Parser(
        prog="rlcb tune", description="Measure workers, threads, environments and minibatch on this machine."
    )
    parser.add_argument("algorithm", choices=tuple(ALGORITHMS), nargs="?", default="ppo", help="default ppo")
    help_config = "what to tune, default config/<algorithm>_parallel.yaml"
    parser.add_argument("--config", type=Path, metavar="FILE", help=help_config)
    parser.add_argument("--output", type=Path, metavar="FILE", default=Path("config/tuned.yaml"), help="where to write")
    parser.add_argument(
        "--updates", type=whole(1, 1000), default=2, metavar="N", help="updates timed in a trial, default 2"
    )
    add_keys(parser, ("name",))
    arguments = parser.parse(argv)
    from rlcb.launch import tuned

    where = (arguments.config, arguments.name, arguments.output, arguments.updates)
    return answered(parser.prog, lambda: tuned(arguments.algorithm, *where))
