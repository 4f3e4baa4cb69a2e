"""Suites whose runs train as a whole on nodes of a real Ray cluster; nodes, drivers and processes are really lost."""

import json
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from helpers.cluster_runs import Begin, ended, events_of, lines_of, needs_ray, wait_until, whole_lines
from helpers.clusters import SETTINGS, ours, ray_cluster
from helpers.equal_runs import assert_equal_runs
from helpers.processes import ROOT, rlcb, weights
from helpers.suite_directories import suite_runs
from rlcb.analysis.suites import SuiteRun
from rlcb.suite.directory import has_plan, result_of, saved_steps

if TYPE_CHECKING:
    from ray.cluster_utils import Cluster

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("cluster suites")]

SMALL = ("--num-envs", "8", "--n-steps", "32", "--batch-size", "128", "--n-epochs", "1", "--num-threads", "1")
SUITE = ("benchmark", "--games", "CartPole-v1", *SMALL, "--tensorboard", "false", "--eval-episodes", "0")
SEQUENTIAL = (*SUITE, "--modes", "sequential", "--log-interval", "1")
ROLLOUT = 8 * 32
ENDLESS = ("--total-timesteps", "1000000000", "--save-interval", "5")


@pytest.fixture(scope="module")
def cluster() -> "Iterator[Cluster]":
    needs_ray()
    with ray_cluster(1, 1, 1) as three_nodes:
        yield three_nodes


