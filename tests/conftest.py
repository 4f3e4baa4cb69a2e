"""Fixtures that every layer may use."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from helpers.processes import CARTPOLE, TINY, start_rlcb
from rlcb.envs import engine

# Test processes share the cores with each other and with what they start. Read when torch is loaded.
os.environ.update(OMP_NUM_THREADS="1", OMP_WAIT_POLICY="passive")
# As in a shell whose virtual environment is active: messages then name commands as the documents do.
os.environ["PATH"] = os.pathsep.join((os.path.dirname(sys.executable), os.environ.get("PATH", os.defpath)))
# Under `nohup` hang-ups are ignored, in all that tests start too; some of them hang up.
signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    """The limits of this machine that its user has measured are neither used nor replaced; Procgen's engine is used."""
    if found := engine.find():
        os.environ[engine.FOLDER] = str(found)
    os.environ["XDG_CACHE_HOME"] = str(tmp_path_factory.mktemp("cache"))


@pytest.fixture(autouse=True)
def own_module_folder() -> Iterator[None]:
    """A command that runs within a test leaves no folder of modules to the tests after it."""
    yield
    os.environ.pop("RLCB_MODULE_FOLDER", None)


@pytest.fixture
def start() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start commands in the background; whatever still runs at the end of the test is killed."""
    processes: list[subprocess.Popen[str]] = []

    def begin(*arguments: str | Path, fresh: bool = False) -> subprocess.Popen[str]:
        processes.append(start_rlcb(*arguments, fresh=fresh))
        return processes[-1]

    yield begin
    for process in processes:
        process.kill()
        process.communicate()


@pytest.fixture
def tmpfs(tmp_path: Path) -> Iterator[Callable[[str], Path]]:
    """Mounts small file systems, where this machine lets us."""
    mounted: list[Path] = []

    def mount(options: str) -> Path:
        place = tmp_path / f"disk{len(mounted)}"
        place.mkdir()
        tried = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", options, "tmpfs", place], capture_output=True, check=False
        )
        if tried.returncode:
            pytest.skip(f"no right to mount here: {tried.stderr.decode().strip()}")
        mounted.append(place)
        return place

    yield mount
    for place in mounted:
        subprocess.run(["umount", place], check=True)


@pytest.fixture(scope="module")
def cartpole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run with checkpoints of steps 0 and 256 and a final one of 512."""
    from helpers.in_process import train  # imports torch

    path = tmp_path_factory.mktemp("cartpole") / "run"
    return train(path, *CARTPOLE, "--total-timesteps", "512", "--save-interval", "1")


@pytest.fixture(scope="module")
def starpilot(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of 256 steps."""
    from helpers.in_process import train

    path = tmp_path_factory.mktemp("starpilot") / "run"
    return train(path, *TINY, "--env", "starpilot", "--total-timesteps", "256")


@pytest.fixture
def copy(cartpole: Path, tmp_path: Path) -> Path:
    """A copy of the CartPole run to do harm to."""
    return Path(shutil.copytree(cartpole, tmp_path / "run"))


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Small tensors gain nothing from more, and threads that wait for each other suffer on a busy machine."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
