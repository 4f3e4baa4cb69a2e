"""What a run leaves at its end: benchmark_metrics.json, training_summary.json, metrics.json, the block on screen."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import numpy as np

from rlcb.config.registry import ALGORITHMS
from rlcb.config.schema import Config
from rlcb.console import LINE
from rlcb.envs.episodes import EpisodeStatistics
from rlcb.files import write_json
from rlcb.hardware import describe_machine
from rlcb.run.directory import RunDirectory
from rlcb.run.metrics import Metrics, as_columns

FINAL_UPDATES = 10  # updates that the final FPS is measured over


@dataclass(frozen=True)
class Outcome:
    """How far a run is, as its summary needs it."""

    status: str  # running, finished, interrupted, diverged
    started: datetime
    ended: datetime
    seconds: float
    env_steps: int
    updates: int
    skipped_steps: int
    episodes: EpisodeStatistics
    history: list[Metrics]
    resources: dict[str, float | None]
    device: str
    num_threads: int
    num_workers: int
    worker_restarts: int
    nodes: list[dict[str, Any]] = field(default_factory=list)  # of a cluster


def write_summaries(run: RunDirectory, config: Config, outcome: Outcome) -> None:
    """Write the three JSON files of a run."""
    write_json(run.path / "metrics.json", as_columns(outcome.history))
    write_json(run.path / "benchmark_metrics.json", benchmark_metrics(run, config, outcome))
    write_json(run.path / "training_summary.json", training_summary(run, outcome))


def benchmark_metrics(run: RunDirectory, config: Config, outcome: Outcome) -> dict[str, Any]:
    """The content of benchmark_metrics.json: everything that a comparison needs to know."""
    rewards = _rewards(outcome.episodes)
    hours = outcome.seconds / 3600
    return {
        "algorithm": run.algorithm.upper(),
        "training_mode": run.mode,
        "status": outcome.status,
        "start_time": outcome.started.isoformat(timespec="seconds"),
        "end_time": outcome.ended.isoformat(timespec="seconds"),
        "duration_hours": hours,
        "total_timesteps": outcome.env_steps,
        "total_updates": outcome.updates,
        "average_fps": average_fps(outcome),
        "final_fps": final_fps(outcome.history),
        "skipped_optimizer_steps": outcome.skipped_steps,
        "worker_restarts": outcome.worker_restarts,
        "performance": {
            **rewards,
            "average_reward_last_100_episodes": rewards["final_reward"],
            "best_episode_reward": outcome.episodes.best_episode,
            "num_episodes": outcome.episodes.num_episodes,
        },
        "resource_usage": outcome.resources,
        "efficiency": {
            "timesteps_per_hour": outcome.env_steps / hours if hours else None,
            "convergence_rate": _convergence_rate(rewards, outcome.env_steps),
            "reward_std": rewards["final_reward_std"],
        },
        "time_shares": time_shares(outcome.history),
        "hardware": {
            **describe_machine(),
            "device": outcome.device,
            "num_workers": outcome.num_workers,
            "num_threads": outcome.num_threads,
            **({"nodes": outcome.nodes} if outcome.nodes else {}),
        },
        "config": config.as_used(),
    }


def training_summary(run: RunDirectory, outcome: Outcome) -> dict[str, Any]:
    """The content of training_summary.json."""
    rewards = _rewards(outcome.episodes)
    return {
        "algorithm": run.algorithm.upper(),
        "mode": run.mode,
        "status": outcome.status,
        "duration_hours": outcome.seconds / 3600,
        "total_timesteps": outcome.env_steps,
        "total_updates": outcome.updates,
        "avg_fps": average_fps(outcome),
        "final_fps": final_fps(outcome.history),
        "worker_restarts": outcome.worker_restarts,
        "peak_memory_gb": outcome.resources["peak_memory_gb"],
        "initial_reward": rewards["initial_reward"],
        "final_reward": rewards["final_reward"],
        "best_reward": rewards["best_reward"],
        "num_episodes": outcome.episodes.num_episodes,
        **({"nodes": outcome.nodes} if outcome.nodes else {}),
    }


def _rewards(episodes: EpisodeStatistics) -> dict[str, float | None]:
    initial, recent = episodes.initial(), episodes.recent()
    return {
        "initial_reward": initial[0] if initial else None,
        "initial_reward_std": initial[1] if initial else None,
        "final_reward": recent[0] if recent else None,
        "final_reward_std": recent[1] if recent else None,
        "best_reward": episodes.best_mean,
    }


def _convergence_rate(rewards: dict[str, float | None], env_steps: int) -> float | None:
    """Reward gained per million steps, from the initial to the final reward."""
    initial, final = rewards["initial_reward"], rewards["final_reward"]
    if initial is None or final is None or not env_steps:
        return None
    return (final - initial) / (env_steps / 1e6)


def average_fps(outcome: Outcome) -> float | None:
    """Environment steps per second of training time."""
    return outcome.env_steps / outcome.seconds if outcome.seconds else None


def final_fps(history: list[Metrics]) -> float | None:
    """Environment steps per second over the last updates."""
    last = history[-FINAL_UPDATES - 1 :]
    if len(last) < 2:
        return history[-1]["time/fps"] if history else None
    seconds = last[-1]["time"] - last[0]["time"]
    return float((last[-1]["step"] - last[0]["step"]) / seconds) if seconds else None


def time_shares(history: list[Metrics]) -> dict[str, float]:
    """The shares of the whole run's time that each activity took."""
    names = ("env", "acting", "learning", "allreduce", "waiting", "rollouts", "other")
    there = [name for name in names if history and f"time/{name}_seconds" in history[-1]]
    spent = {name: float(np.sum([line.get(f"time/{name}_seconds", 0.0) for line in history])) for name in there}
    total = sum(spent.values())
    return {name: round(seconds / total, 4) for name, seconds in spent.items()} if total else {}


