"""Runs beside busy programs, for real: they are marked, their speed is not judged, a suite repeats them."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from helpers.neighbours import busy_neighbours
from helpers.processes import CARTPOLE, ROOT, TINY, rlcb, weights
from rlcb.analysis.load import load_run
from rlcb.run.history import HistoryTotals, read_history

LONG_ENOUGH = ("--tensorboard", "false", "--total-timesteps", "16384")
PARALLEL = ("--mode", "parallel", "--num-workers", "2")


def disturbance_in(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((path / "training_summary.json").read_text())["disturbance"]
    assert json.loads((path / "benchmark_metrics.json").read_text())["disturbance"] == found
    return found


def totals_of(path: Path) -> HistoryTotals:
    totals = HistoryTotals()
    for _, metrics in read_history(next(path.glob("logs/*/metrics.jsonl"))):
        totals.add(metrics)
    return totals


@pytest.mark.parametrize("mode", [(), PARALLEL])
def test_a_run_beside_busy_loops_is_marked_and_its_speed_is_not_judged(mode: tuple[str, ...], tmp_path: Path) -> None:
    run = tmp_path / "run"
    with busy_neighbours():
        done = rlcb("train", "ppo", *CARTPOLE, *LONG_ENOUGH, *mode, "--output-dir", run)
    assert done.returncode == 0, done.stderr
    figures = r"other programs used \d+ % of the cores \(\d+ % of its CPU time lost\), stolen \d+ %, throttled \d+ %"
    assert re.search(rf"^Disturbed: {figures}; a quiet machine would be faster", done.stdout, re.MULTILINE), done.stdout
    assert "Limited by: other programs on these cores" in done.stdout
    assert "of this machine" not in done.stdout  # nothing is said about its limit
    found = disturbance_in(run)
    assert found["disturbed"] is True
    assert found["others_percent"] > 20
    assert found["lost_percent"] > 5
    assert found["measured_seconds"] > 0.5
    lines = [metrics for _, metrics in read_history(next(run.glob("logs/*/metrics.jsonl")))]
    looks = [line for line in lines if "resource/others_core_seconds" in line]
    assert 0 < len(looks) <= len(lines)
    assert all(line["resource/core_seconds"] > 0 for line in looks)
    assert load_run(run).disturbed
    compared = rlcb("compare", run, "--output", tmp_path / "comparison")
    line = next(line for line in compared.stdout.splitlines() if line.startswith("Average FPS"))
    assert "(disturbed)" in line
    assert f"--config {run}/config.yaml --output-dir {run}" in compared.stdout.replace("\n  ", " ")


def test_a_resumed_run_counts_all_of_its_parts(tmp_path: Path) -> None:
    run = tmp_path / "run"
    with busy_neighbours():
        assert rlcb("train", "ppo", *CARTPOLE, *LONG_ENOUGH, "--output-dir", run).returncode == 0
    first = disturbance_in(run)
    done = rlcb("train", "--resume", run, "--total-timesteps", "20480")
    assert done.returncode == 0, done.stderr
    both = disturbance_in(run)
    assert both["measured_seconds"] >= first["measured_seconds"] > 0
    assert both == vars(totals_of(run).use_of_cores.verdict())


def test_neighbours_change_no_result(tmp_path: Path) -> None:
    common = ("train", "ppo", *CARTPOLE, "--tensorboard", "false", "--total-timesteps", "4096")
    assert rlcb(*common, "--output-dir", tmp_path / "alone").returncode == 0
    with busy_neighbours(1):
        assert rlcb(*common, "--output-dir", tmp_path / "beside").returncode == 0
    alone, beside = (next((tmp_path / name).glob("checkpoints/*_final.pt")) for name in ("alone", "beside"))
    assert weights(alone) == weights(beside)


def test_a_suite_repeats_what_was_disturbed_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    output = tmp_path / "suite"
    settings = ("--games", "CartPole-v1", "--modes", "sequential", "--seeds", "1", "2", "--total-timesteps", "512")
    more = ("--eval-episodes", "0", "--tensorboard", "false", "--output-dir", output)
    assert rlcb("benchmark", *settings, *TINY, *more).returncode == 0
    one, two = (output / "CartPole-v1" / "ppo_sequential" / f"seed_{seed}" for seed in (1, 2))
    for run, disturbed in ((one, True), (two, False)):  # whatever happened beside this test
        for name in ("training_summary.json", "benchmark_metrics.json"):
            content = json.loads((run / name).read_text())
            content["disturbance"] |= {"disturbed": disturbed, "others_percent": 48.0}
            (run / name).write_text(json.dumps(content))
    before = (two / "training_summary.json").stat().st_mtime_ns
    first = weights(one / "checkpoints" / "ppo_sequential_final.pt")
    again = rlcb("benchmark", "--output-dir", output)
    assert (
        f"1 run was disturbed by other programs; repeat on a quiet machine: rlcb benchmark --output-dir {output}"
        in (again.stdout)
    )
    assert again.stdout.splitlines()[-1] == f"Report: {output / 'report' / 'report.html'}"
    assert "(disturbed), reward" in again.stdout
    plan = rlcb("benchmark", "--output-dir", output, "--repeat-disturbed", "--dry-run")
    assert "ppo sequential CartPole-v1 seed 1: would be repeated (was disturbed)" in plan.stdout
    assert "ppo sequential CartPole-v1 seed 2: already finished" in plan.stdout
    assert not one.with_name("seed_1.1").exists()
    done = rlcb("benchmark", "--output-dir", output, "--repeat-disturbed")
    assert done.returncode == 0, done.stderr
    assert "ppo sequential CartPole-v1 seed 1: started" in done.stdout
    assert "ppo sequential CartPole-v1 seed 2: already finished" in done.stdout
    assert disturbance_in(one.with_name("seed_1.1"))["disturbed"] is True
    assert disturbance_in(one) != disturbance_in(one.with_name("seed_1.1"))
    assert weights(one / "checkpoints" / "ppo_sequential_final.pt") == first
    assert (two / "training_summary.json").stat().st_mtime_ns == before
