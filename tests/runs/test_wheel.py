"""The wheel, built from this checkout and unpacked, in an empty folder: it has all that the program reads."""

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from helpers.processes import ROOT, SHORT_CARTPOLE, Finished, run

pytestmark = pytest.mark.xdist_group("wheel")
_BUILD = "import sys; from setuptools import build_meta; print(getattr(build_meta, sys.argv[1])(sys.argv[2]))"


def build(what: str, source: Path, output: Path) -> Path:
    """The wheel or sdist of a source tree, built with the setuptools that is installed here, without a network."""
    output.mkdir(exist_ok=True)
    done = run([sys.executable, "-c", _BUILD, what, str(output)], cwd=source)
    assert done.returncode == 0, done.stderr
    return output / done.stdout.splitlines()[-1]


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the repository's files: a build writes beside its sources."""
    copy = tmp_path_factory.mktemp("checkout")
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).is_file() and not name.startswith(("tests/", "docs/")):
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            (copy / name).write_bytes((ROOT / name).read_bytes())
    return copy


@pytest.fixture(scope="module")
def wheel(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of that copy."""
    return build("build_wheel", checkout, tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The unpacked wheel, as pip would install it."""
    folder = tmp_path_factory.mktemp("installed")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


def names_in(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return {name for name in archive.namelist() if name.startswith("rlcb/")}


def expected_names() -> set[str]:
    """Every file of the package, and the configurations."""
    sources, configs = ROOT / "src", ROOT / "config"
    files = [path for path in (sources / "rlcb").rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    own = {path.relative_to(sources).as_posix() for path in files}
    return own | {f"rlcb/configs/{path.relative_to(configs).as_posix()}" for path in configs.rglob("*.yaml")}


def test_the_wheel_has_every_file_of_the_package_and_all_configurations(wheel: Path) -> None:
    assert names_in(wheel) == expected_names()


def test_the_wheel_of_an_sdist_is_the_same(checkout: Path, wheel: Path, tmp_path: Path) -> None:
    sdist = build("build_sdist", checkout, tmp_path / "sdist")
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    again = build("build_wheel", tmp_path / sdist.name.removesuffix(".tar.gz"), tmp_path / "wheel")
    assert names_in(again) == names_in(wheel)


def test_a_configuration_that_was_removed_is_not_in_the_next_wheel(checkout: Path, wheel: Path, tmp_path: Path) -> None:
    extra = checkout / "config" / "extra.yaml"
    extra.write_text("env: {}\n")
    assert names_in(build("build_wheel", checkout, tmp_path / "with")) - names_in(wheel) == {"rlcb/configs/extra.yaml"}
    extra.unlink()
    assert names_in(build("build_wheel", checkout, tmp_path / "without")) == names_in(wheel)


def rlcb(installed: Path, folder: Path, *arguments: str) -> Finished:
    """A command of the unpacked wheel in a folder, with the libraries of this environment."""
    environment = {**os.environ, "PYTHONPATH": str(installed), "PYTHONSAFEPATH": "1"}
    return run([sys.executable, "-m", "rlcb", *arguments], env=environment, cwd=folder)


def test_an_unpacked_wheel_works_in_an_empty_folder(installed: Path, tmp_path: Path) -> None:
    configs = installed / "rlcb" / "configs"
    version = rlcb(installed, tmp_path, "--version")
    assert version.stdout.splitlines()[-2:] == [f"program: {installed / 'rlcb'}", f"configurations: {configs}"]
    assert f"Files: {configs}" in rlcb(installed, tmp_path, "configs").stdout
    done = rlcb(installed, tmp_path, "train", "ppo", "--config", "config/ppo_paper.yaml")
    done.assert_one_line_error(2, "config/ppo_paper.yaml", "--config ppo_paper")

    suite = (
        "--suite",
        "quick",
        "--games",
        "CartPole-v1",
        "--seeds",
        "1",
        "--total-timesteps",
        "256",
        "--num-envs",
        "8",
    )
    size = ("--n-steps", "32", "--batch-size", "128", "--n-epochs", "1", "--tensorboard", "false", "--num-workers", "1")
    done = rlcb(installed, tmp_path, "benchmark", *suite, *size, "--eval-episodes", "8", "--output-dir", "suite")
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"Suite: {configs / 'suites' / 'quick.yaml'}" in done.stdout
    assert (tmp_path / "suite" / "report" / "report.html").is_file()
    done = rlcb(installed, tmp_path, "train", "a2c", *SHORT_CARTPOLE, "--num-envs", "8", "--total-timesteps", "256")
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"\nConfig: {configs / 'a2c_sequential.yaml'}\n" in done.stdout
    for name in ("suite/report/report.html", "benchmarks/a2c_sequential/training_summary.json"):
        assert str(ROOT) not in (tmp_path / name).read_text(encoding="utf-8")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["benchmarks", "suite"]
