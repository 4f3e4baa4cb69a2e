"""The history of a run survives what ends the run: nothing is lost of it, and no update is in it twice."""

import json
import os
import signal
import subprocess
import textwrap
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from helpers.equal_runs import assert_equal_runs
from helpers.fault_runs import ended
from helpers.processes import CARTPOLE, python, rlcb, wait_for_line
from helpers.run_directories import assert_whole_history, log_of, write_run
from rlcb.analysis.load import load_run
from rlcb.run.checkpoint import load_newest
from rlcb.run.history import as_line, cut_history, read_history, write_columns

Start = Callable[..., subprocess.Popen[str]]
ENDLESS = ("--total-timesteps", "1000000000")
TINY_A2C = ("--env", "CartPole-v1", "--n-steps", "4", "--num-threads", "1", "--tensorboard", "false")
# Code that kills its own process at the sixth update: `killing(module, name)` makes a function do so.
KILLING = """
    import os, signal, sys, rlcb.files
    from rlcb.cli import main

    def killing(module, name, when, first=lambda *arguments: None):
        real = getattr(module, name)
        def killed(*arguments, **options):
            if when(*arguments):
                first(*arguments)
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*arguments, **options)
        setattr(module, name, killed)
"""
# Where a process is killed, as code, and how many lines of the log are whole then. Checkpoints: after 3, 6, … updates.
POINTS = {
    "between the line and the checkpoint": (
        "import rlcb.run.recorder as recorder\n"
        "killing(recorder, 'save_checkpoint', lambda path, content: content['meta']['updates'] == 6)",
        6,
    ),
    "in the middle of a line": (
        "killing(rlcb.files, '_write_all', lambda _, data: data.startswith(b'{\"update\": 6'),\n"
        "        lambda descriptor, data: os.write(descriptor, data[:100]))",
        5,
    ),
    "before a line's end": (
        "killing(rlcb.files, '_write_all', lambda _, data: data.startswith(b'{\"update\": 5'),\n"
        "        lambda descriptor, data: os.write(descriptor, data[:-1]))",
        4,
    ),
    "in the middle of the checkpoint": (
        "killing(rlcb.files.os, 'rename', lambda _, target: 'step_1536' in str(target))",
        6,
    ),
}


