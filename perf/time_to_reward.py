"""The time to reward of this program's algorithms and modes, and of other programs, on CoinRun on this machine.

    python perf/time_to_reward.py --total-timesteps 2000000 --seeds 1 2 3 --output benchmarks/time_to_reward
    python perf/time_to_reward.py --ways ppo_sequential ppo_parallel --peers sb3 --same-work --levels 5.93 6.79
    python perf/time_to_reward.py --ways ppo_sequential impala_parallel --device cuda --precision bf16 --minutes 20

Trains one run after the other, alone on the machine: CoinRun, easy, 200 levels. A run ends after --total-timesteps,
after --minutes of training, or once its mean of 500 episodes has reached the highest level. Ours are ordinary runs of
`rlcb train` with its default settings, with --same-work with those of the peers; what follows `--` are further flags
of `rlcb train`. Peers do the work of perf/peers.py, on the CPU; each needs its virtual environment (DIR/NAME of
--venvs), as perf/peers.py builds it. Times exclude start-up; a peer's count from its first step. Ends with a table of
the time and the steps to each level, and writes time_to_reward.csv; runs and logs stay in --output. The same command
continues one that broke off. Exit code 1: a run failed.
"""

import argparse
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil

REPO = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPO / "src"))

from peer_sides import PEERS, SideError, last_words, our_environment, work_flags  # noqa: E402
from peer_work import DISTRIBUTION, GAME, NUM_LEVELS, WORK  # noqa: E402
from peers import busy_warning, check_cleanrl, positive  # noqa: E402
from reward_runs import Limits, Outcome, Way, train  # noqa: E402
from rlcb.analysis.reaching import PUBLISHED, published_levels, reach, with_published  # noqa: E402
from rlcb.commands.other import reward_level  # noqa: E402
from rlcb.config.registry import ALGORITHMS  # noqa: E402
from rlcb.files import write_whole  # noqa: E402
from rlcb.hardware import cpu_model, usable_cpus  # noqa: E402
from rlcb.report.reaching import ReachingRow, level_title, reaching_csv, reaching_lines  # noqa: E402
from rlcb.words import span_text  # noqa: E402

WAYS = {f"{name}_{mode}": (name, mode) for name, entry in ALGORITHMS.items() for mode in entry.modes}
_NUM_ENVS = 32  # of every run, as in the configurations of this program
LOGGING = ("sb3", "cleanrl", "rllib")  # peers whose workers log every episode
Failures = dict[str, str]


