"""The role `worker`: a data-parallel worker runs the training loop in a group, as often as its supervisor says."""

from rlcb.comm.control import Heartbeat
from rlcb.comm.process_group import GlooGroup, GroupBroken, ProcessGroup, SharedMemoryGroup
from rlcb.execution.entry import WorkerContext
from rlcb.execution.loop import run_updates
from rlcb.execution.messages import Assignment, Go, Started, Waiting, WorkerSetup
from rlcb.execution.schedule import Schedule
from rlcb.execution.worker import Worker
from rlcb.run.state import UpdateReport


def work(context: WorkerContext, setup: WorkerSetup) -> None:
    """Get ready for every `Assignment` and run the loop at every `Go`, until the group is broken."""
    channel, heartbeat = context.channel, Heartbeat(context.control, setup.index)
    worker, size = None, 0
    channel.send(Waiting())
    while True:
        message: Assignment | Go = channel.recv()
        if isinstance(message, Assignment):
            built = worker is None or (worker.rank, size) != (message.rank, message.size) or message.start is None
            if built:
                size, threads = message.size, setup.num_threads if setup.num_threads > 1 else 0
                worker = Worker(setup.config, "cpu", threads, message.rank, size, heartbeat=heartbeat)
            assert worker is not None
            if message.start:
                worker.load(message.start)
            channel.send(Started(worker.num_envs if built else 0))
        else:
            assert worker is not None
            channel.send(Waiting(_run(context, setup, worker, size, message, heartbeat)))


def _run(context: WorkerContext, setup: WorkerSetup, worker: Worker, size: int, go: Go, heartbeat: Heartbeat) -> str:
    """Run the loop in a new group until that is broken, and tell why; when the run is over the process is ended."""
    channel, control = context.channel, context.control
    group: ProcessGroup | None = None

    def check() -> None:
        """Show that this process is alive, and abandon a group that the supervisor has given up."""
        heartbeat()
        if control.generation > go.generation:
            raise GroupBroken

    def emit(report: UpdateReport) -> None:
        channel.send(report)
        check()

    try:
        if setup.config.parallel.backend == "gloo":
            store = context.rendezvous(f"{setup.rendezvous}-{go.generation}", worker.rank, size, check)
            group = GlooGroup(worker.rank, size, store, setup.config.parallel.worker_timeout, check)
        else:
            group = SharedMemoryGroup(control, worker.rank, setup.memory, go.generation, heartbeat)
        worker.learner.join(group)
        schedule = Schedule(setup.config, go.zero)
        run_updates(worker, schedule, emit, lambda: control.stop, keep_states=True, dumps=setup.dumps)
        while not channel.poll(0.1):
            check()
        return ""
    except GroupBroken as broken:
        return str(broken.__cause__ or "")
    finally:
        if isinstance(group, GlooGroup):
            group.leave()
