"""Run directories made up for the tests of the analysis, with the files and keys of real ones."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rlcb.analysis.published import published_curve
from rlcb.config.schema import Config
from rlcb.envs.families import score_range
from rlcb.files import write_json, write_whole

MACHINE = {
    "cpu": "Test CPU", "physical_cores": 4, "logical_cores": 8, "usable_cores": 8, "cgroup_quota": None,
    "instruction_sets": ["avx2"], "memory_gb": 16.0, "gpus": [], "gpu_driver": None,
    "platform": "Linux", "python": "3.11.7",
    "versions": {
        "rlcb": "0.1.0+g0123456789ab", "torch": "2.13.0", "gymnasium": "1.4.0",
        "numpy": "1.26.4",
    },
}  # fmt: skip


def write_run(
    path: Path,
    *,
    algorithm: str = "ppo",
    mode: str = "sequential",
    seed: int = 1,
    updates: int = 60,
    fps: float = 1000.0,
    rewards: tuple[float, float] = (3.0, 8.0),
    noise: float = 0.1,
    workers: int = 1,
    learners: int = 0,
    threads: int = 8,
    status: str = "finished",
    machine: dict[str, Any] | None = None,
    **settings: Any,
) -> Path:
    """Write a run that learns from the first of `rewards` to the second; `settings` are config keys."""
    config = make_config(algorithm, mode, workers, seed, updates, settings)
    lines = make_lines(config, mode, updates, fps, rewards, noise)
    path.mkdir(parents=True)
    write_json(path / "run.json", {"algorithm": algorithm, "mode": mode, "format": 1})
    write_whole(path / "config.yaml", config.to_yaml().encode())
    hardware = {**MACHINE, **(machine or {}), "device": "cpu", "num_workers": workers}
    hardware |= {"num_learners": learners, "num_threads": threads}
    benchmark = make_benchmark(algorithm, mode, status, lines, config, hardware)
    write_json(path / "benchmark_metrics.json", benchmark)
    write_json(path / "training_summary.json", make_summary(benchmark))
    write_json(path / "metrics.json", as_columns(lines))
    write_log(path, algorithm, mode, "".join(json.dumps(line) + "\n" for line in lines).encode())
    return path


def change(path: Path, **sections: dict[str, Any]) -> Path:
    """Put values into sections of a run's benchmark_metrics.json; returns the run."""
    content = json.loads((path / "benchmark_metrics.json").read_text())
    for name, values in sections.items():
        content[name] |= values
    (path / "benchmark_metrics.json").write_text(json.dumps(content))
    return path


def as_columns(lines: list[dict[str, Any]]) -> dict[str, list[Any]]:
    """The content of metrics.json that belongs to these lines."""
    names = dict.fromkeys(name for line in lines for name in line)
    return {name: [line.get(name) for line in lines] for name in names}


def assert_whole_history(path: Path, updates: int | None = None) -> list[dict[str, Any]]:
    """Every update is in the log once, in order, and metrics.json says the same, to the byte; returns the lines."""
    lines = [json.loads(line) for line in log_of(path).read_text().splitlines()]
    assert [line["update"] for line in lines] == list(range(1, (updates or len(lines)) + 1))
    assert (path / "metrics.json").read_text() == json.dumps(as_columns(lines), indent=2) + "\n"
    return lines


