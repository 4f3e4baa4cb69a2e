"""More threads or processes than this machine has cores for: said in every mode."""

from pathlib import Path

import pytest

from helpers.in_process import rlcb_here
from rlcb.hardware import usable_cpus

CORES = usable_cpus()
MANY = str(CORES + 1)
HERE = f"there {'is 1 usable core' if CORES == 1 else f'are {CORES} usable cores'}; "
TURNS = f"{HERE}they will compete for the cores; fewer would be faster"
ONE_EACH = ("--num-envs-per-worker", "1", "--mode", "parallel")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("ppo", "--num-threads", MANY), f"--num-threads {MANY}: {TURNS}"),
        (("impala", "--num-threads", MANY), f"--num-threads {MANY}: {TURNS}"),
        (("a2c", *ONE_EACH, "--num-workers", MANY), f"--num-workers {MANY}: {TURNS}"),
        (("a3c", *ONE_EACH, "--num-workers", MANY), f"--num-workers {MANY}: {TURNS}"),
        (("impala", *ONE_EACH, "--num-actors", MANY, "--batch-size", "16777216"), f"--num-actors {MANY}: {TURNS}"),
        (
            ("impala", *ONE_EACH, "--num-actors", MANY, "--num-learners", MANY, "--batch-size", "16777216"),
            f"--num-learners {MANY}: {TURNS}",
        ),
        (
            ("a2c", "--mode", "parallel", "--num-workers", "1", "--num-threads", MANY),
            f"--num-threads {MANY}: {HERE}each worker gets {CORES}",
        ),
    ],
)
def test_it_is_said_before_the_run_starts(words: tuple[str, ...], said: str, tmp_path: Path) -> None:
    done = rlcb_here("train", *words, "--env", "CartPole-v1", "--dry-run", "--output-dir", tmp_path / "run")
    assert done.returncode == 0, done.stderr
    assert f"note: {said}\n" in done.stderr


@pytest.mark.parametrize("words", [("ppo",), ("a2c", "--mode", "parallel"), ("impala", "--mode", "parallel")])
def test_nothing_is_said_of_what_fits(words: tuple[str, ...], tmp_path: Path) -> None:
    done = rlcb_here("train", *words, "--dry-run", "--output-dir", tmp_path / "run")
    assert done.returncode == 0, done.stderr
    assert "usable core" not in done.stderr
