"""Paths that are no regular files, wherever a file is read: nothing waits, nothing grows, one line says what it is."""

import errno
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from helpers.in_process import final, results
from helpers.processes import CARTPOLE, Finished, python, rlcb
from helpers.run_directories import write_run
from rlcb.analysis import published
from rlcb.analysis.suites import SuiteRun
from rlcb.config.registry import Kind
from rlcb.errors import ResourceError, UsageError
from rlcb.files import Appender, open_regular, owner_of_lock, read_regular, take_lock, try_lock
from rlcb.suite.directory import in_use, result_of
from rlcb.suite.evaluation import is_evaluated

SECONDS = 100.0  # a command that waits for a writer waits for ever
HUGE = 2**40


def make_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        here = os.open(path.parent, os.O_RDONLY)  # the name of a socket must be short
        try:
            server.bind(f"/proc/self/fd/{here}/{path.name}")
        finally:
            os.close(here)


def make_huge(path: Path) -> None:
    """A file without content that says it has a terabyte."""
    with path.open("wb") as file:
        file.truncate(HUGE)


MAKE: dict[str, Callable[[Path], object]] = {
    "named pipe": os.mkfifo,
    "socket": make_socket,
    "directory": os.mkdir,
    "dangling link": lambda path: path.symlink_to("nowhere"),
    "loop of links": lambda path: path.symlink_to(path.name),
    "endless device": lambda path: path.symlink_to("/dev/zero"),
    "terminal": lambda path: path.symlink_to("/dev/tty"),
    "huge file": make_huge,
}
WORDS = {
    "named pipe": "a named pipe",
    "socket": "a socket",
    "directory": "a directory",
    "dangling link": "a link to a file that does not exist",
    "loop of links": "Too many levels of symbolic links",
    "endless device": "a device",
    "terminal": "a device",
    "huge file": "larger than",
}
every_kind = pytest.mark.parametrize("kind", MAKE)


def put(kind: str, path: Path) -> Path:
    """Have something else in the place of a file."""
    path.unlink(missing_ok=True)
    MAKE[kind](path)
    return path


def refused(path: Path, *arguments: str | Path) -> Finished:
    """A command that must end although nobody writes into the named pipes that it is given."""
    done = rlcb(*arguments, timeout=SECONDS)
    assert str(path) in done.stderr
    return done


# The functions that read


@every_kind
def test_only_regular_files_of_a_sensible_size_are_read(kind: str, tmp_path: Path) -> None:
    path = put(kind, tmp_path / "file")
    with pytest.raises(OSError, match=WORDS[kind]):
        read_regular(path, 1000)
    if kind != "huge file":
        with pytest.raises(OSError, match=WORDS[kind]):
            open_regular(path)


def test_files_without_a_size_and_files_that_grow_are_read_up_to_the_limit(tmp_path: Path) -> None:
    assert read_regular("/proc/self/status", 10**6).startswith(b"Name:")
    with pytest.raises(OSError, match="larger than 10 bytes") as caught:
        read_regular("/proc/self/status", 10)
    assert caught.value.errno == errno.EFBIG
    (tmp_path / "link").symlink_to("file")
    (tmp_path / "file").write_bytes(b"0123456789")
    assert read_regular(tmp_path / "link", 10) == b"0123456789"


