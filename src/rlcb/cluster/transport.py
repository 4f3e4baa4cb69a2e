"""Rollouts and weights on their way between a supervisor and actors on other machines, through Ray's object store."""

from typing import Any

import numpy as np
import ray
import torch
from numpy.typing import NDArray
from torch import Tensor

from rlcb.comm.rollout_slots import RolloutTransport, SlotMemory
from rlcb.comm.tickets import Filled, Ticket
from rlcb.comm.versioned_weights import VersionedWeights
from rlcb.envs.base import EnvSpec
from rlcb.envs.families import spec_of
from rlcb.execution.messages import ActorSetup
from rlcb.networks.policy import make_policy_network
from rlcb.rollout import Rollout, make_rollout


class RemoteTransport(RolloutTransport):
    """The actor's end: weights come with the ticket, the rollout goes with the answer."""

    def __init__(self, channel: Any, setup: ActorSetup, spec: EnvSpec):
        """`channel`: a Mailbox."""
        self._channel, self._version = channel, -1
        self._rollout = make_rollout(setup.config.training.n_steps, setup.num_envs, spec)

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
        self._channel.send(filled, [tensor.numpy() for tensor in vars(self._rollout).values()])


class SupervisorTransport:
    """The supervisor's end: the slots that rollouts are copied into, and the policy that goes out with tickets."""

    def __init__(self, setup: ActorSetup):
        assert setup.memory is not None
        config, spec = setup.config, spec_of(setup.config.env)
        self._slots = SlotMemory(setup.memory.slots, setup.num_slots, config.training.n_steps, setup.num_envs, spec)
        network = make_policy_network(config.training, spec)
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

    def take_over(self, ticket: Ticket, arrays: list[NDArray[Any]]) -> None:
        """Copy a rollout into its slot, where the learners find it; that frees it in the object store."""
        for tensor, array in zip(vars(self._slots.begin(ticket)).values(), arrays, strict=True):
            np.copyto(tensor.numpy(), array)
        self._slots.finish(ticket)
