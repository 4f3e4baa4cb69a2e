"""Sequential execution: one process, a group of one."""

import time
from contextlib import closing

import torch

from rlcb.config.plan import Plan
from rlcb.config.schema import Config
from rlcb.errors import Diverged
from rlcb.execution.loop import run_updates
from rlcb.execution.schedule import Schedule
from rlcb.execution.worker import Worker
from rlcb.run.directory import RunDirectory
from rlcb.run.recorder import Recorder
from rlcb.run.state import Start
from rlcb.run.summary import Outcome
from rlcb.signals import StopRequest


def train(run: RunDirectory, config: Config, plan: Plan, resume: bool, stop: StopRequest) -> Outcome:
    """Train in this process until steps or time are reached or a signal asks to stop; everything is on disk then."""
    torch.set_num_threads(plan.threads)
    recorder = Recorder(run, config, plan)
    worker = Worker(config, plan.device, plan.threads)
    if resume:
        state = recorder.restore().redivided(1)
        worker.load(Start(state.shared, state.workers[0]))
    schedule = Schedule(config, zero=time.perf_counter() - recorder.seconds)
    with closing(worker.env), recorder:
        try:
            run_updates(
                worker,
                schedule,
                emit=lambda report: recorder.record([report]),
                stop=lambda: stop.signal is not None,
                keep_states=False,
                dumps=run.path,
            )
        except Diverged:
            recorder.finish("diverged")
            raise
        return recorder.finish()
