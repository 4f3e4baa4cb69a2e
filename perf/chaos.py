"""A training that real faults happen to, drawn at random from a seed: does it lose, repeat or leave anything?

    python perf/chaos.py --minutes 20 --seed 1 -- ppo --mode parallel --num-workers 2 --env CartPole-v1 --n-steps 32
    python perf/chaos.py --minutes 20 --seed 1 --cluster -- impala --mode parallel --num-actors 4 --env CartPole-v1

What follows `--` are the algorithm and arguments of `rlcb train`. Processes are killed and frozen, the command is
stopped, killed and resumed, checkpoints are damaged, the disk is filled up (as root), and with --cluster links of
three nodes are cut and nodes killed and frozen (as root). After each fault training must go on. Prints a table and
what should never happen: steps lost beyond the documented bounds, steps counted twice or not at all, hangs,
tracebacks, leftover processes and files, undocumented exit codes. Exits with 1 if there was any of these.
"""

import argparse
import contextlib
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from typing import Any

REPO = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(REPO / "src"), str(REPO / "tests")]
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(REPO / "src"), os.environ.get("PYTHONPATH"))))

from chaos_faults import ALL_WORKERS, CHECKPOINT, DRIVER, WORKERS, Inject, disk, node_faults  # noqa: E402
from chaos_training import Training  # noqa: E402
from helpers.network_nodes import NetworkNodes, network_nodes, why_not  # noqa: E402

PAUSE = 5.0  # seconds: the longest time between a recovery and the next fault
TWICE = 0.25  # probability that a worker's fault is followed by the driver's before the run has recovered
CORES = (2, 2, 2)  # of the cluster's nodes
DEFAULTS = (
    "--total-timesteps", str(10**12), "--save-interval", "50", "--log-interval", "100", "--tensorboard", "false",
    "--num-threads", "1", "--worker-timeout", "15",
)  # fmt: skip


@dataclass
class Tally:
    """What became of the faults of one kind."""

    injected: int = 0
    survived: int = 0  # nothing happened that should not
    longest_gap_seconds: float = 0.0  # without an update
    most_steps_lost: int = 0  # of those on record
    bound: int = 0

    def add(self, training: Training) -> None:
        """Take in what a fault has cost."""
        self.longest_gap_seconds = round(max(self.longest_gap_seconds, training.gap), 1)
        self.most_steps_lost = max(self.most_steps_lost, training.lost)
        self.bound = max(self.bound, training.bound)


def decks(kinds: list[str], draw: Random) -> Iterator[str]:
    """Kinds of faults in random order, all of them before one comes again."""
    while True:
        yield from draw.sample(kinds, len(kinds))


def torment(training: Training, faults: dict[str, Inject], seconds: float, draw: Random) -> dict[str, Tally]:
    """Inject faults until the time is over, and look after each whether everything is as it should be."""
    tallies = {kind: Tally() for kind in faults}
    kinds, end = decks(list(faults), draw), time.monotonic() + seconds
    while time.monotonic() < end:
        training.watch(lambda: training.ended, draw.uniform(0.0, PAUSE))
        if training.ended:
            training.wait_for_updates()
        before, now = training.findings.counts.total(), [next(kinds)]
        if now[0] in WORKERS and draw.random() < TWICE:
            now.append(draw.choice(list(DRIVER)))
        print(f"{time.strftime('%H:%M:%S')} update {training.history.updates}: {', then '.join(now)}", file=sys.stderr)
        training.begin_fault()
        for kind in now:
            faults[kind](training, draw)
        training.wait_for_updates()
        training.check()
        for kind in now:
            tallies[kind].injected += 1
            tallies[kind].survived += training.findings.counts.total() == before
        tallies[now[-1]].add(training)
    return tallies


def possible_faults(training: Training, nodes: NetworkNodes | None, filled: Inject | None) -> dict[str, Inject]:
    """The faults that can happen to this run."""
    faults = {**DRIVER, **CHECKPOINT}
    if training.workers():
        faults |= WORKERS
    if training.size > 1 and nodes is None:
        faults |= ALL_WORKERS
    if nodes is not None:
        faults |= node_faults(nodes)
    if filled is not None:
        faults["full disk"] = filled
    return faults


def table(tallies: dict[str, Tally]) -> str:
    """The table that is printed at the end."""
    rows = [("fault", "injected", "survived", "longest gap s", "most steps lost (bound)")]
    for kind, one in tallies.items():
        lost = f"{one.most_steps_lost:,} ({one.bound:,})"
        rows.append((kind, str(one.injected), str(one.survived), f"{one.longest_gap_seconds:.1f}", lost))
    return "\n".join("| " + " | ".join(row) + " |" for row in (rows[0], ("---",) * len(rows[0]), *rows[1:]))


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    """Train under faults; returns what was seen."""
    algorithm, *words = arguments.train
    words = [algorithm, *DEFAULTS, *words]
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        small = stack.enter_context(disk(folder / "disk"))
        nodes, inside = None, list[str]()
        if arguments.cluster:
            nodes = stack.enter_context(network_nodes(*CORES))
            inside, words = nodes.inside(0), [*words, "--cluster", nodes.address]
        training = Training(folder, folder / "disk" / "run", words, inside, arguments.hang_seconds)
        stack.callback(training.end_at_once)
        training.start()
        faults = possible_faults(training, nodes, small.fill_up if small else None)
        if small is None:
            print("full disk: left out, no right to mount a file system", file=sys.stderr)
        tallies = torment(training, faults, 60 * arguments.minutes, Random(arguments.seed))
        training.finish()
        steps, updates = training.history.steps, training.history.updates
    kinds = {kind: asdict(tally) for kind, tally in tallies.items()}
    print(f"{table(tallies)}\n\n{steps:,} steps in {updates:,} updates")
    print("; ".join(f"{kind}: {count}" for kind, count in training.findings.counts.items()))
    known = {"train": arguments.train, "seed": arguments.seed, "minutes": arguments.minutes}
    return {**known, "steps": steps, "updates": updates, "faults": kinds, "totals": dict(training.findings.counts)}


def main() -> None:
    """Read the arguments, run, report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--seed", type=int, default=1, help="of what happens to whom and when")
    parser.add_argument("--cluster", action="store_true", help="on a Ray cluster of three nodes in network namespaces")
    parser.add_argument("--hang-seconds", type=float, default=180.0, help="so long without updates is a hang")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results there, too")
    parser.add_argument("train", nargs="+", help="algorithm and arguments of `rlcb train`, behind --")
    arguments = parser.parse_args()
    if arguments.cluster and (reason := why_not()):
        parser.error(f"--cluster: {reason}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that everything is tidied up
    found = run(arguments)
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    sys.exit(1 if any(found["totals"].values()) else 0)


if __name__ == "__main__":
    main()
