"""Output that goes nowhere: closed streams, full devices, readers that leave or stop reading, terminals that end."""

import fcntl
import json
import os
import pty
import signal
import subprocess
import sys
import termios
import textwrap
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest

from helpers.fault_runs import ended, summary
from helpers.processes import (
    CARTPOLE,
    EVERY_LINE,
    ROOT,
    TINY_ROLLOUT,
    Finished,
    descendants,
    python,
    rlcb,
    wait_for_line,
)
from rlcb.run.checkpoint import load_checkpoint, load_newest

Start = Callable[..., subprocess.Popen[str]]
ENDLESS = ("--total-timesteps", "1000000000")
SHORT = ("--total-timesteps", "2048")
EVERYWHERE_CLOSED = {0: "closed", 1: "closed", 2: "closed"}
SUITE = ("--modes", "sequential", "--seeds", "1", "--games", "CartPole-v1",
         "--num-envs", "8", "--n-steps", "32", "--batch-size", "128")  # fmt: skip
IN_PARALLEL = ("--mode", "parallel", "--num-workers", "2")
MODES = {
    "ppo": ("ppo", *CARTPOLE),
    "ppo parallel": ("ppo", *IN_PARALLEL, *CARTPOLE, "--num-envs", "4"),
    "a2c parallel": ("a2c", *IN_PARALLEL, "--env", "CartPole-v1", "--num-envs", "4", "--n-steps", "32"),
    "impala parallel": ("impala", *IN_PARALLEL, "--env", "CartPole-v1", "--num-envs", "4", "--n-steps", "32"),
    "a3c": ("a3c", *IN_PARALLEL, "--env", "CartPole-v1", "--num-envs", "4", "--n-steps", "32"),
}


def lead(descriptor: int, where: str) -> None:
    """In a process that is being started: have a standard stream lead there."""
    if where == "closed":
        os.close(descriptor)
    elif where == "full":
        os.dup2(os.open("/dev/full", os.O_WRONLY), descriptor)
    else:
        reading, writing = os.pipe()
        os.close(reading)
        os.dup2(writing, descriptor)


def python_with(streams: Mapping[int, str], *arguments: str | Path, timeout: float = 300) -> Finished:
    """A new interpreter whose standard streams are closed, lead to a full device or to a pipe without a reader."""
    done = subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout, check=False,
        preexec_fn=lambda: [lead(descriptor, where) for descriptor, where in streams.items()],
    )  # fmt: skip
    return Finished(done.args, done.returncode, done.stdout, done.stderr)


def rlcb_with(streams: Mapping[int, str], *arguments: str | Path) -> Finished:
    """`rlcb …` with such streams; only where some are closed must the interpreter be a new one, as it looks at them."""
    if "closed" in streams.values():
        return python_with(streams, "-m", "rlcb", *arguments)
    program = textwrap.dedent(f"""
        import sys
        sys.path.insert(0, {str(ROOT / "tests" / "faults")!r})
        from test_output_faults import lead
        from rlcb.cli import main
        for descriptor, where in {dict(streams)!r}.items():
            lead(descriptor, where)
        sys.exit(main(sys.argv[1:]))
    """)
    return python("-c", program, *map(str, arguments))


def assert_silent(done: Finished, code: int) -> None:
    """The exit code, and not a word about the output."""
    assert done.returncode == code, done.stdout + done.stderr
    for word in ("Traceback", "Error", "Exception", "Errno"):
        assert word not in done.stdout + done.stderr, done.stdout + done.stderr


def assert_complete(path: Path, status: str = "finished") -> None:
    """A run of which everything is there: final checkpoint, summaries, every line of its log."""
    (final,) = (path / "checkpoints").glob("*_final.pt")
    assert load_checkpoint(final)["meta"]["env_steps"] == 2048
    assert summary(path)["status"] == status
    (log,) = path.glob("logs/*/metrics.jsonl")
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert [line["update"] for line in lines] == list(range(1, len(lines) + 1))
    assert lines[-1]["step"] == 2048