def killed_at(code: str, *arguments: str | Path) -> None:
    """Run `rlcb …` with code that kills it."""
    words = [str(argument) for argument in arguments]
    text = f"{textwrap.dedent(KILLING)}\n{code}\nsys.exit(main({words!r}))"
    done = python("-c", text)
    assert done.returncode == -signal.SIGKILL, done.stdout + done.stderr


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that nobody killed."""
    path = tmp_path_factory.mktemp("whole") / "run"
    flags = (*CARTPOLE, "--save-interval", "3")
    assert rlcb("train", "ppo", *flags, "--total-timesteps", "2304", "--output-dir", path).returncode == 0
    return path


@pytest.mark.xdist_group("killed while recording")
@pytest.mark.parametrize("point", POINTS)
def test_killed_at_any_point_of_recording_the_run_resumes_as_if_nothing_had_happened(
    whole: Path, tmp_path: Path, point: str
) -> None:
    path, (code, lines) = tmp_path / "run", POINTS[point]
    flags = ("train", "ppo", *CARTPOLE, "--save-interval", "3", "--output-dir", path)
    killed_at(code, *flags, "--total-timesteps", "2304")
    assert not (path / "metrics.json").exists()
    crashed = load_run(path)
    assert crashed.status == "unfinished"
    assert crashed.history.step.tolist()[:lines] == [256.0 * n for n in range(1, lines + 1)]
    assert load_newest(path / "checkpoints", "ppo", pytest.fail)[1]["meta"]["updates"] == 3
    done = rlcb("train", "--resume", path)
    assert done.returncode == 0, done.stderr
    assert "missing" not in done.stderr
    assert_whole_history(path, updates=9)
    assert_equal_runs(whole, path)


@pytest.mark.xdist_group("killed while recording")
def test_a_crash_after_a_resume_leaves_a_metrics_json_that_is_older_than_the_log(whole: Path, tmp_path: Path) -> None:
    path = tmp_path / "run"
    flags = ("train", "ppo", *CARTPOLE, "--save-interval", "3", "--output-dir", path)
    assert rlcb(*flags, "--total-timesteps", "768").returncode == 0
    older = (path / "metrics.json").read_bytes()
    killed_at(POINTS["between the line and the checkpoint"][0], "train", "--resume", path, "--total-timesteps", "2304")
    assert (path / "metrics.json").read_bytes() == older
    run = load_run(path)
    assert (len(run.history), run.status) == (6, "unfinished")
    assert rlcb("train", "--resume", path).returncode == 0
    assert_whole_history(path, updates=9)
    assert_equal_runs(whole, path)


@pytest.mark.parametrize("function", ["_identify", "sweep"])  # before and after run.json says so
def test_killed_while_a_run_goes_over_to_another_mode(tmp_path: Path, function: str) -> None:
    path = tmp_path / "run"
    assert rlcb("train", "ppo", *CARTPOLE, "--total-timesteps", "768", "--output-dir", path).returncode == 0
    resume = ("train", "--resume", path, "--mode", "parallel", "--num-workers", "2", "--total-timesteps", "1024")
    killed_at(f"import rlcb.run.directory as d\nkilling(d, {function!r}, lambda *_: True)", *resume)
    assert len(load_run(path).history) == 3
    done = rlcb(*resume)
    assert done.returncode == 0, done.stderr
    assert "missing" not in done.stderr
    log = path / "logs" / "PPO_Parallel" / "metrics.jsonl"
    assert [json.loads(line)["update"] for line in log.read_text().splitlines()] == [1, 2, 3, 4]
    assert json.loads((path / "metrics.json").read_text())["update"] == [1, 2, 3, 4]


def lose_all_workers(process: subprocess.Popen[str]) -> None:
    tree = psutil.Process(process.pid).children(recursive=True)
    workers = [one for one in tree if one.cmdline()[1:3] == ["-m", "rlcb.execution.entry"]]
    for worker in workers:
        worker.suspend()
    for worker in workers:
        worker.kill()


@pytest.mark.parametrize(
    ("arguments", "end", "code"),
    [
        (("a2c",), lambda process: process.send_signal(signal.SIGTERM), 143),
        (("a3c", "--mode", "parallel", "--num-workers", "2"), lose_all_workers, 4),
        (("a2c", "--mode", "parallel", "--num-workers", "2"), lose_all_workers, 4),
        (("a2c", "--learning-rate", "1e30"), lambda process: None, 3),
    ],
    ids=["signal", "lost workers, saved", "lost workers", "diverged"],
)
def test_whatever_ends_a_run_metrics_json_is_complete(
    start: Start, tmp_path: Path, arguments: tuple[str, ...], end: Callable[[subprocess.Popen[str]], None], code: int
) -> None:
    path = tmp_path / "run"
    flags = (*TINY_A2C, "--num-envs", "4", "--log-interval", "1", *ENDLESS, "--output-dir", path)
    process = start("train", *arguments, *flags)
    wait_for_line(process, "Update 2 |")
    end(process)
    ended(process, code)
    assert len(assert_whole_history(path)) >= 2


LIMITED = """
    import resource, sys
    from rlcb.cli import main
    resource.setrlimit(resource.RLIMIT_FSIZE, (120_000, 120_000))