def make_parser() -> argparse.ArgumentParser:
    """The flags."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--ways", nargs="+", choices=tuple(WAYS), default=list(WAYS), help="of this program (default: all)")
    add("--peers", nargs="+", choices=LOGGING, default=[], help="in each algorithm of --ways that they have")
    add("--levels", nargs="+", type=reward_level, default=[PUBLISHED], metavar="X", help="rewards (default: published)")
    add("--seeds", nargs="+", type=positive, default=[1], metavar="N", help="of each way (default: 1)")
    add("--total-timesteps", type=positive, default=2_000_000, metavar="N", help="of a run (default: 2000000)")
    add("--minutes", type=float, default=60.0, help="most training time of a run (default: 60)")
    add("--same-work", action="store_true", help="our runs with the settings of the peers")
    add("--workers", type=positive, metavar="N", help="of our parallel ways (default: as rlcb train chooses)")
    add("--device", metavar="NAME", help="of our runs (default: as rlcb train)")
    add("--precision", metavar="NAME", help="of our runs (default: as rlcb train)")
    add("--cleanrl", type=Path, metavar="PATH", help="checkout of CleanRL, or its ppo_procgen.py")
    add("--venvs", type=Path, default=REPO / "perf" / ".venvs", metavar="DIR", help="of the peers")
    add("--output", type=Path, default=Path("benchmarks/time_to_reward"), metavar="DIR", help="for runs and table")
    return parser


def our_ways(options: argparse.Namespace, more: Sequence[str]) -> list[Way]:
    """The ways of this program; `more`: further flags of `rlcb train`."""
    ways = []
    for name in options.ways:
        algorithm, mode = WAYS[name]
        command = [sys.executable, "-m", "rlcb", "train", algorithm, "--mode", mode, "--env", GAME]
        command += ["--total-timesteps", str(options.total_timesteps)]
        if options.workers and mode == "parallel":
            each = _NUM_ENVS // options.workers
            command += ["--num-workers", str(options.workers), "--num-envs-per-worker", str(each)]
        command += ["--device", options.device] if options.device else []
        command += ["--precision", options.precision] if options.precision else []
        command += same_work_flags(algorithm) if options.same_work else []
        ways.append(Way(name, f"{algorithm.upper()} {mode}", algorithm, (*command, *more)))
    return ways


def same_work_flags(algorithm: str) -> list[str]:
    """The flags for what the peers compute, and for their learning rate and entropy bonus."""
    name = "a2c" if algorithm == "a3c" else algorithm
    rate = ["--learning-rate", str(WORK[name].learning_rate), "--lr-schedule", "constant"]
    return [*work_flags(name), *rate, "--ent-coef", "0.01"]


def peer_ways(options: argparse.Namespace) -> list[Way]:
    """The peers in each algorithm that is trained and that they have."""
    algorithms = dict.fromkeys(WAYS[name][0] for name in options.ways)
    ways = []
    for name in options.peers:
        peer = PEERS[name]
        python = options.venvs.absolute() / name / "bin" / "python"
        for algorithm in (one for one in algorithms if one in peer.differs):
            command = [str(python), str(REPO / "perf" / peer.script), algorithm]
            command += ["--seconds", str(60 * options.minutes), "--total-timesteps", str(options.total_timesteps)]
            command += ["--file", str(options.cleanrl)] if name == "cleanrl" else []
            title = f"{peer.title} {algorithm.upper()}"
            ways.append(Way(f"{name}_{algorithm}", title, algorithm, tuple(command), name))
    return ways


def unusable(way: Way) -> str:
    """Why a way cannot be trained, in a line that names what is missing; empty where it can."""
    if way.peer:
        peer, python = PEERS[way.peer], Path(way.command[0])
        install = f"{python} -m pip install {' '.join(f'{name!r}' for name in peer.packages)}"
        if not python.exists():
            return f"{peer.title} is not installed: python -m venv {python.parent.parent} && {install}"
        # Its imports are those of a run.
        tried = subprocess.run([*way.command[:2], "--help"], capture_output=True, text=True, check=False)
        return f"{peer.title} is not installed ({last_words(tried.stderr)}): {install}" if tried.returncode else ""
    dry = [*way.command, "--dry-run"]
    tried = subprocess.run(dry, capture_output=True, text=True, check=False, env=our_environment())
    return f"{way.title}: {last_words(tried.stderr)}" if tried.returncode else ""


def measure(
    ways: Sequence[Way], options: argparse.Namespace, limits: Limits, failures: Failures
) -> dict[str, list[Outcome]]:
    """Train every seed of every way, the ways of a seed one after the other; a run that fails is noted."""
    found: dict[str, list[Outcome]] = {way.title: [] for way in ways}
    for seed in options.seeds:
        for way in ways:
            try:
                outcome = train(way, seed, options.output.absolute(), limits)
            except (SideError, OSError) as error:
                failures[f"{way.title}, seed {seed}"] = str(error)
                print(f"seed {seed}  {way.title}: failed: {error}", flush=True)
                continue
            found[way.title].append(outcome)
            print(f"seed {seed}  {way.title}: {progress(outcome, limits)}", flush=True)
    return found


def progress(outcome: Outcome, limits: Limits) -> str:
    """What one run reached, and why it ended."""
    reached = [one for one in reach([outcome.run], limits.levels) if one.count]
    texts = [f"{one.level.reward:g} after {span_text(3600 * (one.hours[0] or 0.0))}" for one in reached]
    steps = f"{outcome.run.metrics.total_timesteps or 0:,.0f} steps, {outcome.why}"
    return f"{', '.join(texts) or 'no level reached'}; {steps}{' (kept)' if outcome.kept else ''}"


def row_of(title: str, outcomes: Sequence[Outcome], limits: Limits, where: str) -> ReachingRow:
    """The row of a way in the table."""
    runs = [outcome.run for outcome in outcomes]
    label = title if not runs or runs[0].external else runs[0].group_label
    mark = "disturbed" if runs and all(run.disturbed for run in runs) else ""
    return ReachingRow(where, label, runs, reach(runs, limits.levels), mark)


def notes(ways: Sequence[Way], options: argparse.Namespace, failures: Failures, warning: str) -> list[str]:
    """What limits the table."""
    ends = f"{options.total_timesteps:,} steps, {options.minutes:g} minutes of training or its highest level"
    lines = [f"* a run ends after {ends}, whichever is first: a level that was not reached was not reached until then"]
    if any(way.peer for way in ways):
        ours = "those of the peers" if options.same_work else "its defaults (--same-work: those of the peers)"
        lines.append(f"* settings of this program: {ours}; peers train on the CPU, with the work of perf/peers.py")
    lines += [f"* {way.title}: {PEERS[way.peer].differs[way.algorithm]}" for way in ways if way.peer]
    lines += [f"* {name} failed: {why}" for name, why in failures.items()]
    return lines + ([f"* not quiet: {warning}"] if warning else [])


def place_of(found: Mapping[str, Sequence[Outcome]]) -> str:
    """The task and the machine, as our runs describe it."""
    machines = [outcome.run.task.machine for outcomes in found.values() for outcome in outcomes]
    here = next((machine for machine in machines if machine), f"{cpu_model()}, {usable_cpus()} cores")
    return f"{GAME}, {NUM_LEVELS} {DISTRIBUTION} levels, on {here}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; the exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    end = given.index("--") if "--" in given else len(given)
    parser = make_parser()
    options = parser.parse_args(given[:end])
    if options.minutes <= 0:
        parser.error("--minutes: must be above 0")
    if options.workers and _NUM_ENVS % options.workers:
        parser.error(f"--workers: {options.workers} does not divide {_NUM_ENVS} environments")
    check_cleanrl(parser, options)
    ways = our_ways(options, given[end + 1 :]) + peer_ways(options)
    if lacking := [why for way in ways if (why := unusable(way))]:
        parser.exit(2, "".join(f"time_to_reward: {why}\n" for why in dict.fromkeys(lacking)))
    levels = with_published(options.levels, published_levels(GAME, DISTRIBUTION, NUM_LEVELS, 0))
    limits = Limits(levels, 60 * options.minutes)
    print(f"{len(ways) * len(options.seeds)} runs; levels: {', '.join(map(level_title, limits.levels))}", flush=True)
    warning = busy_warning(psutil.cpu_percent(interval=1.0))
    if warning:
        print(f"time_to_reward: {warning}", file=sys.stderr, flush=True)
    failures: Failures = {}
    try:
        options.output.mkdir(parents=True, exist_ok=True)
        found = measure(ways, options, limits, failures)
        where = place_of(found)
        rows = [row_of(title, outcomes, limits, where) for title, outcomes in found.items()]
        write_whole(options.output / "time_to_reward.csv", reaching_csv(rows).encode())
    except KeyboardInterrupt:
        return 130
    except OSError as error:
        print(f"time_to_reward: {error}", file=sys.stderr)
        return 1
    print("\n".join(["", where, *reaching_lines(rows, limits.levels), *notes(ways, options, failures, warning)]))
    print(f"Written: {options.output / 'time_to_reward.csv'}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
