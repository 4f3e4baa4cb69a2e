"""Environments and networks of the user's own that raise exceptions during a run: who is told what, what is kept."""

import json
import shlex
import sys
from pathlib import Path

import pytest

from helpers.processes import Finished, python, run, with_all_lines

KINDS = [("ppo", "sequential"), ("ppo", "parallel"), ("a2c", "sequential"), ("a2c", "parallel"),
         ("impala", "sequential"), ("impala", "parallel"), ("a3c", "parallel")]  # fmt: skip
SMALL = ("--n-steps", "16", "--num-envs", "4", "--num-threads", "1", "--tensorboard", "false")
LONG = ("--total-timesteps", "1e8")
MODULE = '''
import sys

import gymnasium
import numpy as np


class Frail(gymnasium.Env):
    """Fails in one of several ways after some steps, unless it has been mended."""

    def __init__(self, how, render_mode=None):
        self.how, self.count = how, 0
        self.observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
        self.action_space = gymnasium.spaces.Discrete(2)

    @property
    def fails(self):
        return self.count > 150 and not MENDED

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if self.how == "reset" and self.fails:
            raise LookupError("no level 7")
        return np.full(2, np.nan if self.how == "begun" else 0, np.float32), {}

    def step(self, action):
        self.count += 1
        if self.how == "step" and self.fails:
            self.turn()
        if self.how == "shape" and self.fails:
            return np.zeros(3, np.float32), 0.0, False, False, {}
        if self.how == "exit" and self.fails:
            sys.exit("no licence")
        observation = self.np_random.uniform(-1, 1, 2).astype(np.float32)
        if self.how == "seen":
            observation[1] = np.inf
        reward = np.nan if self.how == "reward" or (self.how == "later" and self.fails) else float(action)
        return observation, reward, self.count % 20 == 0, False, {}

    def turn(self):
        wheels = [1, 2, 3]
        return np.asarray(wheels).reshape(7)  # FAILS HERE

    def close(self):
        if self.how == "close":
            raise RuntimeError("the window is gone")


MENDED = False
for how in ("step", "reset", "shape", "exit", "close", "reward", "seen", "begun", "later"):
    quiet = {"kwargs": {"how": how}, "disable_env_checker": how in ("reward", "seen", "begun", "later")}
    gymnasium.register(f"Frail{how.capitalize()}-v0", Frail, max_episode_steps=50, **quiet)
'''
NETWORKS = """
import torch
from torch import nn

from rlcb.networks.layers import heads


class Backward(torch.autograd.Function):
    count = 0

    @staticmethod
    def forward(context, features):
        return features.clone()

    @staticmethod
    def backward(context, gradient):
        Backward.count += 1
        if Backward.count > 3:
            raise ArithmeticError("no slope")
        return gradient


class Forward(nn.Module):
    learning = None  # fails everywhere; True: fails only where gradients are computed

    def __init__(self, spec):
        super().__init__()
        self.body = nn.Linear(spec.observation_shape[0], 16)
        self.policy, self.value = heads(16, spec.num_actions)
        self.count = 0

    def forward(self, observations):
        self.count += self.learning in (None, torch.is_grad_enabled())
        features = self.body(observations.to(self.body.weight.dtype)).relu()
        if self.count > 150 // (20 if self.learning else 1):
            features = features @ torch.zeros(3, 3)
        return self.policy(features), self.value(features).squeeze(1)


class Learning(Forward):
    learning = True


class Sloping(Forward):
    def forward(self, observations):
        self.count = 0
        features = Backward.apply(self.body(observations.to(self.body.weight.dtype)).relu())
        return self.policy(features), self.value(features).squeeze(1)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "frail.py").write_text(MODULE)
    (tmp_path / "nets.py").write_text(NETWORKS)
    return tmp_path


def rlcb(folder: Path, *arguments: str) -> Finished:
    return python("-m", "rlcb", *with_all_lines(*arguments), cwd=folder)


def kind(algorithm: str, mode: str) -> tuple[str, ...]:
    batch = ("--batch-size", "64") if algorithm in ("ppo", "impala") else ()
    return (algorithm, "--mode", mode, *(("--num-workers", "2") if mode == "parallel" else ()), *batch, *SMALL)


def place(folder: Path, words: str) -> str:
    """The line of the module that holds these words, as an error names it."""
    number = next(n for n, line in enumerate(MODULE.splitlines(), 1) if words in line)
    return f"({folder / 'frail.py'}, line {number})"


def events(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (path / "events.jsonl").read_text().splitlines()]


@pytest.mark.parametrize(("algorithm", "mode"), KINDS)
def test_an_environment_that_raises_is_named_and_the_run_is_resumed_when_it_is_mended(
    algorithm: str, mode: str, folder: Path
) -> None:
    failed = rlcb(folder, "train", *kind(algorithm, mode), "--env", "frail:FrailStep-v0", *LONG, "--output-dir", "run")
    what = "environment FrailStep-v0 failed with ValueError: cannot reshape array of size 3 into shape (7,)"
    words = (f"{what} {place(folder, 'FAILS HERE')}", "the fault is in the environment, not in rlcb")
    failed.assert_one_line_error(7, *words, "traceback in run/traceback.txt")
    said = (folder / "run" / "traceback.txt").read_text()
    assert "in turn\n" in said
    assert said.rstrip().endswith("ValueError: cannot reshape array of size 3 into shape (7,)")
    (event,) = events(folder / "run")
    assert (event["event"], event["exit_code"]) == ("failed", 7)
    assert what in str(event["reason"])
    command = shlex.split(failed.stderr.strip().rpartition("resume from the last checkpoint with: ")[2])
    assert command == ["rlcb", "train", "--resume", "run", "--import", "frail"]
    newest = max(int(path.stem.rpartition("_")[2]) for path in (folder / "run" / "checkpoints").glob("*_step_*.pt"))
    (folder / "frail.py").write_text(MODULE.replace("MENDED = False", "MENDED = True"))
    done = rlcb(folder, *command[1:], "--total-timesteps", str(newest + 256))
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"at step {newest:,}" in done.stderr
    summary = json.loads((folder / "run" / "training_summary.json").read_text())
    assert (summary["status"], summary["total_timesteps"]) == ("finished", newest + 256)


def test_one_process_saves_its_last_update(folder: Path) -> None:
    rlcb(folder, "train", *kind("ppo", "sequential"), "--env", "frail:FrailStep-v0", *LONG, "--output-dir", "run")
    last = json.loads(next((folder / "run" / "logs").glob("*/metrics.jsonl")).read_text().splitlines()[-1])
    assert last["step"] > 0
    assert (folder / "run" / "checkpoints" / f"ppo_sequential_step_{last['step']}.pt").exists()


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("Reset", "LookupError: no level 7 ("),
        ("Shape", "ValueError: an observation has shape (3,), but the observation space has (2,);"),
        ("Exit", "SystemExit: no licence ("),
    ],
)
@pytest.mark.parametrize("mode", ["sequential", "parallel"])
def test_every_way_to_fail_is_named(how: str, words: str, mode: str, folder: Path) -> None:
    train = ("train", *kind("a2c", mode), "--env", f"frail:Frail{how}-v0", *LONG, "--output-dir", "run")
    failed = rlcb(folder, *train)
    failed.assert_one_line_error(7, f"environment Frail{how}-v0 failed with {words}")


@pytest.mark.parametrize(
    ("how", "words"),
    [("Reward", "a reward that is not finite (nan)"), ("Seen", "an observation that is not finite (inf)"),
     ("Begun", "an observation that is not finite (nan)")],
)  # fmt: skip
def test_numbers_that_are_not_finite_are_found_before_a_run_begins(how: str, words: str, folder: Path) -> None:
    train = ("train", *kind("ppo", "sequential"), "--env", f"frail:Frail{how}-v0", *LONG, "--output-dir", "run")
    for more in ((), ("--dry-run",)):
        rlcb(folder, *train, *more).assert_one_line_error(2, f"environment Frail{how}-v0 returned {words}")
    assert not (folder / "run").exists()


@pytest.mark.parametrize(
    ("algorithm", "mode"), [("ppo", "sequential"), ("a2c", "parallel"), ("impala", "parallel"), ("a3c", "parallel")]
)
def test_the_environment_of_a_later_number_that_is_not_finite_is_named(algorithm: str, mode: str, folder: Path) -> None:
    train = ("train", *kind(algorithm, mode), "--env", "frail:FrailLater-v0", *LONG, "--output-dir", "run")
    said = "environment FrailLater-v0 returned a reward that is not finite (nan)"
    rlcb(folder, *train).assert_one_line_error(3, said)
    assert events(folder / "run")[-1]["reason"] == said
    assert json.loads((folder / "run" / "training_summary.json").read_text())["status"] == "diverged"


def test_a_run_that_failed_before_its_first_update_is_not_called_resumable(folder: Path) -> None:
    whole = ("--n-steps", "256", "--batch-size", "1024", *SMALL[2:])
    train = ("train", "ppo", *whole, "--env", "frail:FrailLater-v0", *LONG, "--output-dir", "run")
    rlcb(folder, *train).assert_one_line_error(3, "FrailLater-v0")
    moved = rlcb(folder, "train", "ppo", *whole, "--env", "CartPole-v1", "--total-timesteps", "1024", *train[-2:])
    assert moved.returncode == 0, moved.stderr
    assert f"note: the earlier run in {folder / 'run'} was moved to {folder / 'run.1'}\n" in moved.stderr


def test_an_environment_that_cannot_be_closed_costs_nothing(folder: Path) -> None:
    train = ("train", *kind("ppo", "sequential"), "--env", "frail:FrailClose-v0", "--total-timesteps", "256")
    done = rlcb(folder, *train, "--output-dir", "run")
    assert done.returncode == 0, done.stderr
    assert "warning: an environment could not be closed: RuntimeError: the window is gone" in done.stderr


@pytest.mark.parametrize(
    ("network", "algorithm", "mode", "words"),
    [
        ("Forward", "ppo", "sequential", "RuntimeError: mat1 and mat2 shapes"),
        ("Forward", "impala", "parallel", "RuntimeError: mat1 and mat2 shapes"),
        ("Learning", "impala", "parallel", "RuntimeError: mat1 and mat2 shapes"),
        ("Learning", "ppo", "parallel", "RuntimeError: mat1 and mat2 shapes"),
        ("Sloping", "ppo", "sequential", "ArithmeticError: no slope"),
        ("Sloping", "a3c", "parallel", "ArithmeticError: no slope"),
    ],
)
def test_a_network_that_raises_is_named(network: str, algorithm: str, mode: str, words: str, folder: Path) -> None:
    own = ("--env", "CartPole-v1", "--network", f"nets:{network}")
    failed = rlcb(folder, "train", *kind(algorithm, mode), *own, *LONG, "--output-dir", "run")
    named = (
        f"network nets:{network} failed with {words}",
        f"({folder / 'nets.py'}, line ",
        "the fault is in the network",
    )
    failed.assert_one_line_error(7, *named, "--resume run --import nets")
    assert "worker_lost" not in {event["event"] for event in events(folder / "run")}


def test_an_evaluation_names_it_too(folder: Path) -> None:
    own = ("--env", "frail:FrailStep-v0", "--total-timesteps", "256", "--output-dir", "run")
    assert rlcb(folder, "train", *kind("ppo", "sequential"), *own).returncode == 0
    evaluate = ("evaluate", "--checkpoint", "run", "--import", "frail", "--num-threads", "1")
    failed = rlcb(folder, *evaluate, "--num-episodes", "40", "--num-envs", "4")
    file = "run/checkpoints/ppo_sequential_final_evaluation_traceback.txt"
    failed.assert_one_line_error(7, "environment FrailStep-v0 failed with ValueError", f"traceback in {file}")
    assert "in turn\n" in (folder / file).read_text()


def test_the_reason_of_a_suites_failed_run_names_it(folder: Path) -> None:
    games = ("--games", "frail:FrailStep-v0", "--algorithms", "a2c", "--modes", "sequential", "parallel")
    size = (*SMALL, "--num-workers", "2", "--seeds", "1", "--total-timesteps", "8192", "--eval-episodes", "2")
    done = rlcb(folder, "benchmark", *games, *size, "--output-dir", "suite")
    assert done.returncode == 1, done.stderr
    named = "exit code 7: environment FrailStep-v0 failed with ValueError: cannot reshape array"
    assert done.stderr.strip().splitlines()[-1].count(named) == 2
    lines = [json.loads(line) for line in (folder / "suite" / "suite_events.jsonl").read_text().splitlines()]
    reasons = [line["reason"] for line in lines if line["event"] == "run_failed"]
    assert len(reasons) == 2
    assert all(reason.startswith(named) for reason in reasons)


SCRIPT = """
import rlcb, frail
small = {"n_steps": 16, "num_envs": 4, "num_threads": 1, "total_timesteps": 1e8, "quiet": True, "imports": ["frail"]}
for mode, more in (("sequential", {}), ("parallel", {"num_workers": 2})):
    try:
        rlcb.train("a2c", mode, env="FrailStep-v0", output_dir=mode, **more, **small)
    except rlcb.OwnCodeFailed as error:
        print(error.exit_code, type(error.__cause__).__name__, "in turn" in error.traceback, error)
    print(rlcb.load_runs(mode)[0].status)
def broken(metrics):
    frail.Frail("step").turn()
try:
    rlcb.train("a2c", env="FrailStep-v0", output_dir="called", on_update=broken, **small)
except ValueError as error:
    print("the caller's own")
"""


def test_calls_from_python_raise_it_with_its_cause(folder: Path) -> None:
    """What the program's own callback raises is not the environment's fault and is raised as it is."""
    (folder / "script.py").write_text(SCRIPT)
    done = run([sys.executable, "script.py"], cwd=folder)
    assert done.returncode == 0, done.stderr
    first, status, second, other_status, last = done.stdout.splitlines()
    assert first.startswith("7 ValueError True environment FrailStep-v0 failed with ValueError: cannot reshape")
    assert second.startswith("7 NoneType True environment FrailStep-v0 failed with ValueError: cannot reshape")
    assert (status, other_status, last) == ("failed", "failed", "the caller's own")
