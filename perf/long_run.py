"""One execution for a long time: does its memory stay the same, and do its checkpoints take as long at the end?

    python perf/long_run.py --minutes 30
    python perf/long_run.py --minutes 30 --execution actor_learner -- --num-envs-per-actor 8

Trains CartPole with rollouts of 5 steps, so that updates are as many as possible. What follows `--` are further
arguments of `rlcb train`. Prints the memory of the process that records the run and of its workers over time, at the
quarter points the time that a checkpoint takes and the sizes of the files, and the growth of the memory per 1,000
updates over the last three quarters. Exits with the run's exit code.
"""

import argparse
import json
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import linear_regression, median
from typing import Any

import psutil

EXECUTIONS = {
    "sequential": ("a2c", "--mode", "sequential", "--num-envs", "8"),
    "data_parallel": ("a2c", "--mode", "parallel", "--num-workers", "2", "--num-envs", "4"),
    "actor_learner": ("impala", "--mode", "parallel", "--num-actors", "2", "--num-envs-per-actor", "4"),
    "async_gradients": ("a3c", "--mode", "parallel", "--num-workers", "2", "--num-envs", "4"),
}
TASK = ("--env", "CartPole-v1", "--n-steps", "5", "--num-threads", "1", "--log-interval", "1000000000")
SAMPLES, CHECKPOINTS = 60, 40  # in the whole time
Sample = tuple[float, int, float, float]  # seconds, updates, MB of the recording process, MB of its workers


def train(arguments: Sequence[str], timings: Path) -> None:
    """`rlcb train …` in this process; the time of every checkpoint is appended to a file."""
    import rlcb.training
    from rlcb.cli import main

    names = vars(rlcb.training)
    prepare = names["prepare_process"]

    def prepare_and_patch(threads: int | None) -> int:
        found: int = prepare(threads)  # must precede the import of torch
        from rlcb.run.recorder import Recorder

        Recorder.record = timed(Recorder.record, timings)  # type: ignore[method-assign]
        return found

    names["prepare_process"] = prepare_and_patch
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(main(["train", *arguments]))


def timed(record: Callable[..., None], timings: Path) -> Callable[..., None]:
    """The recorder's method; what it takes with a checkpoint is appended to a file."""

    def record_timed(recorder: Any, reports: list[Any]) -> None:
        started = time.perf_counter()
        record(recorder, reports)
        if reports[0].shared is not None and not reports[0].ending:
            line = {"update": reports[0].progress.updates, "seconds": time.perf_counter() - started}
            with timings.open("a") as file:
                file.write(json.dumps({**line, **sizes(recorder.run.path)}) + "\n")

    return record_timed


def sizes(run: Path) -> dict[str, int]:
    """Bytes of the files of a run, of checkpoints the newest."""
    patterns = {"metrics.jsonl": "logs/*/metrics.jsonl", "metrics.json": "metrics.json", "checkpoint": "**/*.pt"}
    patterns["events"] = "logs/*/events.out.tfevents.*"
    files = {name: sorted(run.glob(pattern), key=os.path.getmtime) for name, pattern in patterns.items()}
    return {name: found[-1].stat().st_size if found else 0 for name, found in files.items()}


def updates_so_far(run: Path) -> int:
    """The number of the last update on record."""
    for log in run.glob("logs/*/metrics.jsonl"):
        with log.open("rb") as file:
            file.seek(max(log.stat().st_size - 10_000, 0))
            lines = file.read().splitlines(keepends=True)
        whole = [line for line in lines[1:] if line.endswith(b"\n")]
        return int(json.loads(whole[-1])["update"]) if whole else 0
    return 0


def memory(process: psutil.Process) -> tuple[float, float]:
    """Resident MB of a process, and of all that it has started."""
    found = [0.0, 0.0]
    for one in (process, *process.children(recursive=True)):
        try:
            found[one != process] += one.memory_info().rss / 2**20
        except psutil.NoSuchProcess:  # it ended after it was listed
            continue
    return found[0], found[1]


def watch(child: Any, run: Path, every: float) -> list[Sample]:
    """Look at a run until it ends, and print what is seen."""
    process, started, samples = psutil.Process(child.pid), time.monotonic(), list[Sample]()
    print("minutes    updates   recording MB   workers MB")
    while child.join(every) is None and child.is_alive():
        try:
            sample = (time.monotonic() - started, updates_so_far(run), *memory(process))
        except psutil.NoSuchProcess:  # it has just ended
            break
        if not sample[2]:  # it has ended and waits to be joined
            break
        samples.append(sample)
        seconds, updates, recording, workers = samples[-1]
        print(f"{seconds / 60:7.2f} {updates:10,} {recording:14.1f} {workers:12.1f}", flush=True)
    child.join()
    return samples


def growth(samples: Sequence[Sample], column: int) -> float:
    """KB per 1,000 updates, by linear regression over the last three quarters."""
    training = [sample for sample in samples if 0 < sample[1] < samples[-1][1]]  # not starting, not ending
    later = training[len(training) // 4 :]
    if len({sample[1] for sample in later}) < 2:
        return float("nan")
    slope = linear_regression([sample[1] for sample in later], [sample[column] for sample in later]).slope
    return 1024 * 1000 * slope


def report(samples: Sequence[Sample], checkpoints: Sequence[dict[str, Any]], run: Path) -> None:
    """Print checkpoints and sizes at the quarter points, then the growth."""
    print("\nquarter   updates   checkpoint ms   checkpoint MB   metrics.jsonl MB   metrics.json MB   events MB")
    for quarter in range(1, 5):
        part = checkpoints[(quarter - 1) * len(checkpoints) // 4 : quarter * len(checkpoints) // 4]
        if part:
            names = ("checkpoint", "metrics.jsonl", "metrics.json", "events")
            megabytes = [part[-1][name] / 2**20 for name in names]
            milliseconds = 1000 * median(line["seconds"] for line in part)
            print(
                f"{quarter:7} {part[-1]['update']:9,} {milliseconds:15.1f} {megabytes[0]:15.2f} "
                f"{megabytes[1]:18.2f} {megabytes[2]:17.2f} {megabytes[3]:11.2f}"
            )
    print("at the end, MB: " + ", ".join(f"{name} {size / 2**20:.2f}" for name, size in sizes(run).items()))
    print(
        f"growth, KB per 1,000 updates: recording process {growth(samples, 2):+.1f}, workers {growth(samples, 3):+.1f}"
    )


def main() -> None:
    """Train, watch, report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--execution", choices=EXECUTIONS, default="sequential")
    parser.add_argument("train", nargs="*", help="further arguments of `rlcb train`, behind --")
    arguments = parser.parse_args()
    saving = ("--save-interval", "1000000000", "--save-every-minutes", str(arguments.minutes / CHECKPOINTS))
    with tempfile.TemporaryDirectory() as folder:
        run, timings = Path(folder) / "run", Path(folder) / "timings.jsonl"
        words = [*EXECUTIONS[arguments.execution], *TASK, *saving, "--duration", str(arguments.minutes / 60)]
        words += [*arguments.train, "--output-dir", str(run)]
        child = multiprocessing.get_context("spawn").Process(target=train, args=(words, timings))
        child.start()
        samples = watch(child, run, every=60 * arguments.minutes / SAMPLES)
        if child.exitcode == 0:
            report(samples, [json.loads(line) for line in timings.read_text().splitlines()], run)
    sys.exit(child.exitcode)


if __name__ == "__main__":
    main()
