"""The commands as a person types them."""

import re
import sys
import time

import pytest

from helpers.neighbours import busy_neighbours
from helpers.processes import CARTPOLE, ROOT, rlcb, run


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["train", "ppo", "--num-evns", "3"], ["--num-evns", "did you mean --num-envs"]),
        (["train", "ppo", "--totl-timesteps", "5000"], ["--totl-timesteps", "did you mean --total-timesteps?"]),
        (["trian"], ["'trian'", "did you mean train? See rlcb --help"]),
        (["xyz"], ["'xyz'", "'completion'); see rlcb --help"]),
        (["train", "ppoo"], ["'ppoo'", "did you mean ppo?"]),
        (["limits", "impal"], ["'impal'", "did you mean impala?"]),
        (["train", "ppo", "--mode", "paralel"], ["--mode", "'paralel'", "did you mean parallel?"]),
        (["train"], ["no algorithm given"]),
        (["train", "dqn"], ["dqn", "ppo"]),
        (["train", "ppo", "--duration", "1", "--total-timesteps", "5000"], ["cannot be used together"]),
        (["train", "ppo", "--env", "coinrn"], ["--env", "did you mean coinrun", "starpilot"]),
        (["train", "ppo", "--env", "CartPole-v9"], ["did you mean CartPole-v1"]),
        (["train", "ppo", "--env", "MyGrid-v0"], ["'MyGrid-v0'; for your own, add --import MODULE; Procgen games: "]),
        (["train", "ppo", "--games", "coinrun"], ["unknown argument --games; did you mean --env?"]),
        (["benchmark", "--env", "coinrun"], ["unknown argument --env; did you mean --games?"]),
        (["import", "--env", "coinrun", "."], ["unknown argument --env; did you mean --game?"]),
        (["train", "ppo", "--env", "no_such_module:CartPole-v1"], ["no_such_module"]),
        (["train", "ppo", "--num-envs", "0"], ["--num-envs", "from 1 to 16384"]),
        (["train", "a3c", "--mode", "sequential"], ["--mode sequential", "a3c", "rlcb train a2c"]),
        (
            ["train", "impala", "--mode", "parallel", "--num-actors", "2", "--num-workers", "3"],
            ["--num-actors and --num-workers are the same setting here and have different values"],
        ),
        (
            ["train", "impala", "--mode", "parallel", "--num-actors", "2", "--num-envs-per-actor", "0"],
            ["--num-envs-per-actor: 0", "from 1 to 16384"],
        ),
        (["train", "ppo", "--config", "no/such.yaml"], ["no/such.yaml", "No such file"]),
        (["train", "ppo", "--resume", "no/such", "--seed", "3"], ["--seed", "resumed"]),
    ],
)
def test_mistakes_get_one_line_and_exit_2(arguments: list[str], words: list[str]) -> None:
    rlcb(*arguments).assert_one_line_error(2, *words)


def test_missing_cuda_is_exit_2_and_auto_says_so(tmp_path) -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("this machine has a CUDA device")
    rlcb("train", "ppo", "--device", "cuda", "--output-dir", tmp_path / "a").assert_one_line_error(2, "cuda", "cpu")
    assert not (tmp_path / "a").exists()
    done = rlcb(
        "train", "ppo", "--device", "auto", *CARTPOLE, "--total-timesteps", "256", "--output-dir", tmp_path / "b"
    )
    assert done.returncode == 0
    assert "note: --device auto selects the CPU: " in done.stderr


def test_output_that_is_not_a_terminal_is_plain_lines(tmp_path) -> None:
    done = rlcb("train", "ppo", *CARTPOLE, "--total-timesteps", "1024", "--output-dir", tmp_path / "run")
    assert done.returncode == 0, done.stderr
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f]", done.stdout)
    updates = re.findall(r"^Update (\d+) \| Step ([\d,]+) \| FPS: \d+ \| Reward: .+$", done.stdout, re.M)
    assert updates == [("1", "256"), ("2", "512"), ("3", "768"), ("4", "1,024")]
    assert "Environment: CartPole-v1" in done.stdout
    for label in ("TRAINING SUMMARY", "Total Timesteps: 1,024", "Average FPS:", "Initial Reward:", "Peak Memory:"):
        assert label in done.stdout
    assert done.stdout.rstrip().endswith("=" * 70)


def test_a_terminal_gets_a_progress_bar(tmp_path) -> None:
    import os
    import pty

    parent, child = pty.openpty()
    command = [sys.executable, "-m", "rlcb", "train", "ppo", *CARTPOLE, "--total-timesteps", "1024"]
    import subprocess

    process = subprocess.Popen([*command, "--output-dir", str(tmp_path / "r")], cwd=ROOT, stdout=child, stderr=child)
    os.close(child)
    seen = b""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        try:
            data = os.read(parent, 65536)
        except OSError:  # the terminal closes when the process ends
            break
        if not data:
            break
        seen += data
    os.close(parent)
    assert process.wait(60) == 0
    text = seen.decode(errors="replace")
    assert "100%" in text
    assert "TRAINING SUMMARY" in text
    assert "Update 4 |" in text
    assert "| [" not in text  # the bar shows how far it is


def test_doctor_finds_everything_here() -> None:
    done = run([sys.executable, "quick_test.py"])
    assert done.returncode == 0, done.stdout + done.stderr
    for name in ("Python", "Packages", "Machine", "torch", "GPU", "Procgen", "One update"):
        assert f"✓ {name}" in done.stdout


def test_doctor_does_not_tick_cores_that_others_use() -> None:
    with busy_neighbours():
        done = rlcb("doctor")
    assert done.returncode == 0, done.stdout + done.stderr
    (line,) = (line for line in done.stdout.splitlines() if "CPU load" in line)
    assert re.fullmatch(
        r"! CPU load: other programs use \d+ % of the cores, .*; speeds measured now may be too low", line
    )


def test_doctor_says_what_is_missing_and_how_to_get_it(tmp_path) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import importlib.util as u\nfind = u.find_spec\n"
        "u.find_spec = lambda name, *rest: None if name == 'gymnasium' else find(name, *rest)\n"
    )
    done = run([sys.executable, "quick_test.py"], env={"PYTHONPATH": str(tmp_path)})
    assert done.returncode == 6
    assert "✗ Packages: missing gymnasium" in done.stdout
    assert "scripts/setup.sh" in done.stdout
