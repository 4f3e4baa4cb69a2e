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
from ray.exceptions import (
    ActorUnavailableError,
    ActorUnschedulableError,
    ObjectLostError,
    RayActorError,
    RayError,
    RpcError,
)
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from rlcb.cluster.placement import Place
from rlcb.cluster.ray_worker import Pulse, WorkerActor, kill_process, versions
from rlcb.cluster.transport import SupervisorTransport
from rlcb.comm.control import Control
from rlcb.comm.pool import WorkerDied, WorkerHandle
from rlcb.comm.tickets import Filled, Ticket
from rlcb.envs.families import release_versions
from rlcb.envs.own_code import FOLDER
from rlcb.errors import RlcbError
from rlcb.hardware import Memory

_PULSE_EVERY = 1.0  # seconds
_REPEAT_AFTER = 3.0  # seconds without a sign that a message has arrived
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
        self.cluster_is_gone = False  # no process is left that could end it
        self.ended = self.node_is_lost = False
        self._messages: deque[tuple[Any, Any]] = deque()  # that have arrived, each with a rollout or None
        self.channel, self._bell = Pipe(duplex=False)  # a byte for each of them
        self._lock = threading.Lock()  # a descriptor that is closed may be another file's at once
        self._pulse: Pulse | None = None  # the last one
        self._asked, self._pulses = 0.0, 0  # when it was asked for a pulse, and how many are not answered yet
        self._told: list[tuple[int, Any, Any]] = []  # number, message and policy, of those that may not have arrived
        self._num_told = self._received = self._arrived = 0  # messages
        self._repeated = time.monotonic()  # when something was last told, asked for or repeated
        where = NodeAffinitySchedulingStrategy(place.node, soft=False)
        label = f"{control.label} {self.name} {next(_NUMBERS)}"  # as `ray list actors` shows it
        options = {"name": label, "num_cpus": place.threads, "num_gpus": place.gpus, "scheduling_strategy": where}
        needed = {**versions(), **release_versions(setup.config.env.name)}
        about = (role, index, control.size, setup.num_threads, needed, os.environ.get(FOLDER, ""))
        self._actor = WorkerActor.options(**options).remote(*about)  # type: ignore[attr-defined]
        self.send(setup)
        control.workers.append(self)
        self._ask()

    def _put(self, message: Any, rollout: Any = None, number: int | None = None) -> None:
        """A message has arrived, perhaps not for the first time; called from Ray's threads."""
        with self._lock:
            if self.ended or (number is not None and number < self._arrived):
                return
            self._arrived += number is not None
            self._messages.append((message, rollout))
            self._bell.send_bytes(b".")

    def _ask(self) -> None:
        """Have the next message sent here, and what belongs to it."""
        number, self._repeated = self._received, time.monotonic()
        message, payload = self._actor.next.options(num_returns=2).remote(number)

        def arrived(future: Any) -> None:
            if future.exception():
                self._fail(future.exception())
            elif isinstance(future.result(), Filled):
                # Its rollout is fetched before it is told of: what waits for a node that is gone is not the supervisor.
                payload.future().add_done_callback(lambda rollout: fetched(future.result(), rollout))
            else:
                self._put(future.result(), number=number)

        def fetched(filled: Filled, rollout: Any) -> None:
            if rollout.exception():
                self._fail(rollout.exception())
            else:
                self._put(filled, rollout.result(), number)

        message.future().add_done_callback(arrived)

    def _fail(self, error: BaseException) -> None:
        """A call has failed. That is the worker's death if Ray knows it to be; other calls are repeated."""
        if not isinstance(error, ActorUnavailableError | ObjectLostError | RpcError):
            self._put(error)

    def _repeat(self, pulse: Pulse) -> None:
        """Tell again what has not arrived, and ask again for what was left, if that has taken long."""
        self._told = [entry for entry in self._told if entry[0] >= pulse.taken]
        if time.monotonic() - self._repeated < _REPEAT_AFTER:
            return
        self._repeated = time.monotonic()
        for number, message, policy in self._told:
            self._actor.tell.remote(number, message, time.perf_counter(), policy)
        if pulse.left > self._received:
            self._ask()

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
        self._told.append((self._num_told, message, policy))
        self._actor.tell.remote(self._num_told, message, time.perf_counter(), policy)
        self._num_told, self._repeated = self._num_told + 1, time.monotonic()

    def lose_node(self, how: str) -> None:
        """Its node cannot be reached: have that received as its death, once."""
        if not self.node_is_lost:
            self.node_is_lost = True
            self._put(ConnectionError(how))

    def _died(self, error: BaseException) -> WorkerDied:
        """What an error of Ray's means for this worker; Ray has repeated calls for as long as the process lived."""
        if isinstance(error, ActorUnschedulableError):
            self.node_is_lost = True
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
        if self._pulse is not None:
            self._repeat(self._pulse)
        if time.monotonic() - self._asked >= _PULSE_EVERY * (1 if self._pulses < _MOST_PULSES else _MOST_PULSES):
            self.ask_pulse()
        return super().silent_for()

    def _take_pulse(self, future: Any) -> None:
        self._pulses -= 1
        if future.exception() is None:
            self._pulse = future.result()
            self.note_beat(self._pulse.beat)

    @property
    def memory(self) -> Memory:
        """What its process takes, as far as is known."""
        return self._pulse.memory if self._pulse else Memory()

    @property
    def cpu_seconds(self) -> float:
        """Processor time that it has taken, as far as is known."""
        return self._pulse.cpu_seconds if self._pulse else 0.0

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
            if self._pulse is not None:  # one that hangs does not hear that it is to end
                where = NodeAffinitySchedulingStrategy(self.place.node, soft=False)
                kill_process.options(scheduling_strategy=where).remote(self._pulse.process)
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
