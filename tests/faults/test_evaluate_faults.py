"""Evaluations broken off, damaged and hostile checkpoints, results that cannot be written."""

import json
import os
import pickle
import resource
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from helpers.in_process import evaluate, final, results
from helpers.processes import wait_for_file, wait_for_line

pytestmark = pytest.mark.xdist_group("evaluate faults")

Start = Callable[..., subprocess.Popen[str]]
Capsys = pytest.CaptureFixture[str]
FEW = ("--num-episodes", "2", "--num-threads", "1")


def test_damaged_missing_and_foreign_files_are_refused(copy: Path, tmp_path: Path, capsys: Capsys) -> None:
    evaluate(capsys, tmp_path / "nowhere.pt").assert_one_line_error(5, "nowhere.pt", "no such file")
    data = bytearray(final(copy).read_bytes())
    data[len(data) // 2] ^= 1
    final(copy).write_bytes(bytes(data))
    evaluate(capsys, final(copy)).assert_one_line_error(5, "ppo_sequential_final.pt", "SHA-256")
    canary = tmp_path / "canary"
    hostile = tmp_path / "hostile.pt"
    hostile.write_bytes(pickle.dumps(_Hostile(str(canary))))
    evaluate(capsys, hostile).assert_one_line_error(5, "hostile.pt", "not a checkpoint")
    assert not canary.exists()
    for path in (copy / "checkpoints").glob("*.pt"):
        path.write_bytes(path.read_bytes()[:-1])
    evaluate(capsys, copy).assert_one_line_error(5, "none of the 3 checkpoints")


class _Hostile:
    def __init__(self, path: str):
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (Path(self.path),)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_keeps_what_was_played(start: Start, copy: Path, number: int, code: int) -> None:
    process = start("evaluate", "--checkpoint", final(copy), "--num-episodes", "20000", "--num-threads", "1")
    wait_for_line(process, "Evaluating: ")
    os.kill(process.pid, number)
    out, err = process.communicate(timeout=60)
    assert process.returncode == code, err
    assert "Traceback" not in out + err
    assert "of 20000 (stopped early" in out
    assert f"Interrupted. Results saved to: {results(final(copy))}" in out
    (entry,) = json.loads(results(final(copy)).read_text())["evaluations"]
    assert not entry["complete"]
    assert 2000 <= entry["episodes"] == len(entry["rewards"]) < 20000


def test_sigkill_keeps_what_was_written_last(start: Start, copy: Path) -> None:
    process = start("evaluate", "--checkpoint", final(copy), "--num-episodes", "1000000", "--num-threads", "1")
    wait_for_file(results(final(copy)))
    process.kill()
    process.communicate()
    (entry,) = json.loads(results(final(copy)).read_text())["evaluations"]
    assert not entry["complete"]
    assert 0 < entry["episodes"] == len(entry["lengths"]) < 1000000


def test_results_that_cannot_be_written_are_printed_all_the_same(copy: Path, tmp_path: Path, capsys: Capsys) -> None:
    """A limit on the size of files stands for a disk without room, which root would not be refused."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))
    try:
        done = evaluate(capsys, final(copy), *FEW)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    done.assert_one_line_error(6, "_evaluation.json", "--output FILE")
    assert "Mean Reward: " in done.stdout
    assert not results(final(copy)).exists()
    assert not list((copy / "checkpoints").glob(".*"))
    evaluate(capsys, final(copy), "--output", "/proc/results.json").assert_one_line_error(6, "--output /proc")