"""


def test_a_disk_that_is_full_when_a_line_is_appended_ends_with_6_and_cuts_no_line(tmp_path: Path) -> None:
    """A limit on file sizes that the log meets, and no other file."""
    path = tmp_path / "run"
    arguments = ("train", "a2c", *TINY_A2C, "--num-envs", "4", "--save-interval", "50", "--log-interval", "1000")
    words = [str(word) for word in (*arguments, *ENDLESS, "--output-dir", path)]
    done = python("-c", f"{textwrap.dedent(LIMITED)}\nsys.exit(main({words!r}))")
    done.assert_one_line_error(6, "metrics.jsonl cannot be written", "too large")
    lines = assert_whole_history(path)
    assert len(log_of(path).read_bytes()) + len(as_line(lines[-1])) > 119_900
    saved = load_newest(path / "checkpoints", "a2c", pytest.fail)[1]["meta"]["updates"]
    assert saved == len(lines) // 50 * 50
    done = rlcb("train", "--resume", path, "--total-timesteps", str(16 * (saved + 100)))
    assert done.returncode == 0, done.stderr
    assert_whole_history(path, updates=saved + 100)


def test_room_that_is_made_in_time_lets_the_line_be_written(tmp_path: Path) -> None:
    code = f"""
        import resource, time
        from pathlib import Path
        from rlcb.files import Appender
        hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
        resource.setrlimit(resource.RLIMIT_FSIZE, (10, hard))
        time.sleep = lambda seconds: resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
        file = Appender(Path({str(tmp_path / "file")!r}))
        file.write(b"1234567\\n")
        file.write(b"8901234\\n")
        file.sync()
    """
    done = python("-c", textwrap.dedent(code))
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "file").read_bytes() == b"1234567\n8901234\n"


def made_up(updates: int) -> list[bytes]:
    """Lines of a log."""
    return [as_line({"update": n, "step": 40 * n, "time": n / 8, "time/fps": 320.0}) for n in range(1, updates + 1)]


@pytest.mark.parametrize(
    ("content", "kept"),
    [
        (lambda lines: lines, [1, 2, 3]),
        (lambda lines: lines[:3], [1, 2, 3]),
        (lambda lines: [*lines[:2], lines[2][:-1]], [1, 2, 3]),  # only the line's end is missing
        (lambda lines: [*lines[:2], lines[2][:20]], [1, 2]),
        (lambda lines: [*lines[:2], b"\0" * 4096], [1, 2]),  # as after a power cut
        (lambda lines: [lines[0], b"\xff{}\n", b"[]\n", b'{"update": "two"}\n', *lines[1:]], [1, 2, 3]),
        (lambda lines: [*lines[:2], *lines[:2], *lines[2:]], [1, 2, 3]),
        (lambda lines: [lines[0], lines[2]], [1, 3]),
        (lambda lines: lines[3:], []),
        (lambda lines: [], []),
        (lambda lines: None, []),
    ],
)
def test_what_a_resume_keeps_of_a_log(
    tmp_path: Path, content: Callable[[list[bytes]], list[bytes] | None], kept: list[int]
) -> None:
    log, lines = tmp_path / "metrics.jsonl", content(made_up(5))
    if lines is not None:
        log.write_bytes(b"".join(lines))
    totals = cut_history(log, 3)
    assert totals.updates == len(kept)
    assert [line["update"] for line in totals.last] == kept
    assert log.read_bytes()[-1:] in (b"", b"\n")
    with log.open("ab") as file:
        file.write(made_up(4)[3])
    assert [metrics["update"] for _, metrics in read_history(log)] == [*kept, 4]
    write_columns(log, tmp_path / "metrics.json")
    assert json.loads((tmp_path / "metrics.json").read_text())["update"] == [*kept, 4]


def test_updates_that_are_missing_in_the_log_are_told(tmp_path: Path) -> None:
    path = tmp_path / "run"
    assert rlcb("train", "ppo", *CARTPOLE, "--total-timesteps", "768", "--output-dir", path).returncode == 0
    lines = log_of(path).read_bytes().splitlines(keepends=True)
    log_of(path).write_bytes(b"".join(lines[:2]))
    done = rlcb("train", "--resume", path, "--total-timesteps", "1024")
    assert done.returncode == 0, done.stderr
    assert "1 of 3 updates is missing" in done.stderr
    assert json.loads((path / "metrics.json").read_text())["update"] == [1, 2, 4]


def test_a_log_elsewhere_that_goes_on_beyond_metrics_json_is_read(tmp_path: Path) -> None:
    """The run was resumed and killed: its log is outside of the run, but begins like metrics.json."""
    outside = tmp_path / "logs" / "PPO_Sequential"
    path = write_run(tmp_path / "run", updates=60, log_dir=str(tmp_path / "logs"))
    outside.mkdir(parents=True)
    text = log_of(path).read_bytes()
    last = json.loads(text.splitlines()[-1])
    more = as_line({**last, "update": 61, "step": last["step"] + 4096, "time": last["time"] + 1})
    (outside / "metrics.jsonl").write_bytes(text + more)
    assert len(load_run(path).history) == 61


def test_the_same_steps_trained_again_are_read_from_the_log(tmp_path: Path) -> None:
    """Resumed from an older checkpoint and killed at the step where it had ended before."""
    path = write_run(tmp_path / "run", updates=60)
    lines = log_of(path).read_bytes().splitlines(keepends=True)
    again = {**json.loads(lines[-1]), "time": json.loads(lines[-1])["time"] + 100}
    log_of(path).write_bytes(b"".join([*lines[:-1], as_line(again)]))
    assert load_run(path).history.time[-1] == again["time"]


def test_a_log_that_is_a_folder_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "run"
    assert rlcb("train", "ppo", *CARTPOLE, "--total-timesteps", "256", "--output-dir", path).returncode == 0
    log = log_of(path)
    log.unlink()
    log.mkdir()
    rlcb("train", "--resume", path, "--total-timesteps", "512").assert_one_line_error(5, str(log), "a directory")
    assert os.path.isdir(log)
