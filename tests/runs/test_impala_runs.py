"""IMPALA as a user runs it: alone and with actors, for steps or for a time, resumed, evaluated, compared."""

import json
import re
import shutil
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml

from helpers.in_process import evaluate, results
from helpers.processes import EVERY_LINE, ROOT, Finished, python, rlcb, run, weights
from rlcb.comm.rollout_slots import lag_bound
from rlcb.run.checkpoint import load_checkpoint

pytestmark = pytest.mark.xdist_group("impala runs")

CARTPOLE = ("--env", "CartPole-v1", "--n-steps", "32", "--batch-size", "128", "--num-threads", "1")
COINRUN = ("--env", "coinrun", "--n-steps", "16", "--batch-size", "64", "--num-threads", "1")
DIVISION = ("--num-actors", "2", "--num-envs-per-actor", "4")
ROLLOUT, UPDATES = 8 * 32, 12
STEPS = ("--total-timesteps", str(UPDATES * ROLLOUT), *EVERY_LINE)
QUIET = ("--tensorboard", "false")
SECONDS = 3


def script(name: str, folder: Path, *arguments: str) -> Finished:
    """One of the documented scripts, run in this folder."""
    return python(str(ROOT / name), *arguments, env={"COLUMNS": "500"}, cwd=folder)


