"""Parallel PPO computes what one process would, and its workers stay equal."""

import json
import sys
from pathlib import Path

import pytest
import torch

from helpers.processes import HELPERS, python, rlcb, run, weights
from rlcb.run.checkpoint import load_checkpoint

SMALL = ("--n-steps", "32", "--batch-size", "128", "--n-epochs", "2", "--num-threads", "1")
CONSTANT = ("--lr-schedule", "constant")  # a run that is extended then equals one that was as long from the start


def train(path: Path, mode: str, workers: int, envs: int, *more: str) -> dict[str, object]:
    """Train and return the final weights by name, as bytes."""
    division = ("--num-workers", str(workers), "--num-envs", str(envs // workers)) if mode == "parallel" else ()
    division = division or ("--num-envs", str(envs))
    done = rlcb("train", "ppo", "--mode", mode, *division, *SMALL, *CONSTANT, *more, "--output-dir", path)
    assert done.returncode == 0, done.stderr
    return weights(path / "checkpoints" / f"ppo_{mode}_final.pt")


@pytest.mark.parametrize("env", ["coinrun", "CartPole-v1"])
def test_one_worker_is_bit_identical_to_sequential(env: str, tmp_path: Path) -> None:
    more = ("--env", env, "--total-timesteps", str(5 * 256))
    sequential = train(tmp_path / "s", "sequential", 1, 8, *more)
    assert train(tmp_path / "p", "parallel", 1, 8, *more) == sequential


@pytest.mark.parametrize(("workers", "backend"), [(2, "shared_memory"), (4, "shared_memory"), (2, "gloo")])
def test_the_same_seed_and_number_of_workers_repeat_bit_for_bit_also_after_resume(
    workers: int, backend: str, tmp_path: Path
) -> None:
    more = ("--env", "CartPole-v1", "--backend", backend)
    whole = train(tmp_path / "a", "parallel", workers, 8, *more, "--total-timesteps", "1536")
    train(tmp_path / "b", "parallel", workers, 8, *more, "--total-timesteps", "768")
    done = rlcb("train", "--resume", tmp_path / "b", "--total-timesteps", "1536")
    assert done.returncode == 0, done.stderr
    assert weights(tmp_path / "b" / "checkpoints" / "ppo_parallel_final.pt") == whole


def test_gradient_of_the_group_is_the_gradient_of_the_union(tmp_path: Path) -> None:
    """Workers average their gradients, one process computes the union batch's; replicas stay equal for 20 updates."""
    for workers in (2, 4):
        done = python(str(HELPERS / "group_gradient.py"), str(workers))
        assert done.returncode == 0, done.stderr
        result = json.loads(done.stdout)
        assert result["relative_error"] < 1e-5
        assert result["relative_error_of_norm"] < 1e-5
        assert result["equal_norms"]
        assert result["equal_weights_after_20_updates"]
        assert result["weights_moved"]


def test_files_console_and_summary(tmp_path: Path) -> None:
    path = tmp_path / "run"
    command = [sys.executable, "train_ppo_parallel.py", "--env", "CartPole-v1", "--num-workers", "2"]
    done = run([*command, "--num-envs-per-worker", "4", *SMALL, "--total-timesteps", "2048", "--output-dir", str(path)])
    assert done.returncode == 0, done.stderr
    for line in ("Workers: 2", "Worker 0 started with 4 environments", "Worker 1 started with 4 environments",
                 "Total Environments: 8", "PPO Parallel Training", "Limited by:"):  # fmt: skip
        assert line in done.stdout
    lines = [json.loads(text) for text in (path / "logs" / "PPO_Parallel" / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [256 * n for n in range(1, 9)]
    for line in lines:
        assert line["time/allreduce_seconds"] >= 0
        assert line["time/waiting_seconds"] >= 0
    metrics = json.loads((path / "benchmark_metrics.json").read_text())
    assert (metrics["training_mode"], metrics["worker_restarts"], metrics["hardware"]["num_workers"]) == (
        "parallel",
        0,
        2,
    )
    assert metrics["performance"]["num_episodes"] == lines[-1]["rollout/episodes"] > 0
    assert sum(metrics["time_shares"].values()) == pytest.approx(1, abs=0.01)
    assert sorted(p.name for p in (path / "checkpoints").iterdir()) == [
        "ppo_parallel_final.pt", "ppo_parallel_step_0.pt",
    ]  # fmt: skip


@pytest.mark.parametrize("env", ["coinrun", "CartPole-v1"])
def test_a_run_goes_over_to_the_other_mode_and_back(env: str, tmp_path: Path) -> None:
    path = tmp_path / "run"
    train(path, "sequential", 1, 8, "--env", env, "--total-timesteps", "512")
    for mode, workers, steps in (("parallel", "2", 1024), ("parallel", "4", 1536), ("sequential", "1", 2048)):
        flags = ("--num-workers", workers) if mode == "parallel" else ()
        done = rlcb("train", "--resume", path, "--mode", mode, *flags, "--total-timesteps", str(steps))
        assert done.returncode == 0, done.stderr
        assert "could not be restored" not in done.stderr
        content = load_checkpoint(path / "checkpoints" / f"ppo_{mode}_final.pt")
        assert content["meta"]["env_steps"] == steps
        assert len(content["envs"]) == 8
        history = (path / "logs" / f"PPO_{mode.capitalize()}" / "metrics.jsonl").read_text().splitlines()
        assert [json.loads(line)["step"] for line in history] == list(range(256, steps + 1, 256))


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--num-workers", "3", "--num-envs", "8", "--batch-size", "1024"), ("--batch-size", "3 workers", "768")),
        (("--num-workers", "0"), ("--num-workers", "1 to 1024")),
        (("--num-workers", "2", "--num-envs", "4", "--num-envs-per-worker", "8"), ("differ",)),
        (("--device", "cuda"), ("cuda", "sequential")),
        (("--num-workers", "auto", "--num-envs", "8"), ("auto", "total")),
    ],
)
def test_divisions_that_do_not_work_are_refused(flags: tuple[str, ...], words: tuple[str, ...]) -> None:
    rlcb("train", "ppo", "--mode", "parallel", *flags).assert_one_line_error(2, *words)


def test_a_batch_larger_than_the_rollout_is_the_rollout(tmp_path: Path) -> None:
    command = ("train_parallel_timed.py", "--duration", "0.0005", "--num-workers", "2", "--num-envs-per-worker", "2")
    done = python(*command, "--env", "CartPole-v1", "--output-dir", str(tmp_path / "run"))
    assert done.returncode == 0, done.stderr
    assert "the whole rollout is one batch" in done.stdout


def test_shared_memory_and_gloo_agree_up_to_rounding(tmp_path: Path) -> None:
    more = ("--env", "CartPole-v1", "--total-timesteps", "512")
    for backend in ("shared_memory", "gloo"):
        train(tmp_path / backend, "parallel", 2, 8, *more, "--backend", backend)
    final = [load_checkpoint(tmp_path / b / "checkpoints" / "ppo_parallel_final.pt") for b in ("shared_memory", "gloo")]
    for name, tensor in final[0]["policy"].items():
        assert torch.allclose(tensor, final[1]["policy"][name], atol=1e-5), name
