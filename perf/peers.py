"""PPO, A2C and IMPALA of this program beside those of other programs: the same work, interleaved, on this machine.

    python perf/peers.py ppo --rounds 3 --seconds 15 --workers 2 --cleanrl PATH
    python perf/peers.py a2c --rounds 3 --seconds 15 --workers 2
    python perf/peers.py impala --rounds 3 --seconds 15 --workers 2 --peers rllib --output perf/results/impala.json

The work: Procgen CoinRun, easy, 200 levels, 32 environments, Nature CNN of 608,944 parameters, normalised rewards, CPU.
PPO (W1): 128 steps, 4 epochs of minibatches of 1024. IMPALA (W3): unrolls of 128, one pass in minibatches of 1024.
A2C (W4): 5 steps, one optimizer step of RMSProp on all of them. Acting and learning are timed together, after a warm-up
(the first update; of IMPALA three, of A2C twenty). Each peer has a virtual environment of its own, built on first use;
CleanRL is run from a checkout. Where a peer's work differs, the lines below the table say how. Memory is the peak of
all processes together. Measure on an idle machine: other load slows down the peers more than this program.
Exit code 1: nothing could be compared.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

import psutil

REPO = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPO / "src"))

from peer_sides import PEERS, Run, Side, SideError, our_sides, set_up  # noqa: E402
from peer_work import WORK  # noqa: E402
from rlcb.hardware import cpu_model, usable_cpus  # noqa: E402

Failures = dict[str, str]
_QUIET = 15.0  # percent of the cores that others may use while the machine counts as idle
_BUSY = (
    "other programs use this machine ({:.0f} % of its cores at the start): peers whose OpenMP threads spin lose "
    "far more by that than this program, whose threads sleep; such ratios say nothing of an idle machine"
)


def positive(text: str) -> int:
    """A whole number from 1 on, for argparse."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return number


def make_parser() -> argparse.ArgumentParser:
    """The flags."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("algorithm", choices=tuple(WORK))
    parser.add_argument("--peers", nargs="+", choices=tuple(PEERS), help="default: all that have the algorithm")
    parser.add_argument("--rounds", type=positive, default=3, help="runs of each side (default: 3)")
    parser.add_argument("--seconds", type=float, default=15.0, help="least time that is timed in a run (default: 15)")
    parser.add_argument("--workers", type=int, default=2, help="of our parallel side, 0 for none (default: 2)")
    parser.add_argument("--precision", nargs="+", default=["fp32"], metavar="NAME", help="of our sides (default: fp32)")
    parser.add_argument("--cleanrl", type=Path, metavar="PATH", help="checkout of CleanRL, or its ppo_procgen.py")
    parser.add_argument("--env-runners", type=positive, metavar="N", help="of RLlib (default: one per core)")
    parser.add_argument("--venvs", type=Path, default=REPO / "perf" / ".venvs", metavar="DIR", help="of the peers")
    parser.add_argument("--output", type=Path, metavar="FILE", help="also write everything to this JSON file")
    return parser


def check(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """End with exit code 2 if the flags ask for what does not exist; fills in the peers and CleanRL's file."""
    having = [name for name, peer in PEERS.items() if options.algorithm in peer.differs]
    for name in options.peers or ():
        if name not in having:
            parser.error(f"--peers: {name} has no {options.algorithm}; valid: {', '.join(having)}")
    if options.workers < 0 or (options.workers and WORK[options.algorithm].num_envs % options.workers):
        parser.error(f"--workers: {options.workers} does not divide 32 environments; 0 leaves the parallel side out")
    if options.env_runners and (options.env_runners > usable_cpus() or 32 % options.env_runners):
        parser.error(f"--env-runners: {options.env_runners} must divide 32 and not exceed {usable_cpus()} cores")
    if options.seconds <= 0:
        parser.error("--seconds: must be above 0")
    check_cleanrl(parser, options)
    options.peers = options.peers or having