def test_a_lock_that_is_released_while_it_is_taken_locks_the_file_that_is_there(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / ".lock"
    first, _ = take_lock(path)
    assert first is not None

    def released_meanwhile(descriptor: int) -> bool:
        monkeypatch.setattr("rlcb.files.try_lock", try_lock)
        path.unlink()  # as a run that ends does, after the file was opened and before it is locked
        os.close(first)
        return try_lock(descriptor)

    monkeypatch.setattr("rlcb.files.try_lock", released_meanwhile)
    second, _ = take_lock(path)
    assert second is not None
    assert os.path.samestat(os.fstat(second), path.stat())
    assert take_lock(path)[0] is None  # nobody else gets it
    os.close(second)


def test_looking_at_a_lock_never_refuses_a_run_that_starts(tmp_path: Path) -> None:
    path = tmp_path / ".lock"
    look = "import sys; from pathlib import Path; from rlcb.files import owner_of_lock\n"
    look += "print('looking', flush=True)\nwhile True: owner_of_lock(Path(sys.argv[1]))\n"
    lookers = [subprocess.Popen([sys.executable, "-c", look, str(path)], stdout=subprocess.PIPE) for _ in range(3)]
    try:
        for looker in lookers:
            assert looker.stdout
            assert looker.stdout.readline() == b"looking\n"
        for _ in range(5000):
            descriptor, owner = take_lock(path)
            assert descriptor is not None, owner
            os.close(descriptor)
    finally:
        for looker in lookers:
            looker.kill()
            looker.communicate()


@pytest.mark.parametrize("asked", [True, False])
def test_a_lock_is_seen_where_it_is_held_and_nowhere_else(
    asked: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def unknown(*arguments: object) -> bytes:
        raise OSError(errno.EINVAL, "Invalid argument")

    if not asked:  # a system without locks that can be looked at
        monkeypatch.setattr("rlcb.files.fcntl.fcntl", unknown)
    path = tmp_path / ".lock"
    assert owner_of_lock(path) is None
    descriptor, _ = take_lock(path)
    assert descriptor is not None
    held = f"pid {os.getpid()} on {socket.gethostname()}"
    assert [owner_of_lock(path) for _ in range(2)] == [held] * 2  # from this process, which keeps it
    assert take_lock(path) == (None, held)
    os.close(descriptor)
    assert owner_of_lock(path) is None
    again, _ = take_lock(path)
    assert again is not None
    os.close(again)


def test_the_lock_of_another_process_is_seen_until_it_dies(tmp_path: Path) -> None:
    path = tmp_path / ".lock"
    hold = "import sys, time; from pathlib import Path; from rlcb.files import take_lock\n"
    hold += "take_lock(Path(sys.argv[1])); print('held', flush=True); time.sleep(600)\n"
    holder = subprocess.Popen([sys.executable, "-c", hold, str(path)], stdout=subprocess.PIPE)
    try:
        assert holder.stdout
        assert holder.stdout.readline() == b"held\n"
        assert owner_of_lock(path) == f"pid {holder.pid} on {socket.gethostname()}"
        assert take_lock(path)[0] is None
    finally:
        holder.kill()
        holder.communicate()
    assert owner_of_lock(path) is None


def test_locks_and_logs_are_not_waited_for_either(tmp_path: Path) -> None:
    path = put("named pipe", tmp_path / "file")
    for use in (take_lock, Appender):
        with pytest.raises(ResourceError, match="a named pipe"):
            use(path)


# Configurations


@every_kind
def test_a_configuration_that_is_no_file_is_refused(kind: str, tmp_path: Path) -> None:
    path = put(kind, tmp_path / "config.yaml")
    done = refused(path, "train", "ppo", "--config", path, "--output-dir", tmp_path / "run")
    done.assert_one_line_error(2, WORDS[kind])
    assert not (tmp_path / "run").exists()


def test_so_are_other_files_of_settings(tmp_path: Path) -> None:
    path = put("named pipe", tmp_path / "suite.yaml")
    refused(path, "benchmark", "--suite", path).assert_one_line_error(2, "a named pipe")
    refused(path, "benchmark", "--output-dir", tmp_path).assert_one_line_error(2, "a named pipe")
    refused(path, "tune", "ppo", "--config", path).assert_one_line_error(2, "a named pipe")
    based = tmp_path / "based.yaml"
    based.write_text(f"base: {path.name}\n")
    refused(path, "train", "ppo", "--config", based).assert_one_line_error(2, "base")
    settings = ("--games", "CartPole-v1", "--total-timesteps", "256", "--config", path)
    refused(path, "benchmark", *settings, "--output-dir", tmp_path / "s").assert_one_line_error(2, "a named pipe")


def without_rights(*arguments: str | Path) -> Finished:
    """`rlcb …` as somebody whom the rights of files mean something to."""
    program = "import os, sys; os.getuid() or os.setuid(65534); from rlcb.cli import main; sys.exit(main(sys.argv[1:]))"
    return python("-c", program, *map(str, arguments), timeout=SECONDS)


def test_files_that_may_not_be_read_are_refused(copy: Path, tmp_path: Path) -> None:
    for folder in (tmp_path, *tmp_path.parents):
        if folder.stat().st_uid == os.getuid() and folder != folder.parent:
            folder.chmod(folder.stat().st_mode | 0o755)
    secret = tmp_path / "secret.yaml"
    secret.write_text("env: {}\n")
    for file in (secret, final(copy), copy / "run.json", copy / "events.jsonl"):
        file.touch()
        file.chmod(0)
    without_rights("train", "ppo", "--config", secret).assert_one_line_error(2, str(secret), "Permission denied")
    without_rights("evaluate", "--checkpoint", final(copy)).assert_one_line_error(5, "Permission denied")
    without_rights("train", "--resume", copy).assert_one_line_error(5, "run.json", "Permission denied")
    copy.chmod(0)
    without_rights("train", "--resume", copy).assert_one_line_error(5, str(copy))
    without_rights("evaluate", "--checkpoint", copy).assert_one_line_error(5, str(copy))
    copy.chmod(0o700)


# Checkpoints and runs


@every_kind
def test_a_checkpoint_that_is_no_file_is_refused(kind: str, tmp_path: Path) -> None:
    path = put(kind, tmp_path / "ppo_sequential_final.pt")
    words = "no checkpoint" if kind == "directory" else "a symbolic link" if path.is_symlink() else WORDS[kind]
    done = refused(path, "evaluate", "--checkpoint", path, "--num-episodes", "2")
    done.assert_one_line_error(5, words)


@pytest.mark.parametrize("kind", ["named pipe", "endless device", "huge file"])
def test_the_checkpoint_before_is_taken_and_the_run_finishes(kind: str, copy: Path) -> None:
    path = put(kind, final(copy))
    done = refused(path, "train", "--resume", copy, "--total-timesteps", "768")
    assert done.returncode == 0, done.stderr
    assert "falling back" in done.stderr
    assert path.is_file()
    assert not path.is_symlink()


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("run.json", 5),
        ("config.yaml", 5),
        ("logs/PPO_Sequential/metrics.jsonl", 5),
        (".lock", 6),
        ("events.jsonl", 6),
    ],
)
@pytest.mark.parametrize("kind", ["named pipe", "endless device"])
def test_a_run_with_something_else_among_its_files_is_not_resumed(kind: str, name: str, code: int, copy: Path) -> None:
    path = put(kind, copy / name)
    kept = {file: file.read_bytes() for file in copy.rglob("*.pt")}
    done = refused(path, "train", "--resume", copy, "--total-timesteps", "768")
    done.assert_one_line_error(code, WORDS[kind])
    assert kept == {file: file.read_bytes() for file in copy.rglob("*.pt")}


