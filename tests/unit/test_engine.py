"""Procgen's engine: what its games do, how it is called, found and fetched."""

import csv
import hashlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from zipfile import ZipFile

import numpy as np
import psutil
import pytest

from helpers.package_index import make_wheel, serving
from helpers.processes import Finished, run
from rlcb.config.schema import EnvConfig
from rlcb.envs import engine, libenv
from rlcb.envs.families import GAMES, foreign_state, state_versions
from rlcb.envs.procgen import ProcgenEnv
from rlcb.errors import ResourceError, UsageError

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures"
COPIES, STEPS = 8, 2000


def actions(step: int) -> np.ndarray:
    """One action for each copy; no generator whose numbers may change with NumPy's version."""
    return (((np.arange(COPIES) + 1) * 7919 + step * 104729) * 2654435761 % 2**32 >> 16) % 15


@pytest.mark.parametrize("game", GAMES)
def test_a_game_does_what_it_did_through_gym3(game: str) -> None:
    names = ("frames", "rewards", "ends", "level_seeds", "states")
    hashes = {name: hashlib.sha256() for name in names}
    env = ProcgenEnv(EnvConfig(name=game), COPIES, seed=7, num_threads=0)
    env.observe()
    for step in range(STEPS + 1):
        games = env._games
        hashes["frames"].update(games.frames)
        hashes["rewards"].update(games.rewards.astype("<f4"))
        hashes["ends"].update(games.firsts.view(np.uint8))
        hashes["level_seeds"].update(games.infos["level_seed"].astype("<i4"))
        if step % 500 == 0:
            for state in env.get_state():
                hashes["states"].update(len(state).to_bytes(8, "little") + state)
        if step < STEPS:
            env.step(actions(step))
    env.close()
    with (FIXTURES / "procgen_through_gym3.csv").open() as file:
        (expected,) = (row for row in csv.DictReader(file) if row["game"] == game)
    for name, digest in hashes.items():
        assert digest.hexdigest()[:32] in expected[name].split(), name


def test_frames_are_read_where_the_engine_writes_them() -> None:
    env = ProcgenEnv(EnvConfig(), 2, seed=0, num_threads=2)
    memory = env.observe()
    before = memory.copy()
    for step in range(20):
        assert env.step(np.full(2, 7)).observations is memory, step
    assert not np.array_equal(memory, before)
    assert memory.ctypes.data % 4096 == 0
    env.close()
    assert memory.any()  # what has been read stays


def test_closing_frees_threads_and_memory() -> None:
    process = psutil.Process()

    def used() -> tuple[int, int]:
        for _ in range(10):
            env = ProcgenEnv(EnvConfig(name="starpilot"), 64, seed=1, num_threads=3)
            env.step(np.zeros(64, np.int64))
            env.close()
        return process.num_threads(), process.memory_info().rss

    threads, memory = used()
    for _ in range(3):
        again, later = used()
    assert again == threads
    assert later - memory < 50 * 2**20  # thirty times 64 environments would take a gigabyte


@pytest.mark.parametrize(
    ("changes", "arguments", "words"),
    [
        ({"name": "CartPole-v1"}, {}, "not a Procgen game; valid: bigfish"),
        ({"distribution_mode": "memory"}, {}, "coinrun has no mode 'memory'; it has easy, hard"),
        ({}, {"seed": -1}, "seed is -1"),
        ({}, {"seed": 2**31}, "seed is 2147483648"),
        ({}, {"num_envs": 0}, "num_envs is 0"),
        ({}, {"num_threads": -2}, "num_threads is -2"),
    ],
)
def test_options_are_refused_before_the_engine_sees_them(
    changes: dict[str, str], arguments: dict[str, int], words: str
) -> None:
    with pytest.raises(UsageError, match=words):
        ProcgenEnv(EnvConfig().model_copy(update=changes), **{"num_envs": 1, "seed": 0, "num_threads": 0, **arguments})


def test_a_file_that_is_no_engine(tmp_path: Path) -> None:
    garbled = tmp_path / "libenv.so"
    garbled.write_bytes(b"\x7fELF" + bytes(100))
    with pytest.raises(OSError, match=r"libenv\.so"):
        libenv.load(garbled)
    other = next(Path(np.__file__).parent.rglob("_multiarray_umath*.so"))
    with pytest.raises(OSError, match="not Procgen's engine: it has no function libenv_version"):
        libenv.load(other)


