"""A worker on a cluster, as its supervisor sees it: the same interface as a process of this machine."""

import itertools
import os
import threading
import time
from collections import deque
from dataclasses import replace
from multiprocessing import Pipe
from typing import Any

import ray
from ray.exceptions import ActorUnschedulableError, RayActorError, RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from rlcb.cluster.placement import Place
from rlcb.cluster.ray_worker import WorkerActor, kill_process, versions
from rlcb.cluster.transport import SupervisorTransport
from rlcb.comm.control import Control
from rlcb.comm.pool import WorkerDied, WorkerHandle
from rlcb.comm.tickets import Filled, Ticket
from rlcb.errors import RlcbError

_PULSE_EVERY = 1.0  # seconds
_MOST_PULSES = 10  # that may wait for an answer: one that is delayed must not delay the next
_NUMBERS = itertools.count(1)


class RayWorker(WorkerHandle):
    """A worker on a node. Its silence is measured by asking its Ray actor for its heartbeat."""

    def __init__(
        self,
        role: str,
        index: int,
        setup: Any,
        control: "RemoteControl",
        place: Place,
        transport: SupervisorTransport | None = None,
    ):
        """`transport`: what an actor's tickets and rollouts go through."""
        super().__init__(role, index)
        self.place, self._control, self._transport = place, control, transport
        self.cluster_is_gone = False  # nobody is left who could end it
        self.ended = self._node_is_lost = False
        self._messages: deque[tuple[Any, Any]] = deque()  # that have arrived, each with a rollout or None
        self.channel, self._bell = Pipe(duplex=False)  # a byte for each of them
        self._lock = threading.Lock()  # a descriptor that is closed may be another file's at once
        self.memory, self.cpu_seconds = 0, 0.0
        self._process: int | None = None  # the number of its process, once it is known
        self._asked, self._pulses = 0.0, 0  # when it was asked for a pulse, and how many are not answered yet
        self._told = self._received = 0  # messages
        where = NodeAffinitySchedulingStrategy(place.node, soft=False)
        label = f"{control.label} {self.name} {next(_NUMBERS)}"  # as `ray list actors` shows it
        options = WorkerActor.options(name=label, num_cpus=place.threads, scheduling_strategy=where)  # type: ignore[attr-defined]
        self._actor = options.remote(role, index, control.size, setup.num_threads)
        self.send(setup)
        self._actor.begin.remote(versions())
        control.workers.append(self)
        self._ask()

    def _put(self, message: Any, rollout: Any = None) -> None:
        """A message has arrived; called from Ray's threads."""
        with self._lock:
            if not self.ended:
                self._messages.append((message, rollout))
                self._bell.send_bytes(b".")

    def _ask(self) -> None:
        """Have the next message sent here, and what belongs to it."""
        message, payload = self._actor.next.options(num_returns=2).remote(self._received)

        def arrived(future: Any) -> None:
            error = future.exception()
            if error:
                self._put(error)
            elif isinstance(future.result(), Filled):
                # Its rollout is fetched before it is told of: what waits for a node that is gone is not the supervisor.
                payload.future().add_done_callback(lambda rollout: fetched(future.result(), rollout))
            else:
                self._put(future.result())

        def fetched(filled: Filled, rollout: Any) -> None:
            error = rollout.exception()
            self._put(error or filled, None if error else rollout.result())

        message.future().add_done_callback(arrived)

    def receive(self) -> Any:
        """The next message that has arrived; an actor's rollout is in its slot then."""
        self.channel.recv_bytes()
        message, rollout = self._messages.popleft()
        if isinstance(message, RlcbError):
            raise message
        if isinstance(message, BaseException):
            raise self._died(message)
        self._received += 1
        self._ask()
        if isinstance(message, Filled) and self._transport:
            self._transport.take_over(message.ticket, rollout)
        return message

    def send(self, message: Any) -> None:
        """Have its Ray actor pass a message on; tickets go with the newest policy."""
        policy = None
        if isinstance(message, Ticket) and self._transport:
            version, policy = self._transport.newest_policy()
            message = replace(message, version=version)
        self._actor.tell.remote(self._told, message, time.perf_counter(), policy)
        self._told += 1

    def lose_node(self, how: str) -> None:
        """Its node cannot be reached: have that received as its death, once."""
        if not self._node_is_lost:
            self._node_is_lost = True
            self._put(ConnectionError(how))

    def _died(self, error: BaseException) -> WorkerDied:
        """What an error of Ray's means for this worker; Ray has repeated calls for as long as the process lived."""
        if isinstance(error, ActorUnschedulableError):
            return WorkerDied(self, "its node died")
        if isinstance(error, RayActorError):
            return WorkerDied(self, "its process or node died")
        return WorkerDied(self, " ".join(str(error).split())[-200:])

    def ask_pulse(self) -> None:
        """Pass on what the supervisor's control page says, and have the worker's heartbeat sent here."""
        self._asked, self._pulses = time.monotonic(), self._pulses + 1
        pulse = self._actor.pulse.remote(self._control.generation, self._control.stop)
        pulse.future().add_done_callback(self._take_pulse)

    def silent_for(self) -> float:
        """Seconds since its heartbeat was last seen to move; asks for it, too, every so often."""
        if time.monotonic() - self._asked >= _PULSE_EVERY and self._pulses < _MOST_PULSES:
            self.ask_pulse()
        return super().silent_for()

    def _take_pulse(self, future: Any) -> None:
        self._pulses -= 1
        if future.exception() is None:
            beat, self.memory, self.cpu_seconds, self._process = future.result()
            self.note_beat(beat)

    def kill(self) -> None:
        """Stop it at once; what it had sent before is not received any more."""
        self.end()

    def end(self) -> None:
        """Make sure that it is gone."""
        if self.ended:
            return
        self._control.workers.remove(self)
        with self._lock:
            self.ended = True
            self.channel.close()
            self._bell.close()
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
            worker.ask_pulse()
