"""The limit of a machine: how it follows from speeds, what is measured for which run, and the file it is kept in."""

import json
import os
import random
import stat
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path
from statistics import median
from typing import Any

import pytest
import torch

from rlcb.config.load import build_config
from rlcb.config.plan import Plan, make_plan
from rlcb.config.schema import Config
from rlcb.execution.limit_worker import SpeedMeter, made_up_batch
from rlcb.execution.messages import LimitSetup
from rlcb.execution.worker import Worker
from rlcb.limits import cache
from rlcb.limits.formula import ACTIVITIES, Limit, Shape, attainable_fps, limit_of, over_rounds
from rlcb.limits.measure import phases_of, processes_of, shape_of
from rlcb.run.history import HistoryTotals

NOW = "2030-01-02T03:04:05+00:00"
LIMIT = Limit(1000.0, 5000.0, 4000.0, 3000.0, NOW)


def seconds_of_a_step(env: float, acting: float, training: float, epochs: int) -> float:
    """Add up what a process does for one step, one thing after the other."""
    seconds = 0.0
    seconds += 1 / env
    seconds += 1 / acting
    for _ in range(epochs):
        seconds += 1 / training
    return seconds


def random_rates(numbers: random.Random, actors: int, learners: int) -> dict[str, list[float]]:
    counts = {"env": actors, "acting": actors, "training": learners}
    return {name: [numbers.uniform(100, 10_000) for _ in range(count)] for name, count in counts.items()}


@pytest.mark.parametrize("seed", range(20))
def test_the_combination_is_what_the_parts_add_up_to(seed: int) -> None:
    numbers = random.Random(seed)
    workers, epochs = numbers.randint(1, 6), numbers.randint(1, 5)
    rates = random_rates(numbers, workers, workers)
    expected = 0.0
    for worker in range(workers):
        env, acting, training = (rates[name][worker] for name in ACTIVITIES)
        expected += 1 / seconds_of_a_step(env, acting, training, epochs)
    assert attainable_fps(rates, Shape(epochs)) == pytest.approx(expected)
    one = {name: values[:1] for name, values in rates.items()}
    slower = min(one["env"][0], one["acting"][0])  # both go on at the same time
    expected = 1 / (1 / slower + epochs / one["training"][0])
    assert attainable_fps(one, Shape(epochs, in_turn=True)) == pytest.approx(expected)


@pytest.mark.parametrize("seed", range(20))
def test_actors_and_learners_are_combined_by_the_cores_they_have(seed: int) -> None:
    numbers = random.Random(seed)
    actors, learners, epochs = numbers.randint(1, 6), numbers.randint(1, 6), numbers.randint(1, 5)
    rates = random_rates(numbers, actors, learners)
    collected = learned = 0.0
    for env, acting in zip(rates["env"], rates["acting"], strict=True):
        collected += 1 / (1 / env + 1 / acting)
    for training in rates["training"]:
        learned += training / epochs
    apart = attainable_fps(rates, Shape(epochs, has_learners=True, apart=True))
    assert apart == pytest.approx(min(collected, learned))
    shared = attainable_fps(rates, Shape(epochs, has_learners=True))
    assert shared == pytest.approx(collected * learned / (collected + learned))
    few = attainable_fps(rates, Shape(epochs, has_learners=True, acting_share=0.01))
    assert few == pytest.approx(min(shared, 0.01 * collected))


def test_the_median_of_the_rounds_counts() -> None:
    rounds = [{"env": [x], "acting": [2 * x], "training": [4 * x]} for x in (100.0, 9000.0, 200.0)]
    limit = limit_of(over_rounds(rounds, median), Shape(2), NOW)
    assert (limit.env_steps_per_second, limit.acting_per_second) == (200, 400)
    assert (limit.training_samples_per_second, limit.measured) == (800, NOW)
    assert limit.fps == pytest.approx(1 / (1 / 200 + 1 / 400 + 2 / 800))


# What is measured for which run


def config_of(algorithm: str, mode: str, **values: Any) -> Config:
    small = {"name": "CartPole-v1", "num_envs": 8, "n_steps": 16, **values}
    return build_config(None, {key: (key, value) for key, value in small.items()}, mode=mode, algorithm=algorithm)


def planned(algorithm: str, mode: str, **values: Any) -> tuple[Config, Plan]:
    return make_plan(config_of(algorithm, mode, **values), mode)


def test_a_sequential_run_is_one_process_with_its_threads() -> None:
    config, plan = planned("ppo", "sequential", batch_size=32, num_threads=2)
    setups, learners = processes_of(config, plan, shape_of(config, plan, 2), 2)
    assert setups == [LimitSetup(config, 2, "cpu", 2, 0, 1, 32)]
    assert not learners


