"""A2C in one process, with one worker, A3C with one worker and resumed runs are the same."""

from pathlib import Path

import pytest

from helpers.a2c_runs import ROLLOUT, learned, trained
from helpers.processes import rlcb
from rlcb.run.checkpoint import load_checkpoint


@pytest.mark.parametrize(
    "more",
    [("--env", "coinrun", "--lr-schedule", "constant"), ("--env", "CartPole-v1", "--lr-schedule", "linear")],
    ids=["coinrun", "CartPole-v1"],
)
def test_one_worker_is_bit_identical_to_sequential_and_so_is_a3c_and_a_resumed_run(
    more: tuple[str, ...], tmp_path: Path
) -> None:
    total = ("--total-timesteps", str(6 * ROLLOUT))
    more = (*more, "--learning-rate", "7e-4")  # A2C and A3C have defaults of their own
    sequential = learned(trained(tmp_path / "s", "a2c", "sequential", 1, *more, *total))
    assert [line["update"] for line in sequential[1]] == [1, 2, 3, 4, 5, 6]
    rates = {line["learning_rate"] for line in sequential[1]}
    assert len(rates) == (6 if "linear" in more else 1)
    assert learned(trained(tmp_path / "p", "a2c", "parallel", 1, *more, *total)) == sequential
    assert learned(trained(tmp_path / "a", "a3c", "parallel", 1, *more, *total)) == sequential
    assert load_checkpoint(tmp_path / "s/checkpoints/a2c_sequential_final.pt")["optimizer"]["step"] == 6
    if "linear" not in more:  # where the learning rate knows the end, a run that was to be shorter is another run
        half = trained(tmp_path / "h", "a2c", "sequential", 1, *more, "--total-timesteps", str(3 * ROLLOUT))
        done = rlcb("train", "--resume", half, *total)
        assert done.returncode == 0, done.stderr
        assert learned(half) == sequential