def history(path: Path, mode: str) -> list[dict[str, Any]]:
    text = (path / "logs" / f"IMPALA_{mode.capitalize()}" / "metrics.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]


def read(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(path.read_text())
    return content


def final(path: Path, mode: str) -> Path:
    return path / "checkpoints" / f"impala_{mode}_final.pt"


@pytest.fixture(scope="module")
def sequential(tmp_path_factory: pytest.TempPathFactory) -> tuple[Finished, Path]:
    """A sequential CartPole run that was not told where to go, and where it went."""
    folder = tmp_path_factory.mktemp("sequential")
    flags = ("--num-envs", "8", *CARTPOLE, *STEPS, "--save-interval", "6")
    return script("train_impala_sequential.py", folder, *flags), folder / "benchmarks" / "impala_sequential"


@pytest.fixture(scope="module")
def parallel(tmp_path_factory: pytest.TempPathFactory) -> tuple[Finished, Path]:
    """The same with two actors, in new interpreters."""
    folder = tmp_path_factory.mktemp("parallel")
    done = run([sys.executable, str(ROOT / "train_impala_parallel.py"), *DIVISION, *CARTPOLE, *STEPS], cwd=folder)
    return done, folder / "benchmarks" / "impala_parallel"


def assert_complete(path: Path, mode: str) -> None:
    """Every file that a run leaves behind, and none that says something else than the others."""
    lines = history(path, mode)
    assert [(line["update"], line["step"]) for line in lines] == [(n, n * ROLLOUT) for n in range(1, UPDATES + 1)]
    files = {str(file.relative_to(path)) for file in path.rglob("*") if file.is_file()}
    events = {name for name in files if "tfevents" in name}
    logs = f"logs/IMPALA_{mode.capitalize()}"
    assert [Path(name).parent for name in events] == [Path(logs)]
    assert files - events == {
        "config.yaml", "run.json", "benchmark_metrics.json", "training_summary.json", "metrics.json",
        f"{logs}/metrics.jsonl", f"checkpoints/impala_{mode}_final.pt", f"checkpoints/impala_{mode}_step_0.pt",
        *(("checkpoints/impala_sequential_step_1536.pt",) if mode == "sequential" else ()),
    }  # fmt: skip
    summary, metrics = read(path / "training_summary.json"), read(path / "benchmark_metrics.json")
    assert (summary["algorithm"], summary["mode"], summary["status"]) == ("IMPALA", mode, "finished")
    for found in (summary, metrics):
        assert (found["total_timesteps"], found["total_updates"]) == (UPDATES * ROLLOUT, UPDATES)
        assert found["worker_restarts"] == 0
    assert summary["num_episodes"] == metrics["performance"]["num_episodes"] == lines[-1]["rollout/episodes"] > 0
    assert sum(metrics["time_shares"].values()) == pytest.approx(1, abs=0.01)
    meta = load_checkpoint(final(path, mode))["meta"]
    assert (meta["algorithm"], meta["env_steps"], meta["updates"]) == ("impala", UPDATES * ROLLOUT, UPDATES)


def assert_shown(out: str, *words: str) -> None:
    for line in (*words, "Environment: CartPole-v1", "TRAINING SUMMARY", f"Total Timesteps: {UPDATES * ROLLOUT:,}"):
        assert line in out.splitlines()
    shown = re.findall(r"^Update (\d+) \| Step [\d,]+ \| FPS: \d+ \| Reward: [\d.]+ ± [\d.]+ \| \[", out, re.MULTILINE)
    assert shown == [str(n) for n in range(1, UPDATES + 1)]
    assert "h] Step" not in out


def test_the_sequential_command(sequential: tuple[Finished, Path]) -> None:
    done, path = sequential
    assert done.returncode == 0, done.stderr
    assert_shown(done.stdout, "IMPALA Sequential Training - Fixed Steps", "Num environments: 8")
    assert_complete(path, "sequential")
    for line in history(path, "sequential"):
        assert line.keys() >= {"loss/policy", "loss/value", "loss/entropy", "vtrace/rho_mean", "vtrace/clip_fraction"}


def test_the_parallel_command(parallel: tuple[Finished, Path]) -> None:
    done, path = parallel
    assert done.returncode == 0, done.stderr
    words = ("Actors: 2", "Envs per actor: 4", "Total environments: 8")
    words = (*words, "Actor 0 started with 4 environments", "Actor 1 started with 4 environments")
    assert_shown(done.stdout, "IMPALA Parallel Training - Fixed Steps", *words)
    assert re.search(r"^Learners: [124]$", done.stdout, re.MULTILINE)  # as many as this machine has room for
    assert_complete(path, "parallel")
    bound = lag_bound(num_slots=4, per_update=2, policy_update_frequency=1)
    for line in history(path, "parallel"):
        assert 0 <= line["lag/mean"] <= line["lag/max"] <= bound
        assert 0 <= line["queue/depth"] <= 4
        for name in ("actor/env_seconds", "actor/acting_seconds", "actor/waiting_seconds", "time/rollouts_seconds"):
            assert line[name] >= 0
    assert read(path / "benchmark_metrics.json")["hardware"]["num_workers"] == 2


@pytest.mark.parametrize("mode", ["sequential", "parallel"])
def test_the_timed_commands(mode: str, tmp_path: Path) -> None:
    path = tmp_path / "run"
    division = DIVISION if mode == "parallel" else ("--num-envs", "8")
    name = f"train_impala_{mode}_timed.py"
    done = script(
        name, ROOT, "--duration", str(SECONDS / 3600), *COINRUN, *division, *EVERY_LINE, "--output-dir", str(path)
    )
    assert done.returncode == 0, done.stderr
    for line in (f"IMPALA {mode.capitalize()} Training - Timed Benchmark", "Environment: procgen-coinrun-v0"):
        assert line in done.stdout.splitlines()
    if mode == "parallel":
        assert "Actors: 2\nEnvs per actor: 4\n" in done.stdout
    assert "\nUpdate " not in done.stdout
    figures = r"Step: ([\d,]+) \| Updates: (\d+) \| FPS: \d+ \| Loss: -?[\d.]+"
    shown = re.findall(
        rf"^\[0\.00h/0\.00h\] {figures} \| \[0:00:0\d of 0:00:0\d, \d+ %\]\n  Mean Reward \(last 100\): \S+$",
        done.stdout,
        re.MULTILINE,
    )
    lines = history(path, mode)
    assert shown == [(f"{n * 128:,}", f"{n}") for n in range(1, len(lines) + 1)]
    summary = read(path / "training_summary.json")
    assert (summary["status"], summary["total_timesteps"]) == ("finished", len(lines) * 128)
    times = [0.0, *(line["time"] for line in lines)]
    longest = max(later - earlier for earlier, later in pairwise(times))
    ahead = 1 if mode == "sequential" else 3  # updates that the decision to stop may be off by
    assert abs(times[-1] - SECONDS) <= ahead * longest + 0.01


@pytest.mark.parametrize("mode", ["sequential", "parallel"])
@pytest.mark.parametrize("timed", [True, False])
def test_the_scripts_say_where_a_run_goes(mode: str, timed: bool) -> None:
    done = script(f"train_impala_{mode}{'_timed' * timed}.py", ROOT, "--help")
    assert done.returncode == 0
    assert f"directory of the run; default ./benchmarks/impala_{mode} " in " ".join(done.stdout.split())
    assert ("  --duration HOURS " in done.stdout) == timed
    assert ("  --total-timesteps N " in done.stdout) != timed
    for flag in ("--num-actors N|auto", "--num-envs-per-actor N", "--num-workers N|auto"):
        assert (f"  {flag} " in done.stdout) == (mode == "parallel")


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--num-actors", "2", "--num-workers", "4"), ("--num-actors and --num-workers", "differ")),
        (("--num-envs-per-actor", "4", "--num-envs-per-worker", "8"), ("--num-envs-per-actor", "differ")),
        (("--num-actors", "2", "--num-slots", "1"), ("--num-slots", "2 actors", "at least 2")),
        ((*DIVISION, *CARTPOLE, "--num-learners", "3"), ("--num-learners", "4 environments", "2 and 4")),
        ((*DIVISION, "--n-steps", "32", "--batch-size", "16"), ("--batch-size", "whole unrolls", "32")),
        (("--backend", "gloo"), ("--backend", "impala")),
    ],
)
def test_divisions_that_do_not_work_are_refused(flags: tuple[str, ...], words: tuple[str, ...]) -> None:
    rlcb("train", "impala", "--mode", "parallel", *flags).assert_one_line_error(2, *words)


