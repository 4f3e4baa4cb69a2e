"""What a run or suite is said to be doing, from files: every state, and files that are damaged, huge or hostile."""

import json
import os
import shutil
import socket
import threading
import time
from collections import Counter
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rich.console import Console

from helpers.in_process import rlcb_here
from helpers.mutations import wrong_values
from helpers.run_directories import add_event, log_of, write_run
from rlcb.analysis.run_status import STATES, RunStatus, run_status
from rlcb.analysis.status import Snapshot, look
from rlcb.analysis.suites import SuiteRun
from rlcb.config.registry import Kind
from rlcb.errors import UsageError
from rlcb.files import take_lock
from rlcb.report.status import _drawn, show_status
from rlcb.words import short_time

NOW = 2_000_000_000.0  # later than any file


def forget_the_end(path: Path) -> None:
    for name in ("benchmark_metrics.json", "training_summary.json", "metrics.json"):
        (path / name).unlink()


def age(path: Path, seconds: float) -> None:
    """Have all files of a run changed so many seconds before NOW."""
    for file in (path, *path.rglob("*")):
        os.utime(file, (NOW - seconds, NOW - seconds))


def test_a_finished_run(tmp_path: Path) -> None:
    path = write_run(tmp_path / "run", mode="parallel", workers=4, seed=7, name="starpilot")
    found = run_status(path, NOW)
    assert (found.algorithm, found.mode, found.game, found.seed) == ("ppo", "parallel", "starpilot", 7)
    assert (found.state, found.fraction, found.eta_seconds, found.step) == ("finished", 1.0, None, 60 * 4096)
    assert found.fps == pytest.approx(1000, rel=0.03)
    assert found.reward == pytest.approx(8, abs=0.5)


def test_how_a_run_ended(tmp_path: Path) -> None:
    path = write_run(tmp_path / "run", updates=30, total_timesteps=60 * 4096)
    forget_the_end(path)
    found = run_status(path, NOW)
    assert (found.state, found.detail) == ("dead", "ended at step 122,880 without recording a reason")
    assert found.fraction == pytest.approx(0.5)
    add_event(path, "interrupted", signal=2, env_steps=122880)
    assert (run_status(path, NOW).state, run_status(path, NOW).detail) == ("interrupted", "at step 122,880")
    add_event(path, "resumed", checkpoint="x.pt", env_steps=122880)
    assert run_status(path, NOW).state == "dead"
    add_event(path, "failed", reason="worker 3 died too often\nsecond line", exit_code=4)
    assert (run_status(path, NOW).state, run_status(path, NOW).detail) == ("failed", "worker 3 died too often")


def test_a_run_that_diverged(tmp_path: Path) -> None:
    path = write_run(tmp_path / "run", status="diverged")
    assert (run_status(path, NOW).state, run_status(path, NOW).detail) == ("failed", "diverged at step 245,760")


def test_a_finished_run_that_was_resumed_for_more_steps(tmp_path: Path) -> None:
    path = write_run(tmp_path / "run")
    text = (path / "config.yaml").read_text().replace(f"total_timesteps: {60 * 4096}", f"total_timesteps: {80 * 4096}")
    (path / "config.yaml").write_text(text)
    add_event(path, "resumed", checkpoint="x.pt", env_steps=60 * 4096)  # half an hour before the end
    assert run_status(path, NOW).state == "finished"
    late = {"time": "2026-05-04T12:00:00+0000", "event": "resumed"}
    with (path / "events.jsonl").open("a") as file:
        file.write(json.dumps(late) + "\n")
    descriptor, _ = take_lock(path / ".lock")
    assert descriptor is not None
    found = run_status(path, NOW)
    os.close(descriptor)
    assert (found.state, found.fraction) == ("running", pytest.approx(0.75))


def test_progress_by_steps_and_by_time(tmp_path: Path) -> None:
    steps = write_run(tmp_path / "steps", updates=30, fps=1000.0, total_timesteps=60 * 4096)
    hours = write_run(tmp_path / "hours", updates=30, fps=1000.0, duration_hours=0.1)
    for path in (steps, hours):
        forget_the_end(path)
        descriptor, _ = take_lock(path / ".lock")
        assert descriptor is not None
        found = run_status(path, time.time())
        os.close(descriptor)
        assert found.state == "running"
        assert found.seconds == pytest.approx(30 * 4.096, rel=0.03)
        left = 30 * 4.096 if path == steps else 360 - 30 * 4.096
        assert found.eta_seconds == pytest.approx(left, rel=0.05)
        assert found.fraction == pytest.approx(0.5 if path == steps else 30 * 4.096 / 360, rel=0.03)


