"""The evaluation commands: what they find and what they refuse."""

import json
import os
import shutil
from pathlib import Path

import pytest

from helpers.in_process import evaluate, final, results, train
from helpers.processes import CARTPOLE, python, rlcb
from rlcb.run.checkpoint import load_checkpoint, save_checkpoint

pytestmark = pytest.mark.xdist_group("evaluate command")

Capsys = pytest.CaptureFixture[str]
FEW = ("--num-episodes", "2", "--num-threads", "1")


# --- what is found


def test_the_documented_script(starpilot: Path, tmp_path: Path) -> None:
    checkpoint, file = final(starpilot), tmp_path / "out.json"
    flags = ("--env", "procgen:procgen-starpilot-v0", "--num-episodes", "5", "--deterministic", "--device", "cpu")
    flags = (*flags, "--num-threads", "1")
    done = python("evaluate.py", "--checkpoint", str(checkpoint), *flags, "--output", str(file))
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    assert lines[:6] == [
        "Environment: procgen-starpilot-v0",
        "Observation shape: (3, 64, 64)",
        "Number of actions: 15",
        "Device: cpu",
        f"Checkpoint: {checkpoint}",
        "",
    ]
    assert lines[6].startswith(f"Loaded checkpoint from: {checkpoint}")
    assert "Evaluating: 5/5 episodes" in lines
    block = lines[lines.index("Evaluation Results") - 1 :]
    assert block[0] == block[2] == "=" * 60
    starts = ["Episodes: 5", "Mean Reward: ", "Min/Max Reward: ", "Mean Episode Length: "]
    assert all(line.startswith(start) for line, start in zip(block[3:], starts, strict=False))
    assert f"Results saved to: {file}" in lines
    assert not any(ord(letter) < 32 for line in lines for letter in line)
    assert not results(checkpoint).exists()


def test_the_universal_script_and_another_algorithm(cartpole: Path, tmp_path: Path, capsys: Capsys) -> None:
    """What is evaluated is what the checkpoint says: here one that claims to be IMPALA's."""
    content = load_checkpoint(final(cartpole))
    content["meta"]["algorithm"] = "impala"
    other = tmp_path / "impala_parallel_final.pt"
    save_checkpoint(other, content)
    done = python("evaluate_universal.py", "--checkpoint", str(other), "--algorithm", "impala", *FEW)
    assert done.returncode == 0, done.stderr
    for line in ("Evaluating IMPALA Agent", "Algorithm: IMPALA", "IMPALA Evaluation Results"):
        assert line in done.stdout.splitlines()
    assert f"✓ Loaded checkpoint from: {other}" in done.stdout
    document = json.loads(results(other).read_text())
    assert (document["algorithm"], document["mode"]) == ("impala", "parallel")
    refused = evaluate(capsys, other, "--algorithm", "ppo")
    refused.assert_one_line_error(5, "trained with impala, not ppo", "--algorithm")


def test_a_run_directory_gives_its_newest_whole_checkpoint(copy: Path, capsys: Capsys) -> None:
    def chosen(*flags: str) -> tuple[str, str]:
        done = evaluate(capsys, copy, *FEW, *flags)
        assert done.returncode == 0, done.stderr
        return Path(done.stdout.split("Checkpoint: ")[1].splitlines()[0]).name, done.stderr

    assert chosen() == ("ppo_sequential_final.pt", "")
    shutil.copy(final(copy), copy / "checkpoints" / "ppo_sequential_step_512.pt")
    assert chosen()[0] == "ppo_sequential_final.pt"
    final(copy).write_bytes(final(copy).read_bytes()[:-10])
    name, notes = chosen()
    assert name == "ppo_sequential_step_512.pt"
    assert "warning:" in notes
    assert "ppo_sequential_final.pt" in notes
    final(copy).unlink()
    (copy / "checkpoints" / "ppo_sequential_step_512.pt").unlink()
    assert chosen() == ("ppo_sequential_step_256.pt", "")


