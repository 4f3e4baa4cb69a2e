"""What a configuration comes to on some machine or cluster."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from helpers.own_code import write_own_code
from rlcb.config import plan as plan_module
from rlcb.config.division import largest_division
from rlcb.config.load import build_config
from rlcb.config.named import default_file
from rlcb.config.plan import FEW_CORES, Plan, fewer_workers_note, make_plan
from rlcb.config.schema import Config
from rlcb.envs.own_code import FOLDER, permit
from rlcb.errors import WorkersLost


@dataclass
class Nodes:
    """A cluster with so many cores, of which so many are on other machines."""

    total: int
    elsewhere: int = 0

    def cores(self) -> int:
        return self.total

    def others(self) -> int:
        return self.elsewhere

    def room(self) -> int:
        return self.total


@pytest.fixture(autouse=True)
def _eight_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_module, "usable_cpus", lambda: 8)


def configured(algorithm: str, mode: str = "parallel", **values: Any) -> Config:
    return build_config(None, {key: (key, value) for key, value in values.items()}, mode=mode, algorithm=algorithm)


@pytest.mark.parametrize(
    ("algorithm", "values", "plan"),
    [
        ("ppo", {"num_workers": 4}, Plan("data_parallel", 4, 8, 0, 0, 2, "cpu")),
        ("ppo", {"num_workers": 4, "num_threads": 1}, Plan("data_parallel", 4, 8, 0, 0, 1, "cpu")),
        ("ppo", {"num_workers": 16, "num_threads": 3}, Plan("data_parallel", 16, 2, 0, 0, 1, "cpu")),
        ("a3c", {"num_workers": 2, "num_envs_per_worker": 3}, Plan("async_gradients", 2, 3, 0, 0, 4, "cpu")),
        ("impala", {"num_workers": 4}, Plan("actor_learner", 4, 8, 4, 8, 1, "cpu")),
        ("impala", {"num_workers": 2, "num_learners": 2, "num_slots": 3}, Plan("actor_learner", 2, 16, 2, 3, 3, "cpu")),
        ("impala", {"num_workers": 16}, Plan("actor_learner", 16, 2, 4, 32, 1, "cpu")),
    ],
)
def test_every_number_of_a_parallel_run_is_known(algorithm: str, values: dict[str, Any], plan: Plan) -> None:
    config, found = make_plan(configured(algorithm, **values), "parallel")
    assert found == plan
    parallel = config.parallel
    assert (parallel.num_workers, parallel.num_envs_per_worker) == (plan.num_workers, plan.envs_per_worker)
    assert parallel.num_learners == (plan.num_learners or None)
    assert parallel.num_slots == values.get("num_slots")  # what is saved with the run says what was given


def threads_of(mode: str, algorithm: str = "ppo", **values: Any) -> int:
    return make_plan(configured(algorithm, mode, **values), mode)[1].threads


def test_networks_for_vectors_get_one_thread_and_others_what_the_cores_allow() -> None:
    for algorithm in ("ppo", "impala", "a2c"):
        assert threads_of("sequential", algorithm, name="CartPole-v1") == 1
    assert threads_of("sequential", name="Pendulum-v1", network="mlp256") == 1
    assert threads_of("sequential", name="coinrun", network="impala") == 8
    assert threads_of("parallel", name="CartPole-v1", num_workers=2) == 1
    assert threads_of("parallel", name="coinrun", num_workers=2) == 4
    learners = {"num_workers": 2, "num_learners": 2}
    assert threads_of("parallel", "impala", name="CartPole-v1", **learners) == 1
    assert threads_of("parallel", "impala", name="coinrun", **learners) == 3


def test_a_number_of_threads_that_is_given_is_kept_for_any_network() -> None:
    assert threads_of("sequential", name="CartPole-v1", num_threads=3) == 3
    assert threads_of("parallel", name="CartPole-v1", num_workers=2, num_threads=3) == 3


def test_of_a_network_of_the_users_own_nothing_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FOLDER, str(write_own_code(tmp_path)))
    monkeypatch.setattr("sys.path", [*sys.path])  # importing puts the folder there
    permit(["my_networks"])
    try:
        assert threads_of("sequential", name="CartPole-v1", network="my_networks:Wide") == 8
    finally:
        permit([])
        sys.modules.pop("my_networks", None)


@pytest.mark.parametrize("algorithm", ["ppo", "impala", "a2c"])
def test_a_sequential_run_is_one_worker_with_all_cores(algorithm: str) -> None:
    config = configured(algorithm, "sequential", num_envs=16)
    assert make_plan(config, "sequential") == (config, Plan("sequential", 1, 16, 0, 0, 8, "cpu"))
    assert make_plan(config.changed("hardware", num_threads=3), "sequential")[1].threads == 3


@pytest.mark.parametrize(
    ("algorithm", "pool", "values", "plan"),
    [
        ("ppo", Nodes(12), {"num_workers": "auto"}, Plan("data_parallel", 8, 4, 0, 0, 1, "cpu")),
        ("ppo", Nodes(12, 4), {"num_workers": 4}, Plan("data_parallel", 4, 8, 0, 0, 3, "cpu")),
        ("a3c", Nodes(12, 4), {"num_workers": "auto", "num_envs": 24}, Plan("async_gradients", 12, 2, 0, 0, 1, "cpu")),
        ("impala", Nodes(12, 4), {"num_workers": "auto"}, Plan("actor_learner", 4, 8, 4, 8, 2, "cpu")),
        ("impala", Nodes(8), {"num_workers": "auto"}, Plan("actor_learner", 8, 4, 4, 16, 1, "cpu")),
    ],
)
def test_a_cluster_has_a_worker_for_every_core(algorithm: str, pool: Nodes, values: dict[str, Any], plan: Plan) -> None:
    config, found = make_plan(configured(algorithm, **values), "parallel", pool)
    assert found == plan
    assert config.parallel.num_workers == plan.num_workers
    assert config.parallel.backend == ("gloo" if algorithm == "ppo" else "shared_memory")


def test_a_cluster_with_less_room_begins_with_fewer_workers_and_says_when_these_are_too_few() -> None:
    config, found = make_plan(configured("ppo", num_workers=8), "parallel", Nodes(6))
    assert (found.num_workers, found.envs_per_worker, config.parallel.num_workers) == (4, 8, 8)
    with pytest.raises(WorkersLost, match="room for 6 workers, enough for a group of 4, not 5"):
        make_plan(configured("ppo", num_workers=8, min_workers=5), "parallel", Nodes(6))


def test_the_largest_division_shares_environments_and_minibatches_evenly() -> None:
    config = configured("ppo", num_workers=1, num_envs=24, batch_size=512)
    assert [largest_division(config, most) for most in (0, 1, 3, 7, 30)] == [0, 1, 2, 4, 8]
    asynchronous = configured("a3c", num_workers=1, num_envs=24)
    assert [largest_division(asynchronous, most) for most in (0, 1, 3, 7, 30)] == [0, 1, 3, 6, 24]


@pytest.mark.parametrize(
    ("algorithm", "values", "words"),
    [
        ("ppo", {"num_envs_per_worker": 32}, "for the 8 workers that suit 8 cores, add --num-workers 8 (8 × 32 = 256 "),
        ("ppo", {"num_envs_per_worker": 16}, "for the 8 workers that suit 8 cores, add --num-workers 8 (8 × 16 = 128 "),
        (
            "impala",
            {"num_envs_per_worker": 32},
            "for the 4 actors that suit 8 cores, add --num-actors 4 (4 × 32 = 128 ",
        ),
        ("ppo", {"num_envs_per_worker": 4}, None),  # 8 workers
        ("ppo", {"num_envs_per_worker": 32, "num_workers": 1}, None),  # as it is wanted
        ("ppo", {}, None),
        ("a3c", {"num_envs_per_worker": 32}, None),  # the number of workers is part of the method
    ],
)
def test_a_share_that_leaves_cores_without_workers_is_told_what_to_add(
    algorithm: str, values: dict[str, Any], words: str | None
) -> None:
    given = {key: (f"--{key.replace('_', '-')}", value) for key, value in values.items()}
    file = default_file(algorithm, "parallel")
    found = fewer_workers_note(build_config(file, given, mode="parallel", algorithm=algorithm), given)
    assert found is None if words is None else found is not None and words in found


@pytest.mark.parametrize("cores", [1, 2, 4, 8, 16, 64])
@pytest.mark.parametrize("network", ["auto", "mlp256"])
@pytest.mark.parametrize("algorithm", ["ppo", "a2c", "impala"])
def test_continuous_control_takes_one_thread_per_process_and_no_more_than_the_cores(
    algorithm: str, network: str, cores: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(plan_module, "usable_cpus", lambda: cores)
    given = {"name": ("--env", "Pendulum-v1"), "network": ("--network", network)}
    for mode in ("sequential", "parallel"):
        config = build_config(default_file(algorithm, mode), given, mode=mode, algorithm=algorithm)
        _, plan = make_plan(config, mode)
        assert plan.threads == 1
        if plan.num_learners and cores <= FEW_CORES:
            continue  # actors and learners take turns there (docs/presets.md)
        assert plan.num_workers + plan.num_learners <= max(cores, 1)
    assert " × 1 thread\n" in capsys.readouterr().out  # of what was chosen


def test_a_number_of_threads_is_told_as_it_will_be(capsys: pytest.CaptureFixture[str]) -> None:
    for name, words in (("coinrun", "2 workers × 4 threads"), ("Pendulum-v1", "2 workers × 1 thread")):
        config = configured("ppo", num_workers="auto", num_envs=2, n_steps=512, batch_size=1024, name=name)
        make_plan(config, "parallel")
        assert f"Chosen for 8 cores: {words}\n" in capsys.readouterr().out