def check_cleanrl(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """End with exit code 2 if CleanRL is asked for and its file is not there; fills in the file."""
    if options.cleanrl is None and "cleanrl" in (options.peers or ()):
        parser.error("--peers: cleanrl needs --cleanrl PATH, a checkout of github.com/vwxyzjn/cleanrl")
    if options.cleanrl is not None:
        inside = options.cleanrl / "cleanrl" / "ppo_procgen.py"
        options.cleanrl = (inside if options.cleanrl.is_dir() else options.cleanrl).absolute()
        if not options.cleanrl.is_file():
            parser.error(f"--cleanrl: {options.cleanrl} does not exist; give a checkout of CleanRL")


def busy_warning(load: float) -> str:
    """What is said if other programs use so many percent of the cores; empty while the machine counts as idle."""
    return _BUSY.format(load) if load > _QUIET else ""


def peer_sides(options: argparse.Namespace, failures: Failures) -> list[Side]:
    """The peers whose virtual environments are there or could be built; the others are noted as failures."""
    sides = []
    for name in options.peers:
        peer = PEERS[name]
        flags: tuple[str, ...] = ()
        if name == "cleanrl":
            if options.cleanrl is None:
                failures[peer.title] = "not measured: needs --cleanrl PATH"
                continue
            flags = ("--file", str(options.cleanrl))
        if name == "rllib" and options.env_runners:
            flags = ("--env-runners", str(options.env_runners))
        try:
            # absolute(), not resolve(): nothing inside a virtual environment may be followed out of it.
            sides.append(Side(peer.title, name, set_up(peer, options.venvs.absolute() / name), flags))
        except (SideError, OSError) as error:
            failures[peer.title] = f"not installed: {error}"
            print(f"{peer.title}: {failures[peer.title]}", flush=True)
    return sides


def measure(sides: Sequence[Side], options: argparse.Namespace, failures: Failures) -> list[Run]:
    """Run every side once per round, in an order that rotates; a side that fails is left out from then on."""
    runs = []
    for number in range(options.rounds):
        # Rotated, so that a machine that slows down as it warms up favours no side.
        first = number % len(sides)
        for side in (*sides[first:], *sides[:first]):
            if side.title in failures:
                continue
            try:
                run = side.run(options.algorithm, options.seconds, number + 1)
            except (SideError, OSError) as error:
                failures[side.title] = f"failed in round {number + 1}: {error}"
                print(f"round {number + 1}  {side.title}: {failures[side.title]}", flush=True)
                continue
            runs.append(run)
            timed = f"{run.env_steps} steps in {run.seconds:.1f} s"
            print(f"round {number + 1}  {side.title:<32} {run.fps:8,.0f} FPS  {timed}", flush=True)
    return runs


def ratios(runs: Sequence[Run], ours: str, peer: str) -> list[float]:
    """Our speed divided by the peer's in each round that both have."""
    speeds = {(run.side, run.round): run.fps for run in runs}
    rounds = sorted({run.round for run in runs})
    return [
        speeds[ours, number] / speeds[peer, number]
        for number in rounds
        if (ours, number) in speeds and (peer, number) in speeds
    ]


def spread(values: Sequence[float], form: str) -> str:
    """Median (min–max)."""
    return f"{median(values):{form}} ({min(values):{form}}–{max(values):{form}})" if values else "–"


def table(runs: Sequence[Run], sides: Sequence[Side], failures: Failures) -> list[str]:
    """The lines of the table: a row per side, a column per side of ours."""
    ours = [side.title for side in sides if not side.peer and any(run.side == side.title for run in runs)]
    head = ["side", "FPS, median (min–max)", *(f"{name} / it" for name in ours), "peak memory, MB"]
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    for side in sides:
        if side.title in failures:
            continue
        mine = [run for run in runs if run.side == side.title]
        compared = [spread(ratios(runs, name, side.title), ".2f") if side.peer else "–" for name in ours]
        cells = [side.title, spread([run.fps for run in mine], ",.0f"), *compared]
        lines.append(f"| {' | '.join(cells)} | {max(run.peak_memory_mb for run in mine):,.0f} |")
    empty = " |" * (len(head) - 2)
    return lines + [
        f"| {title} | {' '.join(why.split()).replace('|', '/')} |{empty}" for title, why in failures.items()
    ]


def notes(algorithm: str, runs: Sequence[Run], sides: Sequence[Side]) -> list[str]:
    """How the work of each peer differs, and the versions and settings that it ran with."""
    lines = []
    for side in sides:
        last = next((run for run in reversed(runs) if run.side == side.title), None)
        if side.peer and last:
            used = ", ".join(f"{name} {value}" for name, value in {**last.versions, **last.settings}.items())
            lines.append(f"- {side.title}: {PEERS[side.peer].differs[algorithm]}. {used}")
    return lines


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; the exit code."""
    parser = make_parser()
    options = parser.parse_args(arguments)
    check(parser, options)
    failures: Failures = {}
    load = psutil.cpu_percent(interval=1.0)
    warning = busy_warning(load)
    if warning:
        print(f"peers: {warning}", file=sys.stderr, flush=True)
    try:
        if options.output:
            options.output.parent.mkdir(parents=True, exist_ok=True)  # before the minutes of measuring, not after
        sides = our_sides(options.algorithm, options.workers, options.precision) + peer_sides(options, failures)
        runs = measure(sides, options, failures)
    except KeyboardInterrupt:
        return 130
    except OSError as error:
        print(f"peers: {error}", file=sys.stderr)
        return 1
    machine = {"cpu": cpu_model(), "usable_cores": usable_cpus(), "percent_busy_at_start": load}
    print(f"\n{options.algorithm}, {machine['cpu']}, {machine['usable_cores']} usable cores\n")
    below = [*notes(options.algorithm, runs, sides), *([f"- Not quiet: {warning}"] if warning else [])]
    print("\n".join([*table(runs, sides, failures), "", *below]))
    pairs = {
        ours.title: {peer.title: ratios(runs, ours.title, peer.title) for peer in sides if peer.peer}
        for ours in sides
        if not ours.peer
    }
    if options.output:
        report: dict[str, Any] = {"algorithm": options.algorithm, "machine": machine, "ratios": pairs}
        report |= {"failures": failures, "runs": [asdict(run) for run in runs]}
        options.output.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    return 0 if any(found for peers in pairs.values() for found in peers.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
