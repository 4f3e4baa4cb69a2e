"""When lost workers end a run."""

from rlcb.comm.restarts import Losses


def test_workers_lost_one_after_the_other_are_not_all_lost_if_the_first_works_again() -> None:
    losses = Losses()
    losses.add(0)
    assert not losses.all_together(range(2))
    losses.delivered(0)
    losses.add(1)
    assert not losses.all_together(range(2))
    losses.add(0)
    assert losses.all_together(range(2))