def test_a_run_without_updates_for_long_says_so(tmp_path: Path) -> None:
    path = write_run(tmp_path / "run")
    forget_the_end(path)
    add_event(path, "regrouped", workers_before=4, workers=3)
    add_event(path, "worker_lost", worker="worker 2", how="killed by signal 9", restarts=1)
    age(path, 720)
    descriptor, _ = take_lock(path / ".lock")
    assert descriptor is not None
    found = run_status(path, NOW)
    os.close(descriptor)
    assert (found.state, found.detail) == ("running", "no update for 12 min, worker 2 was lost; with 3 workers")
    assert run_status(path, NOW).state == "dead"  # nobody has the lock open any more


def test_a_run_of_another_machine_is_judged_by_its_news(tmp_path: Path) -> None:
    path = write_run(tmp_path / "run")
    forget_the_end(path)
    (path / ".lock").write_text("pid 12 on somewhere-else\n")
    age(path, 20)
    found = run_status(path, NOW)
    assert (found.state, found.detail) == ("running", "pid 12 on somewhere-else, last update 20 s ago")
    age(path, 720)
    found = run_status(path, NOW)
    assert (found.state, found.detail) == ("unknown", "pid 12 on somewhere-else: no update for 12 min")
    assert found.eta_seconds is None
    assert run_status(path, 0.0).news_age_seconds == 0.0  # a clock that is behind


def test_a_copy_of_a_running_run_is_not_running(tmp_path: Path) -> None:
    path = write_run(tmp_path / "run")
    forget_the_end(path)
    descriptor, _ = take_lock(path / ".lock")
    assert descriptor is not None
    copy = Path(shutil.copytree(path, tmp_path / "copy"))
    states = run_status(path, NOW).state, run_status(copy, NOW).state
    os.close(descriptor)
    assert states == ("running", "dead")


def test_looking_at_a_lock_never_keeps_a_run_from_taking_it(tmp_path: Path) -> None:
    path = write_run(tmp_path / "run")
    forget_the_end(path)
    over, looked = threading.Event(), 0

    def watch() -> None:
        nonlocal looked
        while not over.is_set():
            run_status(path, NOW)
            looked += 1

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        taken = 0
        while taken < 500 or looked < 50:
            descriptor, owner = take_lock(path / ".lock")
            assert descriptor is not None, owner
            (path / ".lock").unlink()
            os.close(descriptor)
            taken += 1
    finally:
        over.set()
        watcher.join()


def test_only_the_end_of_a_huge_log_is_read(tmp_path: Path) -> None:
    path = write_run(tmp_path / "run")
    log = log_of(path)
    lines = log.read_bytes()
    with log.open("wb") as file:
        file.truncate(8 * 2**30)  # a hole: it takes no room on the disk
        file.seek(0, os.SEEK_END)
        file.write(b"\n" + lines + b'{"update": 61, "step": 2499')  # and a line that is being written
    found = run_status(path, NOW)
    assert (found.state, found.step) == ("finished", 60 * 4096)


FILES = ("run.json", "config.yaml", "benchmark_metrics.json", "training_summary.json", "events.jsonl", ".lock",
         "logs/PPO_Sequential/metrics.jsonl", "checkpoints")  # fmt: skip
CONTENTS = (
    b"", b"\0" * 100, b"{", b"[]", b"null", b'"text"', b"\xff\xfe", b"[" * 100_000, b'{"a": ' * 50_000, b"9" * 10_000,
    b"pid 0 on vm\n", b"{}\n" * 10_000, b'{"status": "running", "algorithm": [], "total_timesteps": 1e400}',
)  # fmt: skip


