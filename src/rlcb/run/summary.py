"""The summaries of a run: benchmark_metrics.json, training_summary.json, the block on screen."""

from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from rlcb.config.plan import Plan
from rlcb.config.registry import ALGORITHMS
from rlcb.config.schema import Config
from rlcb.console import filled
from rlcb.disturbance.verdict import Disturbance
from rlcb.envs.episodes import EpisodeStatistics
from rlcb.envs.families import release_versions
from rlcb.files import write_json
from rlcb.hardware import describe_machine
from rlcb.run.directory import RunDirectory
from rlcb.run.gpu import gpu_used
from rlcb.run.history import HistoryTotals, Metrics
from rlcb.run.state import Progress


@dataclass(frozen=True)
class Outcome:
    """How far a run is, as its summary needs it."""

    status: str  # running, finished, interrupted, diverged
    started: datetime
    ended: datetime
    seconds: float
    progress: Progress
    episodes: EpisodeStatistics
    history: HistoryTotals
    resources: dict[str, float | str | None]
    plan: Plan
    worker_restarts: int
    nodes: list[dict[str, Any]]  # of a cluster
    limit: dict[str, Any] | None = None  # what this machine could reach, where that is known
    limit_command: str = ""  # what measures it, where that makes sense
    jobs_beside: int = 0  # the most other runs that a suite ran on this machine at the same time

    @property
    def disturbance(self) -> Disturbance:
        """What other programs took of the cores, over all parts of the run."""
        return self.history.use_of_cores.verdict()


def write_summaries(run: RunDirectory, config: Config, outcome: Outcome) -> Metrics:
    """Write both JSON files; returns the content of benchmark_metrics.json."""
    metrics = benchmark_metrics(run, config, outcome)
    write_json(run.path / "benchmark_metrics.json", metrics)
    write_json(run.path / "training_summary.json", training_summary(metrics))
    return metrics


def benchmark_metrics(run: RunDirectory, config: Config, outcome: Outcome) -> Metrics:
    """The content of benchmark_metrics.json: everything that a comparison needs to know."""
    rewards, machine = _rewards(outcome.episodes), describe_machine()
    hours, env_steps = outcome.seconds / 3600, outcome.progress.env_steps
    return {
        "algorithm": run.algorithm.upper(),
        "training_mode": run.mode,
        "status": outcome.status,
        "start_time": outcome.started.isoformat(timespec="seconds"),
        "end_time": outcome.ended.isoformat(timespec="seconds"),
        "duration_hours": hours,
        "total_timesteps": env_steps,
        "total_updates": outcome.progress.updates,
        "average_fps": env_steps / outcome.seconds if outcome.seconds else None,
        "final_fps": outcome.history.final_fps(),
        "skipped_optimizer_steps": outcome.progress.skipped_steps,
        "worker_restarts": outcome.worker_restarts,
        "performance": {
            **rewards,
            "average_reward_last_100_episodes": rewards["final_reward"],
            "final_episode_length": outcome.episodes.recent_length(),
            "best_episode_reward": outcome.episodes.best_episode,
            "num_episodes": outcome.episodes.num_episodes,
        },
        "resource_usage": outcome.resources,
        "efficiency": {
            "timesteps_per_hour": env_steps / hours if hours else None,
            "convergence_rate": _convergence_rate(rewards, env_steps),
            "reward_std": rewards["final_reward_std"],
        },
        "time_shares": outcome.history.time_shares(),
        "disturbance": asdict(outcome.disturbance),
        "limit": outcome.limit,
        "hardware": {
            **machine,
            "versions": {**machine["versions"], **release_versions(config.env.name)},
            "device": outcome.plan.device,
            "precision": config.hardware.precision,
            **gpu_used(outcome.plan.device),
            "num_workers": outcome.plan.num_workers,
            "num_learners": outcome.plan.num_learners,
            "num_threads": outcome.plan.threads,
            **({"jobs_beside": outcome.jobs_beside} if outcome.jobs_beside else {}),
            **({"nodes": outcome.nodes} if outcome.nodes else {}),
        },
        "config": config.as_used(),
    }


def training_summary(metrics: Metrics) -> Metrics:
    """The content of training_summary.json, which repeats some of benchmark_metrics.json under its own names."""
    same = ("status", "duration_hours", "total_timesteps", "total_updates")
    rewards = ("initial_reward", "final_reward", "best_reward", "final_episode_length", "num_episodes")
    return {
        "algorithm": metrics["algorithm"],
        "mode": metrics["training_mode"],
        **{key: metrics[key] for key in same},
        "avg_fps": metrics["average_fps"],
        "final_fps": metrics["final_fps"],
        "limit": metrics["limit"],
        "disturbance": metrics["disturbance"],
        "worker_restarts": metrics["worker_restarts"],
        **{key: metrics["resource_usage"][key] for key in ("peak_memory_gb", "memory_measure")},
        **{key: metrics["performance"][key] for key in rewards},
        **({"nodes": metrics["hardware"]["nodes"]} if "nodes" in metrics["hardware"] else {}),
    }


def _rewards(episodes: EpisodeStatistics) -> dict[str, float | None]:
    initial, recent = episodes.initial() or (None, None), episodes.recent() or (None, None)
    return {
        "initial_reward": initial[0],
        "initial_reward_std": initial[1],
        "final_reward": recent[0],
        "final_reward_std": recent[1],
        "best_reward": episodes.best_mean,
    }


def _convergence_rate(rewards: dict[str, float | None], env_steps: int) -> float | None:
    """Reward gained per million steps, from the initial to the final reward."""
    initial, final = rewards["initial_reward"], rewards["final_reward"]
    if initial is None or final is None or not env_steps:
        return None
    return (final - initial) / (env_steps / 1e6)


def summary_block(run: RunDirectory, metrics: Metrics, outcome: Outcome) -> str:
    """The TRAINING SUMMARY shown at the end, from the content of benchmark_metrics.json."""
    shares = metrics["time_shares"]
    return filled(
        "summary.txt",
        run=run,
        metrics=metrics,
        rewards=metrics["performance"],
        nodes=metrics["hardware"].get("nodes", []),
        limit_command=outcome.limit_command,
        disturbance=outcome.disturbance,
        worker=ALGORITHMS[run.algorithm].worker,
        time=", ".join(f"{name} {100 * share:.0f} %" for name, share in shares.items()),
        longest=max(shares, key=lambda name: shares[name]) if shares else None,
    )
