"""Where a GPU is used in parallel runs: what is decided, what is refused, what is said."""

import json
from pathlib import Path
from typing import Any

import pytest

from helpers.in_process import rlcb_here
from helpers.processes import ROOT
from rlcb import hardware, training
from rlcb.config import gpu_plan, precision
from rlcb.config import plan as plan_module
from rlcb.config.load import build_config
from rlcb.config.plan import Plan, computed_division, make_plan
from rlcb.config.registry import Kind
from rlcb.config.schema import Config
from rlcb.config.tune import divisions
from rlcb.errors import UsageError, WorkersLost
from rlcb.limits.measure import processes_of, shape_of
from rlcb.suite import benchmark, jobs
from rlcb.suite.settings import build_suite
from rlcb.training import check_hardware, with_device


@pytest.fixture(autouse=True)
def _sixteen_cores_and_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_module, "usable_cpus", lambda: 16)
    monkeypatch.setattr(gpu_plan, "resolve_device", lambda wanted, threads: "cpu" if wanted == "cpu" else "cuda")
    monkeypatch.setattr(hardware, "cuda_problem", lambda threads=None: None)
    monkeypatch.setattr(training, "cuda_problem", lambda threads=None: None)
    monkeypatch.setattr(training, "describe_gpus", lambda: {"gpus": ["NVIDIA H200"], "gpu_driver": "570.1"})


def configured(algorithm: str = "impala", **values: Any) -> Config:
    given = {"num_workers": "auto", "device": "cuda", **values}
    return build_config(None, {k: (k, v) for k, v in given.items()}, mode="parallel", algorithm=algorithm)


@pytest.mark.parametrize(
    ("values", "plan"),
    [
        ({"actor_device": "cpu", "num_envs": 60}, Plan("actor_learner", 15, 4, 1, 30, 1, "cuda")),
        ({"actor_device": "cpu", "num_envs": 64}, Plan("actor_learner", 8, 8, 1, 16, 8, "cuda")),
        ({"actor_device": "cpu", "num_envs": 60, "num_slots": 12}, Plan("actor_learner", 12, 5, 1, 12, 4, "cuda")),
        ({}, Plan("actor_learner", 2, 16, 1, 4, 14, "cuda", 6, "cuda")),
        ({"num_workers": 2}, Plan("actor_learner", 2, 16, 1, 4, 14, "cuda", 6, "cuda")),
        ({"num_workers": 4}, Plan("actor_learner", 4, 8, 1, 8, 12, "cuda")),
        ({"num_workers": 4, "num_threads": 2, "num_learners": 1}, Plan("actor_learner", 4, 8, 1, 8, 2, "cuda")),
        ({"num_workers": 4, "device": "auto"}, Plan("actor_learner", 4, 8, 1, 8, 12, "cuda")),
        ({"actor_device": "cuda"}, Plan("actor_learner", 2, 16, 1, 4, 14, "cuda", 6, "cuda")),
        ({"actor_device": "cuda", "env_groups": 2}, Plan("actor_learner", 2, 16, 1, 4, 14, "cuda", 3, "cuda")),
        ({"actor_device": "cuda", "num_envs": 9}, Plan("actor_learner", 1, 9, 1, 2, 15, "cuda", 12, "cuda")),
    ],
)
def test_one_learner_has_the_gpu_and_actors_the_other_cores(values: dict[str, Any], plan: Plan) -> None:
    config, found = make_plan(configured(batch_size=128, **values), "parallel")
    assert found == plan
    assert (config.hardware.device, config.parallel.actor_device) == ("cuda", plan.actor_device)
    assert (config.parallel.num_workers, config.parallel.num_learners) == (plan.num_workers, 1)
    assert config.hardware.compile in (True, "graphs")
    # What was decided is what the run is saved with, and decides the same when it is resumed.
    saved = build_config(None, {}, base=config, mode="parallel")
    assert make_plan(saved, "parallel") == (config, plan)


