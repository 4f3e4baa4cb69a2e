"""What W&B and TensorBoard get of a run, read back from the files that they write."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from helpers.in_process import evaluate, final
from helpers.processes import CARTPOLE, ROOT, TINY, TINY_ROLLOUT, python, rlcb
from helpers.wandb_files import uploaded
from rlcb.run.resources import ResourceMeter
from rlcb.run.sinks import VIDEO, is_installed

Capsys = pytest.CaptureFixture[str]
QUIET = ("--tensorboard", "false")
OFFLINE = {"WANDB_MODE": "offline"}
needs_wandb = pytest.mark.skipif(not is_installed("wandb"), reason="W&B is not installed")
pytestmark = pytest.mark.xdist_group("tracking")


def steps(count: int) -> tuple[str, str]:
    return "--total-timesteps", str(count * TINY_ROLLOUT)


def history(path: Path) -> list[dict[str, Any]]:
    (file,) = path.glob("logs/*/metrics.jsonl")
    return [json.loads(line) for line in file.read_text().splitlines()]


def curves(lines: list[dict[str, Any]]) -> dict[int, dict[str, float]]:
    """What a tracker is to get of these lines: numbers with a slash in their names, by step."""
    return {
        line["step"]: {name: value for name, value in line.items() if "/" in name and value is not None}
        for line in lines
    }


def without_own(row: dict[str, Any]) -> dict[str, Any]:
    """A row without the values that W&B itself adds."""
    return {name: value for name, value in row.items() if name[0] != "_"}


@needs_wandb
def test_wandb_gets_metrics_configuration_and_summary(tmp_path: Path) -> None:
    run = tmp_path / "run"
    done = rlcb("train", "ppo", *CARTPOLE, *QUIET, *steps(12), "--track", "wandb", "--output-dir", run, env=OFFLINE)
    assert done.returncode == 0, done.stderr
    assert "warning:" not in done.stderr
    (found,) = uploaded(run)
    assert f"note: W&B: recording offline, to be uploaded with: wandb sync {run}/wandb/offline-run-" in done.stderr
    assert {step: without_own(row) for step, row in found.rows.items()} == curves(history(run))
    config = yaml.safe_load((run / "config.yaml").read_text())
    assert config["logging"]["track"] == "wandb"
    assert without_own(found.config) == {"algorithm": "ppo", "mode": "sequential", **config}
    summary = json.loads((run / "benchmark_metrics.json").read_text())
    del summary["config"]
    assert {name: found.summary[name] for name in summary} == summary
    assert (found.project, found.group, found.exit_code) == ("rlcb", "", 0)
    assert found.name == "ppo sequential CartPole-v1 seed 42"
    files = {file.name for file in run.glob("wandb/*/files/**/*") if file.is_file()}
    assert files <= {"config.yaml", "wandb-summary.json"}  # neither code nor what else is on this machine


@needs_wandb
def test_a_resumed_run_is_the_same_run_there(tmp_path: Path) -> None:
    run = tmp_path / "run"
    first = (*steps(4), "--track", "wandb", "--output-dir", run)
    assert rlcb("train", "ppo", *CARTPOLE, *QUIET, *first, env=OFFLINE).returncode == 0
    assert rlcb("train", "--resume", run, *steps(7), env=OFFLINE).returncode == 0
    before, after = uploaded(run)
    assert before.id == after.id
    assert [len(before.rows), len(after.rows)] == [4, 3]
    rows = {step: without_own(row) for step, row in (before.rows | after.rows).items()}
    assert rows == curves(history(run))
    assert after.config["training"]["total_timesteps"] == 7 * TINY_ROLLOUT


@needs_wandb
def test_a_run_that_is_tracked_from_its_middle_on_is_there_from_its_beginning(tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert rlcb("train", "ppo", *CARTPOLE, *QUIET, *steps(3), "--output-dir", run, env=OFFLINE).returncode == 0
    assert not (run / "wandb").exists()
    assert rlcb("train", "--resume", run, *steps(5), "--track", "wandb", env=OFFLINE).returncode == 0
    (found,) = uploaded(run)
    assert list(found.rows) == [TINY_ROLLOUT * number for number in range(1, 6)]


@needs_wandb
def test_the_runs_of_a_suite_are_a_group_and_each_is_tracked_once(tmp_path: Path) -> None:
    output = tmp_path / "my_suite"
    kinds = (
        "--algorithms",
        "ppo",
        "--modes",
        "sequential",
        "parallel",
        "--seeds",
        "1",
        "--num-workers",
        "2",
        "--num-envs",
        "8",
    )
    suite = ("--games", "CartPole-v1", *TINY, *QUIET, *kinds, *steps(2), "--eval-episodes", "0", "--track", "wandb")
    done = rlcb("benchmark", *suite, "--output-dir", output, env=OFFLINE)
    assert done.returncode == 0, done.stdout + done.stderr
    runs = sorted(file.parent for file in output.rglob("run.json"))
    assert len(runs) == 2
    for run in runs:
        (found,) = uploaded(run)
        assert found.group == "my_suite"
        assert list(found.rows) == [line["step"] for line in history(run)]


@needs_wandb
def test_a_video_of_the_policy_goes_where_the_metrics_went(
    tmp_path: Path, capsys: Capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run, film = tmp_path / "run", tmp_path / "film.gif"
    game = (*TINY, "--env", "starpilot", *steps(1), "--tensorboard", "true")
    assert rlcb("train", "ppo", *game, "--track", "wandb", "--output-dir", run, env=OFFLINE).returncode == 0
    monkeypatch.setenv("WANDB_MODE", "offline")
    done = evaluate(capsys, final(run), "--num-episodes", "1", "--video", film)
    assert done.returncode == 0, done.stderr
    events = EventAccumulator(str(run / "logs" / "PPO_Sequential"))
    events.Reload()
    (picture,) = events.Images(VIDEO)
    assert picture.step == TINY_ROLLOUT
    assert picture.encoded_image_string == film.read_bytes()
    training, evaluation = uploaded(run)
    assert training.id == evaluation.id
    ((step, row),) = evaluation.rows.items()
    assert step == TINY_ROLLOUT + 1  # after the last update: an earlier step would be ignored
    (copy,) = run.glob(f"wandb/offline-run-*/files/{row[VIDEO]['path']}")
    assert copy.read_bytes() == film.read_bytes()
    assert row["evaluation/video_step"] == TINY_ROLLOUT


def test_tensorboard_shows_configuration_and_summary_as_text(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run = tmp_path / "run"
    done = rlcb("train", "ppo", *CARTPOLE, *steps(2), "--tensorboard", "true", "--output-dir", run)
    assert done.returncode == 0, done.stderr
    events = EventAccumulator(str(run / "logs" / "PPO_Sequential"))
    events.Reload()
    shown = {}
    for tag in ("config", "summary"):
        assert events.SummaryMetadata(tag).plugin_data.plugin_name == "text"
        (event,) = events.Tensors(tag)
        shown[tag] = json.loads(event.tensor_proto.string_val[0])
    assert shown["config"]["training"]["total_timesteps"] == 2 * TINY_ROLLOUT
    assert shown["summary"]["status"] == "finished"
    assert shown["summary"]["total_timesteps"] == 2 * TINY_ROLLOUT


@needs_wandb
def test_what_the_user_has_set_for_wandb_counts(tmp_path: Path) -> None:
    run = tmp_path / "run"
    own = {"WANDB_PROJECT": "mine", "WANDB_NAME": "first", "WANDB_RUN_ID": "abc12345", "WANDB_DIR": str(tmp_path)}
    arguments = ("train", "ppo", *CARTPOLE, *QUIET, *steps(1), "--track", "wandb", "--output-dir", run)
    assert rlcb(*arguments, env={**OFFLINE, **own}).returncode == 0
    (found,) = uploaded(tmp_path)
    assert (found.project, found.name, found.id) == ("mine", "first", "abc12345")
    done = rlcb(*arguments, env={"WANDB_MODE": "disabled"})
    assert done.returncode == 0
    assert "note: W&B: disabled by WANDB_MODE" in done.stderr
    assert not (run / "wandb").exists()


def test_a_file_can_ask_for_it_and_without_the_package_nothing_begins(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import importlib.util as u\nfind = u.find_spec\n"
        "u.find_spec = lambda name, *rest: None if name == 'wandb' else find(name, *rest)\n"
    )
    hidden, run = {"PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}, tmp_path / "run"
    file = tmp_path / "tracked.yaml"
    file.write_text("logging: {track: wandb}\n")
    remedy = "W&B is not installed: pip install 'rl-cluster-benchmark[wandb]'"
    for asked in (("train", "ppo", "--track", "wandb"), ("train", "ppo", "--config", file)):
        rlcb(*asked, "--env", "CartPole-v1", "--output-dir", run, env=hidden).assert_one_line_error(6, remedy)
    suite = ("--games", "CartPole-v1", "--total-timesteps", "4096", "--track", "wandb", "--output-dir", run)
    rlcb("benchmark", *suite, env=hidden).assert_one_line_error(6, remedy)
    assert not run.exists()
    rlcb("train", "ppo", "--track", "mlflow").assert_one_line_error(2, "--track", "mlflow", "wandb")


def test_a_folder_named_like_a_package_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "left_behind").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    assert not is_installed("left_behind")


def test_nothing_of_it_is_loaded_unless_asked(tmp_path: Path) -> None:
    program = (
        "import sys\nfrom rlcb.cli import main\n"
        f"code = main({['train', 'ppo', *CARTPOLE, *QUIET, *steps(1), '--output-dir', str(tmp_path / 'run')]!r})\n"
        "loaded = [name for name in sys.modules if name.split('.')[0] in ('wandb', 'tensorboard')]\n"
        "sys.exit(code or str(loaded) if code or loaded else 0)\n"
    )
    done = python("-c", program, env={"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), *sys.path])})
    assert done.returncode == 0, done.stderr


def test_what_a_tracker_takes_is_not_the_runs(tmp_path: Path) -> None:
    program = "import subprocess, sys; subprocess.Popen(['sleep', '600']); print(flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", program]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    tracker, worker = subprocess.Popen(command, **pipes), subprocess.Popen(command, **pipes)  # type: ignore[call-overload]
    for process in (tracker, worker):
        process.stdout.readline()
    apart = {tracker.pid, *(child.pid for child in psutil.Process(tracker.pid).children())}
    own = {worker.pid, *(child.pid for child in psutil.Process(worker.pid).children())}
    try:
        meter = ResourceMeter(apart=tracker.pid)
        counted = {process.pid for process in meter._own(meter._tree())}
    finally:
        for pid in apart | own:
            psutil.Process(pid).kill()
        for process in (tracker, worker):
            process.communicate()
    assert own | {os.getpid()} <= counted
    assert not apart & counted
