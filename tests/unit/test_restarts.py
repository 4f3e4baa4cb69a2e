"""When lost workers end a run."""

from rlcb.execution.supervisor import RestartBudget


def test_workers_lost_one_after_the_other_are_not_all_lost_if_the_first_works_again() -> None:
    budget = RestartBudget()
    budget.add(0)
    assert not budget.all_together(range(2))
    budget.delivered(0)
    budget.add(1)
    assert not budget.all_together(range(2))
    budget.add(0)
    assert budget.all_together(range(2))
