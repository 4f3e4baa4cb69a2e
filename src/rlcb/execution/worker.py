"""A worker process of the data-parallel execution. Started by the supervisor as `python -m rlcb.execution.worker`."""

from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

from rlcb.execution.entry import serve
from rlcb.execution.messages import Broken, Go, Setup, Started

if TYPE_CHECKING:
    from rlcb.comm.process_group import Control
    from rlcb.execution.loop import Report
    from rlcb.execution.state import Worker


def work(channel: "Connection[Any, Any]", setup: Setup, control: "Control") -> None:
    """Build the worker, then run the loop as often as the supervisor says go."""
    from rlcb.comm.process_group import GroupBroken, Waiting
    from rlcb.execution.loop import Pace, run_updates
    from rlcb.execution.state import Worker

    worker = Worker(
        setup.config, "cpu", setup.num_threads if setup.num_threads > 1 else 0, Waiting(control, setup.rank)
    )
    if setup.start:
        worker.load(setup.start)
    memory = _Memory(worker, channel)
    channel.send(Started(worker.num_envs))
    while True:
        go = _wait_for_go(channel, memory)
        if go.update is not None:
            memory.go_back(go.update)
        group = None
        try:
            group = _join(worker, setup, control, go.generation)
            run_updates(worker, Pace(setup.config, go.zero), memory.report, keep_parts=True, dumps=setup.folder)
            channel.recv()  # ends when the supervisor has everything and hangs up
        except GroupBroken:
            channel.send(Broken(memory.updates()))
        finally:
            if group is not None:
                group.leave()


def _wait_for_go(channel: "Connection[Any, Any]", memory: "_Memory") -> Go:
    while True:
        message = channel.recv()
        if isinstance(message, Go):
            return message
        channel.send(memory.common_at(message.update))


def _join(worker: "Worker", setup: Setup, control: "Control", generation: int) -> Any:
    from rlcb.comm.process_group import GlooGroup, SharedMemoryGroup

    group: SharedMemoryGroup | GlooGroup
    if setup.config.parallel.backend == "gloo":
        timeout = setup.config.parallel.worker_timeout
        group = GlooGroup(control, setup.rank, _store(setup, control.size, generation), timeout)
    else:
        group = SharedMemoryGroup(control, setup.rank, setup.memory, generation)
    worker.join(group)
    return group


def _store(setup: Setup, size: int, generation: int) -> Any:
    """Where this generation of the group finds together."""
    meeting = f"{setup.rendezvous}-{generation}"
    if setup.config.parallel.cluster:
        from rlcb.cluster.rendezvous import ClusterStore

        return ClusterStore(meeting, setup.rank, size)
    from torch.distributed import FileStore  # type: ignore[attr-defined]

    return FileStore(meeting, size)


class _Memory:
    """Sends reports, and remembers the last two moments that it can go back to."""

    def __init__(self, worker: "Worker", channel: "Connection[Any, Any]"):
        self._worker, self._channel = worker, channel
        self._kept: dict[int, dict[str, Any]] = {}

    def report(self, report: "Report") -> None:
        """Remember a moment with a part, then tell the supervisor: in this order, so that it can be gone back to."""
        if report.part is not None:
            common = report.common or self._worker.common()
            self._kept[report.progress["updates"]] = {**common, "part": report.part}
            for update in sorted(self._kept)[:-2]:
                del self._kept[update]
        self._channel.send(report)

    def updates(self) -> tuple[int, ...]:
        """The updates that can be gone back to."""
        return tuple(self._kept)

    def common_at(self, update: int) -> dict[str, Any]:
        """What all workers had in common at the end of an update."""
        return {key: value for key, value in self._kept[update].items() if key != "part"}

    def go_back(self, update: int) -> None:
        """Make the worker what it was at the end of an update."""
        if update in self._kept:
            self._worker.load(self._kept[update])
            self._kept = {update: self._kept[update]}


if __name__ == "__main__":
    serve(work)
