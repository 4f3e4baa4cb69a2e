"""The program that every worker process runs: `python -m rlcb.execution.entry ROLE …`, started by a WorkerPool.

Nothing here imports numpy or torch before threads and allocator are set: both read their settings when they load.
"""

import os
import signal
import sys
from dataclasses import dataclass
from importlib import import_module
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

from rlcb.console import limit_waiting, protect_output
from rlcb.envs.own_code import load_all
from rlcb.errors import RlcbError
from rlcb.hardware import prepare_process
from rlcb.signals import CAUGHT, die_with

if TYPE_CHECKING:
    from collections.abc import Callable

    from rlcb.comm.control import Control
    from rlcb.comm.rollout_slots import RolloutTransport
    from rlcb.comm.shared_parameters import SharedParameters
    from rlcb.envs.base import EnvSpec
    from rlcb.execution.messages import ActorSetup, AsyncSetup

# Each role is a module of this package with a function `work(context, setup)`.
ROLES = {
    "worker": "data_parallel_worker",
    "actor": "actor",
    "learner": "learner_worker",
    "async_worker": "async_worker",
    "limit_worker": "limit_worker",
}


@dataclass(frozen=True)
class WorkerContext:
    """What a worker finds where it runs: its supervisor, and its way to the other workers."""

    channel: Any  # messages from and to the supervisor: `recv`, `send` and `poll`
    control: "Control"
    rendezvous: "Callable[[str, int, int, Callable[[], None]], Any]"  # a store where the ranks of a gloo group meet
    transport: "Callable[[ActorSetup, EnvSpec, int], RolloutTransport]"  # an actor's way to the learners
    parameters: "Callable[[AsyncSetup], SharedParameters]"  # those that asynchronous workers move together


def local_context(channel: "Connection[Any, Any]", control: "Control") -> WorkerContext:
    """On the supervisor's machine: a socket, a file and shared memory."""
    from torch.distributed import FileStore  # type: ignore[attr-defined]

    from rlcb.comm.rollout_slots import RolloutTransport, SlotMemory
    from rlcb.comm.shared_parameters import SharedParameters, WorkCounter
    from rlcb.comm.versioned_weights import VersionedWeights

    def transport(setup: "ActorSetup", spec: "EnvSpec", num_weights: int) -> "RolloutTransport":
        assert setup.memory is not None
        n_steps = setup.config.training.n_steps
        slots = SlotMemory(setup.memory.slots, setup.num_slots, n_steps, setup.num_envs, spec)
        return RolloutTransport(channel, slots, VersionedWeights(setup.memory.weights, num_weights))

    return WorkerContext(
        channel,
        control,
        rendezvous=lambda name, rank, size, check: FileStore(name, size),
        transport=transport,
        parameters=lambda setup: SharedParameters(
            setup.parameters, control.arrivals, setup.index, WorkCounter(setup.work)
        ),
    )


def run_role(role: str, context: WorkerContext, setup: Any) -> None:
    """Work in this role until the run ends or the supervisor does; a failure for the user is sent to the supervisor."""
    import torch

    from rlcb.run.own_failures import own_failures

    torch.set_num_threads(setup.num_threads)
    config = setup.config
    try:
        load_all(config.modules)
        with own_failures(config.env.name, config.training.network):
            import_module(f"rlcb.execution.{ROLES[role]}").work(context, setup)
    except RlcbError as error:
        context.channel.send(error)


def main() -> None:
    """Prepare the process, wait for the set-up, then work."""
    role = sys.argv[1]
    connection, control, size, threads, parent = (int(word) for word in sys.argv[2:7])
    die_with(parent)
    for number in CAUGHT:
        signal.signal(number, signal.SIG_IGN)
    protect_output()
    limit_waiting()
    prepare_process(threads)
    from rlcb.comm.control import Control

    channel: Connection[Any, Any] = Connection(connection)
    try:
        run_role(role, local_context(channel, Control(control, size)), channel.recv())
    except (EOFError, ConnectionError):
        os._exit(1)  # the supervisor is gone, and there is no one left to report to


if __name__ == "__main__":
    main()
