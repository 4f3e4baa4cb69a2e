"""Pictures of a policy's episodes: a video file, or a window on the screen."""

import contextlib
import itertools
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from rlcb.envs.base import VectorEnv
from rlcb.errors import ResourceError, UsageError
from rlcb.files import TEMPORARY

if TYPE_CHECKING:  # it imports torch, and the checks here come before that
    from rlcb.evaluation.play import Actor

FPS = 15  # the speed at which people play Procgen
EPISODES = 3
MAX_FRAMES = 60 * FPS  # long episodes are cut: a GIF is held in memory while it is made
ENDINGS = (".mp4", ".gif")
INSTALL_VIDEO = "pip install 'rl-cluster-benchmark[video]'"
_WINDOW = 512  # pixels
_GIF_DELAYS = (70, 60, 70)  # GIF counts in hundredths of a second: three such frames last a fifth of a second

Frame = NDArray[np.uint8]


def watch(env: VectorEnv, actor: "Actor", episodes: int = EPISODES, max_frames: int = MAX_FRAMES) -> Iterator[Frame]:
    """The pictures of some whole episodes, or as much of them as the limit allows."""
    everyone = np.zeros(1, np.int64)
    observations = env.observe()
    yield env.frame()
    for _ in range(max_frames - 1):
        step = env.step(actor.act(observations, everyone, 1))
        observations = step.observations
        episodes -= int(step.episode_ends[0])
        if not episodes:
            return
        yield env.frame()


def check_encoder(path: Path) -> None:
    """Raise UsageError for a kind of file that is unknown, or whose encoder is not installed."""
    if path.suffix.lower() not in ENDINGS:
        raise UsageError(f"--video {path}: the name must end in {' or '.join(ENDINGS)}")
    if path.suffix.lower() == ".gif" and find_spec("PIL") is None:
        raise UsageError(f"--video {path}: GIF needs Pillow, which is not installed: {INSTALL_VIDEO}")
    if path.suffix.lower() == ".mp4" and find_ffmpeg() is None:
        raise UsageError(f"--video {path}: MP4 needs ffmpeg, which was not found: {INSTALL_VIDEO} (or use .gif)")


def find_ffmpeg() -> str | None:
    """The ffmpeg that the imageio-ffmpeg package brings, which need not be imported for it, or the system's."""
    package = find_spec("imageio_ffmpeg")
    folders = (package.submodule_search_locations or []) if package else []
    brought = [str(path) for folder in folders for path in Path(folder, "binaries").glob("ffmpeg-*")]
    return next((path for path in sorted(brought) if os.access(path, os.X_OK)), None) or shutil.which("ffmpeg")


def write_video(path: Path, frames: Iterable[Frame]) -> int:
    """Write the frames as MP4 or GIF, whole or not at all; returns how many there were."""
    temporary = path.with_name(f".{path.stem}{TEMPORARY}{os.getpid()}{path.suffix.lower()}")
    try:
        count = (_write_gif if path.suffix.lower() == ".gif" else _write_mp4)(temporary, frames)
        temporary.rename(path)
    except OSError as error:
        raise ResourceError(f"{path} cannot be written: {error.strerror or error}") from None
    finally:
        temporary.unlink(missing_ok=True)
    return count


def _write_gif(path: Path, frames: Iterable[Frame]) -> int:
    from PIL import Image

    # Without dithering, whose pattern changes from frame to frame and would double the file.
    method, dither = Image.Quantize.FASTOCTREE, Image.Dither.NONE
    pictures = [Image.fromarray(frame).quantize(128, method=method, dither=dither) for frame in frames]
    delays = list(itertools.islice(itertools.cycle(_GIF_DELAYS), len(pictures)))
    pictures[0].save(path, save_all=True, append_images=pictures[1:], duration=delays, loop=0)
    return len(pictures)


def _write_mp4(path: Path, frames: Iterable[Frame]) -> int:
    """Through ffmpeg's standard input; sizes are made even, as the usual colour format demands."""
    pictures = iter(frames)
    first = next(pictures)
    height, width, _ = first.shape
    words = f"-y -loglevel error -f rawvideo -pix_fmt rgb24 -s {width}x{height} -r {FPS} -i - -an -pix_fmt yuv420p"
    even = ["-vf", "pad=ceil(iw/2)*2:ceil(ih/2)*2", "-movflags", "+faststart"]
    count = 0
    with tempfile.TemporaryFile() as complaints:
        # In a session of its own Ctrl-C does not reach it: this process handles it and finishes the file first.
        encoder = subprocess.Popen(
            [find_ffmpeg() or "ffmpeg", *words.split(), *even, str(path)],
            stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=complaints, start_new_session=True,
        )  # fmt: skip
        assert encoder.stdin is not None
        try:
            for frame in itertools.chain([first], pictures):
                encoder.stdin.write(np.ascontiguousarray(frame).tobytes())
                count += 1
        except BrokenPipeError:
            count = 0
        finally:
            with contextlib.suppress(BrokenPipeError):  # it has ended, and its exit status says why
                encoder.stdin.close()
            failed = encoder.wait() != 0
        if failed or not count:
            complaints.seek(0)
            lines = complaints.read().decode(errors="replace").strip().splitlines()
            raise ResourceError(f"{path.name}: ffmpeg failed: {lines[-1] if lines else 'no error message'}")
    return count


class Window:
    """A window on the screen that shows pictures."""

    def __init__(self, width: int = _WINDOW):
        """`width`: that small pictures are enlarged to, in pixels, as far as whole factors allow."""
        import tkinter

        self.is_open, self._width = True, width
        self._root = tkinter.Tk(className="rlcb")
        self._root.protocol("WM_DELETE_WINDOW", self.close)
        self._root.bind("<Escape>", lambda event: self.close())
        self._label = tkinter.Label(self._root, borderwidth=0)
        self._label.pack()

    def draw(self, frame: Frame) -> None:
        """Show a picture [H, W, 3] and see to what the user does."""
        import tkinter

        height, width, _ = frame.shape
        data = b"P6 %d %d 255 " % (width, height) + np.ascontiguousarray(frame).tobytes()
        picture = tkinter.PhotoImage(master=self._root, data=data, format="PPM")
        self._picture = picture.zoom(max(self._width // width, 1))  # Tk does not keep it
        self._label.configure(image=self._picture)
        self._root.update()

    def close(self) -> None:
        """Remove the window."""
        if self.is_open:
            self.is_open = False
            self._root.destroy()


def open_window() -> Window:
    """A window to show frames in; a ResourceError says why there is none."""
    if sys.platform == "linux" and not os.environ.get("DISPLAY"):
        raise ResourceError("there is no display")
    if find_spec("_tkinter") is None:
        raise ResourceError("Tk is not installed: apt-get install -y python3-tk (as root)")
    try:
        return Window()
    except Exception as error:  # drivers and toolkits may raise anything
        raise ResourceError(str(error).splitlines()[0] if str(error) else type(error).__name__) from None


def show(window: Window, frames: Iterable[Frame]) -> None:
    """Show the frames at the speed of play until they end or the window is closed."""
    due = time.perf_counter()
    for frame in frames:
        if not window.is_open:
            break
        window.draw(frame)
        due += 1 / FPS
        time.sleep(max(due - time.perf_counter(), 0.0))
    window.close()
