"""The run directory: every promised file, nothing lost, nobody else's."""

import itertools
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from helpers.processes import CARTPOLE, ROOT, TINY, python, rlcb
from rlcb.config.load import build_config
from rlcb.config.schema import fields
from rlcb.envs.families import keys_of_others

pytestmark = pytest.mark.xdist_group("run directory")

Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished CartPole run of 12 updates."""
    path = tmp_path_factory.mktemp("finished") / "run"
    done = rlcb("train", "ppo", *CARTPOLE, "--total-timesteps", "3072", "--save-interval", "4", "--output-dir", path)
    assert done.returncode == 0, done.stderr
    return path


def history(path: Path) -> list[dict]:
    lines = (path / "logs" / "PPO_Sequential" / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def test_every_promised_file_is_there(finished: Path) -> None:
    files = {str(path.relative_to(finished)) for path in finished.rglob("*") if path.is_file()}
    events = {name for name in files if "tfevents" in name}
    assert len(events) == 1
    assert next(iter(events)).startswith("logs/PPO_Sequential/events.out.tfevents.")
    assert files - events == {
        "config.yaml", "run.json", "benchmark_metrics.json", "training_summary.json", "metrics.json",
        "logs/PPO_Sequential/metrics.jsonl", "checkpoints/ppo_sequential_final.pt",
        *(f"checkpoints/ppo_sequential_step_{n}.pt" for n in (0, 1024, 2048)),
    }  # fmt: skip


def test_config_is_the_one_used_and_complete(finished: Path) -> None:
    config = build_config(finished / "config.yaml", {})
    assert (config.env.name, config.env.num_envs, config.training.total_timesteps) == ("CartPole-v1", 8, 3072)
    written = yaml.safe_load((finished / "config.yaml").read_text())
    assert [(section, key) for section in written for key in written[section]] == [
        (section, key)
        for section, key, _ in fields("ppo")
        if key not in ("imports", "oversubscribe", *keys_of_others("CartPole-v1"))  # saved where they are used
    ]
    everything = config.model_dump(mode="json")
    assert all(everything[section].items() >= written[section].items() for section in written)


def test_benchmark_metrics(finished: Path) -> None:
    metrics = json.loads((finished / "benchmark_metrics.json").read_text())
    summary = json.loads((finished / "training_summary.json").read_text())
    lines = history(finished)
    assert (metrics["training_mode"], metrics["status"]) == ("sequential", "finished")
    assert (metrics["total_timesteps"], metrics["total_updates"]) == (3072, 12)
    assert metrics["average_fps"] == pytest.approx(3072 / (3600 * metrics["duration_hours"]))
    assert metrics["efficiency"]["timesteps_per_hour"] == pytest.approx(3600 * metrics["average_fps"])
    performance = metrics["performance"]
    assert performance["final_reward"] == lines[-1]["rollout/ep_reward_mean"]
    assert performance["average_reward_last_100_episodes"] == performance["final_reward"]
    assert performance["best_episode_reward"] >= performance["best_reward"] >= performance["final_reward"] - 1e-9
    gain = performance["final_reward"] - performance["initial_reward"]
    assert metrics["efficiency"]["convergence_rate"] == pytest.approx(gain / (3072 / 1e6))
    assert performance["final_episode_length"] == lines[-1]["rollout/ep_len_mean"]
    used = metrics["resource_usage"]
    assert used["peak_rss_gb"] >= used["peak_memory_gb"] >= used["average_memory_gb"] > 0.05
    assert used["memory_measure"] == ("pss" if sys.platform == "linux" else "rss")
    assert metrics["resource_usage"]["cpu_percent"] > 0
    assert metrics["hardware"]["device"] == "cpu"
    assert metrics["config"]["env"]["name"] == "CartPole-v1"
    assert sum(metrics["time_shares"].values()) == pytest.approx(1, abs=0.01)
    assert summary == {
        "algorithm": "PPO", "mode": "sequential", "status": "finished", "duration_hours": metrics["duration_hours"],
        "total_timesteps": 3072, "total_updates": 12, "avg_fps": metrics["average_fps"],
        "final_fps": metrics["final_fps"], "limit": None, "peak_memory_gb": used["peak_memory_gb"],
        "memory_measure": used["memory_measure"], "final_episode_length": performance["final_episode_length"],
        "initial_reward": performance["initial_reward"], "final_reward": performance["final_reward"],
        "best_reward": performance["best_reward"], "num_episodes": performance["num_episodes"], "worker_restarts": 0,
        "disturbance": metrics["disturbance"],
    }  # fmt: skip


def test_history_has_a_line_per_update_and_its_times_add_up(finished: Path) -> None:
    lines = history(finished)
    assert [line["step"] for line in lines] == [256 * n for n in range(1, 13)]
    parts = ("env", "acting", "learning", "other")
    for before, line in itertools.pairwise(lines):
        spent = sum(line[f"time/{part}_seconds"] for part in parts)
        assert spent == pytest.approx(line["time"] - before["time"], rel=0.05, abs=0.01)
        assert line["time/fps"] == pytest.approx(256 / spent, rel=0.05)
    columns = json.loads((finished / "metrics.json").read_text())
    assert columns["step"] == [line["step"] for line in lines]
    assert all(len(column) == 12 for column in columns.values())


def test_every_logged_number_is_explained(finished: Path) -> None:
    text = (ROOT / "docs" / "metrics.md").read_text()
    for name in history(finished)[0]:
        assert f"`{name}`" in text, name


def test_tensorboard_agrees_with_the_history(finished: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(finished / "logs" / "PPO_Sequential"), size_guidance={"scalars": 0})
    events.Reload()
    lines = history(finished)
    names = {name for line in lines for name in line if "/" in name}
    assert set(events.Tags()["scalars"]) == names
    for name in names:
        expected = [(line["step"], line[name]) for line in lines if line.get(name) is not None]
        found = [(event.step, event.value) for event in events.Scalars(name)]
        assert [step for step, _ in found] == [step for step, _ in expected]
        assert [value for _, value in found] == pytest.approx([value for _, value in expected], rel=1e-5)


def test_a_run_without_an_episode_says_so(tmp_path: Path) -> None:
    done = rlcb("train", "ppo", *TINY, "--total-timesteps", "256", "--output-dir", tmp_path / "run")
    assert done.returncode == 0
    assert "Reward: n/a" in done.stdout
    assert "Final Reward: n/a (no episode has finished)" in done.stdout
    summary = json.loads((tmp_path / "run" / "training_summary.json").read_text())
    assert summary["initial_reward"] is summary["final_reward"] is summary["best_reward"] is None


def test_an_earlier_run_is_moved_aside(tmp_path: Path) -> None:
    arguments = ("train", "ppo", *CARTPOLE, "--total-timesteps", "256", "--output-dir", tmp_path / "run")
    for seed in ("1", "2", "3"):
        assert rlcb(*arguments, "--seed", seed).returncode == 0
    seeds = [build_config(tmp_path / name / "config.yaml", {}).env.seed for name in ("run.1", "run.2", "run")]
    assert seeds == [1, 2, 3]


def test_folders_outside_the_run_directory(tmp_path: Path) -> None:
    flags = ("--checkpoint-dir", str(tmp_path / "ck"), "--log-dir", str(tmp_path / "logs"))
    for _ in range(2):
        given = (
            *CARTPOLE[:-2],
            "--total-timesteps",
            "256",
            *flags,  # the script has no --lr-schedule
            "--output-dir",
            str(tmp_path / "run"),
        )
        done = python("train_ppo_sequential.py", *given)
        assert done.returncode == 0, done.stderr
    for folder in ("ck", "ck.1"):
        assert (tmp_path / folder / "ppo_sequential_final.pt").exists()
    for folder in ("PPO_Sequential", "PPO_Sequential.1"):
        assert (tmp_path / "logs" / folder / "metrics.jsonl").exists()
    assert rlcb("train", "--resume", tmp_path / "run", "--total-timesteps", "512").returncode == 0


def test_an_explicit_output_dir_brings_the_files_folders_home(tmp_path: Path) -> None:
    config = tmp_path / "c.yaml"
    config.write_text(f"logging: {{checkpoint_dir: {tmp_path / 'elsewhere'}, log_dir: {tmp_path / 'elsewhere'}}}\n")
    arguments = (*CARTPOLE, "--config", config, "--total-timesteps", "256", "--output-dir", tmp_path / "run")
    assert rlcb("train", "ppo", *arguments).returncode == 0
    assert (tmp_path / "run" / "checkpoints" / "ppo_sequential_final.pt").exists()
    assert not (tmp_path / "elsewhere").exists()


def test_somebody_elses_directory_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "mine.txt").write_text("mine")
    rlcb("train", "ppo", "--output-dir", tmp_path).assert_one_line_error(2, "--output-dir", "do not belong to a run")
    (tmp_path / "file").write_text("x")
    rlcb("train", "ppo", "--output-dir", tmp_path / "file").assert_one_line_error(2, "is a file")


def test_a_timed_run_ends_at_the_update_nearest_to_its_time(tmp_path: Path) -> None:
    hours = 6 / 3600
    small = ("--num-envs", "8", "--n-steps", "32", "--batch-size", "128", "--num-threads", "1")
    done = python("train_timed.py", "--duration", str(hours), *small, "--output-dir", str(tmp_path / "run"))
    assert done.returncode == 0, done.stderr
    metrics = json.loads((tmp_path / "run" / "benchmark_metrics.json").read_text())
    times = [line["time"] for line in history(tmp_path / "run")]
    longest = max(b - a for a, b in itertools.pairwise([0.0, *times]))
    assert abs(times[-1] - 6) <= longest
    assert metrics["duration_hours"] * 3600 == pytest.approx(times[-1], abs=0.01)
    assert "Timed Benchmark" in done.stdout


def test_timed_script_wants_a_duration() -> None:
    python("train_timed.py").assert_one_line_error(2, "--duration HOURS is required")
