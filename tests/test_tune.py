"""Dividing a run by measurement."""

from pathlib import Path

import pytest

from conftest import rlcb
from rlcb.config.load import build_config
from rlcb.config.tune import actor_divisions, divided, worker_counts


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


def test_auto_measures_says_what_it_chose_and_trains_with_it(tmp_path: Path) -> None:
    small = ("--env", "CartPole-v1", "--n-steps", "32", "--batch-size", "128", "--n-epochs", "1")
    config = tmp_path / "c.yaml"
    config.write_text("env: {num_envs: 8}\nparallel: {num_workers: auto}\n")
    arguments = (*small, "--config", config, "--total-timesteps", "512", "--output-dir", tmp_path / "run")
    done = rlcb("train", "ppo", "--mode", "parallel", *arguments, timeout=600)
    assert done.returncode == 0, done.stderr
    assert "1 workers ×" in done.stdout
    chosen = int(done.stdout.split("Chosen: ")[1].split()[0])
    used = build_config(tmp_path / "run" / "config.yaml", {}, mode="parallel")
    assert used.parallel.num_workers == chosen
    assert used.env.num_envs == 8


def test_tune_writes_a_config_that_trains(tmp_path: Path) -> None:
    source, output = tmp_path / "c.yaml", tmp_path / "tuned.yaml"
    source.write_text(
        "env: {name: CartPole-v1, num_envs: 8}\nparallel: {num_workers: auto}\n"
        "training: {n_steps: 32, batch_size: 64, n_epochs: 1}\n"
    )
    done = rlcb("tune", "--config", source, "--output", output, "--updates", "2", timeout=600)
    assert done.returncode == 0, done.stderr
    assert f"Written: {output}" in done.stdout
    tuned = build_config(output, {}, mode="parallel")
    assert isinstance(tuned.parallel.num_workers, int)
    arguments = ("--total-timesteps", str(tuned.rollout_size), "--output-dir", tmp_path / "run")
    assert rlcb("train", "ppo", "--mode", "parallel", "--config", output, *arguments).returncode == 0


def test_mistakes_get_one_line() -> None:
    rlcb("tune", "--updates", "0").assert_one_line_error(2, "--updates")
    rlcb("tune", "--config", "no/such.yaml").assert_one_line_error(2, "no/such.yaml")
