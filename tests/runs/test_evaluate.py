"""Evaluation: which episodes count, what is computed from them, what is written down."""

import json
import shutil
from datetime import datetime
from pathlib import Path

import gymnasium
import numpy as np
import pytest
import torch
from scipy import stats

from helpers.in_process import evaluate, final, results, train
from helpers.processes import CARTPOLE, TINY
from rlcb.config.schema import EnvConfig
from rlcb.envs.families import find, make_env
from rlcb.evaluation.play import Actor, play, quotas_of
from rlcb.evaluation.policy import build_policy, environment_for, find_policy
from rlcb.run.checkpoint import load_checkpoint, save_checkpoint

pytestmark = pytest.mark.xdist_group("evaluate")

FIELDS = ["env", "levels", "num_levels", "start_level", "distribution_mode", "policy", "seed", "num_envs", "episodes",
          "complete", "mean_reward", "std_reward", "min_reward", "max_reward", "mean_length", "std_length", "ci95",
          "normalized_score", "success_rate", "success_ci95", "seconds", "fps", "rewards", "lengths",
          "time"]  # fmt: skip

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def coinrun(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return final(train(tmp_path_factory.mktemp("coinrun") / "run", *TINY, "--total-timesteps", "256"))


@pytest.fixture(scope="module")
def cartpole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return final(train(tmp_path_factory.mktemp("cartpole") / "run", *CARTPOLE, "--total-timesteps", "2048"))


@pytest.fixture
def copy(coinrun: Path, tmp_path: Path) -> Path:
    """A checkpoint without evaluations beside it."""
    return Path(shutil.copy(coinrun, tmp_path))


def actor_for(checkpoint: Path, env: str | None, seed: int | None) -> tuple[Actor, EnvConfig]:
    """The policy, made decided: after so little training it hardly looks at what it is shown."""
    trained = find_policy(checkpoint, None)
    config, spec = environment_for(trained, env)
    policy = build_policy(trained, spec, "cpu")
    head = policy.policy_head if spec.is_image else policy.policy[-1]
    with torch.no_grad():
        head.weight.mul_(200)
    generator = None if seed is None else torch.Generator().manual_seed(seed)
    return Actor(policy, spec, "cpu", generator), config


@torch.inference_mode()
def slow_choice(actor: Actor, observation: np.ndarray, draws: np.ndarray) -> int:
    """What the policy does about one observation alone."""
    logits = actor.policy(torch.from_numpy(observation[None]))[0][0].double().numpy()
    if actor.generator is None:
        return int(np.argmax(logits))
    probabilities = np.exp(logits - logits.max()) / np.exp(logits - logits.max()).sum()
    return int(np.argmax(probabilities / draws))


def draws_of(seed: int, steps: int, num_envs: int, num_actions: int) -> np.ndarray:
    generator = torch.Generator().manual_seed(seed)
    rows = [torch.empty((num_envs, num_actions)).exponential_(generator=generator) for _ in range(steps)]
    return torch.stack(rows).double().numpy()


@pytest.mark.parametrize("seed", [5, None])
def test_cartpole_as_each_env_would_play_alone(cartpole: Path, seed: int | None) -> None:
    """The quota of every env and nothing else, whenever others finish: one env after the other gives the same."""
    num_envs, quotas = 5, quotas_of(23, 5)
    assert quotas == [5, 5, 5, 4, 4]
    actor, config = actor_for(cartpole, None, seed)
    *_, tally = play(make_env(config, num_envs, seed=77, num_threads=0), actor, quotas)
    draws = draws_of(seed or 0, 5000, num_envs, 2)
    rewards, lengths = [], []
    for index, quota in enumerate(quotas):
        env, t = gymnasium.make("CartPole-v1"), 0
        for episode in range(quota):
            reset = int(np.random.SeedSequence([77, index, episode]).generate_state(1)[0])
            observation, start, total, done = env.reset(seed=reset)[0], t, 0.0, False
            while not done:
                action = slow_choice(actor, observation, draws[t, index])
                observation, reward, terminated, truncated, _ = env.step(action)
                total, t, done = total + float(reward), t + 1, terminated or truncated
            rewards.append(total)
            lengths.append(t - start)
    assert tally.rewards == rewards
    assert tally.lengths == lengths
    assert tally.completed == []
    assert tally.steps == sum(lengths)
    assert len(set(lengths)) > 5  # different lengths, else there would be nothing to get wrong


def test_procgen_as_all_envs_would_play_on(coinrun: Path) -> None:
    """The same game without ever leaving a finished env out of the batch, one observation at a time."""
    num_envs, quotas = 6, quotas_of(9, 6)
    actor, config = actor_for(coinrun, "starpilot", 3)
    *_, tally = play(make_env(config, num_envs, seed=11, num_threads=0), actor, quotas)
    env = make_env(config, num_envs, seed=11, num_threads=0)
    draws = draws_of(3, 3000, num_envs, 15)
    episodes: list[list[tuple[float, int]]] = [[] for _ in range(num_envs)]
    total, begun, t = np.zeros(num_envs), np.zeros(num_envs, int), 0
    observation = env.observe()
    while any(len(done) < quota for done, quota in zip(episodes, quotas, strict=True)):
        step = env.step(np.array([slow_choice(actor, observation[i], draws[t, i]) for i in range(num_envs)]))
        observation, total, t = step.observations, total + step.rewards, t + 1
        for i in np.flatnonzero(step.dones):
            episodes[i].append((float(total[i]), int(t - begun[i])))
            total[i], begun[i] = 0.0, t
    env.close()
    counted = [episode for done, quota in zip(episodes, quotas, strict=True) for episode in done[:quota]]
    assert list(zip(tally.rewards, tally.lengths, strict=True)) == counted
    assert sum(map(len, episodes)) > 9  # some envs went beyond their quota, and that was not counted


def test_equal_seeds_give_equal_episodes_and_others_do_not(
    cartpole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def rewards(*flags: str) -> list[float]:
        file = tmp_path / "results.json"
        done = evaluate(capsys, cartpole, "--num-episodes", "20", "--output", file, *flags)
        assert done.returncode == 0, done.stderr
        return json.loads(file.read_text())["evaluations"][-1]["rewards"]

    assert rewards("--seed", "1") == rewards("--seed", "1") != rewards("--seed", "2")
    assert rewards("--seed", "1", "--num-envs", "7") != rewards("--seed", "1")
    assert rewards("--deterministic") == rewards("--deterministic") != rewards()


def test_success_is_the_level_completed(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Maze pays 10 for the cheese and nothing else, so rewards tell which levels were completed."""
    done = evaluate(capsys, copy, "--env", "maze", "--num-episodes", "24")
    entry = json.loads(results(copy).read_text())["evaluations"][0]
    solved = entry["rewards"].count(10.0)
    assert 0 < solved < 24
    assert entry["success_rate"] == solved / 24
    assert entry["normalized_score"] == pytest.approx((entry["mean_reward"] - 5) / 5)
    assert f"Success Rate: {solved / 24:.3f}" in done.stdout
    rated = {
        name: family.has_success(game)
        for name in ("coinrun", "starpilot", "CartPole-v1")
        for family, game in [find(name)]
    }
    assert rated == {"coinrun": True, "starpilot": False, "CartPole-v1": False}


def test_the_file_beside_the_checkpoint(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    done = evaluate(capsys, copy, "--env", "starpilot", "--num-episodes", "6", "--num-envs", "4", "--seed", "9")
    assert done.returncode == 0, done.stderr
    document = json.loads(results(copy).read_text())
    assert list(document) == ["schema", "checkpoint", "checkpoint_sha256", "algorithm", "mode", "env_steps",
                              "evaluations", "generalization_gap"]  # fmt: skip
    assert (document["schema"], document["checkpoint"], document["algorithm"]) == (1, copy.name, "ppo")
    assert (document["mode"], document["env_steps"], document["generalization_gap"]) == ("sequential", 256, [])
    assert len(document["checkpoint_sha256"]) == 64
    (entry,) = document["evaluations"]
    assert list(entry) == FIELDS
    expected = {"env": "procgen-starpilot-v0", "levels": "train", "num_levels": 200, "start_level": 0, "seed": 9,
                "distribution_mode": "easy", "policy": "sampled", "num_envs": 4, "episodes": 6, "complete": True,
                "success_rate": None, "success_ci95": None}  # fmt: skip
    assert {key: entry[key] for key in expected} == expected
    rewards, lengths = entry["rewards"], entry["lengths"]
    assert len(rewards) == len(lengths) == 6
    assert entry["mean_reward"] == pytest.approx(sum(rewards) / 6)
    assert entry["std_reward"] == pytest.approx(stats.tstd(rewards))
    assert (entry["min_reward"], entry["max_reward"]) == (min(rewards), max(rewards))
    assert (entry["mean_length"], entry["std_length"]) == pytest.approx((np.mean(lengths), stats.tstd(lengths)))
    assert entry["ci95"] == pytest.approx(stats.t.interval(0.95, 5, np.mean(rewards), stats.sem(rewards)))
    assert entry["normalized_score"] == pytest.approx((np.mean(rewards) - 2.5) / 61.5)
    assert entry["fps"] * entry["seconds"] == pytest.approx(sum(lengths), rel=0.05)
    assert datetime.fromisoformat(entry["time"]).utcoffset().total_seconds() == 0
    assert f"Mean Reward: {np.mean(rewards):.2f} ± {stats.tstd(rewards):.2f}" in done.stdout


def test_a_single_episode_has_no_spread(cartpole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "one.json"
    done = evaluate(capsys, cartpole, "--num-episodes", "1", "--output", file)
    (entry,) = json.loads(file.read_text())["evaluations"]
    assert entry["std_reward"] is entry["std_length"] is entry["ci95"] is entry["normalized_score"] is None
    assert entry["num_levels"] is entry["distribution_mode"] is None
    assert "± n/a" in done.stdout
    assert "Interval of the Mean: n/a" in done.stdout


def test_a_new_evaluation_replaces_its_own_kind_and_leaves_the_others(
    copy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def kinds() -> list[tuple[str, str, str, int]]:
        entries = json.loads(results(copy).read_text())["evaluations"]
        return [(e["env"].split("-")[1], e["levels"], e["policy"], e["episodes"]) for e in entries]

    few, more = ("--env", "starpilot", "--num-episodes", "2"), ("--env", "starpilot", "--num-episodes", "3")
    evaluate(capsys, copy, *few)
    evaluate(capsys, copy, *few, "--deterministic")
    evaluate(capsys, copy, *few, "--levels", "unseen")
    evaluate(capsys, copy, "--env", "bossfight", "--num-episodes", "2")
    evaluate(capsys, copy, *more)
    expected = [("starpilot", "train", "deterministic", 2), ("starpilot", "unseen", "sampled", 2)]
    assert kinds() == [*expected, ("bossfight", "train", "sampled", 2), ("starpilot", "train", "sampled", 3)]
    (gap,) = json.loads(results(copy).read_text())["generalization_gap"]
    assert (gap["env"], gap["policy"]) == ("procgen-starpilot-v0", "sampled")
    content = load_checkpoint(copy)
    content["policy"]["policy_head.bias"] += 1e-3
    save_checkpoint(copy, content)
    evaluate(capsys, copy, *few)
    assert kinds() == [("starpilot", "train", "sampled", 2)]
    results(copy).write_text("{half a file")
    done = evaluate(capsys, copy, *few)
    assert done.returncode == 0
    assert "earlier evaluations cannot be read" in done.stderr
    assert kinds() == [("starpilot", "train", "sampled", 2)]


def test_both_levels_and_the_gap_between_them(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    done = evaluate(capsys, copy, "--env", "starpilot", "--levels", "both", "--num-episodes", "16")
    document = json.loads(results(copy).read_text())
    train_levels, unseen = document["evaluations"]
    assert (train_levels["levels"], train_levels["num_levels"]) == ("train", 200)
    assert (unseen["levels"], unseen["num_levels"]) == ("unseen", 0)
    assert train_levels["lengths"] != unseen["lengths"]
    (gap,) = document["generalization_gap"]
    assert gap["gap"] == pytest.approx(train_levels["mean_reward"] - unseen["mean_reward"])
    test = stats.ttest_ind(train_levels["rewards"], unseen["rewards"], equal_var=False).confidence_interval(0.95)
    assert gap["ci95"] == pytest.approx([test.low, test.high])
    assert done.stdout.count("Evaluation Results") == 2
    assert f"Generalisation Gap (train - unseen): {gap['gap']:.2f}" in done.stdout
    assert "note: the policy was trained in procgen-coinrun-v0" in done.stderr


def test_a_run_on_all_levels_has_no_gap(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = ("--env", "starpilot", "--num-levels", "0", "--total-timesteps", "256")
    checkpoint = final(train(tmp_path / "run", *TINY, *settings))
    done = evaluate(capsys, checkpoint, "--levels", "both", "--num-episodes", "4")
    assert "training and unseen levels are the same" in done.stderr
    document = json.loads(results(checkpoint).read_text())
    assert [entry["levels"] for entry in document["evaluations"]] == ["train"]
    evaluate(capsys, checkpoint, "--levels", "unseen", "--num-episodes", "4")
    document = json.loads(results(checkpoint).read_text())
    assert [entry["levels"] for entry in document["evaluations"]] == ["train", "unseen"]
    assert document["generalization_gap"] == []