def make_config(algorithm: str, mode: str, workers: int, seed: int, updates: int, settings: dict[str, Any]) -> Config:
    """A configuration with `settings` in the sections where they belong."""
    values: dict[str, Any] = Config(algorithm=algorithm).as_used()
    values["env"]["seed"] = seed
    if mode == "parallel":
        values["parallel"] |= {"num_workers": workers, "num_envs_per_worker": 32 // workers}
    values["training"]["total_timesteps"] = updates * 4096
    for key, value in settings.items():
        next(section for section in values.values() if key in section)[key] = value
    return Config.model_validate({"algorithm": algorithm, **values})


def make_lines(
    config: Config, mode: str, updates: int, fps: float, rewards: tuple[float, float], noise: float
) -> list[dict[str, Any]]:
    """The lines of a log: rewards approach their goal, everything else is plausible."""
    rng = np.random.default_rng([config.env.seed, updates, len(mode), int(fps)])
    rollout = config.env.num_envs * config.training.n_steps
    seconds = rollout / fps * rng.uniform(0.97, 1.03, updates)
    progress = 1 - np.exp(-4 * np.arange(1, updates + 1) / updates)
    means = rewards[0] + (rewards[1] - rewards[0]) * progress + noise * rng.standard_normal(updates)
    parallel = {"time/allreduce_seconds": 0.02, "time/waiting_seconds": 0.05} if mode == "parallel" else {}
    return [
        {
            "update": n + 1,
            "step": (n + 1) * rollout,
            "time": round(float(seconds[: n + 1].sum()), 4),
            "rollout/ep_reward_mean": float(means[n]),
            "rollout/ep_reward_std": 4.0,
            "rollout/ep_len_mean": 250.0,
            "rollout/episodes": 16 * (n + 1),
            "time/fps": float(rollout / seconds[n]),
            "time/env_seconds": 0.05 * float(seconds[n]),
            "time/acting_seconds": 0.15 * float(seconds[n]),
            "time/learning_seconds": 0.7 * float(seconds[n]),
            **{name: share * float(seconds[n]) for name, share in parallel.items()},
            "time/other_seconds": 0.03 * float(seconds[n]),
            "loss/total": 0.01,
            "loss/policy": float(-0.01 + 0.002 * rng.standard_normal()),
            "loss/value": 0.07,
            "loss/entropy": 2.7 - 1.5 * float(progress[n]),
            "policy/approx_kl": 0.003,
            "policy/clip_fraction": 0.05,
            "gradient/norm": 1.5,
            "value/explained_variance": 0.5,
            "learning_rate": 3e-4,
            "update/skipped_steps": 0,
            "resource/memory_gb": 0.8,
            "resource/cpu_percent": 95.0,
        }
        for n in range(updates)
    ]


def make_benchmark(
    algorithm: str, mode: str, status: str, lines: list[dict[str, Any]], config: Config, hardware: dict[str, Any]
) -> dict[str, Any]:
    """The content of benchmark_metrics.json that belongs to these lines."""
    last, workers = lines[-1], hardware["num_workers"]
    means = [line["rollout/ep_reward_mean"] for line in lines]
    names = [name for name in last if name.endswith("_seconds")]
    spent = {name[5:-8]: sum(line[name] for line in lines) for name in names}
    tail = lines[-10:]
    return {
        "algorithm": algorithm.upper(),
        "training_mode": mode,
        "status": status,
        "start_time": "2026-05-04T10:00:00+00:00",
        "end_time": "2026-05-04T11:00:00+00:00",
        "duration_hours": last["time"] / 3600,
        "total_timesteps": last["step"],
        "total_updates": last["update"],
        "average_fps": last["step"] / last["time"],
        "final_fps": sum(line["time/fps"] for line in tail) / len(tail),
        "skipped_optimizer_steps": 0,
        "worker_restarts": 0,
        "performance": {
            "initial_reward": means[0],
            "initial_reward_std": 4.0,
            "final_reward": means[-1],
            "final_reward_std": 4.0,
            "best_reward": max(means),
            "average_reward_last_100_episodes": means[-1],
            "final_episode_length": last["rollout/ep_len_mean"],
            "best_episode_reward": 10.0,
            "num_episodes": last["rollout/episodes"],
        },
        "resource_usage": {
            "peak_memory_gb": 0.8 * workers,
            "average_memory_gb": 0.7 * workers,
            "memory_measure": "pss",
            "peak_rss_gb": 1.1 * workers,
            "cpu_percent": 95.0,
        },
        "efficiency": {
            "timesteps_per_hour": 3600 * last["step"] / last["time"],
            "convergence_rate": (means[-1] - means[0]) / (last["step"] / 1e6),
            "reward_std": 4.0,
        },
        "time_shares": {name: seconds / sum(spent.values()) for name, seconds in spent.items()},
        "hardware": hardware,
        "config": config.as_used(),
    }


def make_summary(benchmark: dict[str, Any]) -> dict[str, Any]:
    """The content of training_summary.json that belongs to a benchmark_metrics.json."""
    performance = benchmark["performance"]
    return {
        "algorithm": benchmark["algorithm"],
        "mode": benchmark["training_mode"],
        **{key: benchmark[key] for key in ("status", "duration_hours", "total_timesteps", "total_updates")},
        "avg_fps": benchmark["average_fps"],
        "final_fps": benchmark["final_fps"],
        **{key: benchmark["resource_usage"][key] for key in ("peak_memory_gb", "memory_measure")},
        "worker_restarts": benchmark["worker_restarts"],
        **{key: performance[key] for key in ("initial_reward", "final_reward", "best_reward", "num_episodes")},
        "final_episode_length": performance["final_episode_length"],
    }


def log_of(path: Path) -> Path:
    """The log of a run."""
    return next((path / "logs").glob("*/metrics.jsonl"))


def write_log(path: Path, algorithm: str, mode: str, text: bytes) -> None:
    """Put a log where a run has it."""
    folder = path / "logs" / f"{algorithm.upper()}_{mode.capitalize()}"
    folder.mkdir(parents=True)
    (folder / "metrics.jsonl").write_bytes(text)


def add_event(path: Path, name: str, **fields: Any) -> None:
    """Append a record to a run's events."""
    with (path / "events.jsonl").open("a") as file:
        file.write(json.dumps({"time": "2026-05-04T10:30:00+0000", "event": name, **fields}) + "\n")


def write_evaluation(
    path: Path, train: float, unseen: float, policy: str = "sampled", checkpoint: str = "final"
) -> Path:
    """Write what an evaluation of a checkpoint leaves behind."""
    run = json.loads((path / "run.json").read_text())
    benchmark = json.loads((path / "benchmark_metrics.json").read_text())
    stem = f"{run['algorithm']}_{run['mode']}_{checkpoint}"
    steps = benchmark["total_timesteps"] if checkpoint == "final" else int(checkpoint.removeprefix("step_"))
    entries = [
        {
            "env": benchmark["config"]["env"]["name"], "levels": levels, "num_levels": 200 if levels == "train" else 0,
            "start_level": 0, "distribution_mode": "easy", "policy": policy, "seed": 0, "num_envs": 32, "episodes": 100,
            "complete": True, "mean_reward": mean, "std_reward": 3.0, "min_reward": 0.0, "max_reward": 10.0,
            "mean_length": 200.0, "std_length": 50.0, "ci95": [mean - 0.6, mean + 0.6],
            "normalized_score": (mean - 5) / 5, "success_rate": mean / 10, "success_ci95": [0.1, 0.9], "seconds": 20.0,
            "fps": 1000.0, "rewards": [mean] * 100, "lengths": [200] * 100, "time": "2026-05-04T12:00:00+0000",
        }
        for levels, mean in (("train", train), ("unseen", unseen))
    ]  # fmt: skip
    folder = path / "checkpoints"
    folder.mkdir(exist_ok=True)
    file = folder / f"{stem}_evaluation.json"
    content = {
        "schema": 1, "checkpoint": f"{stem}.pt", "checkpoint_sha256": "0" * 64, "algorithm": run["algorithm"],
        "mode": run["mode"], "env_steps": steps, "evaluations": entries,
        "generalization_gap": [{"env": "coinrun", "policy": policy, "gap": train - unseen, "ci95": None}],
    }  # fmt: skip
    write_json(file, content)
    return file


def write_games(folder: Path, games: Sequence[str], seeds: Sequence[int], updates: int = 150) -> None:
    """Write evaluated runs of two groups in each game: the first reaches about what is published, the second less."""
    parallel: dict[str, Any] = {"mode": "parallel", "workers": 4, "threads": 2, "fps": 2100.0}
    for game in games:
        low, high = score_range(game, "easy") or (0.0, 1.0)
        curves = [published_curve(game, "easy", 200, 0, unseen) for unseen in (False, True)]
        train, unseen = (found[0] if curve and (found := curve.at(updates * 4096)) else low for curve in curves)
        kinds: tuple[tuple[str, dict[str, Any], float], ...] = (("a", {}, 0.0), ("b", parallel, 0.02))
        for group, settings, less in kinds:
            for seed in seeds:
                shift = (0.02 * (seed - 2) - less) * (high - low)
                env: dict[str, Any] = {"name": f"procgen-{game}-v0", "seed": seed, "rewards": (low, train + shift)}
                env |= {"updates": updates, "noise": 0.005 * (high - low)}
                path = write_run(folder / f"{game}_{group}{seed}", **env, **settings)
                write_evaluation(path, train + shift, unseen + shift)
