"""Commands run inside the test process, where torch is loaded already: the same code, a second instead of five."""

import contextlib
import gc
import io
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from helpers.processes import ROOT, Finished, with_all_lines
from rlcb.cli import main


@contextlib.contextmanager
def preserved() -> Iterator[None]:
    """Leave signals, environment and threads as they were."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    environment, threads = dict(os.environ), torch.get_num_threads()
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        os.environ.clear()
        os.environ.update(environment)
        torch.set_num_threads(threads)
        # Training leaves its games to the garbage collector, and one that is collected while another is being made
        # waits forever for a lock of cffi's.
        gc.collect()


def command(*arguments: str | Path) -> int:
    """`rlcb …` in this process; leaves signals, environment and threads as they were."""
    with preserved():
        try:
            return main(with_all_lines(*arguments))
        except SystemExit as stop:
            return int(stop.code or 0)


def rlcb_here(*arguments: str | Path, folder: Path = ROOT) -> Finished:
    """`rlcb …` in this process and in a folder, with what it printed."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.chdir(folder), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = command(*arguments)
    return Finished(arguments, code, out.getvalue(), err.getvalue())


def evaluate(capsys: pytest.CaptureFixture[str], checkpoint: Path | None, *arguments: str | Path) -> Finished:
    """`rlcb evaluate …` in this process, with what it printed."""
    where = () if checkpoint is None else ("--checkpoint", checkpoint)
    capsys.readouterr()
    code = command("evaluate", *where, "--num-threads", "1", *arguments)
    out, err = capsys.readouterr()
    return Finished(arguments, code, out, err)


def train(path: Path, *arguments: str) -> Path:
    """A finished run of PPO in `path`."""
    assert command("train", "ppo", *arguments, "--tensorboard", "false", "--output-dir", path) == 0
    return path


def final(run: Path) -> Path:
    """The checkpoint a run ended with."""
    return run / "checkpoints" / "ppo_sequential_final.pt"


def results(checkpoint: Path) -> Path:
    """Where the evaluations of a checkpoint are written."""
    return checkpoint.with_name(f"{checkpoint.stem}_evaluation.json")
