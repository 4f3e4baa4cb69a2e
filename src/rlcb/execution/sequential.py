"""Sequential execution: one process, a group of one."""

import time
from contextlib import closing

import torch

from rlcb.comm.process_group import SoloGroup
from rlcb.config.schema import Config
from rlcb.errors import Diverged
from rlcb.execution.loop import Pace, run_updates
from rlcb.execution.state import Worker
from rlcb.run.directory import RunDirectory
from rlcb.run.recorder import Recorder
from rlcb.run.summary import Outcome
from rlcb.signals import StopRequest


def train(run: RunDirectory, config: Config, device: str, num_threads: int, resume: bool, stop: StopRequest) -> Outcome:
    """Train in this process until steps or time are reached or a signal asks to stop; everything is on disk then."""
    torch.set_num_threads(num_threads)
    recorder = Recorder(run, config, device, num_threads, num_workers=1)
    worker = Worker(config, device, num_threads, SoloGroup(lambda: stop.signal is not None))
    if resume:
        worker.load(recorder.restore()[0])
    pace = Pace(config, zero=time.perf_counter() - recorder.seconds)
    with closing(worker.env), recorder:
        try:
            run_updates(worker, pace, lambda report: recorder.record([report]), keep_parts=False, dumps=run.path)
        except Diverged:
            recorder.finish("diverged")
            raise
        return recorder.finish()