@pytest.mark.parametrize("kind", ["named pipe", "endless device", "dangling link"])
def test_a_new_run_takes_the_place_of_an_odd_one(kind: str, copy: Path) -> None:
    """The earlier run is moved aside, whatever is in it."""
    put(kind, copy / "run.json")
    done = rlcb("train", "ppo", *CARTPOLE, "--total-timesteps", "256", "--output-dir", copy, timeout=SECONDS)
    assert done.returncode == 0, done.stderr
    assert "was moved to" in done.stderr


@pytest.mark.parametrize("kind", ["named pipe", "endless device", "huge file"])
def test_earlier_evaluations_that_cannot_be_read_are_replaced(kind: str, copy: Path) -> None:
    path = put(kind, results(final(copy)))
    done = refused(path, "evaluate", "--checkpoint", copy, "--num-episodes", "2", "--num-threads", "1")
    assert done.returncode == 0, done.stderr
    assert "earlier evaluations cannot be read and are replaced" in done.stderr
    assert path.read_text().startswith("{")


def test_results_do_not_take_the_place_of_what_is_no_file(copy: Path, tmp_path: Path) -> None:
    """Who asks for --output /dev/null must still have a /dev/null afterwards."""
    path = put("named pipe", tmp_path / "pipe.gif")
    for flag in ("--output", "--video"):
        refused(path, "evaluate", "--checkpoint", copy, flag, path).assert_one_line_error(2, "a named pipe")
    refused(path, "tune", "ppo", "--env", "CartPole-v1", "--output", path).assert_one_line_error(6, "a named pipe")
    assert path.is_fifo()