def test_data_parallel_workers_have_their_share_of_environments_and_minibatch() -> None:
    config, plan = planned("ppo", "parallel", batch_size=32, num_workers=4)
    setups, learners = processes_of(config, plan, shape_of(config, plan, 2), 2)
    assert [(setup.rank, setup.size, setup.minibatch_items) for setup in setups] == [(r, 4, 8) for r in range(4)]
    assert not learners


def test_asynchronous_workers_learn_from_their_own_rollout() -> None:
    config, plan = planned("a3c", "parallel", num_workers=4)
    setups, _ = processes_of(config, plan, shape_of(config, plan, 2), 2)
    assert [(setup.size, setup.config.env.num_envs, setup.minibatch_items) for setup in setups] == [(1, 2, 32)] * 4


def test_actors_and_learners_that_share_cores_are_measured_with_all_cores_busy() -> None:
    config, plan = planned("impala", "parallel", batch_size=64, num_workers=2, num_learners=2)
    plan = replace(plan, threads=1)
    shape = shape_of(config, plan, 3)
    assert (shape.apart, shape.acting_share, shape.learning_share) == (False, 2 / 3, 2 / 3)
    assert [len(kind) for kind in processes_of(config, plan, shape, 3)] == [3, 3]
    assert [len(phase) for phase in phases_of(shape)] == [1, 1, 1]
    apart = shape_of(config, plan, 4)
    assert apart.apart
    actors, learners = processes_of(config, plan, apart, 4)
    assert [(setup.rank, setup.size) for setup in actors] == [(0, 2), (1, 2)]
    assert [setup.minibatch_items for setup in learners] == [2, 2]
    assert [len(phase) for phase in phases_of(apart)] == [2, 2]


@pytest.mark.parametrize("algorithm", ["ppo", "impala", "a2c"])
def test_a_made_up_batch_has_the_shape_of_a_real_one(algorithm: str) -> None:
    sizes = {} if algorithm == "a2c" else {"batch_size": 64}
    config = config_of(algorithm, "sequential", **sizes)
    worker, items = Worker(config), config.minibatch_items
    made_up = made_up_batch(worker.learner, worker.env.spec, items, "cpu")
    rollout = worker.collector.collect()
    real = worker.learner.algorithm.prepare(rollout, rollout.rewards, config)
    assert len(made_up) == items
    for name, tensor in vars(made_up).items():
        expected = vars(real)[name].index_select(real.item_dim, torch.arange(items))
        assert (tensor.shape, tensor.dtype) == (expected.shape, expected.dtype), name
    assert torch.isfinite(worker.learner.gradient_of(made_up)).all()
    assert worker.learner.gradient.abs().sum() > 0


def test_every_activity_has_a_speed_and_moves_no_weight() -> None:
    config = config_of("ppo", "sequential", batch_size=32)
    meter = SpeedMeter(LimitSetup(config, 1, "cpu", 0, 0, 1, 32))
    before = meter.worker.learner.weights.clone()
    assert all(meter.speed(name, 0.0) > 0 for name in ACTIVITIES)
    assert torch.equal(meter.worker.learner.weights, before)


def test_the_speed_of_a_run_leaves_its_first_update_out() -> None:
    totals = HistoryTotals()
    assert totals.steady_fps() is None
    for update, seconds in enumerate((10.0, 11.0, 12.0), 1):
        totals.add({"update": update, "step": 100 * update, "time": seconds, "time/fps": 10.0})
        assert totals.steady_fps() == (10.0 if update == 1 else 100.0)


# The file


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return cache.cache_file()


def key(**changes: Any) -> dict[str, Any]:
    config, plan = planned("ppo", "sequential", batch_size=32, num_threads=1)
    return {**cache.key_of(config, plan, "sequential"), **changes}


def test_what_was_stored_is_found_again(file: Path) -> None:
    assert cache.find(key()) is None
    assert cache.store(key(), LIMIT) == file
    assert cache.find(key()) == LIMIT
    cache.store(key(), replace(LIMIT, fps=7.0))
    found = cache.find(key())
    assert found is not None
    assert found.fps == 7
    assert len(json.loads(file.read_text())["limits"]) == 1


@pytest.mark.parametrize(
    "change", [{"cpu": "another"}, {"cores": 99}, {"torch": "0.1"}, {"rlcb": "0"}, {"n_epochs": 9}, {"precision": "x"}]
)
def test_another_machine_version_or_configuration_has_no_limit_here(file: Path, change: dict[str, Any]) -> None:
    cache.store(key(**change), LIMIT)
    assert cache.find(key()) is None
    cache.store(key(), replace(LIMIT, fps=2.0))
    assert cache.find(key(**change)) == LIMIT