@pytest.fixture(autouse=True)
def _in_the_repository(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the usual config files are."""
    monkeypatch.chdir(ROOT)


def suite_events(output: Path) -> list[dict[str, Any]]:
    file = output / "suite_events.jsonl"
    return whole_lines(file) if file.exists() else []


def under_way(output: Path) -> dict[SuiteRun, str]:
    """The runs that were started and have not ended, each with its node."""
    last = {event["run"]: event for event in suite_events(output) if "run" in event}
    started = [
        run for run in suite_runs(output) if last.get(run.name, {}).get("event") in ("run_started", "run_resumed")
    ]
    return {run: last[run.name]["node"] for run in started}


def trainings() -> list[psutil.Process]:
    """The training processes on the nodes, which do not know the token."""
    found = []
    for actor in ours():
        if "ray::RunActor" in " ".join(actor.info["cmdline"] or ()):
            found += [child for child in actor.children() if child.cmdline()[2:4] == ["rlcb", "train"]]
    return found


def actors() -> list[psutil.Process]:
    return [process for process in ours() if "ray::RunActor" in " ".join(process.info["cmdline"] or ())]


def folder_on_node(run: SuiteRun) -> Path:
    """Where a run was trained, as it said itself."""
    return Path(re.findall(r"^Output: (.*)/run$", run.log.read_text(), re.MULTILINE)[-1])


def assert_every_step_once(run: SuiteRun, total: int) -> None:
    steps = [line["step"] for line in lines_of(run.path)]
    assert steps == list(range(ROLLOUT, total + 1, ROLLOUT)), run.name
    assert json.loads((run.path / "training_summary.json").read_text())["total_timesteps"] == total


def assert_continued(output: Path) -> None:
    """No run that had a checkpoint at home was begun anew, and each went on where it had been saved."""
    for run in suite_runs(output):
        assert not list(run.path.parent.glob(f"{run.path.name}.*/checkpoints/*.pt")), run.name
        starts = [event["event"] for event in suite_events(output) if event.get("run") == run.name]
        resumed = [event["env_steps"] for event in events_of(run.path) if event["event"] == "resumed"]
        assert len(resumed) <= starts.count("run_resumed"), run.name
        assert resumed == sorted(resumed)


def test_a_lost_node_a_new_one_and_a_killed_driver_change_no_result(begin: Begin, tmp_path: Path) -> None:
    """Four runs on three nodes; the same suite on this machine gives the same weights and the same history."""
    needs_ray()
    there, here, total = tmp_path / "there", tmp_path / "here", 300 * ROLLOUT
    given = (*SEQUENTIAL, "--seeds", *"1234", "--total-timesteps", str(total), "--save-interval", "10")
    with ray_cluster(1, 1, 1) as nodes:
        process = begin(*given, "--cluster", nodes.address, "--output-dir", there)
        victims: list[Any] = []

        def choose_victim() -> bool:
            """A node, not the head's, with a run under way that has a checkpoint at home."""
            saved = [where for run, where in under_way(there).items() if saved_steps(run) > 0]
            victims.extend(node for node in nodes.worker_nodes if any(node.node_id[:6] in where for where in saved))
            return bool(victims)

        wait_until(choose_victim)
        nodes.remove_node(victims[0], allow_graceful=False)
        wait_until(lambda: any(event["event"] == "node_lost" for event in suite_events(there)))
        nodes.add_node(num_cpus=1, object_store_memory=200 * 2**20)
        wait_until(lambda: any(saved_steps(run) > 0 for run in under_way(there)))
        orphans = [
            *trainings(),
            *psutil.Process(process.pid).children(),
        ]  # also the process that uses Ray, with the lock
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        assert psutil.wait_procs(orphans, timeout=60)[1] == []
        assert any(result_of(run) is None for run in suite_runs(there))
        done = rlcb("benchmark", "--output-dir", there, env=SETTINGS)
        assert done.returncode == 0, done.stdout + done.stderr
        assert not actors()
    assert_continued(there)
    assert any(
        event["event"] == "resumed" and event["env_steps"] > 0
        for run in suite_runs(there)
        for event in events_of(run.path)
    )
    assert rlcb(*given, "--output-dir", here).returncode == 0
    for one, two in zip(suite_runs(there), suite_runs(here), strict=True):
        assert_every_step_once(one, total)
        assert weights(one.final_checkpoint) == weights(two.final_checkpoint), one.name
        assert_equal_runs(one.path, two.path)


def test_seeds_are_added_on_the_cluster_and_on_this_machine(cluster: "Cluster", tmp_path: Path) -> None:
    output, total = tmp_path / "out", 20 * ROLLOUT
    given = (*SEQUENTIAL, "--total-timesteps", str(total), "--cluster", cluster.address)
    for command, seeds in (
        (given, "12"),
        (given, "123"),  # the whole command
        (("benchmark",), "1234"),  # on the suite's cluster
        (("benchmark", "--cluster", "null"), "12345"),
    ):
        done = rlcb(*command, "--seeds", *seeds, "--output-dir", output)
        assert done.returncode == 0, done.stdout + done.stderr
        assert (f"Added to the suite in {output}: seed {seeds[-1]} (1 run)" in done.stdout) == (len(seeds) > 2)
    starts = [event for event in suite_events(output) if event["event"] == "run_started"]
    places = {event["run"].rpartition(" ")[2]: "node" in event for event in starts}
    assert places == {"1": True, "2": True, "3": True, "4": True, "5": False}
    assert len(starts) == 5  # each once
    assert len([event for event in suite_events(output) if event["event"] == "suite_extended"]) == 3
    for run in suite_runs(output):
        assert_every_step_once(run, total)


def test_a_signal_brings_the_last_checkpoint_home_and_status_says_where(
    cluster: "Cluster", begin: Begin, tmp_path: Path
) -> None:
    output = tmp_path / "out"
    process = begin(*SEQUENTIAL, *ENDLESS, "--seeds", *"1234", "--cluster", cluster.address, "--output-dir", output)
    wait_until(lambda: sum(saved_steps(run) > 0 for run in suite_runs(output)) == 3)
    status = json.loads(rlcb("status", output, "--json").stdout)
    assert [run["state"] for run in status["runs"]] == ["running"] * 3 + ["waiting"]
    places = {run["where"] for run in status["runs"][:3]}
    assert len(places) == 3
    assert all(run["fraction"] is not None and run["fps"] for run in status["runs"][:3])
    assert f" on {min(places)}" in rlcb("status", output).stdout
    rlcb("train", "--resume", suite_runs(output)[0].path).assert_one_line_error(2, "in use by another run")
    there = trainings()
    assert len(there) == 3
    os.kill(process.pid, signal.SIGINT)
    assert f"Resume with: rlcb benchmark --output-dir {output}" in process.communicate(timeout=120)[0]
    assert process.returncode == 130
    assert psutil.wait_procs(there, timeout=30)[1] == []
    assert not actors()
    runs = suite_runs(output)
    for run in runs[:3]:
        summary = json.loads((run.path / "training_summary.json").read_text())
        assert summary["status"] == "interrupted"
        assert summary["total_timesteps"] == saved_steps(run) == lines_of(run.path)[-1]["step"]
        assert json.loads((run.path / "benchmark_metrics.json").read_text())["hardware"]["jobs_beside"] == 2
    assert not runs[3].path.exists()
    assert not any(folder_on_node(run).exists() for run in runs[:3])
    # What came home goes on anywhere.
    run, more = runs[0], saved_steps(runs[0]) + 5 * ROLLOUT
    done = rlcb("train", "--resume", run.path, "--total-timesteps", str(more))
    assert done.returncode == 0, done.stderr
    assert_every_step_once(run, more)


def test_a_killed_actor_is_replaced_and_a_killed_training_is_told_with_its_last_lines(
    cluster: "Cluster", begin: Begin, tmp_path: Path
) -> None:
    output = tmp_path / "out"
    process = begin(*SEQUENTIAL, *ENDLESS, "--seeds", "1", "2", "--cluster", cluster.address, "--output-dir", output)
    wait_until(lambda: [saved_steps(run) > 0 for run in suite_runs(output)] == [True, True])
    first, second = sorted(trainings(), key=lambda training: training.cmdline()[training.cmdline().index("--seed") + 1])
    actor = first.parent()
    assert actor is not None
    actor.kill()
    assert psutil.wait_procs([first], timeout=30)[1] == []  # nothing goes on that nobody collects
    second.kill()
    run = suite_runs(output)[0]
    wait_until(lambda: {"node_lost", "run_failed"} <= {event["event"] for event in suite_events(output)})
    wait_until(lambda: any(event["event"] == "resumed" for event in events_of(run.path)))
    saved = saved_steps(run)
    wait_until(lambda: saved_steps(run) > saved)
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 128 + signal.SIGTERM, out + err
    lines = out.splitlines()
    (failed,) = [number for number, line in enumerate(lines) if "FAILED" in line]
    assert "seed 2: FAILED, killed by SIGKILL" in lines[failed]
    assert any(line.startswith("    Update ") for line in lines[failed + 1 : failed + 6])
    (lost,) = [event for event in suite_events(output) if event["event"] == "node_lost"]
    assert lost["run"] == run.name
    assert "died" in lost["reason"]
    assert_every_step_once(run, saved_steps(run))
    assert_continued(output)


def test_parallel_runs_have_the_nodes_to_themselves(cluster: "Cluster", tmp_path: Path) -> None:
    output = tmp_path / "out"
    size = ("--seeds", "1", "2", "--num-workers", "2", "--total-timesteps", str(8 * ROLLOUT))
    done = rlcb(*SUITE, *size, "--cluster", cluster.address, "--output-dir", output, env=SETTINGS)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "a parallel run uses all nodes exclusively" in done.stdout
    under_way: set[str] = set()
    for event in suite_events(output):
        if event["event"] == "run_started":
            under_way.add(event["run"])
            assert len(under_way) == 1 or not any("parallel" in name for name in under_way)
        elif event["event"] == "run_finished":
            under_way.remove(event["run"])
    for run in suite_runs(output):
        summary = json.loads((run.path / "training_summary.json").read_text())
        assert ("nodes" in summary) == run.kind.is_parallel


def test_what_no_node_has_is_one_line_and_a_dry_run_says_where(cluster: "Cluster", tmp_path: Path) -> None:
    output = tmp_path / "out"
    given = (*SEQUENTIAL, "--seeds", *"1234", "--total-timesteps", "512", "--cluster", cluster.address)
    refused = tmp_path / "refused"
    given, refused_there = (*given, "--output-dir", str(output)), ("--output-dir", str(refused))
    large = rlcb(*given, *refused_there, "--num-threads", "5", env=SETTINGS)
    large.assert_one_line_error(6, "needs 5 cores", "GB of memory on one node", "the largest one is", "1 core, ")
    gpu = rlcb(*given, *refused_there, "--device", "cuda", env=SETTINGS)
    gpu.assert_one_line_error(6, "needs 1 core, a GPU and ", "the largest one is")
    rlcb(*given, "--device", "auto", env=SETTINGS).assert_one_line_error(2, "--device auto", "cpu or cuda")
    plan = rlcb(*given, "--dry-run", env=SETTINGS)
    assert plan.returncode == 0, plan.stderr
    assert "up to 3 runs at a time; nodes:" in plan.stdout
    lines = [line for line in plan.stdout.splitlines() if line.startswith("  [")]
    assert [line.count(" on ") for line in lines] == [3, 1]
    assert not output.exists()
    assert not has_plan(refused)
    wrong = rlcb(*SEQUENTIAL, "--total-timesteps", "512", "--cluster", "laptop", "--output-dir", output, env=SETTINGS)
    wrong.assert_one_line_error(2, "'laptop'", "HOST:PORT")


def test_a_node_with_other_versions_is_left_out_and_a_lost_head_ends_the_suite_which_goes_on_here(
    begin: Begin, tmp_path: Path
) -> None:
    needs_ray()
    output, total = tmp_path / "out", 300 * ROLLOUT
    pretend = "import importlib.metadata as m\nreal = m.version\n"
    pretend += "m.version = lambda name: '0.1' if name == 'gymnasium' else real(name)\n"
    (tmp_path / "sitecustomize.py").write_text(pretend)
    search = os.pathsep.join(filter(None, (str(tmp_path), os.environ.get("PYTHONPATH"))))
    given = ("--seeds", "1", "2", "--total-timesteps", str(total), "--save-interval", "10")
    with ray_cluster(1) as nodes:
        nodes.add_node(num_cpus=2, object_store_memory=200 * 2**20, env_vars={"PYTHONPATH": search})
        process = begin(*SEQUENTIAL, *given, "--cluster", nodes.address, "--output-dir", output)
        wait_until(lambda: any(saved_steps(run) > 0 for run in suite_runs(output)))
        there = trainings()
        assert len(there) == 1
        nodes.head_node.kill_gcs_server()
        error = ended(process, 4)
    assert psutil.wait_procs(there, timeout=30)[1] == []
    lost = [event["reason"] for event in suite_events(output) if event["event"] == "node_lost"]
    assert any("it has gymnasium 0.1, this machine " in reason for reason in lost)
    assert error.count("note: no run is started on ") == 1
    assert f"resume with: rlcb benchmark --output-dir {output}" in error
    assert "Traceback" not in error
    done = rlcb("benchmark", "--output-dir", output, "--cluster", "null")
    assert done.returncode == 0, done.stdout + done.stderr
    for run in suite_runs(output):
        assert_every_step_once(run, total)
    assert_continued(output)
