"""A real suite with variants: broken off, continued, compared; its runs and its report name the variants."""

import json
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from helpers.processes import ROOT, TINY_ROLLOUT, rlcb, wait_for_file
from rlcb.config.yaml_file import read_yaml
from rlcb.suite.directory import result_of, runs_of, stored

STEPS = 60 * TINY_ROLLOUT
SUITE = f"""
modes: sequential
seeds: [1, 2]
games: CartPole-v1
total_timesteps: {STEPS}
eval_episodes: 3
overrides: {{num_envs: 8, n_steps: 32, batch_size: 128, n_epochs: 1, num_threads: 1, tensorboard: false}}
variants:
  base: {{}}
  slow: {{learning_rate: 0.00001, n_epochs: 2}}
"""


@pytest.fixture(autouse=True)
def _in_the_repository(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the usual config files are."""
    monkeypatch.chdir(ROOT)


def test_a_suite_with_variants_is_broken_off_continued_and_compared(
    start: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    file, output = tmp_path / "mine.yaml", tmp_path / "out"
    file.write_text(SUITE)
    command = ("benchmark", "--suite", file, "--jobs", "1", "--output-dir", output)
    process = start(*command)
    folder = output / "CartPole-v1"
    wait_for_file(folder / "ppo_sequential_slow" / "seed_1" / "checkpoints" / "ppo_sequential_step_0.pt")
    family = psutil.Process(process.pid).children(recursive=True)
    os.kill(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 130, out + err
    assert psutil.wait_procs(family, timeout=30)[1] == []
    runs = runs_of(stored(output).settings, output)
    assert [run.path.relative_to(folder).as_posix() for run in runs] == [
        *("ppo_sequential_base/seed_1", "ppo_sequential_slow/seed_1"),
        *("ppo_sequential_base/seed_2", "ppo_sequential_slow/seed_2"),
    ]
    assert result_of(runs[0])
    rows = json.loads(rlcb("status", output, "--json").stdout)["runs"]
    assert sorted(row["variant"] for row in rows) == ["base", "base", "slow", "slow"]
    begun = "already finished" if result_of(runs[1]) else "resumed"  # the signal may have come too late
    before = (runs[0].path / "training_summary.json").read_bytes()

    done = rlcb(*command)  # the same command again
    assert done.returncode == 0, done.stdout + done.stderr
    assert "[1/4] ppo sequential base CartPole-v1 seed 1: already finished" in done.stdout
    assert f"[2/4] ppo sequential slow CartPole-v1 seed 1: {begun}" in done.stdout
    assert (runs[0].path / "training_summary.json").read_bytes() == before
    for run in runs:
        assert result_of(run), run.name
        config = read_yaml(run.path / "config.yaml")
        recorded = json.loads((run.path / "benchmark_metrics.json").read_text())["config"]
        assert config["logging"]["variant"] == recorded["logging"]["variant"] == run.kind.variant
        assert config["training"]["n_epochs"] == {"base": 1, "slow": 2}[run.kind.variant]
        assert "Variant: " + run.kind.variant in run.log.read_text()
    events = [json.loads(line) for line in (output / "suite_events.jsonl").read_text().splitlines()]
    assert {event["run"] for event in events if event["event"] == "run_finished"} == {run.name for run in runs}

    report = output / "report"
    text = (report / "comparison_report.txt").read_text()
    assert "\n  PPO Sequential · slow: n_epochs 2, learning_rate 1e-05\n" in text
    assert "PPO Sequential · base − PPO Sequential · slow: " in text
    page = (report / "report.html").read_text()
    assert page.count("PPO Sequential · slow") > 5
    (one,) = json.loads((report / "comparison.json").read_text())["sets"]
    assert [(group["label"], len(group["runs"])) for group in one["groups"]] == [
        ("PPO Sequential · base", 2),
        ("PPO Sequential · slow", 2),
    ]

    changed = rlcb("train", "--resume", runs[0].path, "--variant", "other")
    changed.assert_one_line_error(2, "--variant: cannot be changed when a run is resumed")
