"""Dividing a run by measurement."""

import pytest

from helpers.in_process import rlcb_here
from rlcb.config import tune
from rlcb.config.load import build_config
from rlcb.config.plan import Division, computed_division, divided
from rlcb.config.tune import actor_divisions, worker_counts
from rlcb.disturbance.verdict import Disturbance
from rlcb.errors import ResourceError


def test_only_divisions_that_share_evenly_are_tried() -> None:
    assert worker_counts(num_envs=32, minibatch=1024, cores=16) == [1, 2, 4, 8, 16]
    assert worker_counts(num_envs=32, minibatch=1024, cores=6) == [1, 2, 4]
    assert worker_counts(num_envs=12, minibatch=96, cores=6) == [1, 2, 4, 6]
    assert worker_counts(num_envs=7, minibatch=7, cores=2) == [1]


@pytest.mark.parametrize(("num_envs", "batch_size"), [(32, 1024), (48, 768), (7, 128), (30, 1920), (1, 128)])
def test_every_division_into_actors_and_learners_that_is_tried_is_valid(num_envs: int, batch_size: int) -> None:
    flags = {"num_envs": ("", num_envs), "batch_size": ("", batch_size), "num_workers": ("", "auto")}
    config = build_config(None, flags, mode="parallel", algorithm="impala")
    for cores in (1, 2, 3, 4, 6, 16, 64):
        tried = actor_divisions(num_envs, config.minibatch_items, cores)
        assert len(set(tried)) == len(tried) > 0
        for division in tried:
            used = divided(config, division)
            assert (used.parallel.num_workers, used.parallel.num_learners) == (division.workers, division.learners)
            assert used.env.num_envs == num_envs


def test_a_trial_that_was_disturbed_is_repeated_once(monkeypatch: pytest.MonkeyPatch) -> None:
    config, noise = build_config(None, {}, mode="parallel"), Disturbance(True, others_percent=48.0)
    trials = [(500.0, noise), (900.0, Disturbance(False)), (500.0, noise), (600.0, noise), (500.0, noise)]
    monkeypatch.setattr(tune, "_trial", lambda *_: trials.pop(0))
    assert tune.measure(config, Division(2), 2, accept_disturbed=False) == 900
    with pytest.raises(ResourceError, match="disturbed twice: other programs used 48 % of the cores"):
        tune.measure(config, Division(2), 2, accept_disturbed=False)
    assert tune.measure(config, Division(2), 2, accept_disturbed=True) == 500


def test_mistakes_get_one_line() -> None:
    rlcb_here("tune", "--updates", "0").assert_one_line_error(2, "--updates")
    rlcb_here("tune", "--config", "no/such.yaml").assert_one_line_error(2, "no/such.yaml")


@pytest.mark.parametrize(
    ("algorithm", "cores", "more", "division"),
    [
        ("ppo", 1, {}, (1, 0)),
        ("ppo", 2, {}, (2, 0)),
        ("ppo", 4, {}, (4, 0)),
        ("ppo", 16, {}, (16, 0)),
        ("ppo", 16, {"num_threads": 2}, (8, 0)),
        ("ppo", 6, {}, (4, 0)),
        ("ppo", 4, {"num_envs": 7, "batch_size": 128}, (1, 0)),
        ("a2c", 16, {}, (16, 0)),
        ("impala", 1, {}, (1, 1)),
        ("impala", 2, {}, (2, 2)),
        ("impala", 4, {}, (2, 2)),
        ("impala", 8, {}, (4, 4)),
        ("impala", 16, {}, (4, 4)),
        ("impala", 16, {"n_epochs": 1, "batch_size": 1024}, (8, 8)),
        ("impala", 16, {"num_learners": 2}, (4, 2)),
        ("impala", 16, {"num_slots": 3}, (2, 4)),
    ],
)
def test_the_division_for_a_number_of_cores(
    algorithm: str, cores: int, more: dict[str, int], division: tuple[int, int]
) -> None:
    given = {"num_workers": ("x", "auto"), **{key: ("x", value) for key, value in more.items()}}
    config = build_config(None, given, mode="parallel", algorithm=algorithm)
    found = computed_division(config, cores)
    assert (found.workers, found.learners) == division
    used = divided(config, found)
    assert used.parallel.num_workers == found.workers
    assert used.env.num_envs == config.env.num_envs
