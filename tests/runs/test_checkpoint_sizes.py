"""The size that a dry run foresees for checkpoints is near that of real ones."""

import re
from pathlib import Path

import numpy as np
import pytest

from helpers.processes import rlcb
from rlcb.config.load import build_config
from rlcb.envs.base import EnvSpec
from rlcb.networks import NAMES, make_network
from rlcb.run.fit import Fit
from rlcb.run.space import num_weights

PIXELS, FLOATS = np.dtype(np.uint8), np.dtype(np.float32)
SPECS = (EnvSpec((64, 64, 3), PIXELS, 15), EnvSpec((84, 91, 4), PIXELS, 6), EnvSpec((17,), FLOATS, 5))
SMALL = ("--num-threads", "1", "--tensorboard", "false")
TWO = ("--mode", "parallel", "--num-workers", "2", "--num-envs", "16")


@pytest.mark.parametrize(
    ("network", "spec"),
    [(name, spec) for name in NAMES for spec in SPECS if spec.is_image == (name in ("nature", "impala"))],
)
def test_the_weights_of_every_network_are_counted(network: str, spec: EnvSpec) -> None:
    config = build_config(None, {"network": ("--network", network)})
    made = make_network(network, spec)
    assert num_weights(config, Fit(spec)) == sum(parameter.numel() for parameter in made.parameters())


@pytest.mark.parametrize(
    ("algorithm", "words"),
    [
        ("ppo", ("--env", "CartPole-v1", "--total-timesteps", "8192")),
        ("a2c", ("--env", "CartPole-v1", *TWO, "--total-timesteps", "2048")),
        ("a3c", ("--env", "CartPole-v1", "--num-workers", "2", "--total-timesteps", "1024")),
        ("ppo", ("--env", "Pendulum-v1", "--network", "mlp256", "--total-timesteps", "4096")),
        ("ppo", ("--env", "coinrun", "--network", "nature", "--n-steps", "4", "--total-timesteps", "128")),
        ("ppo", ("--env", "coinrun", "--network", "impala", "--n-steps", "4", "--total-timesteps", "128")),
    ],
)
def test_real_checkpoints_are_about_as_large_as_foreseen(
    algorithm: str, words: tuple[str, ...], tmp_path: Path
) -> None:
    train = ("train", algorithm, *words, *SMALL, "--output-dir", tmp_path / "run")
    planned = rlcb(*train, "--dry-run")
    foreseen = re.search(r"Disk: about ([\d.]+) MB per checkpoint", planned.stdout)
    assert foreseen, planned.stdout + planned.stderr
    done = rlcb(*train)
    assert done.returncode == 0, done.stderr
    (final,) = (tmp_path / "run" / "checkpoints").glob("*_final.pt")
    assert 1 / 1.5 < float(foreseen[1]) * 2**20 / final.stat().st_size < 1.5