# Training


@pytest.mark.parametrize(
    ("mode", "streams"),
    [
        ("ppo", {1: "broken"}),
        ("ppo", {1: "full"}),
        ("ppo", {2: "closed"}),
        ("ppo", EVERYWHERE_CLOSED),
        ("ppo parallel", {1: "broken", 2: "broken"}),
        ("a2c parallel", {2: "full"}),
        ("impala parallel", {1: "full", 2: "full"}),
        ("a3c", EVERYWHERE_CLOSED),
    ],
)
def test_training_does_not_depend_on_where_its_output_goes(mode: str, streams: dict[int, str], tmp_path: Path) -> None:
    path = tmp_path / "run"
    done = rlcb_with(streams, "train", *MODES[mode], *SHORT, "--log-interval", "1", *EVERY_LINE, "--output-dir", path)
    assert_silent(done, 0)
    assert_complete(path)
    if not {1, 2} & set(streams):
        assert "TRAINING SUMMARY" in done.stdout


@pytest.mark.cluster
@pytest.mark.parametrize("where", ["closed", "broken"])
def test_nor_does_training_on_a_cluster(where: str, tmp_path: Path) -> None:
    pytest.importorskip("ray")
    path = tmp_path / "run"
    arguments = (*MODES["ppo parallel"], "--cluster", "local", *SHORT, "--output-dir", path)
    assert_silent(rlcb_with({1: where, 2: where}, "train", *arguments), 0)
    assert_complete(path)


def test_the_scripts_do_not_depend_on_it_either(tmp_path: Path) -> None:
    path = tmp_path / "run"
    flags = ("--env", "CartPole-v1", "--num-envs", "8", "--n-steps", "32", "--batch-size", "128", "--num-threads", "1")
    arguments = ("train_ppo_sequential.py", *flags, *SHORT, "--output-dir", path)
    assert_silent(python_with({1: "full"}, *arguments), 0)
    assert_complete(path)
    timed = ("train_timed.py", "--duration", "0.0005", *flags, "--output-dir", tmp_path / "timed")
    assert_silent(python_with(EVERYWHERE_CLOSED, *timed), 0)
    assert summary(tmp_path / "timed")["status"] == "finished"


def test_errors_have_their_exit_codes_without_anybody_to_tell(tmp_path: Path) -> None:
    for streams in ({2: "full"}, {2: "closed"}, EVERYWHERE_CLOSED):
        assert_silent(rlcb_with(streams, "train", "ppo", "--num-envs", "none"), 2)
        assert_silent(rlcb_with(streams, "train", "--resume", tmp_path), 5)


def test_what_is_opened_next_does_not_become_standard_output(tmp_path: Path) -> None:
    """Number 1 is free when standard output is closed: what a library prints must not end up in a file of the run."""
    program = "import os, sys; from rlcb.cli import main; main(sys.argv[1:]); [os.write(n, b'noise') for n in (1, 2)]"
    path = tmp_path / "run"
    done = python_with(EVERYWHERE_CLOSED, "-c", program, "train", *MODES["ppo"], *SHORT, "--output-dir", path)
    assert_silent(done, 0)
    assert_complete(path)
    assert not [file for file in path.rglob("*") if file.is_file() and b"noise" in file.read_bytes()]