def test_short_runs_are_not_compiled_and_long_ones_only_with_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_plan, "missing_compiler", lambda: None)
    chosen = [make_plan(configured(total_timesteps=n), "parallel")[0].hardware.compile for n in (10_000, 10_000_000)]
    assert chosen == ["graphs", True]
    monkeypatch.setattr(gpu_plan, "missing_compiler", lambda: "Triton is not installed")
    assert make_plan(configured(total_timesteps=10_000_000), "parallel")[0].hardware.compile == "graphs"
    with pytest.raises(UsageError, match="--compile true: Triton is not installed; use --compile graphs"):
        make_plan(configured(compile=True), "parallel")


def test_what_is_tried_by_measurement() -> None:
    config = configured(num_envs=64, actor_device="cpu")
    assert [(one.workers, one.learners) for one in divisions(config, 16)] == [(2, 1), (4, 1), (8, 1)]
    assert computed_division(config, 16).words(config, 16) == "8 actors, 1 learner on the GPU"
    assert [one.workers for one in divisions(configured(actor_device="cuda"), 16)] == [1, 2]
    assert computed_division(configured(actor_device="cpu"), 1).workers == 1


class Nodes:
    """A cluster with so many cores on other machines and room for so many workers."""

    def __init__(self, others: int, room: int):
        self._others, self._room = others, room

    def cores(self) -> int:
        return self._others + 4

    def others(self) -> int:
        return self._others

    def room(self) -> int:
        return self._room


def test_on_a_cluster_the_learner_stays_here_and_actors_have_the_nodes() -> None:
    def plan(others: int, room: int = 8, **values: Any) -> Plan:
        config = configured(num_envs=60, batch_size=128, cluster="head:6379", **values)
        return make_plan(config, "parallel", Nodes(others, room))[1]

    assert plan(others=12) == Plan("actor_learner", 12, 5, 1, 24, 16, "cuda")
    assert plan(others=0) == Plan("actor_learner", 3, 20, 1, 6, 13, "cuda")  # a core of this machine is the learner's
    assert plan(others=12, actor_device="cuda") == Plan("actor_learner", 2, 30, 1, 4, 16, "cuda", 1, "cuda")
    with pytest.raises(WorkersLost, match="--actor-device cuda: no node of the cluster has enough free GPU memory"):
        plan(others=12, room=0, actor_device="cuda")


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (
            {"num_learners": 2},
            "--device cuda: only one learner can use the GPU, but num_learners is 2; use --num-learners 1",
        ),
        (
            {"device": "cpu", "actor_device": "cuda"},
            "--actor-device cuda: the learner is on the CPU; use --device cuda",
        ),
    ],
)
def test_devices_that_do_not_fit_are_refused(values: dict[str, Any], words: str) -> None:
    config = configured(**values)
    with pytest.raises(UsageError, match=words):
        check_hardware(config, "parallel")
    with pytest.raises(UsageError, match=words):
        make_plan(config, "parallel")
    check_hardware(config.changed("hardware", device="cpu").changed("parallel", actor_device="cuda"), "sequential")


def test_groups_must_divide_an_actors_environments() -> None:
    with pytest.raises(UsageError, match="--env-groups 3: must divide the environments of an actor, 16"):
        make_plan(configured(actor_device="cuda", env_groups=3), "parallel")
    assert (
        make_plan(configured(actor_device="cpu", env_groups=3), "parallel")[0].hardware.env_groups == 3
    )  # nobody acts on the GPU


