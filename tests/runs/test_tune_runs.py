"""Dividing a run among this machine's cores, from their number and by measurement, for real."""

from pathlib import Path

from helpers.processes import rlcb
from rlcb.config.load import build_config


def test_auto_says_what_it_chose_and_trains_with_it(tmp_path: Path) -> None:
    small = ("--env", "CartPole-v1", "--n-steps", "32", "--batch-size", "128", "--n-epochs", "1")
    config = tmp_path / "c.yaml"
    config.write_text("env: {num_envs: 8}\nparallel: {num_workers: auto}\n")
    arguments = (*small, "--config", config, "--total-timesteps", "512", "--output-dir", tmp_path / "run")
    done = rlcb("train", "ppo", "--mode", "parallel", *arguments, timeout=600)
    assert done.returncode == 0, done.stderr
    (line,) = (line for line in done.stdout.splitlines() if line.startswith("Chosen for "))
    chosen = int(line.split(": ")[1].split()[0])
    used = build_config(tmp_path / "run" / "config.yaml", {}, mode="parallel")
    assert used.parallel.num_workers == chosen
    assert used.env.num_envs == 8


def test_tune_writes_a_config_that_trains(tmp_path: Path) -> None:
    source, output = tmp_path / "c.yaml", tmp_path / "tuned.yaml"
    source.write_text(
        "env: {name: CartPole-v1, num_envs: 8}\nparallel: {num_workers: auto}\n"
        "training: {n_steps: 32, batch_size: 64, n_epochs: 1}\n"
    )
    done = rlcb("tune", "--config", source, "--output", output, "--updates", "2", "--accept-disturbed", timeout=600)
    assert done.returncode == 0, done.stderr
    assert f"Written: {output}" in done.stdout
    tuned = build_config(output, {}, mode="parallel")
    assert isinstance(tuned.parallel.num_workers, int)
    arguments = ("--total-timesteps", str(tuned.rollout_size), "--output-dir", tmp_path / "run")
    assert rlcb("train", "ppo", "--mode", "parallel", "--config", output, *arguments).returncode == 0
