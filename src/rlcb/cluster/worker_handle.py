"""A worker on a cluster, as its supervisor sees it: the same interface as a process of this machine."""

import itertools
import os
import select
import threading
import time
from collections import deque
from typing import Any

import ray
from ray.exceptions import ActorUnschedulableError, RayActorError, RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from rlcb.cluster.placement import Place
from rlcb.cluster.ray_worker import WorkerActor, kill_process, versions
from rlcb.comm.control import Control
from rlcb.comm.pool import Failed, WorkerDied, worker_name

_PULSE_EVERY = 1.0  # seconds
_NUMBERS = itertools.count(1)


class _Inbox:
    """Messages as they arrive, with a descriptor that is readable while there are some."""

    def __init__(self) -> None:
        self._descriptor = os.eventfd(0, os.EFD_SEMAPHORE | os.EFD_NONBLOCK)
        self._messages: deque[Any] = deque()
        self._lock = threading.Lock()  # a descriptor that is closed may be another file's at once

    def fileno(self) -> int:
        """Readable when there is a message."""
        return self._descriptor

    def poll(self, timeout: float = 0.0) -> bool:
        """Whether there is a message, after waiting for one for so many seconds."""
        return self._descriptor < 0 or bool(select.select([self], [], [], timeout)[0])

    def put(self, message: Any) -> None:
        """Called from Ray's threads."""
        with self._lock:
            self._messages.append(message)
            if self._descriptor >= 0:
                os.eventfd_write(self._descriptor, 1)

    def take(self) -> Any:
        """The oldest message; there must be one."""
        os.eventfd_read(self._descriptor)
        return self._messages.popleft()

    def close(self) -> None:
        """No more messages are wanted."""
        with self._lock:
            descriptor, self._descriptor = self._descriptor, -1
            if descriptor >= 0:
                os.close(descriptor)


class RayWorker:
    """A worker on a node. Its silence is measured by asking its Ray actor for its heartbeat."""

    def __init__(self, role: str, index: int, setup: Any, control: "RemoteControl", place: Place):
        self.name, self.role, self.index, self.place = worker_name(role, index), role, index, place
        self.node_is_gone = False  # as far as Ray says so
        self.cluster_is_gone = False  # nobody is left who could end it
        self.channel = _Inbox()
        self.memory, self.cpu_seconds = 0, 0.0
        self._process: int | None = None  # the number of its process, once it is known
        self._last_beat, self._last_seen = -1, time.monotonic()
        self._asked, self._waiting_for_pulse = 0.0, False
        self.ended = False
        self._control = control
        where = NodeAffinitySchedulingStrategy(place.node, soft=False)
        label = f"{control.label} {self.name} {next(_NUMBERS)}"  # as `ray list actors` shows it
        options = WorkerActor.options(name=label, num_cpus=place.threads, scheduling_strategy=where, max_restarts=0)  # type: ignore[attr-defined]
        self._actor = options.remote()
        self._actor.steer.remote(control.generation, control.stop)
        self._actor.prepare.remote(setup.num_threads)
        self._actor.begin.remote(role, index, control.size, setup, versions())
        control.workers.append(self)
        self._ask()

    def _ask(self) -> None:
        """Have the next message sent here."""
        message, payload = self._actor.next.options(num_returns=2).remote()

        def arrived(future: Any) -> None:
            error = future.exception()
            self.channel.put((error, None) if error else (future.result(), payload))

        message.future().add_done_callback(arrived)

    def receive(self) -> Any:
        """The next message; a worker that is gone raises WorkerDied, one that cannot go on its own error."""
        if self.ended:
            raise WorkerDied(self, "ended")
        message, payload = self.channel.take()
        if isinstance(message, BaseException):
            raise self._died(message)
        self._ask()
        if isinstance(message, Failed):
            raise message.error()
        return self.unpacked(message, payload)

    def unpacked(self, message: Any, payload: Any) -> Any:
        """The message, once what came with it is where it belongs."""
        del payload
        return message

    def send(self, message: Any) -> None:
        """Tell the worker something; that it is gone is noticed when it is listened to."""
        self._tell(message)

    def _tell(self, message: Any, payload: Any = None) -> None:
        self._actor.tell.remote(message, time.perf_counter(), payload)

    def _fetched(self, payload: Any) -> Any:
        """What a message's payload holds; where it is gone with its node, so is the worker."""
        try:
            return ray.get(payload)
        except RayError as error:
            raise self._died(error) from None

    def _died(self, error: BaseException) -> WorkerDied:
        """What an error of Ray's means for this worker."""
        if isinstance(error, ActorUnschedulableError):
            self.node_is_gone = True
            return WorkerDied(self, "its node died")
        if isinstance(error, RayActorError):
            return WorkerDied(self, "its process or node died")
        return WorkerDied(self, " ".join(str(error).split())[-200:])

    def steer(self, generation: int, stop: bool) -> None:
        """Pass on what the supervisor's control page says."""
        self._actor.steer.remote(generation, stop)

    def silent_for(self) -> float:
        """Seconds since its heartbeat was last seen to move, or since `reset_silence`."""
        now = time.monotonic()
        if not self._waiting_for_pulse and now - self._asked >= _PULSE_EVERY:
            self._asked, self._waiting_for_pulse = now, True
            self._actor.pulse.remote().future().add_done_callback(self._take_pulse)
        return now - self._last_seen

    def _take_pulse(self, future: Any) -> None:
        self._waiting_for_pulse = False
        if future.exception() is None:
            beat, self.memory, self.cpu_seconds, self._process = future.result()
            if beat != self._last_beat:
                self._last_beat, self._last_seen = beat, time.monotonic()

    def reset_silence(self) -> None:
        """From now on it has something to do, so its silence counts."""
        self._last_seen = time.monotonic()

    def kill(self) -> None:
        """Stop it at once; what it had sent before is not received any more."""
        self.end()

    def end(self) -> None:
        """Make sure that it is gone."""
        if self.ended:
            return
        self.ended = True
        self._control.workers.remove(self)
        self.channel.close()
        if self.cluster_is_gone:
            return
        try:
            ray.kill(self._actor, no_restart=True)
            if self._process is not None:  # one that hangs does not hear that it is to end
                where = NodeAffinitySchedulingStrategy(self.place.node, soft=False)
                kill_process.options(scheduling_strategy=where).remote(self._process)
        except (RayError, RuntimeError, ValueError):  # the cluster is gone, and with it the worker
            pass


class RemoteControl(Control):
    """The supervisor's control page, whose changes are passed on to workers that do not share its memory."""

    def __init__(self, name: str, size: int, label: str):
        """`label`: what the names of its workers in Ray begin with."""
        super().__init__(os.memfd_create(name), size)
        self.label = label
        self.workers: list[RayWorker] = []

    def next_generation(self) -> int:
        """Make workers abandon what they are doing together."""
        generation = super().next_generation()
        self._pass_on()
        return generation

    def request_stop(self) -> None:
        """Ask the run to end after its current update."""
        if not self.stop:
            super().request_stop()
            self._pass_on()

    def _pass_on(self) -> None:
        for worker in self.workers:
            worker.steer(self.generation, self.stop)
