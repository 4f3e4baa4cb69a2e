"""Rollouts and weights on their way between a supervisor and actors on other machines, through Ray's object store."""

from dataclasses import replace
from typing import Any

import numpy as np
import ray
import torch
from torch import Tensor

from rlcb.cluster.placement import Place
from rlcb.cluster.worker_handle import RayWorker, RemoteControl
from rlcb.comm.rollout_slots import SlotMemory
from rlcb.comm.tickets import Filled, Ticket
from rlcb.comm.versioned_weights import VersionedWeights
from rlcb.envs.base import EnvSpec
from rlcb.envs.families import spec_of
from rlcb.execution.messages import ActorSetup
from rlcb.networks import make_network
from rlcb.rollout import Rollout, make_rollout


class RemoteTransport:
    """The actor's end: weights come with the ticket, the rollout goes with the answer."""

    def __init__(self, channel: Any, n_steps: int, num_envs: int, spec: EnvSpec):
        """`channel`: a Mailbox."""
        self._channel = channel

        def empty(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
            return torch.empty(shape, dtype=dtype)

        self._rollout = make_rollout(n_steps, num_envs, spec, empty, empty)
        self._version = -1

    def take(self, weights: Tensor) -> Ticket:
        """Wait for a ticket and copy the policy that came with it, unless it is the one at hand."""
        handed, policy = self._channel.recv()
        if handed.version != self._version:
            with torch.no_grad():
                weights.copy_(torch.from_numpy(np.array(policy)))
            self._version = handed.version
        ticket: Ticket = handed
        return ticket

    def begin(self, ticket: Ticket) -> Rollout:
        """This actor's own memory."""
        del ticket
        return self._rollout

    def deliver(self, filled: Filled) -> None:
        """Put the rollout into the node's object store, from where the supervisor copies it."""
        self._channel.send(filled, [tensor.numpy() for tensor in tensors_of(self._rollout)])


def tensors_of(rollout: Rollout) -> list[Tensor]:
    """What a rollout is made of, always in the same order."""
    return [getattr(rollout, name) for name in rollout.__dataclass_fields__]


class SupervisorTransport:
    """The supervisor's end: the slots that rollouts are copied into, and the policy that goes out with tickets."""

    def __init__(self, setup: ActorSetup):
        assert setup.memory is not None
        config, spec = setup.config, spec_of(setup.config.env)
        self.slots = SlotMemory(setup.memory.slots, setup.num_slots, config.training.n_steps, setup.num_envs, spec)
        network = make_network(config.training.network, spec)
        length = sum(parameter.numel() for parameter in network.parameters())
        self._published, self._weights = VersionedWeights(setup.memory.weights, length), torch.zeros(length)
        self._version = -1
        self._reference: Any = None

    def newest_policy(self) -> tuple[int, Any]:
        """Version and reference of the newest policy: put into the object store once, however many actors get it."""
        if self._published.newest_version() != self._version:
            self._version = self._published.read(self._weights)
            self._reference = ray.put(self._weights.numpy())
        return self._version, self._reference


class RayActorWorker(RayWorker):
    """An actor on a node: its rollouts are copied into the slots here, where the learners are."""

    def __init__(
        self, index: int, setup: ActorSetup, control: RemoteControl, place: Place, transport: SupervisorTransport
    ):
        self._transport = transport
        super().__init__("actor", index, replace(setup, memory=None), control, place)

    def send(self, message: Any) -> None:
        """Tickets go with the newest policy."""
        assert isinstance(message, Ticket)
        version, policy = self._transport.newest_policy()
        self._tell(replace(message, version=version), policy)

    def unpacked(self, message: Any, payload: Any) -> Any:
        """A rollout is copied into its slot, which frees it in the object store."""
        if isinstance(message, Filled):
            slots = self._transport.slots
            for tensor, array in zip(tensors_of(slots.begin(message.ticket)), self._fetched(payload), strict=True):
                np.copyto(tensor.numpy(), array)
            slots.finish(message.ticket)
        return message