def test_states_know_their_engine() -> None:
    (version,) = state_versions("coinrun").values()
    assert version.startswith("sha256:")
    assert engine.release(version) == engine.VERSION
    assert state_versions("CartPole-v1") == {}
    # What earlier checkpoints say, and what the two builds of the same version say.
    for saved in ({"procgen-mirror": "0.10.7"}, *({"procgen": build} for build in engine._BUILDS)):
        assert foreign_state("coinrun", saved) is None
    for saved in ({"procgen-mirror": "0.10.4"}, {"procgen": "sha256:00"}, {}):
        assert "this run has sha256:" in str(foreign_state("coinrun", saved))


# Finding and fetching


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and no engine anywhere else; returns where the engine's files are copied from in these tests."""
    monkeypatch.delenv(engine.FOLDER, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(engine.importlib.util, "find_spec", lambda name: None)
    return tmp_path / "cache" / "rlcb"


def laid_out(folder: Path) -> Path:
    """A folder with what looks like the engine."""
    engine.library(folder).parent.mkdir(parents=True)
    engine.library(folder).write_bytes(b"engine")
    engine.pictures(folder).mkdir()
    return folder


def test_the_engine_is_looked_for_in_order(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert engine.find() is None
    installed = laid_out(tmp_path / "site-packages")
    package = type("Spec", (), {"submodule_search_locations": [str(installed / "procgen")]})
    monkeypatch.setattr(engine.importlib.util, "find_spec", lambda name: package if name == "procgen" else None)
    assert engine.find() == installed
    own = laid_out(cache / f"procgen-{engine.VERSION}")
    assert engine.find() == own
    given = laid_out(tmp_path / "given")
    monkeypatch.setenv(engine.FOLDER, str(given))
    assert engine.find() == given
    monkeypatch.setenv(engine.FOLDER, str(tmp_path))
    with pytest.raises(ResourceError, match=f"{engine.FOLDER}={tmp_path}: Procgen's engine is not there"):
        engine.find()


def test_an_installed_engine_must_be_whole(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = laid_out(tmp_path / "given")
    monkeypatch.setenv(engine.FOLDER, str(given))
    engine.make_ready()  # built by hand: nothing is known of its files
    record = given / f"procgen_mirror-{engine.VERSION}.dist-info" / "RECORD"
    record.parent.mkdir()
    picture = "procgen/data/assets/one.png"
    record.write_text(f"procgen/env.py,sha256=x,5\n{picture},sha256=x,3\n")
    with pytest.raises(ResourceError, match=f"{picture} is missing or damaged; install it again"):
        engine.make_ready()
    (given / picture).write_bytes(b"png")
    engine.make_ready()
    record.write_text("procgen/data/prebuilt/libenv.so,sha256=x,6\n")
    with pytest.raises(ResourceError, match=r"libenv.so is damaged; install it again"):
        engine.make_ready()


@pytest.fixture(scope="module")
def nowhere(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The variables of a shell in which no engine is found and no index can be reached."""
    folder = tmp_path_factory.mktemp("modules")
    (folder / "procgen").mkdir()  # hides a package that may be installed
    (folder / "procgen" / "__init__.py").touch()
    return {
        "PYTHONPATH": os.pathsep.join((str(folder), os.environ.get("PYTHONPATH", ""))).rstrip(os.pathsep),
        engine.FOLDER: "", "PIP_CONFIG_FILE": os.devnull, "PIP_INDEX_URL": "http://127.0.0.1:9/simple",
        "PIP_EXTRA_INDEX_URL": "", "PIP_FIND_LINKS": "",
    }  # fmt: skip


def rlcb(*words: str | Path, env: dict[str, str]) -> Finished:
    """`rlcb …` as a new interpreter."""
    return run([sys.executable, "-m", "rlcb", *map(str, words)], env=env)


TRAIN = ("train", "ppo", "--total-timesteps", "256", "--num-envs", "4", "--n-steps", "16", "--batch-size", "64")


def leftovers(home: Path) -> list[str]:
    """What is in the cache."""
    return sorted(path.name for path in home.glob("rlcb/*"))


@pytest.mark.parametrize("case", ["offline", "no network", "unwritable", "wrong hash"])
def test_without_an_engine_one_line_says_what_to_do(
    case: str, tmp_path: Path, index: str, nowhere: dict[str, str]
) -> None:
    home, train = tmp_path / "cache", (*TRAIN, "--output-dir", tmp_path / "run")
    env = {**nowhere, "XDG_CACHE_HOME": str(home)}
    if case == "offline":
        done = rlcb(*train, env={**env, engine.OFFLINE: "1"})
        done.assert_one_line_error(6, "RLCB_OFFLINE forbids to fetch it", engine.WHEEL, "put into", str(home))
    elif case == "no network":
        done = rlcb(*train, env=env)
        done.assert_one_line_error(6, "cannot be fetched: the package index cannot be reached", engine.WHEEL, str(home))
    elif case == "unwritable":
        home.write_text("a file where a folder should be")
        done = rlcb(*train, env=env)
        done.assert_one_line_error(6, f"{home}/rlcb: ", "XDG_CACHE_HOME chooses another folder")
    else:
        done = rlcb(*train, env={**env, "PIP_INDEX_URL": index})
        done.assert_one_line_error(6, "the hash of what the package index gave is wrong", engine.WHEEL, str(home))
    assert not (tmp_path / "run").exists()
    assert leftovers(home) == []


def test_other_environments_need_no_engine(tmp_path: Path, nowhere: dict[str, str]) -> None:
    env = {**nowhere, "XDG_CACHE_HOME": str(tmp_path), engine.OFFLINE: "1"}
    done = rlcb(*TRAIN, "--env", "CartPole-v1", "--output-dir", tmp_path / "run", env=env)
    assert done.returncode == 0, done.stderr


@pytest.fixture
def index(tmp_path: Path) -> Iterator[str]:
    """A package index on this machine, with a file under the name of the wheel that is something else."""
    folder = tmp_path / "index"
    folder.mkdir()
    make_wheel(folder, "procgen-mirror", engine.VERSION).rename(folder / engine.WHEEL)
    with serving(folder) as server:
        yield server.url


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The real package, made anew from an engine that was fetched: the same files, but not the same bytes."""
    folder = engine.find()
    assert folder is not None
    path = tmp_path_factory.mktemp("wheel") / engine.WHEEL
    with ZipFile(path, "w") as file:
        for part in engine._PARTS:
            for one in sorted((folder / part).rglob("*")):
                if one.is_file():
                    file.write(one, one.relative_to(folder))
    return path


FETCH = """
import sys
from rlcb.envs import engine
engine._WHEEL_HASH = sys.argv[1]
engine.make_ready()
"""


def test_processes_that_fetch_at_once_leave_one_engine(wheel: Path, tmp_path: Path, nowhere: dict[str, str]) -> None:
    home = tmp_path / "cache"
    (home / "rlcb").mkdir(parents=True)
    os.link(wheel, home / "rlcb" / engine.WHEEL)  # as a user puts it there who has no network
    killed = home / "rlcb" / ".procgen-killed"
    killed.mkdir()
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    environment = {**os.environ, **nowhere, "XDG_CACHE_HOME": str(home), engine.OFFLINE: "1"}
    command = [sys.executable, "-c", FETCH, digest]
    several = [subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) for _ in range(4)]
    errors = [process.communicate(timeout=300)[1] for process in several]
    assert [process.returncode for process in several] == [0] * 4, errors
    assert sum("unpacking Procgen's engine" in error for error in errors) == 1
    target = home / "rlcb" / f"procgen-{engine.VERSION}"
    assert leftovers(home) == sorted([target.name, engine.WHEEL])
    # One that is damaged is replaced, whichever file it is.
    for damage in (engine.library(target), next(engine.pictures(target).rglob("*.png"))):
        with damage.open("ab") as file:
            file.write(b"x")
        done = run(command, env=environment)
        assert done.returncode == 0, done.stderr
        assert "unpacking" in done.stderr
        assert run(command, env=environment).stderr == ""
    assert leftovers(home) == sorted([target.name, engine.WHEEL])
