"""The evaluation commands: what they find, what they refuse, what survives when they are broken off, what they film."""

import json
import os
import pickle
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from PIL import Image

from conftest import CARTPOLE, TINY, rlcb, run, wait_for_file, wait_for_line
from evaluating import evaluate, final, results, train
from rlcb.envs.families import make_env
from rlcb.evaluation.play import Actor
from rlcb.evaluation.policy import build_policy, environment_for, find_policy
from rlcb.evaluation.video import find_ffmpeg, watch, write_video
from rlcb.run.checkpoint import load_checkpoint, save_checkpoint

Start = Callable[..., subprocess.Popen[str]]
Capsys = pytest.CaptureFixture[str]
FEW = ("--num-episodes", "2", "--num-threads", "1")


@pytest.fixture(scope="module")
def cartpole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run with checkpoints of steps 0 and 256 and a final one of 512."""
    path = tmp_path_factory.mktemp("cartpole") / "run"
    return train(path, *CARTPOLE, "--total-timesteps", "512", "--save-interval", "1")


@pytest.fixture(scope="module")
def starpilot(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("starpilot") / "run"
    return train(path, *TINY, "--env", "starpilot", "--total-timesteps", "256")


@pytest.fixture
def copy(cartpole: Path, tmp_path: Path) -> Path:
    """A copy of the CartPole run to do harm to."""
    return Path(shutil.copytree(cartpole, tmp_path / "run"))


# --- what is found


def test_the_documented_script(starpilot: Path, tmp_path: Path) -> None:
    checkpoint, file = final(starpilot), tmp_path / "out.json"
    flags = ("--env", "procgen:procgen-starpilot-v0", "--num-episodes", "5", "--deterministic", "--device", "cpu")
    flags = (*flags, "--num-threads", "1")
    done = run([sys.executable, "evaluate.py", "--checkpoint", str(checkpoint), *flags, "--output", str(file)])
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
    done = run([sys.executable, "evaluate_universal.py", "--checkpoint", str(other), "--algorithm", "impala", *FEW])
    assert done.returncode == 0, done.stderr
    for line in ("Evaluating IMPALA Agent", "Algorithm: IMPALA", "IMPALA Evaluation Results"):
        assert line in done.stdout.splitlines()
    assert f"✓ Loaded checkpoint from: {other}" in done.stdout
    document = json.loads(results(other).read_text())
    assert (document["algorithm"], document["mode"]) == ("impala", "parallel")
    refused = evaluate(capsys, other, "--algorithm", "ppo")
    refused.assert_one_line_error(5, "made by impala", "--algorithm says ppo")


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


def test_damaged_missing_and_foreign_files_are_refused(copy: Path, tmp_path: Path, capsys: Capsys) -> None:
    evaluate(capsys, tmp_path / "nowhere.pt").assert_one_line_error(5, "nowhere.pt", "no such file")
    data = bytearray(final(copy).read_bytes())
    data[len(data) // 2] ^= 1
    final(copy).write_bytes(bytes(data))
    evaluate(capsys, final(copy)).assert_one_line_error(5, "ppo_sequential_final.pt", "SHA-256")
    canary = tmp_path / "canary"
    hostile = tmp_path / "hostile.pt"
    hostile.write_bytes(pickle.dumps(_Hostile(str(canary))))
    evaluate(capsys, hostile).assert_one_line_error(5, "hostile.pt", "not a checkpoint")
    assert not canary.exists()
    for path in (copy / "checkpoints").glob("*.pt"):
        path.write_bytes(path.read_bytes()[:-1])
    evaluate(capsys, copy).assert_one_line_error(5, "none of the 3 checkpoints")


class _Hostile:
    def __init__(self, path: str):
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (Path(self.path),)


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


# --- what survives


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_keeps_what_was_played(start: Start, copy: Path, number: int, code: int) -> None:
    process = start("evaluate", "--checkpoint", final(copy), "--num-episodes", "20000", "--num-threads", "1")
    wait_for_line(process, "Evaluating: ")
    os.kill(process.pid, number)
    out, err = process.communicate(timeout=60)
    assert process.returncode == code, err
    assert "Traceback" not in out + err
    assert "of 20000 (stopped early" in out
    assert f"Interrupted. Results saved to: {results(final(copy))}" in out
    (entry,) = json.loads(results(final(copy)).read_text())["evaluations"]
    assert not entry["complete"]
    assert 2000 <= entry["episodes"] == len(entry["rewards"]) < 20000


def test_sigkill_keeps_what_was_written_last(start: Start, copy: Path) -> None:
    process = start("evaluate", "--checkpoint", final(copy), "--num-episodes", "1000000", "--num-threads", "1")
    wait_for_file(results(final(copy)))
    process.kill()
    process.communicate()
    (entry,) = json.loads(results(final(copy)).read_text())["evaluations"]
    assert not entry["complete"]
    assert 0 < entry["episodes"] == len(entry["lengths"]) < 1000000


def test_results_that_cannot_be_written_are_printed_all_the_same(copy: Path, tmp_path: Path, capsys: Capsys) -> None:
    """A limit on the size of files stands for a disk without room, which root would not be refused."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))
    try:
        done = evaluate(capsys, final(copy), *FEW)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    done.assert_one_line_error(6, "_evaluation.json", "--output FILE")
    assert "Mean Reward: " in done.stdout
    assert not results(final(copy)).exists()
    assert not list((copy / "checkpoints").glob(".*"))
    evaluate(capsys, final(copy), "--output", "/proc/results.json").assert_one_line_error(6, "--output /proc")


