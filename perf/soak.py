"""A long parallel run whose processes are killed again and again: does it end normally, with nothing lost or leaked?

    python perf/soak.py --minutes 30 --every 30 -- impala --num-actors 2 --num-envs-per-actor 16
    python perf/soak.py --minutes 20 --every 9999 -- impala --cluster local --num-actors 2 --num-envs-per-actor 16

What follows `--` are arguments of `rlcb train`. Every EVERY seconds one process that acts (an actor, or a worker where
all act) gets SIGKILL. Watched are the memory of the whole tree, and memory and open files of those that are never
killed, of the process that drives the run by itself, and on a cluster how full its object store is. Prints what was
seen; exits with 1 if the run did not end normally.
"""

import argparse
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import mean

import psutil

REPO = Path(__file__).resolve().parent.parent
ACTING = ("rlcb.execution.actor", "rlcb.execution.worker", "rlcb.execution.async_worker")


def acting(tree: list[psutil.Process]) -> list[psutil.Process]:
    """The processes of a run that own environments."""
    found = []
    for process in tree:
        try:
            if any(module in process.cmdline() for module in ACTING):
                found.append(process)
        except psutil.NoSuchProcess:
            continue
    return found


def look(process: psutil.Popen) -> tuple[float, int]:
    """Memory in MB and open files of the processes that are never killed."""
    tree = [process, *process.children(recursive=True)]
    killed = acting(tree)
    memory, files = 0.0, 0
    for one in tree:
        try:
            if one not in killed:
                memory, files = memory + one.memory_info().rss / 2**20, files + one.num_fds()
        except psutil.NoSuchProcess:
            continue
    return memory, files


def driver_of(process: psutil.Popen) -> psutil.Process:
    """The process that drives the run: on a cluster it has one around it."""
    children = [child for child in process.children() if "rlcb" in child.cmdline() and "train" in child.cmdline()]
    return children[0] if children else process


def look_at_driver(process: psutil.Popen) -> tuple[float, int, int]:
    """Memory in MB, open files and number of the process that drives the run."""
    try:
        driver = driver_of(process)
        return driver.memory_info().rss / 2**20, driver.num_fds(), driver.pid
    except psutil.Error:
        return 0.0, 0, 0


def object_store(driver: int) -> str:
    """What the Ray cluster that a process started said about its object store."""
    for log in Path("/tmp/ray").glob(f"session_*_{driver}/logs/raylet.out"):
        said = re.findall(r"Object store current usage ([\d.e-]+) / ([\d.e-]+) GB", log.read_text(errors="replace"))
        if said:
            used = [1000 * float(one) for one, _ in said]
            return (
                f"{len(used)} looks, at most {max(used):.1f} MB, last {used[-1]:.1f} MB, of {float(said[0][1]):.1f} GB"
            )
    return "nothing said"


def growth(values: list[float]) -> str:
    """The mean of the last quarter over that of the second: the first is start-up."""
    quarter = max(len(values) // 4, 1)
    before, after = mean(values[quarter : 2 * quarter] or values), mean(values[-quarter:])
    return f"{before:,.0f} → {after:,.0f} ({100 * (after / before - 1):+.1f} %)"


def main() -> None:
    """Run, kill, watch, report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--every", type=float, default=30.0, help="seconds between kills")
    parser.add_argument("train", nargs="+", help="arguments of `rlcb train`, behind --")
    arguments = parser.parse_args()
    shared_before = set(os.listdir("/dev/shm"))
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        command = [sys.executable, "-m", "rlcb", "train", *arguments.train, "--mode", "parallel"]
        command += ["--duration", str(arguments.minutes / 60), "--log-interval", "100000", "--output-dir", str(run)]
        said = Path(folder) / "said.txt"
        with said.open("w") as file:
            process = psutil.Popen(command, cwd=REPO, stdout=subprocess.DEVNULL, stderr=file)
        kills, next_kill, chance = 0, time.monotonic() + arguments.every, random.Random(1)
        memory, files, driver = [], [], []
        while process.poll() is None:
            time.sleep(1)
            found = look(process) if process.is_running() else (0.0, 0)
            alone = look_at_driver(process)
            if alone[0]:
                driver.append(alone)
            if found[0]:
                memory.append(found[0])
                files.append(float(found[1]))
            if time.monotonic() >= next_kill:
                victims = acting(process.children(recursive=True)) if process.is_running() else []
                if victims:
                    chance.choice(victims).kill()
                    kills += 1
                next_kill += arguments.every
        lines = [json.loads(line) for log in run.glob("logs/*/metrics.jsonl") for line in log.read_text().splitlines()]
        summary = json.loads((run / "training_summary.json").read_text())
        last_words = said.read_text().splitlines()[-1:]
    exact = [line["step"] for line in lines] == [lines[0]["step"] * (n + 1) for n in range(len(lines))]
    quarter, speeds = len(lines) // 4, [line["time/fps"] for line in lines]
    print(f"exit code {process.returncode}, {kills} kills, {summary['worker_restarts']} restarts")
    print(f"last words: {last_words[0] if last_words else 'none'}")
    print(f"steps {summary['total_timesteps']:,} in {len(lines):,} updates, every one on record once: {exact}")
    print(f"memory of those never killed, MB: {growth(memory)}; their open files: {growth(files)}")
    sizes, open_files, number = (
        growth([one[0] for one in driver]),
        growth([float(one[1]) for one in driver]),
        driver[-1][2],
    )
    print(f"the driver alone, MB: {sizes}; its open files: {open_files}")
    if "--cluster" in arguments.train:
        print(f"object store: {object_store(number)}")
    print(f"memory of the whole tree, GB × 1000: {growth([1000 * line['resource/memory_gb'] for line in lines])}")
    print(f"speed, FPS: first quarter {mean(speeds[:quarter]):,.0f}, last {mean(speeds[-quarter:]):,.0f}")
    if "lag/max" in lines[-1]:
        print(
            f"policy lag: mean {mean(line['lag/mean'] for line in lines):.2f}, max {max(x['lag/max'] for x in lines)}"
        )
    print(f"left in /dev/shm: {sorted(set(os.listdir('/dev/shm')) - shared_before) or 'nothing'}")
    sys.exit(0 if process.returncode == 0 and exact else 1)


if __name__ == "__main__":
    main()
