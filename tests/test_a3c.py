"""A3C: parameters that several move at once, what its runs leave behind, what it refuses, how it is resumed."""

import json
import os
import shutil
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch

from conftest import ROOT, rlcb, run
from parameter_processes import FREE, MEANWHILE, make_learner, make_rollout
from rlcb.comm.process_group import Control, SoloGroup
from rlcb.config.load import build_config
from rlcb.learner import Learner
from rlcb.run.checkpoint import load_checkpoint, save_checkpoint


@pytest.fixture
def memory() -> Iterator[tuple[Control, int]]:
    """The control page of two workers, and memory for their parameters."""
    control, descriptor = Control(os.memfd_create("control"), 2), os.memfd_create("parameters")
    yield control, descriptor
    os.close(descriptor)
    os.close(control.descriptor)


def one_update(learner: Learner, seed: int) -> None:
    """Learn from a rollout, in an order that this seed decides."""
    learner.generator.manual_seed(seed)
    rollout = make_rollout(seed)
    assert learner.update(rollout, rollout.rewards, 1e-3).skipped_steps == 0


def test_who_takes_turns_is_one_learner(memory: tuple[Control, int]) -> None:
    """Weights and RMSProp's mean squares are everybody's: two that never overlap do what one would."""
    control, descriptor = memory
    observer, shared = make_learner(control, None, descriptor)
    workers = [make_learner(control, rank, descriptor) for rank in (0, 1)]
    alone = Learner(make_learner(control, None, os.memfd_create("other"))[0].policy, observer.config,
                    torch.Generator(), SoloGroup())  # fmt: skip
    assert torch.equal(alone.weights, observer.weights)
    for number in range(6):
        learner, group = workers[number % 2]
        group.refresh()
        one_update(learner, number)
        one_update(alone, number)
        assert group.lag == 0
        assert torch.equal(learner.weights, alone.weights)
    shared.refresh()
    assert torch.equal(observer.weights, alone.weights)
    assert observer.state()["optimizer"]["square_avg"].tobytes() == alone.state()["optimizer"]["square_avg"].tobytes()
    assert (control.arrivals.tolist(), shared.applied()) == ([3, 3], 6)


def test_a_late_gradient_is_taken_at_the_copy_and_applied_to_what_has_become_of_the_weights(
    memory: tuple[Control, int],
) -> None:
    control, descriptor = memory
    observer, shared = make_learner(control, None, descriptor)
    (first, _), (second, late) = (make_learner(control, rank, descriptor) for rank in (0, 1))
    beginning, rollout = observer.weights.clone(), make_rollout(9)
    batch = second.algorithm.prepare(rollout, rollout.rewards, second.config)
    second.gradient_of(batch)
    gradient = second.gradient.clone()
    for number in range(3):
        one_update(first, number)
    assert torch.equal(second.weights, beginning)  # nobody moves a copy but its owner
    shared.refresh()
    between, squares = observer.weights.clone(), torch.from_numpy(observer.state()["optimizer"]["square_avg"])
    assert not torch.equal(between, beginning)
    norm = late.reduce()
    assert late.lag == 3
    second.step(norm)
    training, limit = second.config.training, second.config.a2c.max_grad_norm
    clipped = gradient * min(1.0, limit / (float(norm) + 1e-6))
    squares = training.rms_decay * squares + (1 - training.rms_decay) * clipped**2
    expected = between - training.learning_rate * clipped / (squares.sqrt() + training.rms_eps)
    assert torch.allclose(second.weights, expected, atol=1e-6)
    shared.refresh()
    assert torch.equal(observer.weights, second.weights)
    assert (control.arrivals.tolist(), control.heartbeats.tolist()) == ([3, 1], [3, 0])
    one_update(second, 5)
    assert late.lag == 0


def test_what_is_not_finite_never_reaches_the_shared_weights(memory: tuple[Control, int]) -> None:
    control, descriptor = memory
    observer, shared = make_learner(control, None, descriptor)
    learner, _ = make_learner(control, 0, descriptor)
    before, rollout = observer.weights.clone(), make_rollout(1)
    update = learner.update(rollout, torch.full_like(rollout.rewards, float("nan")), 1e-3)
    shared.refresh()
    assert (update.skipped_steps, update.metrics["loss/total"]) == (1, None)
    assert torch.equal(observer.weights, before)
    assert not observer.state()["optimizer"]["square_avg"].any()
    assert (control.arrivals.tolist(), shared.applied()) == ([0, 0], 0)
    one_update(learner, 2)
    shared.refresh()
    assert not torch.equal(observer.weights, before)


