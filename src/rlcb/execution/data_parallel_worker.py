"""The role `worker`: a data-parallel worker runs the training loop in a group, as often as its supervisor says."""

from typing import Any

from rlcb.comm.control import Heartbeat
from rlcb.comm.process_group import GlooGroup, GroupBroken, ProcessGroup, SharedMemoryGroup
from rlcb.execution.entry import WorkerContext
from rlcb.execution.loop import run_updates
from rlcb.execution.messages import GetShared, Go, GroupLost, Started, WorkerSetup
from rlcb.execution.schedule import Schedule
from rlcb.execution.worker import Worker
from rlcb.run.state import SharedState, Start, UpdateReport


def work(context: WorkerContext, setup: WorkerSetup) -> None:
    """Build the worker, then run the loop in a new group at every `Go`."""
    channel, control = context.channel, context.control
    heartbeat = Heartbeat(control, setup.rank)
    env_threads = setup.num_threads if setup.num_threads > 1 else 0
    worker = Worker(setup.config, "cpu", env_threads, setup.rank, control.size, heartbeat=heartbeat)
    history = _History(worker)
    if setup.start:
        worker.load(setup.start)
        history.keep(setup.start)
    channel.send(Started(worker.num_envs))
    while True:
        go = _wait_for_go(channel, history)
        if go.update is not None:
            history.go_back(go.update)
        group = None

        def emit(report: UpdateReport, generation: int = go.generation) -> None:
            if report.own is not None:  # kept before it is sent: what the supervisor knows of can be gone back to
                history.keep(Start(report.shared or worker.shared_state(), report.own))
            channel.send(report)
            _refuse_outdated(context, generation)

        try:
            group = _make_group(context, setup, go.generation, heartbeat)
            worker.learner.join(group)
            schedule = Schedule(setup.config, go.zero)
            run_updates(worker, schedule, emit, lambda: control.stop, keep_states=True, dumps=setup.dumps)
            while not channel.poll(0.1):  # until the supervisor has all reports and ends this process
                heartbeat()
                _refuse_outdated(context, go.generation)
        except GroupBroken:
            channel.send(GroupLost(history.updates()))
        finally:
            if group is not None:
                group.leave()


def _wait_for_go(channel: Any, history: "_History") -> Go:
    while True:
        message: Go | GetShared = channel.recv()
        if isinstance(message, Go):
            return message
        channel.send(history.shared_at(message.update))


def _refuse_outdated(context: WorkerContext, generation: int) -> None:
    """Abandon a group that the supervisor has given up."""
    if context.control.generation != generation:
        raise GroupBroken


def _make_group(context: WorkerContext, setup: WorkerSetup, generation: int, heartbeat: Heartbeat) -> ProcessGroup:
    parallel, size = setup.config.parallel, context.control.size
    if parallel.backend == "gloo":
        store = context.rendezvous(f"{setup.rendezvous}-{generation}", setup.rank, size)
        return GlooGroup(setup.rank, size, store, parallel.worker_timeout)
    return SharedMemoryGroup(context.control, setup.rank, setup.memory, generation, heartbeat)


class _History:
    """The last two states of the worker that others know of, which it can go back to."""

    def __init__(self, worker: Worker):
        self._worker = worker
        self._kept: dict[int, Start] = {}  # by update

    def keep(self, state: Start) -> None:
        """Keep a state, and forget all but the one before it."""
        self._kept[state.shared.progress.updates] = state
        for update in sorted(self._kept)[:-2]:
            del self._kept[update]

    def updates(self) -> tuple[int, ...]:
        """The updates that can be gone back to."""
        return tuple(self._kept)

    def shared_at(self, update: int) -> SharedState:
        """What all workers had in common at the end of an update."""
        return self._kept[update].shared

    def go_back(self, update: int) -> None:
        """Make the worker what it was at the end of an update."""
        self._worker.load(self._kept[update])
        self._kept = {update: self._kept[update]}
