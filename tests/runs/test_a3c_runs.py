"""A3C as a user runs it: what its runs leave behind, how it is resumed, evaluated and compared."""

import json
import shutil
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from helpers.processes import rlcb
from rlcb.run.checkpoint import load_checkpoint, save_checkpoint

pytestmark = pytest.mark.xdist_group("a3c runs")

DIVISION = ("--num-workers", "2", "--num-envs", "4", "--n-steps", "16", "--num-threads", "1", "--tensorboard", "false")
CARTPOLE = ("train", "a3c", "--env", "CartPole-v1", *DIVISION, "--log-interval", "1")
ROLLOUT = 2 * 4 * 16


def history(path: Path) -> list[dict[str, Any]]:
    lines = (path / "logs" / "A3C_Parallel" / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A run of 20 updates and what it printed."""
    path = tmp_path_factory.mktemp("a3c") / "run"
    done = rlcb(*CARTPOLE, "--save-interval", "8", "--total-timesteps", str(20 * ROLLOUT - 5), "--output-dir", path)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    return path, done.stdout


def test_files_console_and_summary(finished: tuple[Path, str]) -> None:
    path, out = finished
    started = tuple(f"Worker {worker} started with 4 environments" for worker in (0, 1))
    for line in ("A3C Parallel Training", "Workers: 2", "Envs per worker: 4", "Rollout: 16 steps", *started):
        assert line in out
    lines = history(path)
    assert [(line["update"], line["step"]) for line in lines[:20]] == [(n, n * ROLLOUT) for n in range(1, 21)]
    for line in lines:
        assert 0 <= line["lag/mean"] <= line["lag/max"]
        assert line["lag/max"] == int(line["lag/max"])
        assert line["loss/entropy"] > 0
        assert line["update/skipped_steps"] == 0
    names = {file.name for file in (path / "checkpoints").iterdir()}
    assert names == {f"a3c_parallel_{what}.pt" for what in ("step_0", f"step_{8 * 128}", f"step_{16 * 128}", "final")}
    metrics = json.loads((path / "benchmark_metrics.json").read_text())
    assert (metrics["algorithm"], metrics["training_mode"], metrics["status"]) == ("A3C", "parallel", "finished")
    assert (metrics["total_timesteps"], metrics["total_updates"]) == (20 * ROLLOUT, 20)
    assert (metrics["worker_restarts"], metrics["hardware"]["num_workers"]) == (0, 2)
    assert metrics["performance"]["num_episodes"] == lines[19]["rollout/episodes"] > 0
    assert sum(metrics["time_shares"].values()) == pytest.approx(1, abs=0.01)
    assert not {"batch_size", "n_epochs", "optimizer", "adam_eps"} & set(metrics["config"]["training"])


def broken_off_in_a_round(path: Path) -> dict[str, Any]:
    """Make a run of 20 updates one that was stopped when its last round had the rollout of one worker only."""
    file, log = path / "checkpoints/a3c_parallel_final.pt", path / "logs/A3C_Parallel/metrics.jsonl"
    content = load_checkpoint(file)
    for section in ("meta", "progress"):
        content[section]["env_steps"] -= ROLLOUT // 2
    file.unlink()
    save_checkpoint(file.with_name(f"a3c_parallel_step_{content['meta']['env_steps']}.pt"), content)
    log.write_text(log.read_text().replace(f'"step": {20 * ROLLOUT}', f'"step": {content["meta"]["env_steps"]}'))
    return content


def test_a_run_that_was_stopped_within_a_round_goes_on_to_all_its_steps(
    finished: tuple[Path, str], tmp_path: Path
) -> None:
    path = Path(shutil.copytree(finished[0], tmp_path / "run"))
    before = broken_off_in_a_round(path)
    done = rlcb("train", "--resume", path, "--total-timesteps", str(30 * ROLLOUT), timeout=120)
    assert done.returncode == 0, done.stderr
    assert f"at step {39 * ROLLOUT // 2:,}" in done.stderr
    lines, halves = history(path), [2 * n for n in range(1, 20)] + list(range(39, 60, 2)) + [60]
    assert [(line["update"], line["step"]) for line in lines] == [
        (n, half * ROLLOUT // 2) for n, half in enumerate(halves, start=1)
    ]
    assert [line["time"] for line in lines] == sorted(line["time"] for line in lines)
    assert lines[-1]["rollout/episodes"] >= lines[19]["rollout/episodes"]
    after = load_checkpoint(path / "checkpoints" / "a3c_parallel_final.pt")
    assert (after["progress"]["env_steps"], after["progress"]["updates"]) == (30 * ROLLOUT, 31)
    assert after["normalizer"][0] == pytest.approx(before["normalizer"][0] + 21 * ROLLOUT / 2)  # each reward once
    for name, tensor in after["policy"].items():
        moved = float((tensor - before["policy"][name]).abs().max())
        assert 0 < moved < 21 * 9e-4 * 10, name  # no gradient moves a weight by more than 10 rates
    assert after["optimizer"]["step"] > before["optimizer"]["step"] > 0


def test_a_timed_run_ends_by_itself(tmp_path: Path) -> None:
    path, seconds = tmp_path / "run", 2.0
    done = rlcb(*CARTPOLE, "--duration", str(seconds / 3600), "--lr-schedule", "linear", "--output-dir", path)
    assert done.returncode == 0, done.stderr
    lines = history(path)
    assert [line["update"] for line in lines] == list(range(1, len(lines) + 1))
    gaps = [later["time"] - earlier["time"] for earlier, later in pairwise(lines)]
    assert lines[-1]["time"] + max([lines[0]["time"], *gaps]) + 0.01 >= seconds  # it did not end early
    rates = [line["learning_rate"] for line in lines]
    assert rates[0] > rates[-1] >= 0
    summary = json.loads((path / "training_summary.json").read_text())
    assert (summary["status"], summary["total_updates"]) == ("finished", len(lines))
    content = load_checkpoint(path / "checkpoints" / "a3c_parallel_final.pt")
    assert content["meta"]["env_steps"] == summary["total_timesteps"] == lines[-1]["step"]


def test_evaluate_and_compare_take_both(finished: tuple[Path, str], tmp_path: Path) -> None:
    flags = ("--env", "CartPole-v1", "--n-steps", "16", "--num-threads", "1", "--tensorboard", "false")
    steps = ("--total-timesteps", str(20 * ROLLOUT))
    sequential = tmp_path / "a2c"
    done = rlcb("train", "a2c", *flags, *steps, "--num-envs", "8", "--output-dir", sequential)
    assert done.returncode == 0, done.stderr
    checkpoints = [
        finished[0] / "checkpoints/a3c_parallel_final.pt",
        sequential / "checkpoints/a2c_sequential_final.pt",
    ]
    for checkpoint in checkpoints:
        done = rlcb("evaluate", "--checkpoint", checkpoint, "--num-episodes", "3", "--num-threads", "1")
        assert done.returncode == 0, done.stderr
        found = json.loads(checkpoint.with_name(f"{checkpoint.stem}_evaluation.json").read_text())
        assert (found["algorithm"], found["env_steps"]) == (checkpoint.name[:3], 20 * ROLLOUT)
        assert found["evaluations"][0]["episodes"] == 3
    done = rlcb("compare", finished[0], sequential, "--output", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    for words in ("A3C Parallel (2 workers)", "A2C Sequential"):
        assert words in done.stdout