@pytest.mark.parametrize("name", FILES)
def test_a_run_with_a_damaged_or_special_file_is_shown(name: str, tmp_path: Path) -> None:
    path, file = write_run(tmp_path / "folder" / "run"), tmp_path / "folder" / "run" / name
    add_event(path, "interrupted", signal=2)

    def assert_shown() -> None:
        (found,) = look(path.parent, NOW).runs
        assert found.run == "run"
        assert found.state in ("finished", "interrupted", "dead", "unknown", "running")
        assert all(letter.isprintable() for letter in found.detail)

    for content in CONTENTS:
        file.write_bytes(content)
        assert_shown()
    file.unlink()
    assert_shown()
    os.mkfifo(file)
    assert_shown()
    file.unlink()
    for target in (file, "/dev/zero", "/", "/proc/self/environ"):
        file.symlink_to(target)
        assert_shown()
        file.unlink()


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_run_with_a_wrong_value_is_shown(data: st.DataObject, tmp_path: Path) -> None:
    path = tmp_path / "run"
    if not path.exists():
        write_run(path, updates=3)
    name = data.draw(st.sampled_from(("run.json", "benchmark_metrics.json", "training_summary.json", "log", "events")))
    event = {"time": "2026-05-04T10:30:00+0000", "event": "failed", "reason": "why", "exit_code": 4}
    file = log_of(path) if name == "log" else path / ("events.jsonl" if name == "events" else name)
    before = file.read_bytes() if file.exists() else None
    value = (
        event if name == "events" else json.loads((before or b"").splitlines()[-1] if name == "log" else before or b"")
    )
    file.write_text(json.dumps(data.draw(wrong_values(value))) + "\n")
    found = run_status(path, NOW)
    assert found.state in STATES
    json.dumps(asdict(found), allow_nan=False)
    if before is None:
        file.unlink()
    else:
        file.write_bytes(before)


