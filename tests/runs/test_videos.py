"""What is filmed of an evaluation."""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from PIL import Image

from helpers.in_process import evaluate, final
from rlcb.envs.families import make_env
from rlcb.evaluation.play import Actor
from rlcb.evaluation.policy import build_policy, environment_for, find_policy
from rlcb.evaluation.video import find_ffmpeg, open_window, show, watch, write_video

pytestmark = pytest.mark.xdist_group("videos")

Capsys = pytest.CaptureFixture[str]
FEW = ("--num-episodes", "2", "--num-threads", "1")


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
    actor = Actor(build_policy(trained, spec, "cpu"), spec, "cpu", None)
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
    refused.assert_one_line_error(2, "--video", "Blank-v0 cannot be rendered")
    assert refused.stdout == ""


def test_without_a_display_the_evaluation_goes_on(
    starpilot: Path, tmp_path: Path, capsys: Capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    done = evaluate(capsys, final(starpilot), *FEW, "--output", tmp_path / "results.json", "--render")
    assert done.returncode == 0
    assert done.stderr == "note: --render: no window: there is no display; continuing without it\n"
    monkeypatch.setenv("DISPLAY", ":4242")
    done = evaluate(capsys, final(starpilot), *FEW, "--output", tmp_path / "results.json", "--render")
    assert done.returncode == 0
    assert "no window" in done.stderr
    assert "Mean Reward" in done.stdout


@pytest.mark.skipif(not shutil.which("Xvfb"), reason="no X server for tests: apt-get install -y xvfb")
def test_a_window_shows_the_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    server = subprocess.Popen(["Xvfb", "-displayfd", "1"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert server.stdout is not None
    monkeypatch.setenv("DISPLAY", f":{server.stdout.readline().strip()}")
    try:
        window, seen = open_window(), []

        def frames() -> Iterator[Any]:
            for red in (10, 200):
                yield np.full((64, 64, 3), (red, 20, 30), np.uint8)
                seen.append((window._picture.get(300, 300), window._picture.width()))
            window.close()  # as the user may at any time
            yield np.zeros((64, 64, 3), np.uint8)

        show(window, frames())
        assert seen == [((10, 20, 30), 512), ((200, 20, 30), 512)]
        assert not window.is_open
    finally:
        server.kill()
        server.wait()
