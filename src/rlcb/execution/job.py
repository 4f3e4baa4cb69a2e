"""What an execution is given."""

from dataclasses import dataclass

from rlcb.comm.pool import WorkerPool
from rlcb.config.plan import Plan
from rlcb.config.schema import Config
from rlcb.run.recorder import Recorder
from rlcb.signals import StopRequest


@dataclass(frozen=True)
class Job:
    """A run to do: how, where it is recorded, what asks it to stop, and where its workers run."""

    config: Config
    plan: Plan
    recorder: Recorder
    stop: StopRequest
    pool: WorkerPool