def test_what_a_limit_depends_on_is_part_of_its_key() -> None:
    usual = key()
    for changed in (
        {"name": "Acrobot-v1"}, {"num_envs": 16}, {"batch_size": 64}, {"n_epochs": 2}, {"network": "mlp"},
        {"n_steps": 32}, {"num_threads": 2}, {"micro_batch_size": 16}, {"normalize_observations": True},
    ):  # fmt: skip
        config, plan = planned("ppo", "sequential", **{"batch_size": 32, "num_threads": 1, **changed})
        assert cache.key_of(config, plan, "sequential") != usual, changed
    for same in ({"seed": 7, "learning_rate": 0.5}, {"compile": "graphs"}, {"deterministic": True}, {"env_groups": 1}):
        config, plan = planned("ppo", "sequential", **{"batch_size": 32, "num_threads": 1, **same})
        assert cache.key_of(config, plan, "sequential") == usual, same
    own = config.changed("env", imports=["my_envs"])
    assert cache.key_of(own, plan, "sequential") != cache.key_of(config, plan, "sequential")


@pytest.mark.parametrize(
    "changed", [{"compile": True}, {"compile": False}, {"deterministic": True}, {"env_groups": 1}, {"env_groups": 4}]
)
def test_how_a_gpu_is_used_is_part_of_its_limits_key(file: Path, changed: dict[str, Any]) -> None:
    config, plan = planned("ppo", "sequential", batch_size=32, num_threads=1)
    plan = replace(plan, device="cuda", env_threads=1)  # as it is decided where there is a GPU
    config = config.changed("hardware", device="cuda", compile="graphs", env_groups=2)
    cache.store(cache.key_of(config, plan, "sequential"), LIMIT)
    other = config.changed("hardware", **changed)
    assert cache.find(cache.key_of(other, plan, "sequential")) is None
    assert cache.find(cache.key_of(config, replace(plan, env_threads=2), "sequential")) is None
    assert cache.find(cache.key_of(config, plan, "sequential")) == LIMIT


@pytest.mark.parametrize(
    "content",
    [
        "", "{", "[]", "7", '{"limits": []}', '{"format": 1, "limits": 7}', '{"format": 99, "limits": []}',
        "\0" * 100, "[" * 100_000, '{"format": 1, "limits": [' + "0," * 3_000_000 + "0]}",
    ],
)  # fmt: skip
def test_a_damaged_or_foreign_file_is_ignored_and_replaced(
    file: Path, content: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file.parent.mkdir(parents=True)
    file.write_text(content)
    assert cache.find(key()) is None
    assert capsys.readouterr().err.startswith(f"note: {file}: ")
    cache.store(key(), LIMIT)
    assert cache.find(key()) == LIMIT


@pytest.mark.parametrize(
    "limit",
    [None, [], {}, {**asdict(LIMIT), "fps": "1000"}, {**asdict(LIMIT), "fps": 0}, {**asdict(LIMIT), "fps": True},
     {**asdict(LIMIT), "fps": float("nan")}, {**asdict(LIMIT), "acting_per_second": -1.0},
     {**asdict(LIMIT), "measured": "yesterday"}, {**asdict(LIMIT), "measured": 5}],
)  # fmt: skip
def test_an_entry_that_is_no_limit_is_ignored(file: Path, limit: Any) -> None:
    file.parent.mkdir(parents=True)
    good = {"key": key(mode="other"), "limit": asdict(LIMIT)}
    file.write_text(json.dumps({"format": 1, "limits": [{"key": key(), "limit": limit}, 5, {"key": 5}, good]}))
    assert cache.find(key()) is None
    assert cache.find(key(mode="other")) == LIMIT


def test_something_else_in_the_place_of_the_file_is_not_waited_for(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file.parent.mkdir(parents=True)
    os.mkfifo(file)
    assert cache.find(key()) is None
    assert "a named pipe" in capsys.readouterr().err
    cache.store(key(), LIMIT)
    assert stat.S_ISREG(file.stat().st_mode)


def test_old_entries_give_way(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "_MOST_ENTRIES", 3)
    for number in range(5):
        cache.store({"number": number}, LIMIT)
    assert [entry["key"]["number"] for entry in json.loads(file.read_text())["limits"]] == [2, 3, 4]


def test_a_relative_cache_directory_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "here")
    assert cache.cache_file() == Path.home() / ".cache" / "rlcb" / "limits.json"


def test_concurrent_writers_keep_a_valid_file(file: Path) -> None:
    program = (
        "import sys; from rlcb.limits.cache import find, store; from rlcb.limits.formula import Limit\n"
        "for n in range(20):\n"
        f"    store({{'writer': sys.argv[1], 'n': n}}, Limit(n + 1.0, 2.0, 3.0, 4.0, '{NOW}')); find({{}})\n"
    )
    writers = [
        subprocess.Popen([sys.executable, "-c", program, str(number)], stderr=subprocess.PIPE, text=True)
        for number in range(4)
    ]
    for writer in writers:
        assert writer.communicate(timeout=120)[1] == ""  # not even a note on a file that was only half there
        assert writer.returncode == 0
    content = json.loads(file.read_text())
    assert 20 <= len(content["limits"]) <= 80
    assert os.listdir(file.parent) == [file.name]
