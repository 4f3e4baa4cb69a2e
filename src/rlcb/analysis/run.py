"""One run as its directory describes it."""

import os
from dataclasses import dataclass, fields
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rlcb.analysis.alive import owner_of
from rlcb.analysis.evaluations import Evaluations
from rlcb.analysis.external.record import External
from rlcb.analysis.history import WINDOW, History
from rlcb.analysis.machines import cores_used, machine_of, nodes_of, own_machine
from rlcb.analysis.untrusted import failure_reason, number, plain, section, whole_number
from rlcb.disturbance.verdict import Disturbance
from rlcb.words import counted, exact_time, reward_text

if TYPE_CHECKING:
    from pandas import DataFrame

FINAL_UPDATES = 10  # updates that the final FPS is measured over
MEASURES = ("PSS", "RSS")  # of memory
LATE_STEPS = 250_000  # steps at the end of a run that its late reward is the mean of


@dataclass(frozen=True)
class RunMetrics:
    """Metrics of a run as a whole; None where a value is not known."""

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
    final_episode_length: float | None = None
    num_episodes: float | None = None
    peak_memory_gb: float | None = None
    average_memory_gb: float | None = None
    peak_gpu_memory_gb: float | None = None
    cpu_percent: float | None = None
    gpu_percent: float | None = None
    busy_cores: float | None = None  # mean number of cores that its processes kept busy
    processor_watts: float | None = None  # of the machine's processors, whatever ran on them
    worker_restarts: float | None = None
    limit_fraction: float | None = None  # of the FPS that the machine could reach
    late_reward: float | None = None  # mean over the last LATE_STEPS


@dataclass(frozen=True)
class Task:
    """What runs must have in common to be compared, in words."""

    env: str
    levels: str  # empty for other environments than Procgen's
    budget: str
    machine: str  # empty where it is not recorded
    finished: bool

    @property
    def title(self) -> str:
        """All of it in one line."""
        trained_on = f"{self.env}, {self.levels}" if self.levels else self.env
        state = "" if self.finished else ", unfinished"
        return f"{trained_on}, {self.budget}{state}, on {self.machine or 'an unknown machine'}"


@dataclass(frozen=True, eq=False, repr=False)
class Run:
    """Everything a comparison knows of a run."""

    path: Path
    name: str
    algorithm: str
    mode: str
    variant: str  # the name of its settings; empty where they have none
    env: str
    game: str  # the environment's short name
    distribution_mode: str | None  # this and the next two: None for other environments than Procgen's
    num_levels: int | None
    start_level: int | None
    seed: int | None
    num_envs: int | None
    num_workers: int
    num_learners: int | None  # processes that learn beside those that act; None where it is not recorded
    num_threads: int | None  # of each process that learns
    config: dict[str, Any]
    hardware: dict[str, Any]
    status: str  # finished, unfinished or failed
    reason: str  # why it is not finished
    ended: float  # seconds since the epoch
    metrics: RunMetrics
    disturbance: Disturbance
    memory_measure: str  # PSS or RSS; empty where it is not recorded
    time_shares: dict[str, float]
    history: History
    evaluations: Evaluations
    problems: tuple[str, ...]  # what was wrong with its files
    energy_unknown: str = ""  # why the power of its machine's processors is not known, where that is recorded
    external: External | None = None  # where a run of another program comes from

    def __repr__(self) -> str:
        steps, reward = self.metrics.total_timesteps, self.metrics.final_reward
        length = "" if steps is None else f", {steps:,.0f} steps"
        reached = "" if reward is None else f", reward {reward_text(reward)}"
        state = f"{self.status} ({self.reason})" if self.reason else self.status
        return f"<Run {self.name}: {self.group_label}, {self.env}, seed {self.seed}, {state}{length}{reached}>"

    def to_frame(self) -> "DataFrame":
        """A pandas DataFrame with a row for each update and a column for each metric of its log."""
        from rlcb.analysis.frames import frame, updates_of

        return frame(updates_of(self))

    @property
    def label(self) -> str:
        """Algorithm, mode and, where it has one, variant; of another program's run the name that it was given."""
        if self.external:
            return self.external.label
        return with_variant(f"{self.algorithm.upper()} {self.mode.capitalize()}", self.variant)

    @property
    def group_label(self) -> str:
        """The same with the number of workers of a parallel run."""
        if self.external:
            return self.external.label
        workers = f" ({counted(self.num_workers, 'worker')})" if self.mode == "parallel" else ""
        return with_variant(f"{self.algorithm.upper()} {self.mode.capitalize()}{workers}", self.variant)

    @property
    def task(self) -> Task:
        """What it must have in common with other runs; a failed run is compared with those that finished."""
        mode, levels = self.distribution_mode, ""
        if mode is not None:
            start = f" from {self.start_level}" if self.start_level else ""
            levels = f"{self.num_levels or 'all'} {mode} levels{start}"
        training = section(self.config, "training")
        hours, steps = number(training.get("duration_hours")), number(training.get("total_timesteps"))
        budget = "unknown budget" if steps is None else f"{steps:,.0f} steps"
        if hours:
            budget = exact_time(hours)  # because runs of different budgets are not compared
        return Task(self.game, levels, budget, machine_of(self.hardware), self.status != "unfinished")

    @property
    def own_machine(self) -> str:
        """The machine where it was started, which is where it ran, unless it ran on a cluster."""
        return own_machine(self.hardware)

    @property
    def cores(self) -> int | None:
        """Cores that it could keep busy; None where that is not recorded."""
        nodes = nodes_of(self.hardware)
        return cores_used(self.hardware, self.num_workers, self.num_learners, self.num_threads, nodes)

    @property
    def compared_reward(self) -> float | None:
        """Its final reward, None where that is known to be over fewer episodes than a full window."""
        episodes = self.metrics.num_episodes
        return None if episodes is not None and episodes < WINDOW else self.metrics.final_reward

    @property
    def jobs_beside(self) -> int:
        """The most other runs of a suite that shared the machine with it; its speed is not that of the machine."""
        return max(whole_number(self.hardware.get("jobs_beside")) or 0, 0)

    @property
    def disturbed(self) -> bool:
        """Whether other programs took so much of its cores that its speed is not that of the machine."""
        return self.disturbance.disturbed is True

    @property
    def device(self) -> str:
        """cpu or cuda."""
        return plain(self.hardware.get("device")) or plain(section(self.config, "hardware").get("device"))

    @property
    def precision(self) -> str:
        """What the network computed in: fp32, which is also what it was before there was a choice, or bf16."""
        used = plain(self.hardware.get("precision")) or plain(section(self.config, "hardware").get("precision"))
        return used or "fp32"