def test_a_loaded_state_becomes_everybodys(memory: tuple[Control, int]) -> None:
    control, descriptor = memory
    observer, shared = make_learner(control, None, descriptor)
    other, _ = make_learner(Control(os.memfd_create("control"), 2), None, os.memfd_create("other"))
    trained = Learner(other.policy, other.config, torch.Generator(), SoloGroup())
    for number in range(3):
        one_update(trained, number)
    observer.load(trained.state())
    shared.publish()
    learner, group = make_learner(control, 1, descriptor)
    assert torch.equal(learner.weights, trained.weights)
    one_update(trained, 7)
    one_update(learner, 7)
    assert torch.equal(learner.weights, trained.weights)
    assert not group.stop_wanted()
    control.request_stop()
    assert group.stop_wanted()
    heartbeats = control.heartbeats.tolist()
    shared.alive()  # nobody watches the observer
    assert control.heartbeats.tolist() == heartbeats


def test_a_stopped_process_holds_nobody_up_and_counts_are_exact_in_a_race() -> None:
    done = run([sys.executable, str(ROOT / "tests" / "parameter_processes.py")])
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert seen["went_on"]
    assert seen["counts"] == [[MEANWHILE, 0], MEANWHILE]
    assert seen["alone"] == {"lags": [0, 0], "finite": True}
    assert seen["late"] == {"unmoved": True, "lag": MEANWHILE, "moved_on": True}
    assert seen["ends"] == [0, 0]
    assert seen["arrivals"] == [MEANWHILE + FREE, 1 + FREE]
    assert seen["heartbeats"] == [MEANWHILE + FREE, FREE]
    for worker in seen["free"]:
        smallest, total = worker["lags"]
        assert smallest >= 0
        assert total <= FREE  # no gradient of the other's can be late for two
        assert worker["finite"]
    assert seen["moved"] > 1e-4


# --- runs

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
        # A gradient moves a weight by 10 rates if RMSProp knows no other: then what it knew would have been lost.
        assert 0 < moved < 21 * 3e-4 * 10, name


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


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--mode", "sequential"), ("--mode sequential", "A2C", "rlcb train a2c --mode sequential")),
        (("--optimizer", "adam"), ("--optimizer", "a3c")),
        (("--backend", "gloo"), ("--backend", "a3c")),
        (("--num-workers", "0"), ("--num-workers", "1 to 1024")),
        (("--device", "cuda"), ("cuda", "A3C")),
    ],
)
def test_what_a3c_does_not_have_is_refused(flags: tuple[str, ...], words: tuple[str, ...]) -> None:
    rlcb("train", "a3c", *flags).assert_one_line_error(2, *words)


def test_its_section_and_defaults_are_those_of_a2c_but_for_the_learning_rate() -> None:
    a2c, a3c = (build_config(None, {}, algorithm=name) for name in ("a2c", "a3c"))
    assert (a2c.training.learning_rate, a3c.training.learning_rate) == (7e-4, 3e-4)
    assert a2c.training == a3c.training.model_copy(update={"learning_rate": 7e-4})
    assert a2c.objective == a3c.objective
    assert (a3c.training.optimizer, a3c.training.n_epochs, a3c.minibatch_size) == ("rmsprop", 1, 32 * 16)
    again = build_config(None, {"seed": ("--seed", 1)}, base=a3c)
    assert again.training == a3c.training  # what is not in the file is not forgotten when a run is resumed


def test_a3c_solves_cartpole(tmp_path: Path) -> None:
    recipe = ("--env", "CartPole-v1", "--n-steps", "8", "--learning-rate", "3e-3", "--lr-schedule", "linear",
              "--gamma", "0.98", "--gae-lambda", "0.9", "--normalize-rewards", "false",
              "--normalize-advantages", "true", "--num-threads", "1", "--log-interval", "1000")  # fmt: skip
    path, division = tmp_path / "run", ("--num-workers", "2", "--num-envs", "4", "--tensorboard", "false")
    done = rlcb("train", "a3c", *recipe, *division, "--total-timesteps", "131072", "--output-dir", path)
    assert done.returncode == 0, done.stderr
    performance = json.loads((path / "benchmark_metrics.json").read_text())["performance"]
    assert performance["num_episodes"] >= 100
    assert performance["final_reward"] >= 400
    assert performance["initial_reward"] < 100