def make_suite(path: Path, *events: dict[str, object], **changes: object) -> Path:
    """A suite's directory without runs."""
    (path / "configs").mkdir(parents=True)
    plan = {"algorithms": ["ppo", "a3c"], "modes": ["sequential", "parallel"], "seeds": [2, 10], "games": ["coinrun"]}
    (path / "suite.yaml").write_text(json.dumps(plan | {"duration_hours": 0.1} | changes))
    (path / "suite_events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    return path


def planned(algorithm: str, mode: str, seed: int) -> SuiteRun:
    return SuiteRun(Kind(algorithm, mode), "coinrun", seed, Path("suite"))


def test_the_runs_of_a_suite_that_wait(tmp_path: Path) -> None:
    run, failed = planned("ppo", "sequential", 10), planned("a3c", "parallel", 2)
    events = (
        {"event": "run_failed", "run": run.name, "reason": "before the suite was started again"},
        {"event": "suite_started", "jobs": 2},
        {"event": "run_started", "run": failed.name},
        {"event": "run_failed", "run": failed.name, "reason": "exit code 2"},
        {"event": "run_started", "run": planned("ppo", "parallel", 2).name},
    )
    suite = make_suite(tmp_path / "suite", *events)
    write_run(suite / "coinrun" / "ppo_sequential" / "seed_2", seed=2)
    descriptor, _ = take_lock(suite / ".lock")
    assert descriptor is not None
    snapshot = look(tmp_path, NOW)
    os.close(descriptor)
    states = {found.run.removeprefix("suite/coinrun/"): (found.state, found.detail) for found in snapshot.runs}
    assert list(states.items()) == [
        ("a3c_parallel/seed_2", ("failed", "exit code 2")),
        ("a3c_parallel/seed_10", ("waiting", "")),
        ("ppo_parallel/seed_2", ("running", "starting")),
        ("ppo_parallel/seed_10", ("waiting", "")),
        ("ppo_sequential/seed_2", ("finished", "")),
        ("ppo_sequential/seed_10", ("waiting", "")),
    ]
    (totals,) = snapshot.suites
    assert (totals.suite, totals.state, totals.runs) == ("suite", "running", 6)
    assert (totals.done, totals.running, totals.waiting, totals.failed) == (1, 1, 3, 1)
    assert totals.eta_seconds == pytest.approx(4 * 360 / 2)
    (totals,) = look(tmp_path, NOW).suites  # its process is gone
    assert (totals.state, totals.eta_seconds) == ("dead", None)
    assert totals.detail == f"resume with: rlcb benchmark --output-dir {suite}"


def test_a_suite_counts_its_runs_as_their_rows_and_the_last_line_do(tmp_path: Path) -> None:
    suite = make_suite(tmp_path / "suite", {"event": "suite_started", "jobs": 1})
    for mode, event in (("sequential", "interrupted"), ("parallel", "")):
        run = write_run(suite / "coinrun" / f"ppo_{mode}" / "seed_2", seed=2, mode=mode)
        forget_the_end(run)
        if event:
            add_event(run, event)
    snapshot = look(tmp_path, NOW)
    (totals,) = snapshot.suites
    states = Counter(run.state for run in snapshot.runs)
    assert states == {"interrupted": 1, "dead": 1, "waiting": 4}
    assert {state: getattr(totals, state) for state in states} == states
    assert (totals.runs, totals.done, totals.running, totals.failed, totals.unknown) == (6, 0, 0, 0, 0)
    done = rlcb_here("status", tmp_path)
    suite_line, last = done.stdout.splitlines()[-2:]
    assert "0 of 6 runs done, 1 dead, 1 interrupted, 4 waiting, resume with: " in suite_line
    assert last.startswith("1 dead, 1 interrupted, 4 waiting in ")
    # Once the suite runs again, what it will resume waits.
    descriptor, _ = take_lock(suite / ".lock")
    assert descriptor is not None
    (totals,) = look(tmp_path, NOW).suites
    os.close(descriptor)
    assert (totals.waiting, totals.interrupted, totals.dead) == (6, 0, 0)
    assert totals.eta_seconds == pytest.approx(6 * 360)


def test_the_command_that_continues_a_suite_permits_its_modules(tmp_path: Path) -> None:
    own = {"imports": ["my_envs", "not a name"], "network": "my_networks:Wide"}
    suite = make_suite(tmp_path / "a suite", overrides=own)
    (totals,) = look(tmp_path, NOW).suites
    again = f"rlcb benchmark --output-dir '{suite}' --import my_envs --import my_networks"
    assert totals.detail == f"resume with: {again}"


def test_a_long_reason_is_whole_and_an_endless_one_is_visibly_cut(tmp_path: Path) -> None:
    path = write_run(tmp_path / "run", updates=30, total_timesteps=60 * 4096)
    forget_the_end(path)
    reason = f"failed in {'a/' * 200}; resume with: rlcb train --resume run"
    add_event(path, "failed", reason=reason, exit_code=7)
    assert run_status(path, NOW).detail == reason
    add_event(path, "failed", reason="x" * 5000, exit_code=7)
    assert run_status(path, NOW).detail == "x" * 999 + "…"


def test_a_run_moved_aside_for_one_that_its_suite_has_not_begun(tmp_path: Path) -> None:
    suite = make_suite(tmp_path / "suite", {"event": "suite_started", "jobs": 1})
    for name in ("seed_2", "seed_10.1", "seed_3.1"):  # the suite has no seed 3
        write_run(suite / "coinrun" / "ppo_sequential" / name, seed=2)
    found = look(tmp_path, NOW)
    folder = "suite/coinrun/ppo_sequential"
    assert [(run.run, run.replaced_by) for run in found.moved_aside] == [(f"{folder}/seed_10.1", f"{folder}/seed_10")]
    states = {run.run.removeprefix(f"{folder}/"): run.state for run in found.runs}
    assert (states["seed_2"], states["seed_3.1"], states["seed_10"]) == ("finished", "finished", "waiting")
    assert found.suites[0].done == 1


def test_a_suite_of_another_machine(tmp_path: Path) -> None:
    suite = make_suite(tmp_path, {"event": "suite_started", "jobs": 1})
    (suite / ".lock").write_text("pid 12 on somewhere-else\n")
    run = write_run(suite / "coinrun" / "ppo_sequential" / "seed_2", seed=2)
    forget_the_end(run)
    (run / ".lock").write_text("pid 13 on somewhere-else\n")
    age(run, 720)
    assert look(tmp_path, NOW).suites[0].state == "unknown"
    age(run, 5)
    assert look(tmp_path, NOW).suites[0].state == "running"


def test_a_plan_that_cannot_be_read_is_left_out(tmp_path: Path) -> None:
    write_run(tmp_path / "run")
    make_suite(tmp_path / "huge", seeds=list(range(1000)), games=["coinrun"] * 1000)
    make_suite(tmp_path / "wrong", seeds=[[1]], games=[{"a": 1}])
    make_suite(tmp_path / "above", games=[".."])
    (make_suite(tmp_path / "cut") / "suite.yaml").write_text("{")
    snapshot = look(tmp_path, NOW)
    assert len(snapshot.left_out) == 3
    assert {"run"} < {run.run for run in snapshot.runs}
    assert all(run.state == "waiting" for run in snapshot.runs if run.run != "run")


def test_runs_that_were_moved_aside_come_last(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("b/run", "b/run.2", "b/run.10", "z"):
        write_run(tmp_path / name, seed=3)
    forget_the_end(tmp_path / "b" / "run.2")
    found = look(tmp_path, NOW)
    assert [run.run for run in found.runs] == ["b/run", "z"]
    assert [(run.run, run.state, run.replaced_by) for run in found.moved_aside] == [
        ("b/run.2", "dead", "b/run"),
        ("b/run.10", "finished", "b/run"),
    ]
    assert show_status(tmp_path, None, as_json=False) == 0
    _, *rows, counts = capsys.readouterr().out.splitlines()
    assert [row.split()[0] for row in rows] == ["b/run", "z", "b/run.2", "b/run.10"]
    assert rows[2].endswith("moved aside for run, ended at step 245,760 without recording a reason")
    assert rows[3].endswith("moved aside for run")
    assert counts.startswith(f"2 finished, 2 moved aside in {tmp_path}")
    assert show_status(tmp_path, None, as_json=True) == 0
    shown = json.loads(capsys.readouterr().out)
    assert [run["replaced_by"] for run in shown["moved_aside"]] == ["b/run", "b/run"]
    assert len(shown["runs"]) == 2


def test_a_narrow_terminal_shows_the_ends_of_long_names() -> None:
    names = ["study/coinrun/ppo_sequential/seed_1", "study/coinrun/ppo_sequential/seed_1.1"]
    runs = [RunStatus(name, "ppo", "sequential", "", "coinrun", 1, "finished", 1.0) for name in names]
    snapshot = Snapshot("here", [runs[0]], [replace(runs[1], replaced_by=names[0])])
    shown = {}
    for width in (140, 90, 80, 70):
        console = Console(width=width)
        with console.capture() as captured:
            console.print(_drawn(snapshot, console, whole=True))
        shown[width] = captured.get().splitlines()
    assert shown[140][2].split()[0] == names[1]
    assert shown[140][2].endswith("moved aside for seed_1")
    for width, columns in ((90, ["algorithm", "game"]), (80, ["algorithm", "seed"]), (70, ["seed", "state"])):
        head, *rows = shown[width][:3]
        assert head.split()[1:3] == columns
        for name, row in zip(names, rows, strict=True):
            assert row.startswith("…")
            assert name.endswith(row.split()[0][1:])
            assert len(row.split()[0]) >= 16
        words = " ".join(shown[width][3:]).split()  # such a line may be wrapped
        assert " ".join(words).startswith(f"{names[1]}: finished, moved aside for seed_1")


def test_folders_without_a_run(tmp_path: Path) -> None:
    assert look(tmp_path, NOW).runs == []
    with pytest.raises(UsageError, match="no such directory"):
        look(tmp_path / "missing", NOW)
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="not a directory"):
        look(tmp_path / "file", NOW)


def test_a_lock_that_names_a_living_process_without_being_open_there(tmp_path: Path) -> None:
    path = write_run(tmp_path / "run")
    forget_the_end(path)
    (path / ".lock").write_text(f"pid {os.getpid()} on {socket.gethostname()}\n")
    assert run_status(path, NOW).state == "dead"


def test_a_run_that_has_not_written_its_configuration_yet(tmp_path: Path) -> None:
    path = tmp_path / "run"
    path.mkdir()
    (path / "run.json").write_text('{"algorithm": "a2c", "mode": "parallel", "format": 1}')
    descriptor, _ = take_lock(path / ".lock")
    assert descriptor is not None
    found = run_status(path, NOW)
    os.close(descriptor)
    assert (found.state, found.algorithm, found.mode) == ("running", "a2c", "parallel")
    assert "config.yaml" in found.detail
    assert run_status(path, NOW).state == "unknown"


def test_times_for_people() -> None:
    seconds = (0, 99, 100, 3600, 99 * 60, 2 * 3600, 47 * 3600, 50 * 3600)
    texts = ["0 s", "99 s", "2 min", "60 min", "99 min", "2.0 h", "47.0 h", "2 d"]
    assert [short_time(value) for value in seconds] == texts
