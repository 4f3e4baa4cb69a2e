"""`rlcb compare --watch` beside runs under way: a page that is current, whole at any moment, and final in the end."""

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from helpers.processes import CARTPOLE, ROOT, rlcb, wait_for_line
from helpers.run_directories import write_run
from rlcb.files import take_lock
from rlcb.report.watch import look_at

Start = Callable[..., subprocess.Popen[str]]
ENDLESS = ("--total-timesteps", "1000000000", "--tensorboard", "false", "--log-interval", "1")
EVERYTHING = {"report.html", "report.md", "runs.csv", "comparison.json", "comparison.csv", "comparison_report.txt"}


@pytest.fixture(autouse=True)
def _in_the_repository(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the usual config files are."""
    monkeypatch.chdir(ROOT)


def unfinished(path: Path, seed: int = 1) -> int:
    """A run that this process seems to train; returns the descriptor of its lock."""
    write_run(path, seed=seed)
    for name in ("benchmark_metrics.json", "training_summary.json", "metrics.json"):
        (path / name).unlink(missing_ok=True)
    descriptor, _ = take_lock(path / ".lock")
    assert descriptor is not None
    return descriptor


def wait_until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not true():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)


def finished(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Exit code and the rest of the output."""
    output, _ = process.communicate(timeout=120)
    return process.returncode, output


def test_beside_a_real_run_until_it_is_over(tmp_path: Path, start: Start) -> None:
    (tmp_path / "runs").mkdir()
    out = tmp_path / "out"
    watching = start("compare", tmp_path / "runs", "--output", out, "--watch", "0.2")
    assert "0 of 0 runs finished: no results yet" in wait_for_line(watching, "finished")
    training = start("train", "ppo", *CARTPOLE, *ENDLESS, "--output-dir", tmp_path / "runs" / "one")
    wait_for_line(watching, "report.html")
    page = (out / "report.html").read_text()
    assert 'data-refresh="0.2"' in page
    assert re.search(r"0 of 1 run finished, 1 running.*not judged", page)
    assert "still running (pid" in page
    assert "Runs in progress" in page
    seen = os.stat(out / "report.html").st_mtime_ns
    wait_until(lambda: os.stat(out / "report.html").st_mtime_ns != seen)
    assert {path.name for path in out.iterdir() if not path.name.startswith(".")} == {"report.html"}
    training.send_signal(signal.SIGINT)
    assert training.wait(120) == 130
    code, output = finished(watching)
    assert code == 0
    assert f"Report: {out / 'report.html'}" in output
    page = (out / "report.html").read_text()
    assert "data-refresh" not in page.split("<script>")[0]
    assert "interrupted at step" in page
    assert {path.name for path in out.iterdir()} > EVERYTHING


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_with_a_page_that_does_not_update_itself(tmp_path: Path, start: Start, number: int) -> None:
    descriptor = unfinished(tmp_path / "runs" / "one")
    try:
        watching = start("compare", tmp_path / "runs", "--output", tmp_path / "out", "--watch", "0.2")
        wait_for_line(watching, "0 of 1 run finished, 1 running")
        watching.send_signal(number)
        code, output = finished(watching)
    finally:
        os.close(descriptor)
    assert code == 128 + number
    assert "Report: " in output
    page = (tmp_path / "out" / "report.html").read_text()
    assert "data-refresh" not in page.split("<script>")[0]
    assert "still running (pid" in page


def test_runs_that_begin_and_die_are_noticed(tmp_path: Path, start: Start) -> None:
    first, out = unfinished(tmp_path / "runs" / "one"), tmp_path / "out"
    try:
        watching = start("compare", tmp_path / "runs", "--output", out, "--watch", "0.2")
        wait_for_line(watching, "0 of 1 run finished, 1 running")
        page = os.stat(out / "report.html")
        second = unfinished(tmp_path / "runs" / "two", seed=2)
        wait_for_line(watching, "0 of 2 runs finished, 2 running")
        assert os.stat(out / "report.html").st_ino != page.st_ino  # replaced as a whole, not written into
        os.close(second)  # nothing but the end of the process that had it open
        assert "1 dead" in wait_for_line(watching, "1 running")
    finally:
        os.close(first)
    code, output = finished(watching)
    assert code == 0
    assert "Report: " in output


def test_nothing_is_written_unless_something_has_changed(tmp_path: Path) -> None:
    descriptor = unfinished(tmp_path / "one")
    try:
        looks = [look_at([tmp_path]) for _ in range(2)]
        assert looks[0].under_way
        assert looks[0].traces == looks[1].traces
        (log,) = (tmp_path / "one" / "logs").glob("*/metrics.jsonl")
        with log.open("a") as file:
            file.write('{"step": 1')  # the beginning of a line
        assert look_at([tmp_path]).traces != looks[0].traces
    finally:
        os.close(descriptor)
    assert not look_at([tmp_path]).under_way


def test_runs_that_are_all_done_are_compared_at_once(tmp_path: Path) -> None:
    write_run(tmp_path / "runs" / "one")
    done = rlcb("compare", tmp_path / "runs", "--output", tmp_path / "out", "--watch")
    assert (done.returncode, done.stderr) == (0, "")
    assert {path.name for path in (tmp_path / "out").iterdir()} > EVERYTHING


def test_what_cannot_be_watched(tmp_path: Path) -> None:
    done = rlcb("compare", tmp_path / "nothing", "--watch")
    done.assert_one_line_error(2, "nothing: no such directory")
    done = rlcb("compare", tmp_path, "--watch", "0")
    done.assert_one_line_error(2, "--watch", "'0' is not a number above 0 up to 86400")