# --- what is filmed


def decoded(path: Path, width: int, height: int) -> np.ndarray:
    """All frames of a video, as ffmpeg sees them."""
    command = [find_ffmpeg() or "", "-loglevel", "error", "-i", str(path), "-f", "rawvideo", "-pix_fmt", "rgb24", "-"]
    data = subprocess.run(command, capture_output=True, check=True).stdout
    return np.frombuffer(data, np.uint8).reshape(-1, height, width, 3)


def test_films_show_what_was_played(starpilot: Path, tmp_path: Path, capsys: Capsys) -> None:
    film = tmp_path / "film.mp4"
    done = evaluate(capsys, final(starpilot), *FEW, "--deterministic", "--video", film)
    assert done.returncode == 0, done.stderr
    assert f"Video saved to: {film}" in done.stdout
    assert not list(tmp_path.glob(".*"))
    shown = decoded(film, 512, 512)
    assert 15 < len(shown) <= 900
    trained = find_policy(final(starpilot), None)
    config, spec = environment_for(trained, None)
    actor = Actor(build_policy(trained, spec, "cpu"), 15, "cpu", None)
    env = make_env(config, 1, seed=4, num_threads=0, pictured=True)
    frames = list(watch(env, actor, max_frames=40))
    env.close()
    assert len(frames) == 40
    assert frames[0].shape == (512, 512, 3)
    assert write_video(tmp_path / "film.gif", frames) == 40
    assert write_video(tmp_path / "same.MP4", frames) == 40
    same = decoded(tmp_path / "same.MP4", 512, 512)
    assert len(same) == 40
    pictures, delay = [], 0
    with Image.open(tmp_path / "film.gif") as gif:
        for index in range(gif.n_frames):
            gif.seek(index)
            pictures.append(np.asarray(gif.convert("RGB")))
            delay += gif.info["duration"]
    assert delay == pytest.approx(1000 * 40 / 15, abs=10)
    for video in (same, pictures):
        errors = [np.abs(video[i].astype(int) - frames[i]).mean() for i in (0, 20)]
        assert max(errors) < 8


class Drawn(gymnasium.Env[np.ndarray, int]):
    """Ends after five steps and draws itself in odd sizes."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 15}  # noqa: RUF012
    observation_space = gymnasium.spaces.Box(-10, 10, (4,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, render_mode: str | None = None):
        self.render_mode, self.steps = render_mode, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        self.steps = 0
        return np.zeros(4, np.float32), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        return np.zeros(4, np.float32), 1.0, self.steps == 5, False, {}

    def render(self) -> Any:
        return np.full((21, 33, 3), 40 * self.steps, np.uint8)


class Blank(Drawn):
    """Does not draw itself."""

    metadata = {"render_modes": []}  # noqa: RUF012

    def render(self) -> Any:
        raise NotImplementedError


def test_gymnasium_environments_are_filmed_where_they_draw(
    cartpole: Path, tmp_path: Path, capsys: Capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    gymnasium.register("Drawn-v0", Drawn)
    gymnasium.register("Blank-v0", Blank)
    output = ("--output", tmp_path / "results.json")
    film = tmp_path / "film.mp4"
    done = evaluate(capsys, final(cartpole), *FEW, *output, "--env", "Drawn-v0", "--video", film)
    assert done.returncode == 0, done.stderr
    shown = decoded(film, 34, 22)
    assert len(shown) == 15
    assert [int(frame[5, 5].mean()) for frame in shown[:5]] == pytest.approx([0, 40, 80, 120, 160], abs=6)
    refused = evaluate(capsys, final(cartpole), *FEW, *output, "--env", "Blank-v0", "--video", film)
    refused.assert_one_line_error(2, "--video", "Blank-v0 cannot be drawn")
    assert refused.stdout == ""


def test_without_a_display_the_evaluation_goes_on(
    starpilot: Path, tmp_path: Path, capsys: Capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    done = evaluate(capsys, final(starpilot), *FEW, "--output", tmp_path / "results.json", "--render")
    assert done.returncode == 0
    assert done.stderr == "note: --render: no window, there is no display; evaluating without it\n"
    monkeypatch.setenv("DISPLAY", ":4242")
    done = evaluate(capsys, final(starpilot), *FEW, "--output", tmp_path / "results.json", "--render")
    assert done.returncode == 0
    assert "no window" in done.stderr
    assert "Mean Reward" in done.stdout