def summary_block(run: RunDirectory, config: Config, outcome: Outcome) -> str:
    """The TRAINING SUMMARY shown at the end."""
    rewards, episodes = _rewards(outcome.episodes), outcome.episodes
    shares = time_shares(outcome.history)
    waiting = "not every environment has finished its first episode"
    noun = ALGORITHMS[run.algorithm].worker
    lines = [
        LINE,
        "TRAINING SUMMARY",
        LINE,
        f"Duration: {outcome.seconds / 3600:.2f} hours" + _status_note(outcome),
        *([f"{noun.capitalize()}s: {outcome.num_workers}"] if run.mode == "parallel" else []),
        f"Total Environments: {config.env.num_envs}",
        f"Total Timesteps: {outcome.env_steps:,}",
        f"Total Updates: {outcome.updates:,}",
        f"Average FPS: {_number(average_fps(outcome), ',.0f')}",
        f"Final FPS: {_number(final_fps(outcome.history), ',.0f')}",
        "",
        "Performance:",
        f"  Initial Reward: {_spread(rewards, 'initial_reward', waiting)}",
        f"  Final Reward: {_spread(rewards, 'final_reward', 'no episode has finished')}",
        f"  Best Reward: {_number(rewards['best_reward'], '.2f', f'only {episodes.num_episodes} of 100 episodes')}",
        f"  Episodes: {episodes.num_episodes:,}",
        "",
        "Resource Usage:",
        f"  Peak Memory: {_number(outcome.resources['peak_memory_gb'], '.2f')} GB",
        f"  CPU: {_number(outcome.resources['cpu_percent'], '.0f')} % of the usable cores",
        "  Time: " + ", ".join(f"{name} {100 * share:.0f} %" for name, share in shares.items()),
        f"  Limited by: {limited_by(shares)}",
        *_node_lines(outcome.nodes, noun),
        "",
        f"Results saved to: {run.path}",
        LINE,
    ]
    if outcome.skipped_steps:
        lines.insert(7, f"Skipped Optimizer Steps (not finite): {outcome.skipped_steps:,}")
    if outcome.worker_restarts:
        lines.insert(5, f"Worker Restarts: {outcome.worker_restarts}")
    return "\n".join(lines)


def _node_lines(nodes: list[dict[str, Any]], noun: str) -> list[str]:
    lines = ["", "Nodes:"] if nodes else []
    for node in nodes:
        workers = f"{node['workers']} {noun}" if node["workers"] == 1 else f"{node['workers']} {noun}s"
        memory = f"peak memory {_number(node['peak_memory_gb'], '.2f')} GB"
        gone = "" if node["alive"] else ", lost"
        lines.append(f"  {node['node']}: {node['cores']:g} cores, {workers}, {memory}{gone}")
    return lines


def limited_by(shares: dict[str, float]) -> str:
    """What a run spent most of its time on, and what would make that shorter."""
    advice = {
        "env": "stepping the environments; more cores would help",
        "acting": "the policy while collecting, mostly a fixed cost per step; more environments per process would help",
        "learning": "learning; more cores, fewer epochs or a smaller network would help",
        "allreduce": "exchanging gradients; larger minibatches or fewer workers would help",
        "waiting": "waiting for the slowest worker; fewer workers, or nothing else on these cores, would help",
        "rollouts": "waiting for rollouts; more actors would help",
        "other": "logging and saving; saving less often would help",
    }
    return advice[max(shares, key=lambda name: shares[name])] if shares else "n/a"


def _status_note(outcome: Outcome) -> str:
    return "" if outcome.status == "finished" else f" ({outcome.status})"


def _number(value: float | None, form: str, why_not: str = "") -> str:
    if value is None:
        return f"n/a ({why_not})" if why_not else "n/a"
    return format(value, form)


def _spread(rewards: dict[str, float | None], key: str, why_not: str) -> str:
    mean, std = rewards[key], rewards[f"{key}_std"]
    return f"n/a ({why_not})" if mean is None or std is None else f"{mean:.2f} ± {std:.2f}"
