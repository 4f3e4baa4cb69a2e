"""Suites with several runs at a time: how many, with which cores, threads and memory; what is refused."""

import os
from pathlib import Path
from typing import Any

import pytest

from helpers.in_process import rlcb_here
from helpers.processes import ROOT
from rlcb.analysis.suites import SuiteRun
from rlcb.config.plan import decided
from rlcb.config.registry import Kind
from rlcb.errors import UsageError
from rlcb.run.memory import available_bytes
from rlcb.suite import jobs as jobs_module
from rlcb.suite.directory import runs_of, store, stored
from rlcb.suite.extension import continued
from rlcb.suite.gpu_sharing import shared_gpu
from rlcb.suite.jobs import JobPlan, Room, core_shares, plan_jobs, waves, with_threads
from rlcb.suite.settings import Suite, build_suite

OUT = Path("out")


@pytest.fixture(autouse=True)
def _in_the_repository(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the usual config files are."""
    monkeypatch.chdir(ROOT)


def shares(cores: int) -> tuple[tuple[int, ...], ...]:
    return tuple((core,) for core in range(cores))


def make_suite(cores: int, **values: Any) -> Suite:
    """A suite of CartPole as it begins on a machine with so many cores."""
    given = {"games": ["CartPole-v1"], "num_envs": 16, **values}
    suite = build_suite(None, {key: (f"--{key}", value) for key, value in given.items()})
    configs = {kind: decided(one) if kind.is_parallel else one for kind, one in suite.configs.items()}
    return with_threads(Suite(suite.settings, configs), cores)


def planned(cores: int, wanted: int | str | None, **values: Any) -> tuple[Suite, list[SuiteRun], JobPlan]:
    suite = make_suite(cores, **values)
    runs = runs_of(suite.settings, OUT)
    return suite, runs, plan_jobs(wanted, suite, runs, shares(cores))


# --- threads


@pytest.mark.parametrize(
    ("cores", "seeds", "threads"), [(2, 8, 1), (2, 2, 1), (2, 1, 2), (16, 6, 2), (16, 3, 5), (16, 40, 1)]
)
def test_sequential_runs_divide_the_cores_whatever_the_number_of_jobs(cores: int, seeds: int, threads: int) -> None:
    values = {"modes": ["sequential"], "seeds": list(range(seeds)), "total_timesteps": 10_000}
    images = make_suite(cores, games=["coinrun"], **values)
    assert images.configs[Kind("ppo", "sequential")].hardware.num_threads == threads
    vectors = make_suite(cores, games=["CartPole-v1", "Acrobot-v1"], **values)
    assert vectors.configs[Kind("ppo", "sequential")].hardware.num_threads == 1  # what their networks take


def test_parallel_workers_have_a_thread_each_and_a_given_number_of_threads_is_kept() -> None:
    suite = make_suite(16, num_workers=4, total_timesteps=10_000, seeds=[1, 2])
    assert suite.configs[Kind("ppo", "parallel")].hardware.num_threads == 1
    given = make_suite(16, num_workers=4, total_timesteps=10_000, num_threads=3)
    assert {config.hardware.num_threads for config in given.configs.values()} == {3}


def test_runs_by_time_get_their_threads_when_they_start() -> None:
    suite, _, plan = planned(8, 2, duration_hours=1, num_workers=2, seeds=[1, 2], games=["coinrun"])
    assert all(config.hardware.num_threads is None for config in suite.configs.values())
    assert plan.threads == {Kind("ppo", "sequential"): 4, Kind("ppo", "parallel"): 2}
    assert planned(8, 1, duration_hours=1, num_workers=2)[2].threads == {}
    vectors = planned(8, 2, duration_hours=1, num_workers=2, seeds=[1, 2])[2]
    assert vectors.threads == {Kind("ppo", "sequential"): 1, Kind("ppo", "parallel"): 1}


def test_threads_and_precision_decided_when_the_suite_began_are_no_change(tmp_path: Path) -> None:
    values = {"games": ["coinrun"], "num_envs": 16, "num_workers": 2, "total_timesteps": 10_000}
    values |= {"precision": "auto"}
    wanted = build_suite(None, {key: (f"--{key}", value) for key, value in values.items()})
    began = make_suite(16, games=["coinrun"], num_workers=2, total_timesteps=10_000, precision="auto")
    measured = {kind: config.changed("hardware", precision="fp32") for kind, config in began.configs.items()}
    store(tmp_path, Suite(began.settings, measured))
    assert stored(tmp_path).configs[Kind("ppo", "sequential")].hardware.num_threads == 5
    continued(tmp_path, stored(tmp_path), wanted)


# --- jobs


def test_the_usual_number_of_jobs() -> None:
    eight = {"modes": ["sequential"], "seeds": list(range(8))}
    assert planned(2, None, total_timesteps=10_000, **eight)[2].count == 2
    assert planned(16, None, total_timesteps=10_000, **eight)[2].count == 8
    assert planned(16, None, duration_hours=1, **eight)[2].count == 1
    assert planned(16, "auto", duration_hours=1, **eight)[2].count == 8
    assert planned(1, None, total_timesteps=10_000, **eight)[2].count == 1


def test_jobs_beyond_the_cores_or_the_runs_are_not_made(capsys: pytest.CaptureFixture[str]) -> None:
    eight = {"modes": ["sequential"], "seeds": list(range(8)), "total_timesteps": 10_000}
    assert planned(4, 9, **eight)[2].count == 4
    assert (
        "note: --jobs 9: there are 4 usable cores, so at most 4 runs can train concurrently" in capsys.readouterr().err
    )
    assert planned(16, 9, **eight)[2].count == 8
    assert capsys.readouterr().err == ""


def test_parallel_runs_take_a_core_for_each_worker_and_wait_until_so_many_are_free() -> None:
    suite, runs, plan = planned(4, "auto", seeds=[1, 2, 3, 4], num_workers=4, total_timesteps=10_000)
    assert plan.claims == {Kind("ppo", "sequential"): 1, Kind("ppo", "parallel"): 4}
    together = list(waves(runs, plan, suite))
    assert [[run.kind.mode for run in wave] for wave in together] == [["sequential"] * 4, *([["parallel"]] * 4)]
    sequential, parallel = runs[0], runs[1]
    assert plan.beside(sequential, runs[1:]) == 3
    assert plan.beside(parallel, [run for run in runs if run != parallel]) == 0
    assert plan.beside(sequential, [run for run in runs if run.kind.mode == "parallel"]) == 0


def test_more_threads_than_a_share_take_several_shares() -> None:
    suite, runs, plan = planned(
        4, 4, modes=["sequential"], seeds=[1, 2, 3], num_threads=2, num_workers=1, total_timesteps=10_000
    )
    room = Room(plan, suite)
    assert [room.take(run) for run in runs] == [(0, 1), (2, 3), ()]
    room.leave(runs[0])
    assert room.take(runs[2]) == (0, 1)


def test_runs_on_a_gpu_get_five_cores_each_and_are_three_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs_module, "service", lambda: "/usr/bin/nvidia-cuda-mps-control")
    monkeypatch.setattr(jobs_module, "resolve_device", lambda device: "cuda" if device != "cpu" else "cpu")
    eight = {"modes": ["sequential"], "seeds": list(range(8)), "total_timesteps": 10_000, "device": "auto"}
    for cores, count, threads in ((16, 3, 5), (64, 3, 21), (10, 2, 5), (2, 1, 2)):
        suite, _, plan = planned(cores, "auto", **eight)
        assert plan.count == count
        assert plan.on_gpu
        assert suite.configs[Kind("ppo", "sequential")].hardware.num_threads == threads
    monkeypatch.setattr(jobs_module, "service", lambda: None)
    assert planned(16, "auto", **eight)[2].count == 1
    assert planned(16, 3, **eight)[2].count == 3


# A program in the place of NVIDIA's: it writes down how it is called.
CONTROL = """#!/bin/sh
echo "$CUDA_MPS_PIPE_DIRECTORY|$*|$(cat)" >> {calls}
exit {code}
"""


@pytest.mark.parametrize("code", [0, 1])
def test_the_gpu_is_shared_by_a_service_of_the_suites_own(
    code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    calls, control = tmp_path / "calls", tmp_path / "nvidia-cuda-mps-control"
    control.write_text(CONTROL.format(calls=calls, code=code))
    control.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with shared_gpu(wanted=True):
        place = os.environ.get("CUDA_MPS_PIPE_DIRECTORY")
        assert (place is not None and Path(place).is_dir()) == (code == 0)
    assert "CUDA_MPS_PIPE_DIRECTORY" not in os.environ
    lines = [line.split("|")[1:] for line in calls.read_text().splitlines()]
    assert lines == ([["-d", ""], ["", "quit"]] if code == 0 else [["-d", ""]])
    assert ("did not start: exit code 1" in capsys.readouterr().err) == (code == 1)
    calls.unlink()
    with shared_gpu(wanted=False):
        pass
    monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", "/somewhere")  # the user's own service
    with shared_gpu(wanted=True):
        assert os.environ["CUDA_MPS_PIPE_DIRECTORY"] == "/somewhere"
    assert not calls.exists()


def test_a_gpu_without_the_service_is_shared_in_slices_of_time(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with shared_gpu(wanted=True):
        pass
    assert "NVIDIA MPS is not installed; --jobs 1 may be faster" in capsys.readouterr().err


def test_a_run_waits_where_memory_would_not_suffice_which_is_said_once() -> None:
    suite, runs, plan = planned(4, 4, modes=["sequential"], seeds=[1, 2, 3, 4], total_timesteps=10_000)
    room = Room(plan, suite, available=lambda: 900 * 2**20)  # two runs of CartPole take about 370 MB each
    assert [bool(room.take(run)) for run in runs] == [True, True, False, False]
    said = room.shortage
    assert "3 concurrent runs would need about" in said
    assert "900 MB were free before the first run" in said
    room.leave(runs[0])
    assert room.take(runs[2])
    assert room.shortage == said
    tiny = Room(plan, suite, available=lambda: 0)
    assert [bool(tiny.take(run)) for run in runs] == [True, False, False, False]


def test_shares_divide_the_usable_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    assert sorted(core for share in core_shares() for core in share) == sorted(os.sched_getaffinity(0))
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(10, 18)))
    monkeypatch.setattr(jobs_module, "usable_cpus", lambda: 3)  # as a quota may allow
    assert core_shares() == ((10, 11), (12, 13, 14), (15, 16, 17))


def test_memory_that_a_cgroup_has_left(tmp_path: Path) -> None:
    group = tmp_path / "cgroup" / "box"
    group.mkdir(parents=True)
    membership = tmp_path / "membership"
    membership.write_text("0::/box\n")
    unlimited = available_bytes(tmp_path / "cgroup", membership)
    assert unlimited > 2**20
    (group / "memory.max").write_text("1000000\n")
    (group / "memory.current").write_text("700000\n")
    (group / "memory.stat").write_text("active_file 5\ninactive_file 200000\n")
    assert available_bytes(tmp_path / "cgroup", membership) == 500_000
    (group / "memory.max").write_text("max\n")
    assert available_bytes(tmp_path / "cgroup", membership) > 2**20


# --- refusals


@pytest.mark.parametrize("value", ["0", "-1", "2.5", "many", "1025", ""])
def test_a_wrong_number_of_jobs_is_refused_in_one_line(tmp_path: Path, value: str) -> None:
    done = rlcb_here("benchmark", "--total-timesteps", "8192", f"--jobs={value}", "--output-dir", tmp_path / "out")
    done.assert_one_line_error(2, "--jobs", f"{value!r} is not a whole number from 1 to 1024 or auto")
    assert not (tmp_path / "out").exists()


def test_a_suite_that_an_earlier_version_began_goes_on_one_run_at_a_time() -> None:
    given = {"games": ["CartPole-v1"], "num_envs": 16, "num_workers": 2, "total_timesteps": 10_000}
    earlier = build_suite(None, {key: (f"--{key}", value) for key, value in given.items()})
    runs = runs_of(earlier.settings, OUT)
    assert plan_jobs(None, earlier, runs, shares(8)).count == 1
    assert plan_jobs(1, earlier, runs, shares(8)).count == 1
    for wanted in (2, "auto"):
        with pytest.raises(
            UsageError, match=f"--jobs {wanted}: this suite was started without a fixed number of threads"
        ):
            plan_jobs(wanted, earlier, runs, shares(8))
