"""Rollouts and weights on their way between a supervisor and actors on other machines, through Ray's object store."""

from dataclasses import replace
from typing import Any

import numpy as np
import ray
import torch
from torch import Tensor

from rlcb.cluster.placement import Place
from rlcb.cluster.worker_handle import Member, RemoteControl
from rlcb.comm.rollout_slots import SlotMemory
from rlcb.comm.versioned_weights import Bulletin
from rlcb.envs.base import EnvSpec
from rlcb.envs.families import spec_of
from rlcb.execution.messages import ActorSetup, Filled, Memory, Ticket
from rlcb.rollout import Rollout, make_rollout


class RemoteDesk:
    """The actor's end: weights come with the ticket, the rollout goes with the answer."""

    def __init__(self, channel: Any, n_steps: int, num_envs: int, spec: EnvSpec):
        self._channel = channel  # a Mailbox

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
        """The rollout goes into the node's object store, from where whoever wants it can copy it."""
        self._channel.send(filled, [tensor.numpy() for tensor in tensors_of(self._rollout)])


def tensors_of(rollout: Rollout) -> list[Tensor]:
    """What a rollout is made of, always in the same order."""
    return [getattr(rollout, name) for name in rollout.__dataclass_fields__]


class Policies:
    """The published policy in the object store, put there once per version however many actors get it."""

    def __init__(self, memory: Memory, length: int):
        self._published, self._weights = Bulletin(memory.weights, length), torch.zeros(length)
        self._version = -1
        self._reference: Any = None

    def newest(self) -> tuple[int, Any]:
        """Version and reference of the newest policy."""
        version = self._published.read(self._weights)
        if version != self._version:
            self._version, self._reference = version, ray.put(self._weights.numpy())
        return self._version, self._reference


class ActorMember(Member):
    """An actor on a node: its rollouts are copied into the slots here, where the learners are."""

    def __init__(
        self, name: str, module: str, index: int, setup: ActorSetup, control: RemoteControl, place: Place,
        slots: SlotMemory, policies: Policies,
    ):  # fmt: skip
        self._slots, self._policies = slots, policies
        super().__init__(name, module, index, replace(setup, memory=None), control, place)

    def send(self, message: Any) -> None:
        """Tickets go with the newest policy."""
        assert isinstance(message, Ticket)
        version, policy = self._policies.newest()
        self._tell(replace(message, version=version), policy)

    def unpacked(self, message: Any, payload: Any) -> Any:
        """A rollout is copied into its slot, which frees it in the object store."""
        if isinstance(message, Filled):
            target = self._slots.begin(message.ticket)
            for tensor, array in zip(tensors_of(target), self._fetched(payload), strict=True):
                np.copyto(tensor.numpy(), array)
            self._slots.finish(message.ticket)
        return message


def slots_here(setup: ActorSetup) -> SlotMemory:
    """The slots, as this process sees them."""
    config, each = setup.config, setup.config.parallel.num_envs_per_worker
    assert setup.memory is not None
    assert each is not None
    return SlotMemory(setup.memory.slots, setup.num_slots, config.training.n_steps, each, spec_of(config.env))