def with_variant(name: str, variant: str) -> str:
    """A name of runs, followed by their variant where they have one."""
    return f"{name} · {variant}" if variant else name


def metrics_of_history(history: History) -> dict[str, float | None]:
    """The metrics of a run that its log contains."""
    if not len(history):
        return {}
    seconds, steps = number(float(history.time[-1])), float(history.step[-1])
    tail = slice(-FINAL_UPDATES - 1, None)
    tail_seconds = number(float(np.ptp(history.time[tail])))
    known = np.isfinite(history.reward)
    rewards, settled = history.reward[known], history.reward[known & (history.episodes >= WINDOW)]
    memory = history.memory_gb[np.isfinite(history.memory_gb)]
    lengths = history.length[np.isfinite(history.length)]
    return {
        "duration_hours": None if seconds is None else seconds / 3600,
        "total_timesteps": steps,
        "total_updates": float(len(history)),
        "average_fps": steps / seconds if seconds else None,
        "final_fps": float(np.ptp(history.step[tail])) / tail_seconds if tail_seconds else None,
        "timesteps_per_hour": 3600 * steps / seconds if seconds else None,
        "final_reward": float(rewards[-1]) if len(rewards) else None,
        "final_reward_std": number(float(history.reward_std[-1])),
        "best_reward": float(settled.max()) if len(settled) else None,
        "final_episode_length": float(lengths[-1]) if len(lengths) else None,
        "num_episodes": number(float(history.episodes[-1])),
        "peak_memory_gb": float(memory.max()) if len(memory) else None,
        "average_memory_gb": float(memory.mean()) if len(memory) else None,
        "late_reward": late_reward(history),
    }


def late_reward(history: History) -> float | None:
    """Mean of the logged rewards over the updates that ended in the last LATE_STEPS; None where the log is shorter."""
    start = int(np.searchsorted(history.step, history.step[-1] - LATE_STEPS, side="right")) if len(history) else 0
    rewards = history.settled_reward[start:]
    known = rewards[np.isfinite(rewards)]
    return float(known.mean()) if start and len(known) else None


def metrics_of_summary(benchmark: dict[str, Any], summary: dict[str, Any]) -> tuple[dict[str, float | None], list[str]]:
    """The metrics in benchmark_metrics.json, else in training_summary.json; and which values are not numbers."""
    found = {**summary, "average_fps": summary.get("avg_fps"), **benchmark}
    for name in ("performance", "resource_usage", "efficiency"):
        found |= section(benchmark, name)
    limit = section(benchmark, "limit") or section(summary, "limit")
    found |= {"limit_fraction": limit.get("fraction")}
    names = [field.name for field in fields(RunMetrics) if field.name in found]
    wrong = [name for name in names if found[name] is not None and number(found[name]) is None]
    problems = [f"values in its summary that are not numbers: {', '.join(wrong)}"] if wrong else []
    return {name: number(found[name]) for name in names}, problems


def disturbance_of(benchmark: dict[str, Any]) -> Disturbance:
    """What other programs took of the cores; all unknown where that is not recorded."""
    said = section(benchmark, "disturbance")
    known = {field.name: number(said.get(field.name)) for field in fields(Disturbance)}
    disturbed = said.get("disturbed")
    given: dict[str, Any] = {name: value for name, value in known.items() if value is not None}
    return Disturbance(**{**given, "disturbed": disturbed if isinstance(disturbed, bool) else None})


def status_of(
    path: Path, said: str, covered: bool, steps: float | None, events: list[dict[str, Any]]
) -> tuple[str, str]:
    """How a run ended, and why it is not finished; `covered`: whether the status that it `said` is up to date."""
    turns = [event for event in events if event.get("event") in ("failed", "interrupted", "resumed")]
    last = turns[-1] if turns else {}
    where = f"at step {steps:,.0f}" if steps is not None else "before its first update"
    if said == "finished" and covered:
        return "finished", ""
    owner = owner_of(path)
    if owner and owner.alive:
        return "unfinished", f"still running ({owner}), {where}"
    if last.get("event") == "failed":
        return "failed", failure_reason(last)
    if said == "diverged" and last.get("event") != "resumed":
        return "failed", f"diverged {where}"
    if last.get("event") == "interrupted" or said == "interrupted":
        return "unfinished", f"interrupted {where}"
    return "unfinished", f"ended {where} without recording a reason: it was killed, or the machine went down"


def ended_at(path: Path, benchmark: dict[str, Any], log: Path) -> float:
    """When a run ended, or when it last wrote a file, in seconds since the epoch."""
    try:
        return datetime.fromisoformat(plain(benchmark.get("end_time"))).timestamp()
    except (ValueError, OverflowError, OSError):
        files = [file for file in (log, path) if os.path.exists(file)]
        return max((os.path.getmtime(file) for file in files), default=0.0)