def test_a_reader_that_stops_reading_holds_training_up_for_seconds_only(tmp_path: Path) -> None:
    path = tmp_path / "run"
    reading, writing = os.pipe()
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 8192)  # less than the run prints
    steps = str(200 * TINY_ROLLOUT)
    process = subprocess.Popen(
        [sys.executable, "-m", "rlcb", "train", "ppo", *CARTPOLE, "--total-timesteps", steps, "--log-interval", "1",
         *EVERY_LINE, "--output-dir", str(path)],
        cwd=ROOT, stdout=writing, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    os.close(writing)
    _, err = process.communicate(timeout=200)
    assert process.returncode == 0, err
    assert "Traceback" not in err
    with os.fdopen(reading, "rb") as pipe:
        assert b"Update 1 |" in pipe.read()  # it has what there was room for
    assert summary(path)["total_updates"] == 200


# Other commands


def test_a_suite_and_its_runs_do_not_depend_on_it(tmp_path: Path) -> None:
    output = tmp_path / "suite"
    arguments = (*SUITE, "--total-timesteps", "256", "--eval-episodes", "2", "--output-dir", output)
    done = rlcb_with({1: "broken", 2: "full"}, "benchmark", *arguments)
    assert_silent(done, 0)
    assert (output / "report" / "report.html").is_file()
    for log in output.rglob("*.log"):
        assert "Traceback" not in log.read_text()


@pytest.mark.parametrize("streams", [{1: "full"}, EVERYWHERE_CLOSED])
def test_an_evaluation_is_written_without_anybody_to_print_it_to(copy: Path, streams: dict[int, str]) -> None:
    arguments = ("evaluate", "--checkpoint", copy, "--num-episodes", "2", "--num-threads", "1")
    assert_silent(rlcb_with(streams, *arguments), 0)
    (file,) = (copy / "checkpoints").glob("*_evaluation.json")
    assert json.loads(file.read_text())["evaluations"][0]["complete"]


@pytest.mark.parametrize("command", ["compare", "compare_results.py", "doctor", "quick_test.py", "--help", "--version"])
def test_a_command_whose_result_is_its_output_ends_as_usual_without_a_reader(
    command: str, cartpole: Path, tmp_path: Path
) -> None:
    arguments: dict[str, tuple[str | Path, ...]] = {
        "compare": ("-m", "rlcb", "compare", cartpole, "--output", tmp_path),
        "compare_results.py": ("compare_results.py", "--sequential", cartpole, "--output", tmp_path / "picture.png"),
        "quick_test.py": ("quick_test.py",),
    }
    words = arguments.get(command, ("-m", "rlcb", command))
    done = python_with({1: "broken"}, *words)
    assert (done.returncode, done.stderr) == (128 + signal.SIGPIPE, "")
    python_with({1: "full"}, *words).assert_one_line_error(6, "standard output", "No space left")
    done = python_with({1: "closed"}, *words)
    assert (done.returncode, done.stderr) == (0, "")


# Terminals


@pytest.mark.parametrize("mode", MODES)
def test_a_hang_up_saves_and_ends_with_129(mode: str, start: Start, tmp_path: Path) -> None:
    path = tmp_path / "run"
    process = start("train", *MODES[mode], *ENDLESS, "--log-interval", "1", "--output-dir", path)
    wait_for_line(process, "Update 2 |")
    for _ in range(2):  # shell and kernel may both send one
        os.kill(process.pid, signal.SIGHUP)
    out, _ = ended(process, 129)
    assert f"Resume with: rlcb train --resume {path}" in out
    assert descendants(process.pid) == []
    found = summary(path)
    assert found["status"] == "interrupted"
    _, content = load_newest(path / "checkpoints", mode.split(maxsplit=1)[0], pytest.fail)
    assert content["meta"]["env_steps"] == found["total_timesteps"]


def test_a_hang_up_that_is_ignored_stays_ignored(tmp_path: Path) -> None:
    """As nohup leaves it."""
    path = tmp_path / "run"
    process = subprocess.Popen(
        [sys.executable, "-m", "rlcb", "train", "ppo", *CARTPOLE, *SHORT, "--log-interval", "1",
         "--output-dir", str(path)],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN),  # noqa: PLW1509
    )  # fmt: skip
    wait_for_line(process, "Output:")
    process.send_signal(signal.SIGHUP)
    ended(process, 0)
    assert_complete(path)


def test_a_suite_hangs_up_its_run(start: Start, tmp_path: Path) -> None:
    process = start("benchmark", *SUITE, *ENDLESS, "--output-dir", tmp_path)
    wait_for_line(process, "started, output in")
    os.kill(process.pid, signal.SIGHUP)
    out, _ = ended(process, 129)
    assert "Resume with: rlcb benchmark" in out
    assert descendants(process.pid) == []


