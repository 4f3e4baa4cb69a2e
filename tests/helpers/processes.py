"""Real processes for the tests: commands that are run, started, waited for."""

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import psutil

from helpers.forked import ForkedProcess

ROOT = Path(__file__).resolve().parents[2]
HELPERS = Path(__file__).resolve().parent  # where the programs are that tests start
# Small enough for a test, whole enough to be the real thing. The learning rate is constant, so an extended run
# equals one that was as long from the start.
TINY = ("--num-envs", "8", "--n-steps", "32", "--batch-size", "128", "--n-epochs", "1", "--num-threads", "1",
        "--lr-schedule", "constant")  # fmt: skip
CARTPOLE = ("--env", "CartPole-v1", *TINY)
TINY_ROLLOUT = 8 * 32
EVERY_LINE = ("--log-every-seconds", "0")
SHORT_CARTPOLE = ("--env", "CartPole-v1", "--n-steps", "32", "--num-threads", "1", "--tensorboard", "false",
                  "--lr-schedule", "constant")  # fmt: skip


class Finished(subprocess.CompletedProcess[str]):
    """A command that ended; knows whether it kept its manners."""

    def assert_one_line_error(self, code: int, *words: str) -> None:
        """The exit code, a single line on stderr that holds every word, and no traceback."""
        lines = [line for line in self.stderr.splitlines() if not line.startswith(("note:", "warning:"))]
        assert self.returncode == code, self.stdout + self.stderr
        assert len(lines) == 1, self.stderr
        assert "Traceback" not in self.stderr
        for word in words:
            assert word in lines[0], lines[0]


def rlcb(*arguments: str | Path, timeout: float = 300, env: dict[str, str] | None = None) -> Finished:
    """Run `rlcb …` in the repository root and wait for it."""
    return python("-m", "rlcb", *with_all_lines(*arguments), timeout=timeout, env=env)


def with_all_lines(*arguments: str | Path) -> list[str]:
    """The arguments of `rlcb`; a training prints a line for every update, which tests wait for and count."""
    words = [str(argument) for argument in arguments]
    wanted = words[:1] == ["train"] and len(words) > 1 and not {EVERY_LINE[0], "--help"}.intersection(words)
    return [*words, *EVERY_LINE] if wanted else words


def python(*arguments: str, timeout: float = 300, env: dict[str, str] | None = None, cwd: Path = ROOT) -> Finished:
    """Run `python …` as a fork of a process that has torch imported; as a new interpreter if `env` wants that."""
    if env and "PYTHONPATH" in env:
        return run([sys.executable, *arguments], timeout, env, cwd)
    process = ForkedProcess(arguments, cwd, {**os.environ, **(env or {})})
    try:
        out, err = process.communicate(timeout=timeout)
    finally:
        process.kill()
    return Finished(process.args, process.returncode, out, err)


def run(command: Sequence[str], timeout: float = 300, env: dict[str, str] | None = None, cwd: Path = ROOT) -> Finished:
    """Run any program, started as a user would, and wait for it."""
    done = subprocess.run(
        command,
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout,
        env={**os.environ, **(env or {})},
        check=False,
    )
    return Finished(done.args, done.returncode, done.stdout, done.stderr)


def start_rlcb(*arguments: str | Path, fresh: bool = False) -> subprocess.Popen[str]:
    """Start `rlcb …` in the repository root, in a session of its own; `fresh`: as a new interpreter."""
    command = ["-m", "rlcb", *with_all_lines(*arguments)]
    if not fresh:
        return ForkedProcess(command, ROOT, os.environ, start_new_session=True)
    return subprocess.Popen(
        [sys.executable, *command],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip


def wait_for_line(process: subprocess.Popen[str], words: str) -> str:
    """Read a process's standard output up to the line that holds these words."""
    assert process.stdout is not None
    for line in process.stdout:
        if words in line:
            return line
    raise AssertionError(f"the process ended before it printed {words!r}: {process.stderr and process.stderr.read()}")


def wait_for_file(path: Path) -> None:
    """Wait until a file is there."""
    deadline = time.monotonic() + 60
    while not path.exists() and time.monotonic() < deadline:
        time.sleep(0.1)


def descendants(pid: int) -> list[psutil.Process]:
    """What a process has left running."""
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def weights(path: Path) -> dict[str, object]:
    """The named weights in a checkpoint, as bytes."""
    import torch

    content = torch.load(path, weights_only=True)
    return {name: tensor.numpy().tobytes() for name, tensor in content["policy"].items()}
