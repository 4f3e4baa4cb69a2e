"""A suite on a cluster of three nodes that a node and the driver are lost in the middle of: is any result another one?

    python perf/cluster_suite.py --runs 12 --updates 400

All nodes are on this machine. While whole sequential runs of CartPole train on the nodes, one node is killed and
another one joins; then the driver is killed (SIGKILL) and the command repeated. The same suite is run on this machine
alone. Prints what happened, and exits with 1 unless every run is finished, counts every step once, was never begun anew
after a checkpoint had come home, and has the same weights, metrics and comparison as on this machine, bit for bit.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

REPO = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(REPO / "src"), str(REPO / "tests")]
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(REPO / "src"), os.environ.get("PYTHONPATH"))))

from helpers.clusters import ray_cluster  # noqa: E402
from helpers.suite_directories import suite_runs  # noqa: E402
from rlcb.analysis.suites import SuiteRun  # noqa: E402
from rlcb.run.checkpoint import load_checkpoint  # noqa: E402
from rlcb.suite.directory import result_of, saved_steps  # noqa: E402

ROLLOUT = 8 * 32
GIVEN = (
    "--games", "CartPole-v1", "--modes", "sequential", "--num-envs", "8", "--n-steps", "32", "--batch-size", "128",
    "--n-epochs", "1", "--num-threads", "1", "--save-interval", "20", "--tensorboard", "false", "--eval-episodes", "20",
)  # fmt: skip
BY_SPEED = (
    "fps",
    "hours",
    "time",
    "memory",
    "machine",
    "shared",
    "disturb",
    "jobs",
    "path",
    "duration",
    "cpu",
    "limit",
    "node",
    "verdict",
    "notes",
)  # the last two are texts that name speeds, too


def events_in(file: Path) -> list[dict[str, Any]]:
    """The events in a file, if there is one."""
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def wait_for(what: str, true: Callable[[], bool], process: "subprocess.Popen[bytes]") -> None:
    """Wait until something has happened while a suite goes on."""
    deadline = time.monotonic() + 300
    while not true():
        if process.poll() is not None or time.monotonic() > deadline:
            sys.exit(f"the suite ended, or nothing happened for long, before: {what}")
        time.sleep(0.1)


def say(begun: float, words: str) -> None:
    """Print what happens, with the time since the beginning."""
    print(f"[{time.monotonic() - begun:6.1f} s] {words}", flush=True)


def on_cluster(output: Path, given: list[str]) -> float:
    """Run the suite on a cluster that loses a node and the driver; returns the seconds."""
    command = [sys.executable, "-m", "rlcb", "benchmark", *given, "--output-dir", str(output)]
    with ray_cluster(1, 1, 1) as nodes, (output.parent / "cluster.log").open("wb") as log:
        begun = time.monotonic()
        first = subprocess.Popen([*command, "--cluster", nodes.address], stdout=log, stderr=log)
        wait_for("three runs saved", lambda: sum(saved_steps(run) > 0 for run in suite_runs(output)) >= 3, first)
        say(begun, "a node is killed")
        nodes.remove_node(next(iter(nodes.worker_nodes)), allow_graceful=False)
        events = output / "suite_events.jsonl"
        wait_for("its loss", lambda: any(event["event"] == "node_lost" for event in events_in(events)), first)
        say(begun, "its run waits for another node; a node joins")
        nodes.add_node(num_cpus=1, object_store_memory=200 * 2**20)
        most = len(suite_runs(output)) // 2
        wait_for("half of the runs", lambda: sum(map(bool, map(result_of, suite_runs(output)))) >= most, first)
        wait_for(
            "a run under way with a checkpoint at home",
            lambda: any(saved_steps(run) > 0 and not result_of(run) for run in suite_runs(output)),
            first,
        )
        say(begun, "the driver is killed")
        first.send_signal(signal.SIGKILL)
        first.wait()
        at_home = {run.name: saved_steps(run) for run in suite_runs(output) if not result_of(run) and saved_steps(run)}
        say(begun, f"saved at home, by steps: {at_home}; the command is repeated")
        code = subprocess.run([*command, "--cluster", nodes.address], stdout=log, stderr=log, check=False).returncode
        say(begun, f"ended with exit code {code}")
        if code:
            sys.exit(f"the repeated command failed; see {output.parent / 'cluster.log'}")
        return time.monotonic() - begun


def learned(run: SuiteRun) -> tuple[list[dict[str, Any]], dict[str, list[Any]]]:
    """The history of a run without what depends on the clock, and its final weights."""
    (log,) = (run.path / "logs").glob("*/metrics.jsonl")
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    timeless = [{k: v for k, v in line.items() if not k.startswith(("time", "resource"))} for line in lines]
    policy = load_checkpoint(run.final_checkpoint)["policy"]
    return timeless, {name: tensor.tolist() for name, tensor in policy.items()}


def by_steps(value: Any, name: str = "") -> dict[str, Any]:
    """All values of a comparison by their names, without what depends on how fast and where runs were."""
    if isinstance(value, dict):
        pairs = [(key, entry) for key, entry in value.items() if not any(word in key.lower() for word in BY_SPEED)]
    elif isinstance(value, list):
        pairs = [(str(number), entry) for number, entry in enumerate(value)]
    else:
        return {name: value}
    return {path: leaf for key, entry in pairs for path, leaf in by_steps(entry, f"{name}/{key}").items()}


def check(there: Path, here: Path, total: int) -> None:
    """Compare the two suites; AssertionError says what differs."""
    resumed_at, begun_anew = [], 0
    for one, two in zip(suite_runs(there), suite_runs(here), strict=True):
        assert result_of(one), f"{one.name} is not finished"
        steps = [line["step"] for line in learned(one)[0]]
        assert steps == list(range(ROLLOUT, total + 1, ROLLOUT)), f"{one.name}: steps are missing or there twice"
        assert not list(one.path.parent.glob(f"{one.path.name}.*/checkpoints/*.pt")), f"{one.name} was begun anew"
        begun_anew += len(list(one.path.parent.glob(f"{one.path.name}.*/")))
        events = events_in(one.path / "events.jsonl")
        resumed_at += [event["env_steps"] for event in events if event["event"] == "resumed"]
        assert learned(one) == learned(two), f"{one.name}: other metrics or weights"
    cluster, alone = (by_steps(json.loads((path / "report" / "comparison.json").read_text())) for path in (there, here))
    different = [name for name in {**cluster, **alone} if cluster.get(name) != alone.get(name)]
    assert not different, f"the comparisons differ in {different[:9]}"
    print(f"{len(cluster)} values of the comparison are the same")
    same = "weights, metrics, comparison as on one machine"
    print(f"runs: {len(suite_runs(there))} finished, every step counted once; {same}")
    print(
        f"resumed {len(resumed_at)} times, at steps {sorted(resumed_at)}; begun anew before a checkpoint: {begun_anew}"
    )


def main() -> None:
    """Run both suites and compare them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=12)
    parser.add_argument("--updates", type=int, default=400)
    arguments = parser.parse_args()
    os.chdir(REPO)
    total = arguments.updates * ROLLOUT
    given = [*GIVEN, "--seeds", *map(str, range(1, arguments.runs + 1)), "--total-timesteps", str(total)]
    with tempfile.TemporaryDirectory(prefix="rlcb-cluster-suite-") as folder:
        there, here = Path(folder) / "there", Path(folder) / "here"
        seconds = on_cluster(there, given)
        begun = time.monotonic()
        command = [sys.executable, "-m", "rlcb", "benchmark", *given, "--output-dir", str(here)]
        subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
        print(f"on the cluster {seconds:.0f} s, on this machine alone {time.monotonic() - begun:.0f} s")
        check(there, here, total)


if __name__ == "__main__":
    main()