class Terminal:
    """A terminal with a program in it, which can be closed."""

    def __init__(self, path: Path, controlling: bool, *arguments: str):
        self._master, slave = pty.openpty()

        def take() -> None:
            if controlling:
                fcntl.ioctl(slave, termios.TIOCSCTTY, 0)

        self.process = subprocess.Popen(
            [sys.executable, "-m", "rlcb", "train", "ppo", *CARTPOLE, *arguments, "--output-dir", str(path)],
            cwd=ROOT, stdin=slave, stdout=slave, stderr=slave, start_new_session=True, preexec_fn=take,  # noqa: PLW1509
        )  # fmt: skip
        os.close(slave)

    def read_until(self, words: bytes) -> None:
        """Show what is printed, up to these words."""
        shown = b""
        while words not in shown:
            shown += os.read(self._master, 65536)

    def close(self) -> None:
        """Hang up."""
        os.close(self._master)


@pytest.fixture
def terminal() -> Iterator[Callable[..., Terminal]]:
    opened: list[Terminal] = []

    def make(*arguments: Any) -> Terminal:
        opened.append(Terminal(*arguments))
        return opened[-1]

    yield make
    for one in opened:
        one.process.kill()
        one.process.wait()


def test_a_terminal_that_is_closed_hangs_up_its_program(terminal: Callable[..., Terminal], tmp_path: Path) -> None:
    path = tmp_path / "run"
    window = terminal(path, True, *ENDLESS, "--log-interval", "1")
    window.read_until(b"Update 2 |")
    window.close()
    assert window.process.wait(timeout=100) == 129
    assert summary(path)["status"] == "interrupted"
    assert rlcb("train", "--resume", path, "--total-timesteps", "256").returncode == 0


def test_a_program_that_does_not_belong_to_the_terminal_outlives_it(
    terminal: Callable[..., Terminal], tmp_path: Path
) -> None:
    path = tmp_path / "run"
    window = terminal(path, False, *SHORT, "--log-interval", "1")
    window.read_until(b"Output:")
    window.close()
    assert window.process.wait(timeout=100) == 0
    assert_complete(path)


def test_a_terminal_that_is_not_read_holds_training_up_for_seconds_only(
    terminal: Callable[..., Terminal], tmp_path: Path
) -> None:
    """Ctrl-S, or a connection that is gone without a word: the bar and the lines alone fill the terminal's buffer."""
    path = tmp_path / "run"
    window = terminal(path, False, "--total-timesteps", str(200 * TINY_ROLLOUT), "--log-interval", "1")
    assert window.process.wait(timeout=200) == 0
    assert summary(path)["total_updates"] == 200
    window.close()


# Before there is anything to save


def in_session(process: psutil.Process, leader: int) -> bool:
    """Whether a process belongs to the session of another one, which may be gone."""
    try:
        return os.getsid(process.pid) == leader
    except ProcessLookupError:
        return False


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_first_signal_ends_a_program_that_has_not_begun_to_train(number: int, start: Start, tmp_path: Path) -> None:
    path, config = tmp_path / "tuned.yaml", tmp_path / "cartpole.yaml"
    config.write_text("env: {name: CartPole-v1}\n")
    process = start("tune", "ppo", "--config", config, "--output", path, fresh=True)
    wait_for_line(process, "Measuring on ")
    process.send_signal(number)
    _, err = ended(process, 128 + number)
    assert err == ""
    assert not path.exists()
    _, alive = psutil.wait_procs([one for one in psutil.process_iter() if in_session(one, process.pid)], timeout=60)
    assert alive == []


def test_ctrl_c_ends_commands_that_save_nothing(start: Start) -> None:
    process = start("doctor")
    wait_for_line(process, "Python")
    process.send_signal(signal.SIGINT)
    _, err = ended(process, 130)
    assert err == ""
