"""Trainings on Atari games: every algorithm and mode, exact resumes, raw scores of whole games, and refusals."""

import json
import os
import re
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("ale_py", reason="ale-py is not installed: pip install 'rl-cluster-benchmark[atari]'")

from PIL import Image

from helpers.in_process import evaluate, final, results, train
from helpers.killed_runs import Start, assert_killed_is_whole
from helpers.processes import rlcb
from rlcb.config.environment import EnvConfig
from rlcb.envs.families import make_env
from rlcb.run.checkpoint import load_checkpoint

pytestmark = pytest.mark.xdist_group("atari")

FEW = ("--n-steps", "16", "--num-threads", "1", "--tensorboard", "false", "--ent-coef", "0.01")
SMALL = ("--env", "ALE/Breakout-v5", *FEW)  # sticky actions, lives, FIRE
PPO = (*SMALL, "--batch-size", "32", "--n-epochs", "1", "--normalize-rewards", "false",
       "--lr-schedule", "constant")  # fmt: skip
ROLLOUT = 4 * 16


def lines_of(run: Path) -> list[dict]:
    (file,) = (run / "logs").rglob("metrics.jsonl")
    return [json.loads(line) for line in file.read_text().splitlines()]


@pytest.fixture(scope="module")
def breakout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of some games."""
    path = tmp_path_factory.mktemp("breakout") / "run"
    return train(path, *PPO, "--num-envs", "4", "--n-steps", "256", "--total-timesteps", "2048")


# Training


@pytest.mark.parametrize(
    ("algorithm", "mode"),
    [("ppo", "sequential"), ("ppo", "parallel"), ("a2c", "sequential"), ("a2c", "parallel"),
     ("impala", "sequential"), ("impala", "parallel"), ("a3c", "parallel")],
)  # fmt: skip
def test_every_algorithm_and_mode_trains(algorithm: str, mode: str, tmp_path: Path) -> None:
    share = ("--num-workers", "2", "--num-envs", "2") if mode == "parallel" else ("--num-envs", "4")
    learns = ("--batch-size", "32") if algorithm in ("ppo", "impala") else ()
    path = tmp_path / "run"
    done = rlcb("train", algorithm, "--mode", mode, "--env", "PongNoFrameskip-v4", *FEW, *learns, *share,
                "--total-timesteps", str(3 * ROLLOUT), "--output-dir", path)  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "Atari: frame skip 4; 4 greyscale frames stacked; no sticky actions; up to 30 no-ops" in done.stdout
    assert "Spaces: 84 × 84 × 4 uint8 observations, 6 actions; exact resume: yes" in done.stdout
    assert sum("Update" in line for line in done.stdout.splitlines()) >= 3


@pytest.mark.parametrize("mode", ["sequential", "parallel"])
def test_a_killed_run_goes_on_as_if_nothing_had_happened(start: Start, tmp_path: Path, mode: str) -> None:
    share = ("--mode", "parallel", "--num-workers", "2", "--num-envs", "2") if mode == "parallel" else (
        "--num-envs", "4")  # fmt: skip
    first, second, said = assert_killed_is_whole(start, tmp_path, (*PPO, *share), ROLLOUT, 12 * ROLLOUT)
    assert "warning" not in said
    assert first["episode"] == second["episode"]


def test_results_are_raw_scores_of_whole_games(tmp_path: Path) -> None:
    """Space Invaders: rewards of 5 to 30 points, three lives."""
    path = tmp_path / "run"
    flags = ("--env", "SpaceInvadersNoFrameskip-v4", *PPO[2:], "--num-envs", "2", "--n-steps", "512")
    train(path, *flags, "--total-timesteps", "2048")
    performance = json.loads((path / "benchmark_metrics.json").read_text())["performance"]
    assert performance["initial_reward"] >= 20  # signs would add up to less than that
    assert performance["initial_reward"] % 2.5 == 0
    assert performance["num_episodes"] >= 2
    content = load_checkpoint(final(path))
    assert min(content["run"]["episodes"]["recent_lengths"]) > 150  # a life alone is shorter
    assert lines_of(path)[-1]["loss/value"] < 10  # learned from signs: raw rewards would make it hundreds


def test_a_parallel_learner_counts_whole_games_too(tmp_path: Path) -> None:
    path = tmp_path / "run"
    done = rlcb("train", "impala", "--mode", "parallel", "--env", "ALE/SpaceInvaders-v5", *FEW, "--n-steps", "256",
                "--batch-size", "512", "--num-workers", "2", "--num-envs", "1", "--total-timesteps", "3072",
                "--output-dir", path)  # fmt: skip
    assert done.returncode == 0, done.stderr
    (file,) = (path / "checkpoints").glob("*_final.pt")
    episodes = load_checkpoint(file)["run"]["episodes"]
    assert episodes["recent_returns"]
    assert all(score % 5 == 0 for score in episodes["recent_returns"])
    assert max(episodes["recent_returns"]) >= 20
    assert min(episodes["recent_lengths"]) > 150


# Evaluation


def test_evaluation_plays_whole_games_for_raw_scores(
    breakout: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    film = tmp_path / "film.gif"
    few = ("--num-episodes", "4", "--num-envs", "2", "--num-threads", "1")
    done = evaluate(capsys, final(breakout), *few, "--video", film)
    assert done.returncode == 0, done.stderr
    assert "Observation shape: (4, 84, 84)" in done.stdout
    (found,) = json.loads(results(final(breakout)).read_text())["evaluations"]
    assert found["episodes"] == 4
    assert found["mean_length"] > 100  # five lives
    with Image.open(film) as picture:
        assert picture.size == (320, 420)
        assert getattr(picture, "n_frames", 1) > 100
        colours = np.asarray(picture.convert("RGB"))
        assert (colours[..., 0] != colours[..., 1]).any()
    again = evaluate(capsys, final(breakout), *few, "--output", tmp_path / "again.json")
    assert again.returncode == 0, again.stderr
    (same,) = json.loads((tmp_path / "again.json").read_text())["evaluations"]
    assert same["mean_reward"] == found["mean_reward"]
    other = evaluate(capsys, final(breakout), "--env", "ALE/Pong-v5", "--num-episodes", "1")
    other.assert_one_line_error(5, "ALE/Breakout-v5", "4 actions", "ALE/Pong-v5", "6 actions")


def test_a_deterministic_policy_cannot_forget_to_fire(breakout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    done = evaluate(capsys, final(breakout), "--num-episodes", "1", "--deterministic", "--num-threads", "1")
    assert done.returncode == 0, done.stderr
    (found,) = (one for one in json.loads(results(final(breakout)).read_text())["evaluations"]
                if one["policy"] == "deterministic")  # fmt: skip
    assert found["mean_length"] < 27_000


# Settings that are given


def test_settings_change_what_is_learned_from(tmp_path: Path) -> None:
    """Without lives and signs an episode is a game, also for learning."""
    env = make_env(EnvConfig(name="BreakoutNoFrameskip-v4", episodic_life=False), 1, 0, 0)
    steps = [env.step(np.array([number % 4])) for number in range(400)]
    assert any(step.dones[0] for step in steps)
    assert all(step.dones[0] == step.episode_ends[0] for step in steps)
    for clip in ("true", "false"):
        train(tmp_path / clip, "--env", "ALE/SpaceInvaders-v5", *PPO[2:], "--num-envs", "2", "--n-steps", "128",
              "--total-timesteps", "512", "--clip-rewards", clip)  # fmt: skip
    losses = {clip: max(line["loss/value"] for line in lines_of(tmp_path / clip)) for clip in ("true", "false")}
    assert losses["false"] > 10 * losses["true"]


def test_other_settings_are_not_resumed_with_old_states(breakout: Path, tmp_path: Path) -> None:
    done = rlcb("train", "--resume", breakout, "--total-timesteps", "3072", "--frame-skip", "2")
    assert done.returncode in (2, 5)
    assert "frame" in done.stderr
    assert "Traceback" not in done.stderr


# Refusals


def test_what_is_wrong_is_said_in_a_line(tmp_path: Path) -> None:
    out = ("--output-dir", tmp_path / "run")
    atari, cart = ("train", "ppo", "--env", "ALE/Pong-v5", *out), ("train", "ppo", "--env", "CartPole-v1", *out)
    rlcb(*cart, "--frame-skip", "4").assert_one_line_error(2, "--frame-skip: is for Atari games, this is CartPole-v1")
    rlcb("train", "ppo", "--episodic-life", "true", *out).assert_one_line_error(2, "--episodic-life", "procgen-coinrun")
    rlcb(*atari, "--frame-skip", "0").assert_one_line_error(2, "--frame-skip: 0 is not valid")
    rlcb(*atari, "--repeat-action-probability", "1").assert_one_line_error(2, "--repeat-action-probability")
    rlcb(*atari[:2], "--env", "ALE/Pomg-v5").assert_one_line_error(2, "'ALE/Pomg-v5'", "did you mean ALE/Pong-v5?")
    rlcb(*atari, "--normalize-observations", "true").assert_one_line_error(2, "normalize_observations", "images")
    file = tmp_path / "own.yaml"
    file.write_text("env: {name: CartPole-v1, noop_max: 3}\n")
    rlcb("train", "ppo", "--config", file, *out).assert_one_line_error(2, "own.yaml: env.noop_max: is for Atari games")
    assert not (tmp_path / "run").exists()


@pytest.fixture
def without_ale(tmp_path: Path) -> dict[str, str]:
    """An environment in which ale-py cannot be found."""
    folder = tmp_path / "site"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(
        "import importlib.util, sys\n"
        "class Nothing:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.partition('.')[0] == 'ale_py':\n"
        "            raise ModuleNotFoundError(name)\n"
        "found = importlib.util.find_spec\n"
        "importlib.util.find_spec = lambda name, package=None: None if name == 'ale_py' else found(name, package)\n"
        "sys.meta_path.insert(0, Nothing())\n"
    )
    return {"PYTHONPATH": os.pathsep.join((str(folder), os.environ.get("PYTHONPATH", "")))}


def test_without_ale_py(breakout: Path, without_ale: dict[str, str], tmp_path: Path) -> None:
    done = rlcb("train", "ppo", *SMALL, "--output-dir", tmp_path / "run", env=without_ale)
    done.assert_one_line_error(6, "Atari games need ale-py", "pip install 'rl-cluster-benchmark[atari]'")
    done = rlcb("evaluate", "--checkpoint", breakout, env=without_ale)
    done.assert_one_line_error(6, "ale-py", "pip install 'rl-cluster-benchmark[atari]'")
    done = rlcb("compare", breakout, "--output", tmp_path / "comparison", env=without_ale)
    assert done.returncode == 0, done.stderr  # reading results needs no game
    assert "ALE/Breakout-v5" in done.stdout
    done = rlcb("doctor", env=without_ale)
    assert re.search(r"✓ Atari: not installed \(optional\): pip install", done.stdout), done.stdout


def test_doctor_names_the_version() -> None:
    assert re.search(r"✓ Atari: ale-py \d+\.\d+", rlcb("doctor").stdout)