@pytest.mark.parametrize("algorithm", ["ppo", "a2c"])
def test_other_parallel_runs_use_cores_and_name_the_better_command(
    algorithm: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    command = f"to use the GPU: rlcb train {algorithm} --mode sequential --device cuda"
    with pytest.raises(UsageError, match=command):
        check_hardware(configured(algorithm), "parallel")
    asked = configured(algorithm, device="auto")
    assert with_device(asked, "parallel").hardware.device == "cpu"
    assert command in capsys.readouterr().err
    monkeypatch.setattr(training, "describe_gpus", lambda: {"gpus": [], "gpu_driver": None})
    assert with_device(asked, "parallel").hardware.device == "cpu"
    assert capsys.readouterr().err == ""


def test_a3c_stays_on_cores(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UsageError, match=r"--device cuda: parallel A3C runs on CPU cores$"):
        check_hardware(configured("a3c"), "parallel")
    assert with_device(configured("a3c", device="auto"), "parallel").hardware.device == "cpu"
    assert capsys.readouterr().err == ""


def test_auto_takes_the_gpu_for_impala_unless_several_learners_are_wanted(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = configured(device="auto")
    assert with_device(asked, "parallel").hardware.device == "cuda"
    assert with_device(asked.changed("parallel", num_learners=1), "parallel").hardware.device == "cuda"
    assert capsys.readouterr().err == ""
    assert with_device(asked.changed("parallel", num_learners=4), "parallel").hardware.device == "cpu"
    problem = "num_learners is 4, but only one learner can use a GPU"
    assert f"--device auto selects the CPU: {problem}" in capsys.readouterr().err
    monkeypatch.setattr(training, "cuda_problem", lambda threads=None: "there is none")
    assert with_device(asked, "parallel").hardware.device == "cpu"
    assert "--device auto selects the CPU: there is none" in capsys.readouterr().err
    on_cluster = configured(cluster="local")
    with pytest.raises(UsageError, match="cuda: learners run on this machine, not on the nodes of the cluster: "):
        with_device(on_cluster, "parallel")


def test_a_suite_with_device_auto_leaves_the_gpu_to_one_learner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)  # where the usual config files are
    monkeypatch.setattr(jobs, "resolve_device", lambda wanted: "cpu" if wanted == "cpu" else "cuda")
    impala, ppo = Kind("impala", "parallel"), Kind("ppo", "parallel")
    for device, learners, uses in (("auto", 1, True), ("cpu", 4, False)):
        given = {"algorithms": ["impala", "ppo"], "modes": ["parallel"], "total_timesteps": 10_000, "device": device}
        suite = benchmark._planned(tmp_path, build_suite(None, {key: (key, value) for key, value in given.items()}))
        config = suite.configs[impala]
        assert config.parallel.num_learners == learners
        # What `auto` is, each run decides.
        assert (config.hardware.device, config.parallel.actor_device) == (device, "auto")
        assert with_device(config, "parallel").hardware.device == ("cuda" if uses else "cpu")
        assert (jobs.on_gpu(suite, impala), jobs.on_gpu(suite, ppo)) == (uses, False)


def test_a_dry_run_shows_both_devices(tmp_path: Path) -> None:
    done = rlcb_here("train", "impala", "--mode", "parallel", "--device", "auto", "--num-actors", "4", "--dry-run",
                     "--output-dir", tmp_path / "run")  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "Device: cuda for the learner, cpu for the actors\n" in done.stdout
    assert "Learners: 1, " in done.stdout
    assert "excluding GPU memory" in done.stdout


def test_precisions_are_measured_where_the_learner_is(monkeypatch: pytest.MonkeyPatch) -> None:
    orders: list[dict[str, Any]] = []

    def run(command: list[str], input: str, **options: Any) -> Any:
        orders.append(json.loads(input))
        raise KeyboardInterrupt

    monkeypatch.setattr(precision.subprocess, "run", run)
    for device in ("cuda", "cpu"):
        with pytest.raises(KeyboardInterrupt):
            precision.with_precision(configured(device=device, precision="auto"), "parallel")
    assert [order["device"] for order in orders] == ["cuda", "cpu"]
    assert orders[0]["items"] == configured().minibatch_items


@pytest.mark.parametrize("acting", ["cpu", "cuda"])
def test_limits_are_measured_with_the_same_processes(acting: str) -> None:
    config, plan = make_plan(configured(num_envs=60, actor_device=acting), "parallel")
    shape = shape_of(config, plan, 16)
    actors, (learner,) = processes_of(config, plan, shape, 16)
    assert shape.apart
    assert len(actors) == plan.num_workers
    assert {setup.device for setup in actors} == {acting}
    assert (learner.device, learner.size, learner.config.env.num_envs) == ("cuda", 1, 60)
    assert learner.config.hardware.env_groups == 1
    assert sum(setup.config.env.num_envs // setup.size for setup in actors) == 60
