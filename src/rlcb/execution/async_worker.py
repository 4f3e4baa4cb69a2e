"""A worker process of the asynchronous execution. `python -m rlcb.execution.async_worker`."""

from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

from rlcb.execution.entry import serve
from rlcb.execution.messages import Applied, AsyncSetup, Go, OutOfWork, Started

if TYPE_CHECKING:
    from rlcb.comm.process_group import Control


def work(channel: "Connection[Any, Any]", setup: AsyncSetup, control: "Control") -> None:
    """Act, compute a gradient, apply it, report; again, as long as there is work, and waiting for nobody."""
    from rlcb.execution.loop import Pace, one_update, refuse_divergence
    from rlcb.execution.state import Worker

    group = _parameters(setup, control)
    threads = setup.num_threads if setup.num_threads > 1 else 0
    worker = Worker(setup.config, "cpu", threads, group, setup.seed_key)
    worker.normalizer.moments = setup.moments
    channel.send(Started(worker.num_envs))
    while True:
        go: Go = channel.recv()
        pace = Pace(setup.config, go.zero)
        group.refresh()
        while not control.stop and group.take():
            fraction = pace.fraction(setup.steps_before + group.applied() * setup.config.rollout_size)
            update, episodes, spent = one_update(worker, fraction)
            refuse_divergence(worker.progress, update, setup.folder, rank=0)
            if update.skipped_steps:
                group.refresh()  # the others may have moved on from what this gradient was taken at
            lag, moments = group.lag, worker.normalizer.moments
            channel.send(Applied(update.metrics, spent, update.skipped_steps, episodes, lag, moments))
        channel.send(OutOfWork())


def _parameters(setup: AsyncSetup, control: "Control") -> Any:
    """The parameters that all workers move: in shared memory, or kept by somebody on a cluster."""
    if setup.config.parallel.cluster:
        from rlcb.cluster.parameter_server import RemoteParameters

        return RemoteParameters(setup.keeper, control, setup.worker)
    from rlcb.comm.shared_parameters import SharedParameters, WorkCounter

    return SharedParameters(control, setup.worker, setup.parameters, work=WorkCounter(setup.work))


if __name__ == "__main__":
    serve(work)