def test_two_learners_few_slots_and_seldom_published_weights(tmp_path: Path) -> None:
    path = tmp_path / "run"
    settings = {"num_learners": 2, "num_slots": 3, "policy_update_frequency": 3}
    flags = [word for key, value in settings.items() for word in (f"--{key.replace('_', '-')}", str(value))]
    done = rlcb(
        "train", "impala", "--mode", "parallel", *DIVISION, *CARTPOLE, *QUIET, *flags,
        "--total-timesteps", str(40 * ROLLOUT), "--output-dir", path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "Learners: 2" in done.stdout.splitlines()
    assert yaml.safe_load((path / "config.yaml").read_text())["parallel"].items() >= settings.items()
    lines = history(path, "parallel")
    assert [line["update"] for line in lines] == list(range(1, 41))
    for line in lines:
        assert 0 <= line["lag/mean"] <= line["lag/max"] <= lag_bound(3, 2, 3)
        assert (line["update"] - 1 - line["lag/max"]) % 3 == 0  # only every third version was ever given out
        assert line["queue/depth"] <= 3
        assert line["time/allreduce_seconds"] >= 0
        assert line["time/waiting_seconds"] >= 0
    assert max(line["lag/max"] for line in lines) >= 2
    assert weights(final(path, "parallel")) != weights(path / "checkpoints" / "impala_parallel_step_0.pt")


def cut_back(path: Path, to: Path) -> Path:
    """A copy of a run that was lost after half of its updates."""
    shutil.copytree(path, to)
    half = load_checkpoint(final(to, "sequential"))["meta"]["env_steps"] // 2
    for checkpoint in (to / "checkpoints").iterdir():
        if load_checkpoint(checkpoint)["meta"]["env_steps"] > half:
            checkpoint.unlink()
    assert (to / "checkpoints" / f"impala_sequential_step_{half}.pt").exists()
    return to


@pytest.mark.parametrize("env", ["CartPole-v1", "coinrun"])
def test_half_and_half_is_the_whole(env: str, sequential: tuple[Finished, Path], tmp_path: Path) -> None:
    whole, flags = sequential[1], ("--num-envs", "8", *COINRUN, "--total-timesteps", "768", "--save-interval", "3")
    if env == "coinrun":
        whole = tmp_path / "whole"
        assert rlcb("train", "impala", *flags, *QUIET, "--output-dir", whole).returncode == 0
    half = cut_back(whole, tmp_path / "half")
    assert rlcb("train", "--resume", half).returncode == 0
    assert weights(final(half, "sequential")) == weights(final(whole, "sequential"))
    one, two = (load_checkpoint(final(path, "sequential")) for path in (whole, half))
    for section in ("normalizer", "episode", "discounted", "progress"):
        assert one[section] == two[section]
    assert one["run"]["episodes"] == two["run"]["episodes"]
    assert {name: tensor.tolist() for name, tensor in one["optimizer"].items()} == {
        name: tensor.tolist() for name, tensor in two["optimizer"].items()
    }
    assert [state.tolist() for state in one["envs"]] == [state.tolist() for state in two["envs"]]
    for before, after in zip(history(whole, "sequential"), history(half, "sequential"), strict=True):
        assert {k: v for k, v in before.items() if not k.startswith(("time", "resource"))} == {
            k: v for k, v in after.items() if not k.startswith(("time", "resource"))
        }


def test_a_run_goes_over_to_actors_on_and_back(sequential: tuple[Finished, Path], tmp_path: Path) -> None:
    path = Path(shutil.copytree(sequential[1], tmp_path / "run"))
    episodes = read(path / "training_summary.json")["num_episodes"]
    for mode, flags, updates in (
        ("parallel", ("--mode", "parallel", *DIVISION[:2]), UPDATES + 6),
        ("parallel", (), UPDATES + 12),
        ("sequential", ("--mode", "sequential"), UPDATES + 14),
    ):
        done = rlcb("train", "--resume", path, *flags, "--total-timesteps", str(updates * ROLLOUT))
        assert done.returncode == 0, done.stderr
        assert ("so new episodes start" in done.stderr) == (mode == "sequential")
        lines = history(path, mode)
        assert [(line["update"], line["step"]) for line in lines] == [(n, n * ROLLOUT) for n in range(1, updates + 1)]
        times = [line["time"] for line in lines]
        assert times == sorted(times)
        meta = load_checkpoint(final(path, mode))["meta"]
        assert (meta["updates"], meta["env_steps"]) == (updates, updates * ROLLOUT)
        summary = read(path / "training_summary.json")
        assert (summary["mode"], summary["total_timesteps"]) == (mode, updates * ROLLOUT)
        assert summary["num_episodes"] == lines[-1]["rollout/episodes"] > episodes
        episodes = summary["num_episodes"]


def test_evaluation(parallel: tuple[Finished, Path], capsys: pytest.CaptureFixture[str]) -> None:
    checkpoint = final(parallel[1], "parallel")
    few = ("--num-episodes", "4", "--num-threads", "1")
    flags = ("--algorithm", "impala", "--checkpoint", str(checkpoint))
    done = python("evaluate_universal.py", *flags, *few)
    assert done.returncode == 0, done.stderr
    for line in ("Evaluating IMPALA Agent", "Algorithm: IMPALA", "Environment: CartPole-v1", "Episodes: 4"):
        assert line in done.stdout.splitlines()
    by_script = read(results(checkpoint))
    done = evaluate(capsys, parallel[1], *few)
    assert done.returncode == 0, done.stderr
    assert "Mean Reward: " in done.stdout
    again = read(results(checkpoint))
    assert (again["algorithm"], again["mode"]) == (by_script["algorithm"], by_script["mode"]) == ("impala", "parallel")
    evaluate(capsys, checkpoint, "--algorithm", "ppo").assert_one_line_error(5, "trained with impala", "ppo")


def test_comparison(
    sequential: tuple[Finished, Path],
    parallel: tuple[Finished, Path],
    tmp_path: Path,
) -> None:
    runs = (sequential[1], parallel[1], tmp_path / "ppo")
    trained = rlcb("train", "ppo", "--num-envs", "8", *CARTPOLE, *STEPS, *QUIET, "--output-dir", runs[2])
    assert trained.returncode == 0, trained.stderr
    shown = rlcb("compare", *runs, "--output", tmp_path / "out").stdout
    for words in ("IMPALA Sequential", "IMPALA Parallel (2 ", "PPO Sequential", "CartPole-v1, 3,072 steps"):
        assert words in shown
    folders = ("--sequential", str(runs[0]), "--parallel", str(runs[1]), "--output", str(tmp_path / "two.png"))
    done = python("compare_results.py", *folders)
    assert done.returncode == 0, done.stderr
    # Not compared where other programs used the cores meanwhile.
    assert re.search(r"Speedup \(Parallel/Sequential\) +- +([\d.]+x|n/a)", done.stdout)
    assert (tmp_path / "two.png").stat().st_size > 20_000
