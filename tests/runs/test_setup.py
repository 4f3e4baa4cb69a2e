"""scripts/setup.sh in a small project of its own, with packages from an index on this machine."""

import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.package_index import PackageIndex, make_wheel, serving
from helpers.processes import ROOT

TORCH = "2.13.0"
TOOLS = ("awk", "bash", "cat", "df", "dirname", "env", "flock", "grep", "head", "id", "mkdir", "rm", "sha256sum",
         "sort", "tail", "tr")  # fmt: skip
PROJECT = """
[project]
name = "rl-cluster-benchmark"
version = "0.1"
dependencies = ["torch>=2"]
[project.optional-dependencies]
tensorboard = []
video = []
fast = []
cluster = []
dev = []
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
"""
BACKEND = f"""
import sys
from pathlib import Path
sys.path.insert(0, {str(ROOT / "tests")!r})
from helpers.package_index import make_wheel

def build_editable(folder, config_settings=None, metadata_directory=None):
    return make_wheel(Path(folder), "rl-cluster-benchmark", "0.1", ("torch>=2",), command="rlcb").name
"""


class Project:
    """A copy of the script beside a small project, and the programs that it may find."""

    def __init__(self, folder: Path, index: PackageIndex):
        self.folder, self.index, self.bin = folder / "project", index, folder / "bin"
        (self.folder / "scripts").mkdir(parents=True)
        shutil.copy(ROOT / "scripts/setup.sh", self.folder / "scripts")
        (self.folder / "pyproject.toml").write_text(PROJECT)
        (self.folder / "backend.py").write_text(BACKEND)
        (self.folder / "constraints.txt").write_text(f'torch==1.0; python_version < "3"\ntorch=={TORCH}  # pinned\n')
        self.bin.mkdir()
        for tool in TOOLS:
            found = shutil.which(tool)
            assert found, tool
            (self.bin / tool).symlink_to(found)
        self.program("nvidia-smi", "exit 1")
        self.program("python3.11", f'exec {sys.executable} "$@"')
        self.env = {
            "PATH": str(self.bin),
            "HOME": str(folder),
            "PIP_INDEX_URL": index.url,
            "PIP_CONFIG_FILE": "/dev/null",
        }

    def program(self, name: str, script: str) -> None:
        """Put a program on the path."""
        (self.bin / name).unlink(missing_ok=True)
        (self.bin / name).write_text(f"#!{shutil.which('bash')}\n{script}\n")
        (self.bin / name).chmod(0o755)

    def start(self, **env: str) -> subprocess.Popen[str]:
        """Begin a set-up in a process group of its own."""
        return subprocess.Popen(
            ["bash", "scripts/setup.sh"], cwd=self.folder, env={**self.env, **env}, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip

    def setup(self, code: int = 0, **env: str) -> str:
        """A whole set-up; returns what it said."""
        process = self.start(**env)
        out, err = process.communicate(timeout=300)
        assert process.returncode == code, out + err
        assert not out
        return err

    def refused(self, code: int, **env: str) -> str:
        """A set-up that ends with one line and leaves no environment behind."""
        said = self.setup(code, **env)
        assert len(said.splitlines()) == 1, said
        assert not (self.folder / ".venv").exists()
        return said

    def installed(self) -> str:
        """The version of torch in the environment."""
        done = subprocess.run(
            [self.folder / ".venv/bin/python", "-c", "import torch; print(torch.__version__)"],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        return done.stdout.strip()

    def downloads(self) -> list[str]:
        """The wheels that were fetched from the index."""
        return [path for path in self.index.asked if path.startswith("/files/")]


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    for version in (TORCH, "2.99.0", "2.99.0+cpu"):  # later ones that the constraints rule out
        make_wheel(wheels, "torch", version)
    with serving(wheels) as index:
        yield Project(tmp_path, index)


without_gpu = pytest.mark.skipif(Path("/proc/driver/nvidia/version").exists(), reason="this machine has an NVIDIA GPU")


@without_gpu
def test_without_a_gpu_the_build_for_cpus_is_taken_and_a_second_setup_does_nothing(project: Project) -> None:
    make_wheel(project.index.folder, "torch", f"{TORCH}+cpu")
    said = project.setup()
    assert project.installed() == f"{TORCH}+cpu"
    assert f"torch {TORCH}, the build for CPUs, as there is no NVIDIA GPU" in said
    assert "0.5 GB to download and 1.9 GB on disk" in said
    assert f"Python {sys.version.split()[0]} ({project.bin}/python3.11)" in said
    assert "doctor --fix" in said.splitlines()  # as the program prints that stands for the real one
    asked = list(project.index.asked)
    assert project.setup() == ""
    assert project.index.asked == asked


@without_gpu
def test_the_ordinary_torch_is_taken_where_the_index_has_no_other(project: Project) -> None:
    said = project.setup()
    assert project.installed() == TORCH
    assert f"torch {TORCH}, with its CUDA libraries" in said
    assert "2.9 GB to download and 6.4 GB on disk" in said


def test_with_a_gpu_the_ordinary_torch_is_taken_although_pip_prefers_the_other(project: Project) -> None:
    make_wheel(project.index.folder, "torch", f"{TORCH}+cpu")
    project.program("nvidia-smi", "exit 0")
    project.setup()
    assert project.installed() == TORCH


@without_gpu
def test_uv_gets_the_build_for_cpus_where_the_index_has_none(project: Project, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    make_wheel(other, "torch", f"{TORCH}+cpu")
    with serving(other) as index:
        # What uv takes it from is a public server; this stands for uv and takes it from another index of this machine.
        project.program("uv", f"""
            [ "$1 $2 $3" = "pip install --python" ] || exit 2
            python=$4; shift 4
            [ "$1 $2" = "--torch-backend cpu" ] || exit 2; shift 2
            exec "$python" -m pip install --index-url {index.url} "$@" """)  # fmt: skip
        said = project.setup()
    assert project.installed() == f"{TORCH}+cpu"
    assert "the build for CPUs through uv" in said
    assert not project.downloads()


def test_a_torch_of_ones_own_stays(project: Project) -> None:
    make_wheel(project.index.folder, "torch", f"{TORCH}+mine")
    subprocess.run([sys.executable, "-m", "venv", project.folder / ".venv"], check=True)
    pip = [project.folder / ".venv/bin/python", "-m", "pip", "--quiet", "install", f"torch=={TORCH}+mine"]
    subprocess.run(pip, env=project.env, check=True)
    assert "which is there already" in project.setup()
    assert project.installed() == f"{TORCH}+mine"


def test_without_a_network_one_line_says_so_and_nothing_stays(project: Project) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        said = project.refused(6, PIP_INDEX_URL=f"http://127.0.0.1:{closed.getsockname()[1]}/simple/")
    assert "no package index offers torch" in said
    project.setup()
    assert project.installed().startswith(TORCH)


def test_two_at_once_install_once(project: Project) -> None:
    project.index.hold.clear()
    first = project.start()
    assert project.index.holding.wait(120)
    second = project.start()
    assert second.stderr is not None
    assert "another set-up is at work" in second.stderr.readline()
    project.index.hold.set()
    assert [first.wait(300), second.wait(300)] == [0, 0], (first.communicate(), second.communicate())
    assert len(project.downloads()) == 1
    for process in (first, second):
        process.communicate()


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_a_setup_that_was_broken_off_begins_anew(project: Project, how: signal.Signals) -> None:
    project.index.hold.clear()
    process = project.start()
    assert project.index.holding.wait(120)
    os.killpg(process.pid, how)
    process.communicate()
    assert not (project.folder / ".venv/.installed").exists()
    leftover = project.folder / ".venv/half-unpacked"
    leftover.touch()
    project.index.hold.set()
    assert "an earlier set-up was broken off; beginning anew" in project.setup()
    assert project.installed().startswith(TORCH)
    assert not leftover.exists()


def test_the_newest_interpreter_that_runs_is_taken(project: Project) -> None:
    project.program("python3.14", "exit 127")  # as a version manager leaves it for versions that are not chosen
    project.program("python3.13", f'exec {sys.executable} "$@"')
    assert f"({project.bin}/python3.13)" in project.setup()
    assert project.setup() == ""
    project.program("python3.14", f'exec {sys.executable} "$@"')
    assert project.setup() == ""  # what is there stays


def test_a_wrong_interpreter_is_refused(project: Project) -> None:
    assert "PYTHON=python9 cannot be run" in project.refused(2, PYTHON="python9")
    project.program("old", "echo 3.10; [[ $* != *exit* ]]")
    assert "PYTHON=old is Python 3.10; 3.11 to 3.14 would do" in project.refused(2, PYTHON="old")


@pytest.mark.parametrize(
    ("tool", "command"),
    [
        ("uv", "uv python install 3.14"),
        ("apt-get", "as root: apt-get update && apt-get install -y python3 python3-venv libgl1 libglib2.0-0"),
        ("dnf", "dnf install -y python3.13"),
    ],
)
def test_without_an_interpreter_one_command_gets_it(project: Project, tool: str, command: str) -> None:
    (project.bin / "python3.11").unlink()
    project.program("id", "echo 1000")
    project.program(tool, "exit 1")
    assert command in project.refused(6)


def test_apt_that_fails_is_one_reason(project: Project) -> None:
    (project.bin / "python3.11").unlink()
    project.program("id", "echo 0")
    project.program("apt-get", "echo 'E: Unable to locate package python3' >&2; exit 100")
    said = project.setup(6).splitlines()
    assert said[-1].endswith("E: Unable to locate package python3")
    assert len(said) == 2  # what it tries is said before


def test_too_small_a_disk_is_refused_before_the_download(project: Project) -> None:
    project.program("df", "echo; echo / 0 0 1000000 0% /")
    said = project.setup(6)
    assert "has too little space" in said.splitlines()[-1]
    assert not project.downloads()
    assert not (project.folder / ".venv").exists()
