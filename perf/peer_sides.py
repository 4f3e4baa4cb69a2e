"""The sides of perf/peers.py: what a peer needs and how its work differs, and how one timed run of a side is made."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from peer_work import WORK, Clock, PeakMemory

REPO = Path(__file__).resolve().parent.parent
_PERF = REPO / "perf"
_POLL_SECONDS = 0.1
_START_SECONDS, _SECONDS_PER_SECOND = 600, 20  # a run may take so long: a fixed time, and a multiple of what is timed

# torch is pinned exactly: any other release would be another program, and may pull gigabytes of GPU libraries.
_COMMON = ("torch==2.13.0", "procgen-mirror==0.10.7", "numpy<2", "psutil")


class SideError(Exception):
    """What stops a side, said in one line."""


@dataclass(frozen=True)
class Peer:
    """A program that this one is measured beside."""

    title: str
    script: str  # in perf/
    packages: tuple[str, ...]
    differs: Mapping[str, str]  # how its work differs, for each algorithm that it is measured in


PEERS = {
    "sb3": Peer(
        "Stable-Baselines3",
        "peer_sb3.py",
        (*_COMMON, "stable-baselines3>=2.9,<2.10", "gymnasium"),
        {"ppo": "the same work", "a2c": "the same work; its RMSProp is PyTorch's"},
    ),
    "cleanrl": Peer(
        "CleanRL",
        "peer_cleanrl.py",
        (*_COMMON, "gym==0.23.1", "tyro", "tensorboard"),
        {"ppo": "the same work; ppo_procgen.py with the Nature CNN in place of its own network, and 200 levels"},
    ),
    "sample_factory": Peer(
        "Sample Factory",
        "peer_sample_factory.py",
        (*_COMMON, "sample-factory==2.1.1"),
        {
            "ppo": "APPO, synchronous; may collect the next rollout while it learns; returns normalised, not rewards",
            "impala": "APPO, asynchronous: GAE, PPO's clipped loss, no V-trace; Adam; returns normalised, not rewards",
        },
    ),
    "rllib": Peer(
        "RLlib",
        "peer_rllib.py",
        (*_COMMON, "ray[rllib]==2.60.0", "pyarrow<23"),
        {
            "ppo": "one step more of each piece of an episode: 17 minibatches, not 16; computes values anew for GAE",
            "impala": "an optimizer step on all that an env runner sends (2048 with two of them), not on 1024; Adam",
        },
    ),
}


@dataclass(frozen=True)
class Run:
    """One timed run of a side; the warm-up is in none of the numbers but the memory."""

    side: str
    round: int
    fps: float
    updates: float
    env_steps: int
    seconds: float
    peak_memory_mb: float
    versions: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Side:
    """One of the compared programs with its settings; without a peer it is this program."""

    title: str
    peer: str | None = None
    python: Path = Path(sys.executable)
    flags: tuple[str, ...] = ()

    def run(self, algorithm: str, seconds: float, number: int) -> Run:
        """Train once; the round's number is the seed."""
        started = time.monotonic()
        limit = started + _START_SECONDS + _SECONDS_PER_SECOND * seconds
        with tempfile.TemporaryDirectory(prefix="rlcb-peers-", ignore_cleanup_errors=True) as folder:
            how = _run_peer if self.peer else _run_ours
            return Run(self.title, number, **how(self, algorithm, seconds, number, Path(folder), limit))


