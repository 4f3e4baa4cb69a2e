"""Environments and networks of the user's own: the page about them, every algorithm and mode, and who may import."""

import json
import os
import signal
import sys
from pathlib import Path

import pytest

from helpers.documented import commands_in, split
from helpers.forked import ForkedProcess
from helpers.own_code import PAGE, write_own_code
from helpers.processes import Finished, python, run, wait_for_line, with_all_lines

KINDS = [("ppo", "sequential"), ("ppo", "parallel"), ("a2c", "sequential"), ("a2c", "parallel"),
         ("impala", "sequential"), ("impala", "parallel"), ("a3c", "parallel")]  # fmt: skip
OWN = ("--env", "MyCart-v0", "--import", "my_envs", "--network", "my_networks:Wide")
SMALL = ("--n-steps", "16", "--num-threads", "1", "--tensorboard", "false", "--save-interval", "1",
         "--log-interval", "1")  # fmt: skip
BATCH = ("--batch-size", "64")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_own_code(tmp_path)


def rlcb(folder: Path, *arguments: str) -> Finished:
    return python("-m", "rlcb", *with_all_lines(*arguments), cwd=folder)


def succeeds(folder: Path, *arguments: str) -> Finished:
    done = rlcb(folder, *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "warning" not in done.stderr
    return done


def division(algorithm: str, mode: str) -> list[str]:
    words = ["--mode", mode, "--num-envs", "4" if mode == "sequential" else "2"]
    words += ["--num-workers", "2"] if mode == "parallel" else []
    return [*words, *(BATCH if algorithm in ("ppo", "impala") else ())]


def test_the_page_does_what_it_says(folder: Path) -> None:
    commands = commands_in(PAGE.read_text(encoding="utf-8"))
    assert len(commands) >= 8
    for command in commands:
        words = split(command)[1]
        if words[0] == "rlcb" and "ALE/" not in command:
            succeeds(folder, *words[1:], *(("--num-threads", "1") if words[1] in ("train", "evaluate") else ()))
    quoted = PAGE.read_text(encoding="utf-8").split("```\nrlcb train: error: ")[1].split("\n")[0]
    refused = rlcb(folder, "train", "--resume", "runs/cart")
    refused.assert_one_line_error(2, quoted)
    summary = json.loads((folder / "runs" / "cart" / "training_summary.json").read_text())
    assert summary["total_timesteps"] == 32768
    assert summary["final_reward"] > summary["initial_reward"]
    report = json.loads((folder / "runs" / "comparison" / "comparison.json").read_text())
    assert "MyCart-v0" in json.dumps(report)


@pytest.mark.parametrize(("algorithm", "mode"), KINDS)
def test_every_kind_of_run_is_killed_resumed_and_evaluated(algorithm: str, mode: str, folder: Path) -> None:
    words = ["train", algorithm, *division(algorithm, mode), *OWN, *SMALL, "--total-timesteps", "1e9"]
    command = ["-m", "rlcb", *with_all_lines(*words, "--output-dir", "run")]
    process = ForkedProcess(command, folder, os.environ, start_new_session=True)
    try:
        wait_for_line(process, "Update 3 ")
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    (checkpoint, *_) = (folder / "run" / "checkpoints").glob("*_step_*.pt")
    steps = 64 + max(int(path.stem.rpartition("_")[2]) for path in checkpoint.parent.glob("*_step_*.pt"))
    rlcb(folder, "train", "--resume", "run").assert_one_line_error(2, "env.imports", "--import my_envs")
    resume = ("train", "--resume", "run", "--total-timesteps", str(steps), "--import", "my_envs")
    rlcb(folder, *resume).assert_one_line_error(2, "training.network", "--import my_networks")
    done = succeeds(folder, *resume, "--import", "my_networks")
    assert "Modules: my_envs, my_networks" in done.stdout
    evaluate = ("evaluate", "--checkpoint", f"run/checkpoints/{algorithm}_{mode}_final.pt", "--num-episodes", "2")
    rlcb(folder, *evaluate).assert_one_line_error(2, "_final.pt", "--import my_envs")
    succeeds(folder, *evaluate, "--import", "my_envs", "--import", "my_networks", "--num-threads", "1")


def test_a_resumed_run_is_the_uninterrupted_one(folder: Path) -> None:
    words = ("train", "ppo", *division("ppo", "sequential"), *OWN, *SMALL, "--lr-schedule", "constant")
    succeeds(folder, *words, "--total-timesteps", "512", "--output-dir", "whole")
    succeeds(folder, *words, "--total-timesteps", "256", "--output-dir", "halves")
    imports = ("--import", "my_envs", "--import", "my_networks")
    succeeds(folder, "train", "--resume", "halves", *imports, "--total-timesteps", "512")
    whole, halves = (
        [json.loads(line) for line in next((folder / name / "logs").glob("*/metrics.jsonl")).read_text().splitlines()]
        for name in ("whole", "halves")
    )
    assert [line["loss/total"] for line in whole] == [line["loss/total"] for line in halves]


def test_a_module_named_by_a_file_is_not_imported(folder: Path) -> None:
    (folder / "trap.py").write_text("open('sprung', 'w').close()\n")
    for name, text in {
        "imports": "env:\n  name: CartPole-v1\n  imports: [trap]\n",
        "name": "env:\n  name: trap:CartPole-v1\n",
        "network": "env:\n  name: CartPole-v1\ntraining:\n  network: trap:Net\n",
    }.items():
        (folder / "own.yaml").write_text(text)
        refused = rlcb(folder, "train", "ppo", "--config", "own.yaml", "--dry-run")
        refused.assert_one_line_error(2, "own.yaml", name, "--import trap")
    (folder / "suite.yaml").write_text("games: [trap:CartPole-v1]\ntotal_timesteps: 4096\n")
    refused = rlcb(folder, "benchmark", "--suite", "suite.yaml", "--dry-run")
    refused.assert_one_line_error(2, "suite.yaml: games", "--import trap")
    assert not (folder / "sprung").exists()


def test_imports_that_fail_say_why(folder: Path) -> None:
    train = ("train", "ppo", "--env", "CartPole-v1", "--dry-run")
    rlcb(folder, *train, "--import", "nowhere").assert_one_line_error(2, "nowhere", "No module named", str(folder))
    rlcb(folder, *train, "--import", "no/where").assert_one_line_error(2, "--import", "no/where", "package.module")
    (folder / "broken.py").write_text("import json\n\njson.loads('')\n")
    rlcb(folder, *train, "--import", "broken").assert_one_line_error(2, "--import broken", "JSONDecodeError")
    (folder / "ends.py").write_text("raise SystemExit(3)\n")
    rlcb(folder, *train, "--import", "ends").assert_one_line_error(2, "--import ends", "SystemExit", "ends.py, line 1")
    refused = rlcb(folder, "train", "ppo", "--env", "my_envs:YourCart-v0", "--dry-run")
    refused.assert_one_line_error(2, "unknown environment 'YourCart-v0'", "MyCart-v0")


ENVIRONMENT = """
import gymnasium
import numpy as np
from my_envs.cart import MyCart

class Odd(MyCart):
    def __init__(self, what, render_mode=None):
        super().__init__(render_mode)
        self.what = what
        if what == "space":
            self.observation_space = gymnasium.spaces.Sequence(gymnasium.spaces.Discrete(2))
    def reset(self, *, seed=None, options=None):
        if self.what == "reset":
            raise RuntimeError("no level 7")
        return super().reset(seed=None if self.what == "random" else seed)
    def step(self, action):
        if self.what == "step":
            raise RuntimeError("no wheel 5")
        return super().step(action)

for what in ("space", "reset", "step", "random"):
    gymnasium.register(f"Odd{what.capitalize()}-v0", Odd, kwargs={"what": what}, max_episode_steps=50)
"""


def test_environments_that_do_not_fit_are_refused_before_the_run(folder: Path) -> None:
    (folder / "odd.py").write_text(ENVIRONMENT)
    for name, words in {"Space": "no fixed size", "Reset": "no level 7", "Step": "no wheel 5"}.items():
        for more in ((), ("--dry-run",)):
            length = ("--total-timesteps", "8192", "--output-dir", "run")
            refused = rlcb(folder, "train", "ppo", "--env", f"odd:Odd{name}-v0", *SMALL, *length, *more)
            refused.assert_one_line_error(2, f"environment Odd{name}-v0", words)
    assert not (folder / "run").exists()


def test_an_environment_that_does_not_repeat_itself_goes_on_inexactly(folder: Path) -> None:
    (folder / "odd.py").write_text(ENVIRONMENT)
    size = (*SMALL, *division("ppo", "sequential"))
    words = ("train", "ppo", "--env", "odd:OddRandom-v0", *size, "--total-timesteps", "128", "--output-dir", "run")
    done = succeeds(folder, *words)
    assert "exact resume: no" in done.stdout
    assert "self.np_random" in done.stderr
    done = rlcb(folder, "train", "--resume", "run", "--import", "odd", "--total-timesteps", "256")
    assert done.returncode == 0, done.stderr
    assert "but not exactly" in done.stderr


NETWORKS = """
import torch
from torch import nn
from my_networks import Wide

class Dropout(Wide):
    def forward(self, observations):
        logits, values = super().forward(observations)
        return nn.functional.dropout(logits + 1), values
class Values(Wide):
    def forward(self, observations):
        logits, values = super().forward(observations)
        return logits, values.unsqueeze(1)
class Idle(Wide):
    def __init__(self, spec):
        super().__init__(spec)
        self.idle = nn.Linear(2, 2)
class Norm(Wide):
    def __init__(self, spec):
        super().__init__(spec)
        self.norm = nn.BatchNorm1d(256)
class Constructor(nn.Module):
    pass
def Function(spec):
    return spec
"""


def test_networks_that_do_not_fit_are_refused_before_the_run(folder: Path) -> None:
    (folder / "nets.py").write_text(NETWORKS)
    expected = {"Dropout": "dropout", "Values": "values must be float32 of shape (3,)", "Idle": "idle.weight",
                "Norm": "norm.running_mean", "Constructor": "takes 1 positional argument", "Function": "nn.Module",
                "Missing": "has no class Missing", "Idl": "did you mean nets:Idle?"}  # fmt: skip
    for name, words in expected.items():
        network = ("--network", f"nets:{name}")
        refused = rlcb(folder, "train", "ppo", "--env", "CartPole-v1", *network, *SMALL, "--output-dir", "run")
        refused.assert_one_line_error(2, f"network nets:{name}", words)
    refused = rlcb(folder, "train", "ppo", "--env", "CartPole-v1", "--network", "nest", "--dry-run")
    refused.assert_one_line_error(2, "--network", "nature", "module:Class")
    assert not (folder / "run").exists()


def test_a_new_interpreter_finds_modules_in_the_current_folder(folder: Path) -> None:
    """As the installed command does, whose own folder is the first in which Python looks."""
    program = "import sys; sys.path.pop(0); from rlcb.cli import main; sys.exit(main())"
    words = ("train", "ppo", *division("ppo", "parallel"), *OWN, *SMALL, "--total-timesteps", "128")
    done = run([sys.executable, "-c", program, *words, "--output-dir", "run"], cwd=folder)
    assert done.returncode == 0, done.stderr
