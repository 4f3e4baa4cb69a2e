"""One run as its directory tells it."""

import os
import re
import socket
from dataclasses import dataclass, fields
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from rlcb.analysis.evaluations import Evaluations
from rlcb.analysis.history import History
from rlcb.analysis.untrusted import number, plain, section
from rlcb.envs.families import procgen_game

FINAL_UPDATES = 10  # updates that the final FPS is measured over
WINDOW = 100  # episodes behind a logged mean, once there are so many


@dataclass(frozen=True)
class Figures:
    """What is known of a run as a whole; None where it is not known."""

    duration_hours: float | None = None
    total_timesteps: float | None = None
    total_updates: float | None = None
    average_fps: float | None = None
    final_fps: float | None = None
    timesteps_per_hour: float | None = None
    initial_reward: float | None = None
    final_reward: float | None = None
    final_reward_std: float | None = None
    best_reward: float | None = None
    num_episodes: float | None = None
    peak_memory_gb: float | None = None
    average_memory_gb: float | None = None
    cpu_percent: float | None = None
    worker_restarts: float | None = None


FIGURES = tuple(field.name for field in fields(Figures))


@dataclass(frozen=True, eq=False)
class Run:
    """Everything a comparison knows of a run."""

    path: Path
    name: str
    algorithm: str
    mode: str
    env: str
    distribution_mode: str | None  # this and the next two: None for other environments than Procgen's
    num_levels: int | None
    start_level: int | None
    seed: int | None
    num_envs: int | None
    num_workers: int
    num_threads: int | None  # of each process
    config: dict[str, Any]
    hardware: dict[str, Any]
    status: str  # finished, unfinished or failed
    reason: str  # why it is not finished
    ended: float  # seconds since the epoch
    figures: Figures
    time_shares: dict[str, float]
    history: History
    evaluations: Evaluations
    problems: tuple[str, ...]  # what was wrong with its files

    @property
    def game(self) -> str:
        """The environment's short name."""
        return procgen_game(self.env) or self.env

    @property
    def label(self) -> str:
        """Algorithm and mode, for people."""
        return f"{self.algorithm.upper()} {self.mode.capitalize()}"

    @property
    def levels(self) -> str:
        """The levels it trained on, for people; empty for other environments than Procgen's."""
        if self.distribution_mode is None:
            return ""
        count = f"{self.num_levels} {self.distribution_mode}" if self.num_levels else f"all {self.distribution_mode}"
        return f"{count} levels" + (f" from {self.start_level}" if self.start_level else "")

    @property
    def budget(self) -> tuple[str, float | None]:
        """What ends the run: ("hours", n) or ("steps", n)."""
        training = section(self.config, "training")
        hours = number(training.get("duration_hours"))
        return ("hours", hours) if hours else ("steps", number(training.get("total_timesteps")))

    @property
    def machine(self) -> str:
        """Processor and usable cores, for people; empty where the run does not say."""
        cpu, cores = plain(self.hardware.get("cpu")), number(self.hardware.get("usable_cores"))
        return f"{cpu}, {cores:.0f} cores" if cpu and cores else cpu

    @property
    def device(self) -> str:
        """cpu or cuda."""
        return plain(self.hardware.get("device")) or plain(section(self.config, "hardware").get("device"))


def figures_of(history: History) -> dict[str, float | None]:
    """What a log alone tells of its run."""
    if not len(history):
        return {}
    seconds, steps = float(history.time[-1]), float(history.step[-1])
    tail = slice(-FINAL_UPDATES - 1, None)
    lasted = float(np.ptp(history.time[tail]))
    rewards = history.reward[np.isfinite(history.reward)]
    settled = history.reward[(history.episodes >= WINDOW) & np.isfinite(history.reward)]
    memory = history.memory_gb[np.isfinite(history.memory_gb)]
    return {
        "duration_hours": seconds / 3600,
        "total_timesteps": steps,
        "total_updates": float(len(history)),
        "average_fps": steps / seconds if seconds else None,
        "final_fps": float(np.ptp(history.step[tail])) / lasted if lasted else None,
        "timesteps_per_hour": 3600 * steps / seconds if seconds else None,
        "final_reward": float(rewards[-1]) if len(rewards) else None,
        "final_reward_std": number(float(history.reward_std[-1])),
        "best_reward": float(settled.max()) if len(settled) else None,
        "num_episodes": number(float(history.episodes[-1])),
        "peak_memory_gb": float(memory.max()) if len(memory) else None,
        "average_memory_gb": float(memory.mean()) if len(memory) else None,
    }


def summary_figures(benchmark: dict[str, Any], summary: dict[str, Any]) -> tuple[dict[str, float | None], list[str]]:
    """The figures in benchmark_metrics.json, where it lacks one in training_summary.json; and which are no numbers."""
    efficiency = section(benchmark, "efficiency")
    sources = {**summary, "average_fps": summary.get("avg_fps"), **benchmark}
    sources |= {**section(benchmark, "performance"), **section(benchmark, "resource_usage"), **efficiency}
    names = [name for name in FIGURES if name in sources]
    wrong = [name for name in names if sources[name] is not None and number(sources[name]) is None]
    problems = [f"not a number in its summary: {', '.join(wrong)}"] if wrong else []
    return {name: number(sources[name]) for name in names}, problems


def status_of(
    path: Path, said: str, covered: bool, steps: float | None, events: list[dict[str, Any]]
) -> tuple[str, str]:
    """How a run ended, and why if not at its end; `covered`: whether its summary reaches as far as its log."""
    turns = [event for event in events if event.get("event") in ("failed", "interrupted", "resumed")]
    last = turns[-1] if turns else {}
    where = f"at step {steps:,.0f}" if steps is not None else "before its first update"
    if said == "finished" and covered:
        return "finished", ""
    if owner := _running(path):
        return "unfinished", f"still running ({owner}), {where}"
    if last.get("event") == "failed":
        return "failed", plain(str(last.get("reason")).splitlines()[0]) or "no reason recorded"
    if said == "diverged" and last.get("event") != "resumed":
        return "failed", f"diverged {where}"
    if last.get("event") == "interrupted" or said == "interrupted":
        return "unfinished", f"interrupted {where}"
    return "unfinished", f"ended without a word {where}: killed, or cut off with its machine"


def _running(path: Path) -> str:
    """Who has the run's lock, if that process is alive on this machine."""
    try:
        text = (path / ".lock").read_text(encoding="utf-8", errors="replace")[:200]
        owner = re.match(r"pid (\d{1,9}) on (\S+)", text)
        if not owner or owner[2] != socket.gethostname():
            return ""
        os.kill(int(owner[1]), 0)
    except PermissionError:
        return "another user's"
    except OSError:
        return ""
    return f"pid {owner[1]}"


def ended_at(path: Path, benchmark: dict[str, Any], log: Path) -> float:
    """When a run ended, or was last heard of, in seconds since the epoch."""
    try:
        return datetime.fromisoformat(plain(benchmark.get("end_time"))).timestamp()
    except (ValueError, OverflowError, OSError):
        files = [file for file in (log, path) if os.path.exists(file)]
        return max((os.path.getmtime(file) for file in files), default=0.0)