def test_checkpoints_kept_elsewhere_are_found(tmp_path: Path, capsys: Capsys) -> None:
    elsewhere = tmp_path / "elsewhere"
    settings = ("--total-timesteps", "256", "--checkpoint-dir", str(elsewhere))
    path = train(tmp_path / "run", *CARTPOLE, *settings)
    done = evaluate(capsys, path, *FEW)
    assert done.returncode == 0, done.stderr
    assert (elsewhere / "ppo_sequential_final_evaluation.json").exists()


def test_without_a_checkpoint_the_newest_of_all_runs_is_taken(
    cartpole: Path, starpilot: Path, tmp_path: Path, capsys: Capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    nothing = evaluate(capsys, None)
    nothing.assert_one_line_error(5, "no checkpoint under benchmarks", "<algorithm>_<mode>_final.pt")
    for number, path in enumerate((starpilot, cartpole)):
        shutil.copytree(path, tmp_path / "benchmarks" / path.parent.name)
        for file in (tmp_path / "benchmarks" / path.parent.name).rglob("*.pt"):
            os.utime(file, (1e9 + number, 1e9 + number))
    done = evaluate(capsys, None, *FEW)
    assert "Environment: CartPole-v1" in done.stdout
    assert f"newest checkpoint under ./benchmarks: benchmarks/{cartpole.parent.name}" in done.stderr
    os.utime(final(tmp_path / "benchmarks" / starpilot.parent.name))
    assert "Environment: procgen-starpilot-v0" in evaluate(capsys, None, *FEW, "--algorithm", "ppo").stdout
    missing = evaluate(capsys, None, "--algorithm", "a2c")
    missing.assert_one_line_error(5, "a2c_<mode>_final.pt", "there are checkpoints of ppo")


# --- what is refused


def test_an_environment_of_another_shape_is_refused(cartpole: Path, starpilot: Path, capsys: Capsys) -> None:
    done = evaluate(capsys, final(cartpole), "--env", "coinrun")
    done.assert_one_line_error(5, "CartPole-v1 (observations (4,), 2 actions)", "(3, 64, 64), 15 actions")
    evaluate(capsys, final(cartpole), "--env", "Acrobot-v1").assert_one_line_error(5, "3 actions")
    evaluate(capsys, final(starpilot), "--env", "coinrn").assert_one_line_error(2, "--env", "did you mean coinrun")


def test_weights_that_do_not_fit_the_network_are_refused(copy: Path, capsys: Capsys) -> None:
    content = load_checkpoint(final(copy))
    del content["policy"]["policy.0.weight"]
    save_checkpoint(final(copy), content)
    evaluate(capsys, final(copy)).assert_one_line_error(5, "ppo_sequential_final.pt", "policy.0.weight")


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--levels", "both"), ("--levels both", "CartPole-v1")),
        (("--num-episodes", "0"), ("--num-episodes", "from 1 to 1000000")),
        (("--num-envs", "101"), ("--num-envs 101", "100 episodes")),
        (("--seed", "-1"), ("--seed", "2147483647")),
        (("--video", "film.avi"), ("--video", ".mp4 or .gif")),
        (("--video", "/no/such/film.gif"), ("--video", "/no/such")),
        (("--output", "/no/such/file.json"), ("--output", "/no/such")),
        (("--device", "cuda:9"), ("--device", "cuda")),
        (("--determinstic",), ("did you mean --deterministic",)),
    ],
)
def test_wrong_flags_are_refused(
    cartpole: Path, capsys: Capsys, flags: tuple[str, ...], words: tuple[str, ...]
) -> None:
    evaluate(capsys, final(cartpole), *flags).assert_one_line_error(2, *words)


def test_without_an_encoder_the_remedy_is_named(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import importlib.util as u\nfind = u.find_spec\n"
        "u.find_spec = lambda name, *rest: None if name in ('imageio_ffmpeg', 'PIL') else find(name, *rest)\n"
    )
    for ending in ("mp4", "gif"):
        done = rlcb("evaluate", "--video", f"film.{ending}", env={"PYTHONPATH": str(tmp_path), "PATH": ""})
        done.assert_one_line_error(2, "pip install 'rl-cluster-benchmark[video]'")
