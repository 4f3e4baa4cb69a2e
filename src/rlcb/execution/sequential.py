"""Sequential execution: one process, a group of one."""

import time
from contextlib import closing

import torch

from rlcb.execution.loop import run_updates
from rlcb.execution.schedule import Schedule
from rlcb.execution.supervisor import Job
from rlcb.execution.worker import Worker
from rlcb.run.state import RunState, Start


def train(job: Job, state: RunState | None) -> None:
    """Train in this process until steps or time are reached or a signal asks to stop."""
    torch.set_num_threads(job.plan.threads)
    worker = Worker(job.config, job.plan.device, job.plan.env_threads or job.plan.threads)
    if state:
        whole = state.redivided(1)
        worker.load(Start(whole.shared, whole.workers[0]))
    with closing(worker.env):
        worker.prepare()  # before the clock starts
        run_updates(
            worker,
            Schedule(job.config, zero=time.perf_counter() - job.recorder.seconds),
            emit=lambda report: job.recorder.record([report]),
            stop=lambda: job.stop.signal is not None,
            keep_states=False,
            dumps=job.recorder.run.path,
        )