# Comparing


FILES = ("run.json", "config.yaml", "benchmark_metrics.json", "training_summary.json", "metrics.json", "events.jsonl",
         ".lock", "logs/PPO_Sequential/metrics.jsonl", "checkpoints/ppo_sequential_final_evaluation.json")  # fmt: skip


@pytest.mark.parametrize("kind", ["named pipe", "socket", "endless device", "huge file", "loop of links"])
def test_a_comparison_warns_of_each_run_and_goes_on(kind: str, tmp_path: Path) -> None:
    write_run(tmp_path / "whole", seed=1)
    for number, name in enumerate(FILES):
        path = write_run(tmp_path / f"odd{number}", seed=2 + number)
        (path / "checkpoints").mkdir()
        put(kind, path / name)
    done = rlcb("compare", tmp_path, "--output", tmp_path / "comparison", timeout=SECONDS)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    warned = [line for line in done.stderr.splitlines() if line.startswith("warning:")]
    for number, name in enumerate(FILES):
        of_this = [line for line in warned if f"odd{number}:" in line]
        assert len(of_this) == (name != ".lock"), done.stderr
    assert (tmp_path / "comparison" / "report.html").is_file()


def test_a_suite_does_not_wait_for_the_files_of_its_runs(cartpole: Path, tmp_path: Path) -> None:
    from rlcb.config.load import build_config

    run = SuiteRun(Kind("ppo", "sequential"), "CartPole-v1", 42, tmp_path / "suite")
    for name in ("training_summary.json", "benchmark_metrics.json", ".lock"):
        shutil.rmtree(run.path, ignore_errors=True)
        shutil.copytree(cartpole, run.path)
        put("named pipe", run.path / name)
        assert not in_use(run)
        assert (result_of(run) is None) == (name != ".lock")
    put("named pipe", results(run.final_checkpoint))
    assert not is_evaluated(run, build_config(None, {}), 1)


def test_the_published_curves_are_read_like_any_other_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(published, "_FILE", put("named pipe", tmp_path / "curves.csv"))
    published._curves.cache_clear()
    with pytest.raises(OSError, match="a named pipe"):
        published.published_curve("coinrun", "easy", 200, 0)
    published._curves.cache_clear()


def test_every_reader_uses_the_function_that_refuses() -> None:
    """No other way to open a file for reading is left in the package, except for what the package and system bring."""
    package = Path(published.__file__).parents[1]
    ways = ["grep", "-rnE", r"read_text\(|read_bytes\(|\.open\(|[^_.a-z]open\(", "--include=*.py", str(package)]
    lines = subprocess.run(ways, capture_output=True, text=True, check=True).stdout.splitlines()
    known = ("files.py", "console.py", "hardware.py", "families.py", "report/sections.py", "parameter_server.py",
             "reaper.py", "security.py")  # fmt: skip
    others = [line for line in lines if not line.split(":")[0].endswith(known)]
    assert [line for line in others if not re.search(r"Popen\(|open_descriptor\(|os\.devnull", line)] == []


def test_a_folder_that_is_no_folder_is_one_line(tmp_path: Path) -> None:
    path = put("named pipe", tmp_path / "pipe")
    refused(path, "train", "ppo", "--output-dir", path).assert_one_line_error(2, "not a directory")
    refused(path, "train", "--resume", path).assert_one_line_error(5, "is not a directory, so there is no run")
    gone = tmp_path / "gone"
    rlcb("train", "--resume", gone).assert_one_line_error(5, f"{gone}: no such directory, so there is no run")
    refused(path, "benchmark", "--total-timesteps", "4096", "--output-dir", path).assert_one_line_error(2, "directory")
    done = rlcb("compare", path, timeout=SECONDS)
    assert done.returncode == UsageError.exit_code
    assert "neither a directory" in done.stderr
