"""A whole run on a node: a Ray actor that runs `rlcb train` as a child process there, and hands out its files.

The actor ends with the process that started it, and the training with the actor: nothing runs on unattended.
"""

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import ray

from rlcb.cluster.ray_worker import versions
from rlcb.cluster.run_files import PIECE_BYTES, FileState, Piece, RunFiles
from rlcb.files import open_descriptor, open_regular, take_lock, write_whole
from rlcb.run.directory import LOCK

CONFIG, RUN = "config.yaml", "run"  # the config file and the run's directory, in the folder on the node
_SCRATCH = "rlcb-run-"  # what the names of the folders begin with


@dataclass(frozen=True)
class Welcome:
    """What an actor says first."""

    problem: str  # why this node cannot be used; empty if it can
    folder: Path  # where the run's files will be


@dataclass(frozen=True)
class Progress:
    """How a training on a node is."""

    printed: bytes  # since the position that was asked for
    exit_code: int | None  # once it has ended


@ray.remote(max_restarts=0, max_task_retries=-1)
class RunActor:
    """One run on a node. Ray may repeat a call whose answer was lost: every method can be called twice."""

    def __init__(self, expected: dict[str, str | None]):
        """`expected`: the versions that the run must be carried out with."""
        _sweep()
        self._scratch, self._lock = _new_folder()
        self._files = RunFiles(self._scratch / RUN)
        self._process: subprocess.Popen[bytes] | None = None
        self._signalled = False
        self._problem = "; ".join(
            f"it has {name} {mine}, this machine {expected[name]}"
            for name, mine in versions().items()
            if mine != expected[name]
        )

    def welcome(self) -> Welcome:
        """Whether this node can be used, and where."""
        return Welcome(self._problem, self._scratch)

    def begin(self, module: str, words: Sequence[str], config: bytes, variables: dict[str, str]) -> None:
        """Start the training: a module that dies with this process and becomes `rlcb …` with these words."""
        if self._process is not None:
            return
        write_whole(self._scratch / CONFIG, config)
        kept = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}  # the token, too
        log = open_descriptor(self._log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-m", module, str(os.getpid()), *words],
                cwd=self._scratch,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={**kept, **variables},
            )
        finally:
            os.close(log)

    @property
    def _log(self) -> Path:
        return self._scratch / "output.log"

    def progress(self, position: int, seconds: float) -> Progress:
        """What was printed since a position in its output, and whether it has ended, after at most `seconds`."""
        assert self._process is not None
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)
        code = self._process.poll()  # before the output is read: all of it is there then
        with open_regular(self._log) as file:
            file.seek(position)
            return Progress(file.read(PIECE_BYTES), code)

    def stop(self, number: int) -> None:
        """Pass a signal on to the training, once: a second one would end it in the middle of saving."""
        if self._process is not None and not self._signalled:
            self._signalled = True
            self._process.send_signal(number)

    def close(self) -> None:
        """End what still runs and remove its files."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        shutil.rmtree(self._scratch, ignore_errors=True)

    # The run's files

    def listing(self) -> list[FileState]:
        """Every file."""
        return self._files.listing()

    def read(self, name: str, offset: int) -> Piece | None:
        """The next piece of a file."""
        return self._files.read(name, offset)

    def read_on(self, name: str, offset: int, digest: str) -> Piece | None:
        """What a file has from an offset on."""
        return self._files.read_on(name, offset, digest)

    def digest(self, name: str) -> str | None:
        """SHA-256 of a whole file."""
        return self._files.digest(name)

    def write(self, name: str, offset: int, piece: Piece) -> FileState:
        """Put a piece of a file in its place."""
        return self._files.write(name, offset, piece)


def _new_folder() -> tuple[Path, int]:
    """A folder for a run, locked until this process ends; it gets its name when it is locked, so none is swept away."""
    made = Path(tempfile.mkdtemp(prefix=f".{_SCRATCH}"))
    lock, _ = take_lock(made / LOCK)
    assert lock is not None
    folder = made.with_name(made.name.removeprefix("."))
    made.rename(folder)
    return folder, lock


def _sweep() -> None:
    """Remove the folders of runs whose actors were killed."""
    for folder in _folders():
        lock, _ = take_lock(folder / LOCK)
        if lock is not None:
            shutil.rmtree(folder, ignore_errors=True)
            os.close(lock)


def _folders() -> Iterator[Path]:
    """The folders of runs on this machine that belong to this user."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_SCRATCH}*"):
        with contextlib.suppress(OSError):
            if folder.lstat().st_uid == os.getuid() and folder.is_dir() and not folder.is_symlink():
                yield folder
