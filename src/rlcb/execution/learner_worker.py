"""A learner process: turns full slots into updates and publishes the policy. `python -m rlcb.execution.learning`."""

import time
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

from rlcb.execution.entry import serve
from rlcb.execution.messages import Give, Learn, LearnerSetup, Started

if TYPE_CHECKING:
    from rlcb.comm.process_group import Control


def work(channel: "Connection[Any, Any]", setup: LearnerSetup, control: "Control") -> None:
    """Do the updates that the supervisor asks for, in step with the other learners; the first one reports."""
    from rlcb.comm.process_group import GroupBroken
    from rlcb.execution.learner_side import LearnerSide

    side = LearnerSide(setup, control)
    first = setup.rank == 0
    channel.send(Started(0))
    if first:
        channel.send(side.common())
    idle_since = time.perf_counter()
    try:
        while True:
            order: Learn | Give = channel.recv()
            if isinstance(order, Give):
                if first:
                    channel.send(side.common())
                continue
            waited = time.perf_counter() - idle_since
            learned = side.learn(order, waited)
            if first:
                channel.send(learned)
            idle_since = time.perf_counter()
    except GroupBroken:
        channel.recv()  # another learner is gone: all are replaced, and the supervisor hangs up


if __name__ == "__main__":
    serve(work)
