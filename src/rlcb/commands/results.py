"""What became of training: `rlcb evaluate`, `rlcb compare` and their documented scripts."""

import sys
from collections.abc import Sequence
from pathlib import Path

from rlcb.commands.flags import Parser, answered, finite, whole


def evaluate(argv: Sequence[str] | None = None, prog: str = "rlcb evaluate", universal: bool = True) -> int:
    """`rlcb evaluate` and the two scripts; `universal`: takes --algorithm."""
    from rlcb.evaluation.request import DEFAULT_SEED, Request

    parser = Parser(prog=prog, description="Play episodes with a trained policy and say how good it is.")
    add = parser.add_argument
    default = "default the newest under ./benchmarks"
    add("--checkpoint", type=Path, metavar="PATH", help=f"a checkpoint file or a run's directory, {default}")
    if universal:
        add("--algorithm", choices=("ppo", "impala", "a2c", "a3c"), help="what the checkpoint must be of")
    add("--env", metavar="NAME", help="another environment of the same shape, default the one trained in")
    add("--num-episodes", type=whole(1, 10**6), default=100, metavar="N", help="episodes to count, default 100")
    add("--num-envs", type=whole(1, 4096), metavar="N", help="played together, default up to 128 with equal shares")
    add("--deterministic", action="store_true", help="take the likeliest action instead of drawing one")
    add("--levels", choices=("train", "unseen", "both"), default="train", help="Procgen: which levels, default train")
    text = f"seed of levels and actions, default {DEFAULT_SEED}"
    add("--seed", type=whole(0, 2**31 - 1), default=DEFAULT_SEED, metavar="N", help=text)
    add("--device", choices=("auto", "cpu", "cuda"), default="auto", help="auto, the default: cuda where there is one")
    add("--num-threads", type=whole(1, 1024), metavar="N", help="CPU threads, default what this machine allows")
    add("--render", action="store_true", help="first show some episodes in a window, where there is a display")
    add("--video", type=Path, metavar="FILE", help="also film some episodes: FILE.mp4 or FILE.gif")
    text = "where the results go, default <checkpoint>_evaluation.json beside the checkpoint"
    add("--output", type=Path, metavar="FILE", help=text)
    request = Request(**vars(parser.parse(sys.argv[1:] if argv is None else argv)))
    from rlcb.evaluation.evaluate import evaluate as carry_out

    return answered(prog, lambda: carry_out(request, titled=universal and not prog.startswith("rlcb")))


def compare_verb(argv: Sequence[str]) -> int:
    """`rlcb compare RUN …`: any number of runs."""
    parser = Parser(prog="rlcb compare", description="Compare runs: figures over seeds, tests of pairs, a verdict.")
    add = parser.add_argument
    add("runs", nargs="+", type=Path, metavar="RUN", help="a run's directory, or a folder with runs below it")
    default = Path("benchmarks") / "comparison"
    add("--output", type=Path, metavar="DIR", default=default, help=f"where the files go, default ./{default}")
    text = "mean reward that steps and time to reach are given for; default 80 %% of the way from untrained to the best"
    add("--reward-threshold", type=finite, metavar="X", help=text)
    add("--seed", type=whole(0, 2**31 - 1), default=0, metavar="N", help="seed of the bootstrap, default 0")
    arguments = parser.parse(argv)
    from rlcb.analysis.commands import compare_any

    given = (arguments.runs, arguments.output, arguments.reward_threshold, arguments.seed)
    return answered(parser.prog, lambda: compare_any(*given))


def compare_script(prog: str, argv: Sequence[str] | None = None) -> int:
    """`compare_results.py`: a sequential and a parallel run side by side."""
    parser = Parser(prog=prog, description="Compare a sequential and a parallel run; either may be left out.")
    add = parser.add_argument
    add("--sequential", metavar="DIR", help="the sequential run's directory")
    add("--parallel", metavar="DIR", help="the parallel run's directory")
    add("--newest", type=Path, metavar="DIR", help="take the newest below DIR of what is not named")
    text = "the picture, .png, .svg or .pdf, default ./comparison.png; comparison_report.txt is written beside it"
    add("--output", type=Path, metavar="FILE", default=Path("comparison.png"), help=text)
    arguments = parser.parse(sys.argv[1:] if argv is None else argv)
    from rlcb.analysis.commands import compare_two

    given = (arguments.sequential, arguments.parallel, arguments.newest, arguments.output)
    return answered(prog, lambda: compare_two(*given))