def our_sides(algorithm: str, workers: int, precisions: Sequence[str]) -> list[Side]:
    """This program, sequential and (with any workers) parallel, in each precision."""
    num_envs, sides = WORK[algorithm].num_envs, []
    for precision in precisions:
        also = () if precision == "fp32" else ("--precision", precision)
        sides.append(
            Side(f"rlcb sequential {precision}", flags=("--mode", "sequential", "--num-envs", str(num_envs), *also))
        )
        if workers:
            flags: tuple[str, ...] = ("--mode", "parallel", "--num-workers", str(workers))
            flags += ("--num-envs-per-worker", str(num_envs // workers))
            flags += ("--num-learners", str(workers)) if algorithm == "impala" else ()
            name = f"{workers} actors, {workers} learners" if algorithm == "impala" else f"{workers} workers"
            sides.append(Side(f"rlcb {name} {precision}", flags=(*flags, *also)))
    return sides


def set_up(peer: Peer, venv: Path) -> Path:
    """The Python of the peer's virtual environment, which is built unless it was built from the same packages."""
    stamp, python = venv / "built-from.txt", venv / "bin" / "python"
    wanted = "\n".join(peer.packages) + "\n"
    if stamp.is_file() and stamp.read_text(encoding="utf-8") == wanted:
        return python
    print(f"building {venv} (once, some minutes) ...", flush=True)
    for what, command in (
        ("making the virtual environment", [sys.executable, "-m", "venv", str(venv)]),
        ("installing", [str(python), "-m", "pip", "install", "--quiet", *peer.packages]),
    ):
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        except OSError as error:
            raise SideError(f"{what} could not start: {error}") from error
        if done.returncode:
            raise SideError(f"{what} failed with exit status {done.returncode}: {last_words(done.stderr)}")
    # Written last, so that a build that broke off is taken up again.
    stamp.write_text(wanted, encoding="utf-8")
    return python


def last_words(text: str) -> str:
    """The last lines that a program printed, as one."""
    said = [line.strip() for line in text.splitlines() if line.strip()]
    return " / ".join(said[-3:])[-400:] or "no output"


@contextlib.contextmanager
def started(command: Sequence[str], folder: Path, environment: Mapping[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """A process that writes into folder/out and folder/err; nothing of its session is left when the block ends."""
    with (folder / "out").open("wb") as out, (folder / "err").open("wb") as err:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdout=out,
            stderr=err,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def said(folder: Path, name: str) -> str:
    """What a started process has written: `out` or `err`."""
    return (folder / name).read_text(encoding="utf-8", errors="replace")


def peer_environment(home: Path) -> dict[str, str]:
    """The variables of a peer's process; what it writes into the home directory (logs, Ray's token) goes to `home`."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return {**kept, "HOME": str(home), "RAY_USAGE_STATS_ENABLED": "0"}


def our_environment() -> dict[str, str]:
    """The variables of a process of this program: it runs from the checkout."""
    paths = filter(None, (str(REPO / "src"), os.environ.get("PYTHONPATH")))
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


def work_flags(algorithm: str) -> list[str]:
    """The flags with which this program does the compared work."""
    work = WORK[algorithm]
    flags = ["--n-steps", str(work.n_steps), "--gamma", str(work.gamma), "--gae-lambda", str(work.gae_lambda)]
    if algorithm != "a2c":
        flags += ["--batch-size", str(work.batch_size), "--n-epochs", str(work.n_epochs)]
    return flags


def _run_peer(side: Side, algorithm: str, seconds: float, number: int, folder: Path, limit: float) -> dict[str, Any]:
    """One run of a peer's worker script, whose last line of output is JSON."""
    assert side.peer
    script = str(_PERF / PEERS[side.peer].script)
    command = [str(side.python), script, algorithm, "--seconds", str(seconds), "--seed", str(number), *side.flags]
    with started(command, folder, peer_environment(folder)) as process:
        try:
            code = process.wait(max(limit - time.monotonic(), 1))
        except subprocess.TimeoutExpired:
            raise SideError(f"did not end in time: {last_words(said(folder, 'err'))}") from None
    if code:
        raise SideError(f"exit status {code}: {last_words(said(folder, 'err') or said(folder, 'out'))}")
    try:
        found = json.loads(said(folder, "out").strip().splitlines()[-1])
        wanted = ("fps", "updates", "env_steps", "seconds", "peak_memory_mb", "versions", "settings")
        return {name: found[name] for name in wanted}
    except (ValueError, KeyError, IndexError, TypeError):
        raise SideError("printed no JSON line") from None


def _run_ours(side: Side, algorithm: str, seconds: float, number: int, folder: Path, limit: float) -> dict[str, Any]:
    """One run of this program, which is interrupted once its log shows enough updates."""
    work = WORK[algorithm]
    config = REPO / "config" / f"{algorithm}_sequential.yaml"
    command = [str(side.python), "-m", "rlcb", "train", algorithm, *side.flags, "--config", str(config)]
    command += work_flags(algorithm)
    command += ["--total-timesteps", str(10**10), "--seed", str(number), "--output-dir", str(folder / "run")]
    clock, read = Clock(work, seconds), 0
    with started(command, folder, our_environment()) as process, PeakMemory.of(process.pid) as peak:
        while not clock.enough:
            if process.poll() is not None:
                raise SideError(f"exit status {process.returncode}: {last_words(said(folder, 'err'))}")
            if time.monotonic() > limit:
                raise SideError("did not make enough updates in time")
            time.sleep(_POLL_SECONDS)
            for log in folder.glob("run/logs/*/metrics.jsonl"):
                with log.open("rb") as lines:
                    lines.seek(read)
                    whole = lines.read().rpartition(b"\n")[0]
                read += len(whole) + 1 if whole else 0
                for update in map(json.loads, whole.splitlines()):
                    clock.update_ended(update["step"], update["time"])
        process.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(60)  # it saves; what is left is killed
    return {**clock.result(), "peak_memory_mb": peak.mb}
