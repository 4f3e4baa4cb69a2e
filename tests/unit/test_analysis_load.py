"""Run directories as crashes, bad disks and people leave them: what can be used is used, the rest is named."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.run_directories import add_event, log_of, write_evaluation, write_run
from rlcb.analysis.load import load_run, load_runs
from rlcb.analysis.untrusted import parse_lines
from rlcb.errors import UsageError


def edit_json(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


def collect(*paths: Path) -> tuple[list[str], list[str]]:
    """The names of the runs that could be used, and the warnings."""
    warnings: list[str] = []
    runs = load_runs(paths, warnings.append)
    return [run.path.name for run in runs], warnings


def test_a_whole_run(tmp_path: Path) -> None:
    path = write_run(tmp_path / "run", mode="parallel", workers=4, threads=2, seed=5, updates=40, fps=2000)
    run = load_run(path)
    benchmark = json.loads((path / "benchmark_metrics.json").read_text())
    assert (run.algorithm, run.mode, run.env, run.game) == ("ppo", "parallel", "procgen-coinrun-v0", "coinrun")
    assert (run.distribution_mode, run.num_levels, run.start_level) == ("easy", 200, 0)
    assert (run.seed, run.num_envs, run.num_workers, run.num_threads) == (5, 32, 4, 2)
    assert (run.status, run.reason, run.problems) == ("finished", "", ())
    assert (run.task.machine, run.device, run.task.budget) == ("Test CPU, 8 cores", "cpu", "163,840 steps")
    metrics = run.metrics
    assert metrics.final_reward == benchmark["performance"]["final_reward"]
    assert (metrics.average_fps, metrics.final_fps) == (benchmark["average_fps"], benchmark["final_fps"])
    assert (metrics.peak_memory_gb, metrics.timesteps_per_hour) == (3.2, benchmark["efficiency"]["timesteps_per_hour"])
    assert run.time_shares == pytest.approx(benchmark["time_shares"])
    lines = [json.loads(line) for line in log_of(path).read_text().splitlines()]
    for ours, theirs in (("step", "step"), ("time", "time"), ("reward", "rollout/ep_reward_mean"),
                         ("reward_std", "rollout/ep_reward_std"), ("episodes", "rollout/episodes"),
                         ("policy_loss", "loss/policy"), ("memory_gb", "resource/memory_gb")):  # fmt: skip
        assert getattr(run.history, ours).tolist() == [line[theirs] for line in lines], ours


def test_every_way_to_read_a_history_gives_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_run(tmp_path / "run", updates=300)
    cut_last_line(path)
    from_log = load_run(path)
    monkeypatch.setattr("rlcb.analysis.untrusted._quick", None)  # as where orjson is not installed
    slowly = load_run(path)
    monkeypatch.undo()
    log_of(path).unlink()
    from_columns = load_run(path)
    for name in ("step", "time", "reward", "policy_loss", "memory_gb"):
        expected = getattr(from_log.history, name)
        assert np.array_equal(getattr(slowly.history, name), expected)
        assert np.array_equal(getattr(from_columns.history, name)[:-1], expected)
    assert slowly.history.spent == from_log.history.spent
    assert len(from_columns.history) == 300


def test_a_log_longer_than_a_piece_is_read_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_run(tmp_path / "run", updates=100)
    (path / "metrics.json").unlink()
    monkeypatch.setattr("rlcb.analysis.history._PIECE", 1000)  # hardly more than a line
    run = load_run(path)
    assert run.history.step.tolist() == [4096.0 * n for n in range(1, 101)]
    assert run.problems == ()


def cut_last_line(path: Path) -> None:
    text = log_of(path).read_bytes()
    log_of(path).write_bytes(text[:-100])


def garbage_inside(path: Path) -> None:
    lines = log_of(path).read_bytes().splitlines(keepends=True)
    log_of(path).write_bytes(b"".join([*lines[:10], b"\x00\xff garbage\n", b"[1, 2]\n", b"5\n", *lines[10:-1]]))


def not_a_number_in_the_log(path: Path) -> None:
    lines = [json.loads(line) for line in log_of(path).read_text().splitlines()]
    lines[-1]["rollout/ep_reward_mean"] = float("nan")
    lines[-2]["rollout/ep_reward_mean"] = float("inf")
    lines[-3]["rollout/ep_reward_mean"] = "high"
    lines[-4]["rollout/ep_reward_mean"] = [1.0]
    log_of(path).write_text("".join(json.dumps(line) + "\n" for line in lines))
    (path / "metrics.json").unlink()


def steps_that_go_back(path: Path) -> None:
    lines = log_of(path).read_bytes().splitlines(keepends=True)
    log_of(path).write_bytes(b"".join(lines[:50] + lines[20:40]))


def no_log(path: Path) -> None:
    log_of(path).unlink()


def no_history_at_all(path: Path) -> None:
    log_of(path).unlink()
    (path / "metrics.json").unlink()


def damaged_benchmark(path: Path) -> None:
    text = (path / "benchmark_metrics.json").read_bytes()
    (path / "benchmark_metrics.json").write_bytes(text[: len(text) // 2])


def not_a_number_in_the_summary(path: Path) -> None:
    edit_json(path / "benchmark_metrics.json", lambda content: content["performance"].update(final_reward=float("nan")))


def log_is_a_folder(path: Path) -> None:
    log_of(path).unlink()
    (path / "logs" / "PPO_Sequential" / "metrics.jsonl").mkdir()


def log_is_a_circle(path: Path) -> None:
    log = log_of(path)
    log.unlink()
    log.symlink_to(log)


def endless_line(path: Path) -> None:
    with log_of(path).open("ab") as file:
        file.write(b"x" * 5_000_000 + b"\n" + b"y" * 5_000_000)


@pytest.mark.parametrize(
    ("damage", "words", "updates"),
    [
        (cut_last_line, "last line is incomplete", 59),
        (garbage_inside, "3 unreadable lines ignored", 59),
        (steps_that_go_back, "decrease after step 204,800", 50),
        (no_log, "no metrics.jsonl; using metrics.json", 60),
        (log_is_a_folder, "using metrics.json", 60),
        (log_is_a_circle, "using metrics.json", 60),
        (no_history_at_all, "no metrics.jsonl", 0),
        (damaged_benchmark, "benchmark_metrics.json is damaged", 60),
        (not_a_number_in_the_summary, "values in its summary that are not numbers: final_reward", 60),
        (endless_line, "line of more than 1 MB", 60),
    ],
)
def test_what_remains_is_used_with_one_warning(
    tmp_path: Path, damage: Callable[[Path], None], words: str, updates: int
) -> None:
    path = write_run(tmp_path / "run")
    whole = load_run(path)
    damage(path)
    warnings: list[str] = []
    (run,) = load_runs([path], warnings.append)
    assert len(warnings) == 1, warnings
    assert words in warnings[0]
    assert str(path) in warnings[0]
    assert len(run.history) == updates
    assert run.status == "finished"
    assert run.metrics.final_reward == whole.metrics.final_reward
    assert run.metrics.total_timesteps == whole.metrics.total_timesteps


def test_what_is_no_number_in_the_log_is_a_gap_not_a_zero(tmp_path: Path) -> None:
    path = write_run(tmp_path / "run")
    not_a_number_in_the_log(path)
    run = load_run(path)
    assert np.isnan(run.history.reward[-4:]).all()
    assert np.isfinite(run.history.reward[:-4]).all()


def empty(path: Path) -> None:
    path.mkdir()


def only_started(path: Path) -> None:
    write_run(path)
    for name in ("benchmark_metrics.json", "training_summary.json", "metrics.json"):
        (path / name).unlink()
    log_of(path).write_bytes(b"")


def all_garbage(path: Path) -> None:
    write_run(path)
    for name in ("run.json", "benchmark_metrics.json", "training_summary.json", "config.yaml", "metrics.json"):
        (path / name).write_bytes(b"\x00\xff\xfe garbage")
    log_of(path).write_bytes(b"garbage\n" * 100)


def bottomless(path: Path) -> None:
    write_run(path)
    (path / "benchmark_metrics.json").write_text("[" * 200_000)
    (path / "config.yaml").write_text("env: " + "[" * 100_000)


def a_file(path: Path) -> None:
    path.write_text("not a run")


def missing(path: Path) -> None:
    assert not path.exists()


@pytest.mark.parametrize("damage", [empty, only_started, all_garbage, bottomless, a_file, missing])
def test_what_is_of_no_use_is_left_out_with_one_warning(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    good = write_run(tmp_path / "good")
    damage(tmp_path / "bad")
    names, warnings = collect(good, tmp_path / "bad")
    assert names == ["good"]
    assert len(warnings) == 1
    assert warnings[0].startswith("left out:")
    assert str(tmp_path / "bad") in warnings[0]
    with pytest.raises(UsageError, match="no usable run"):
        load_runs([tmp_path / "bad"], lambda _: None)


def test_a_pipe_in_the_place_of_a_file_does_not_block(tmp_path: Path) -> None:
    path = write_run(tmp_path / "run")
    for name in ("benchmark_metrics.json", "metrics.json"):
        (path / name).unlink()
        os.mkfifo(path / name)
    assert len(load_run(path).history) == 60


def test_nothing_in_a_run_is_executed_or_reaches_the_terminal_raw(tmp_path: Path) -> None:
    path = write_run(tmp_path / "run")
    (path / "benchmark_metrics.json").unlink()
    (path / "config.yaml").write_text(f"env: !!python/object/apply:os.mkdir ['{tmp_path / 'canary'}']\n")
    with pytest.raises(UsageError, match="unknown configuration"):
        load_run(path)
    assert not (tmp_path / "canary").exists()
    (path / "config.yaml").write_text('env: {name: "evil\\e[2J", seed: 1}\n')
    with pytest.raises(UsageError, match="control characters") as refused:
        load_run(path)
    assert "\x1b" not in str(refused.value)
    other = write_run(tmp_path / "other")
    edit_json(other / "benchmark_metrics.json", lambda content: content["config"]["env"].update(name="evil\x1b[2J"))
    assert load_run(other).env == "evil?[2J"


def test_folders_of_runs(tmp_path: Path) -> None:
    folder = tmp_path / "all"
    for name in ("b", "a", "a.1", "deep/er/c", "d0.5"):
        write_run(folder / name)
    (folder / "a" / "inner").mkdir()
    (folder / "notes").mkdir()
    (folder / "deep" / "circle").symlink_to(folder)
    (folder / "link").symlink_to(folder / "deep" / "er" / "c")
    names, warnings = collect(folder)
    assert names == ["a", "b", "d0.5", "c"]
    assert len(warnings) == 2
    assert warnings[0] == f"left out: {folder / 'a.1'}: moved aside for a; give the path of such a run to use it"
    assert "given twice" in warnings[1]
    assert collect(folder / "a.1", folder / "a")[0] == ["a.1", "a"]  # a run moved aside counts if it is named


def test_folders_whose_names_look_like_runs_moved_aside(tmp_path: Path) -> None:
    """Only a run can have been moved aside, and only for a run."""
    for name in ("study/run", "study.1/run", "b.1", "c", "c.1", "c.2"):
        write_run(tmp_path / name)
    (tmp_path / "b").mkdir()
    names, warnings = collect(tmp_path)
    assert names == ["b.1", "c", "run", "run"]
    (warning,) = warnings
    assert f"left out: {tmp_path / 'c.1'} and 1 more: moved aside for newer runs; give the path" in warning


def forget_the_end(path: Path, keep: int = 30) -> None:
    """As if the run had been killed: a summary of half-way, and a log that goes on beyond it."""
    lines = log_of(path).read_bytes().splitlines(keepends=True)[:keep]
    log_of(path).write_bytes(b"".join(lines))
    half = {"status": "running", "total_timesteps": 10 * 4096, "average_fps": 1.0, "final_fps": 1.0}
    edit_json(path / "benchmark_metrics.json", lambda content: content.update(half))


def test_a_killed_run_is_unfinished_and_its_log_counts(tmp_path: Path) -> None:
    path = write_run(tmp_path / "run")
    forget_the_end(path)
    run = load_run(path)
    lines = [json.loads(line) for line in log_of(path).read_text().splitlines()]
    assert (run.status, len(run.history)) == ("unfinished", 30)
    assert "at step 122,880" in run.reason
    assert run.metrics.total_timesteps == 30 * 4096
    assert run.metrics.final_reward == lines[-1]["rollout/ep_reward_mean"]
    assert run.metrics.average_fps == pytest.approx(30 * 4096 / lines[-1]["time"])
    span = lines[-1]["time"] - lines[-11]["time"]
    assert run.metrics.final_fps == pytest.approx(10 * 4096 / span)
    (path / "benchmark_metrics.json").unlink()
    (path / "training_summary.json").unlink()
    again = load_run(path)
    assert (again.status, again.metrics.total_timesteps, again.task.machine) == ("unfinished", 30 * 4096, "")


def test_why_a_run_is_not_finished(tmp_path: Path) -> None:
    path = write_run(tmp_path / "run")
    forget_the_end(path)
    assert "without recording a reason" in load_run(path).reason
    add_event(path, "interrupted", signal="SIGINT", env_steps=122880)
    assert load_run(path).reason == "interrupted at step 122,880"
    add_event(path, "resumed", checkpoint="x.pt", env_steps=0)
    add_event(path, "failed", reason="worker 3 died too often\nsecond line", exit_code=4)
    run = load_run(path)
    assert (run.status, run.reason) == ("failed", "worker 3 died too often")
    add_event(path, "resumed", checkpoint="x.pt", env_steps=0)
    assert load_run(path).status == "unfinished"
    # A process that only has the number in the lock is not the run's: the lock must be open there.
    (path / ".lock").write_text(f"pid {os.getpid()} on {socket.gethostname()}\n")
    assert "still running" not in load_run(path).reason
    holder = "import sys; file = open(sys.argv[1], 'r+'); print('open', flush=True); input()"
    command = [sys.executable, "-c", holder, path / ".lock"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"open\n"
        (path / ".lock").write_text(f"pid {process.pid} on {socket.gethostname()}\n")
        assert f"still running (pid {process.pid})" in load_run(path).reason
        process.communicate(b"\n")
    assert "still running" not in load_run(path).reason


def test_a_failure_long_before_the_end_of_a_finished_run_is_history(tmp_path: Path) -> None:
    path = write_run(tmp_path / "run")
    add_event(path, "failed", reason="disk full", exit_code=6)
    assert load_run(path).status == "finished"  # it went on and came to its end
    edit_json(path / "benchmark_metrics.json", lambda content: content.update(status="diverged"))
    assert load_run(path).status == "failed"


def test_a_run_that_failed_at_once_is_known_as_failed(tmp_path: Path) -> None:
    path = tmp_path / "run"
    only_started(path)
    add_event(path, "failed", reason="no worker started", exit_code=4)
    run = load_run(path)
    assert (run.status, run.reason, len(run.history)) == ("failed", "no worker started", 0)
    assert run.metrics.final_reward is None


def test_a_log_elsewhere_that_a_later_run_took_over(tmp_path: Path) -> None:
    outside = tmp_path / "logs"
    path = write_run(tmp_path / "first", log_dir=str(outside))
    later = write_run(tmp_path / "second", updates=90, log_dir=str(outside))
    (outside / "PPO_Sequential").mkdir(parents=True)
    (outside / "PPO_Sequential" / "metrics.jsonl").write_bytes(log_of(later).read_bytes())
    assert len(load_run(path).history) == 60
    assert len(load_run(later).history) == 90


def test_evaluations_of_the_final_checkpoint_or_the_newest(tmp_path: Path) -> None:
    path = write_run(tmp_path / "run")
    write_evaluation(path, 5.0, 4.0, checkpoint="step_9000")
    write_evaluation(path, 6.0, 5.0, checkpoint="step_10000")
    run = load_run(path)
    assert run.evaluations.checkpoint == "ppo_sequential_step_10000"
    assert "evaluation is of step 10,000" in run.problems[0]
    final = write_evaluation(path, 7.0, 6.5)
    run = load_run(path)
    assert (run.evaluations.checkpoint, run.problems) == ("ppo_sequential_final", ())
    seen, unseen = (run.evaluations.find(run.env, levels, "sampled") for levels in ("train", "unseen"))
    assert seen is not None
    assert unseen is not None
    assert (seen.mean_reward, unseen.mean_reward, unseen.ci95) == (7.0, 6.5, (5.9, 7.1))
    assert run.evaluations.find(run.env, "train", "deterministic") is None
    edit_json(final, lambda content: content["evaluations"][0].update(mean_reward=float("nan")))
    run = load_run(path)
    assert [entry.levels for entry in run.evaluations.entries] == ["unseen"]
    assert "invalid evaluations" in run.problems[0]
    final.write_text("{")
    assert "evaluation ignored" in load_run(path).problems[0]


@pytest.mark.parametrize("broken", ['{"a": "one\ntwo"}', '{"a": 1\n"b": 2}', '{"a": [1\n2]}'])
def test_an_object_that_is_broken_over_two_lines_is_none(broken: str) -> None:
    text = f'{{"step": 1}}\n{broken}\n{{"step": 2}}\n'
    assert parse_lines(text.encode()) == ([{"step": 1}, {"step": 2}], 2)
    assert parse_lines(b'{"step": 1}\n{"step": 2}\n') == ([{"step": 1}, {"step": 2}], 0)
