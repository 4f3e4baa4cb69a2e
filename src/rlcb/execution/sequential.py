"""Sequential execution: one process, a group of one."""

import time
from contextlib import closing

import torch

from rlcb.errors import OwnCodeFailed
from rlcb.execution.loop import run_updates
from rlcb.execution.schedule import Schedule
from rlcb.execution.supervisor import Job
from rlcb.execution.worker import Worker
from rlcb.run.own_failures import own_failures
from rlcb.run.state import RunState, Start


def train(job: Job, state: RunState | None) -> None:
    """Train in this process until steps or time are reached or a signal asks to stop."""
    torch.set_num_threads(job.plan.threads)
    worker = Worker(job.config, job.plan.device, job.plan.env_threads or job.plan.threads)
    try:
        with closing(worker.env), own_failures(job.config.env.name, job.config.training.network):
            _train(job, worker, state)
    except OwnCodeFailed as failure:
        if failure.kind == "environment" and job.recorder.has_begun:
            # Weights are those of the last update: environments step between updates only. Where their episodes were
            # is not saved, so new ones begin.
            job.recorder.keep(RunState(worker.shared_state(), []))
        raise


def _train(job: Job, worker: Worker, state: RunState | None) -> None:
    """Train with this worker, from the beginning or from a state."""
    if state:
        whole = state.redivided(1)
        worker.load(Start(whole.shared, whole.workers[0]))
    worker.prepare()  # before the clock starts
    run_updates(
        worker,
        Schedule(job.config, zero=time.perf_counter() - job.recorder.seconds),
        emit=lambda report: job.recorder.record([report]),
        stop=lambda: job.stop.signal is not None,
        keep_states=False,
        dumps=job.recorder.run.path,
    )
