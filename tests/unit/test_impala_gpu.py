"""IMPALA's learner and actors as they work on a GPU, here with tensors in this machine's memory, against those of CPUs.

Whatever is not named "cpu" counts as a GPU, so "cpu:0", torch's other name of the same memory, takes that way.
"""

import os
from collections.abc import Iterator
from dataclasses import astuple, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rlcb.comm.control import Control
from rlcb.comm.rollout_slots import SlotMemory
from rlcb.comm.tickets import Filled, Ticket
from rlcb.comm.versioned_weights import VersionedWeights
from rlcb.config.load import build_config
from rlcb.config.plan import Plan
from rlcb.config.schema import Config
from rlcb.envs.families import spec_of
from rlcb.execution import actor
from rlcb.execution.entry import WorkerContext, local_context, run_role
from rlcb.execution.learner_worker import LearnerWorker
from rlcb.execution.messages import ActorSetup, Learn, Learned, LearnerSetup, SharedMemory, Started
from rlcb.gpu.learner import GpuLearner
from rlcb.run.state import SharedState

ACTORS, EACH, STEPS, SLOTS = 2, 4, 16, 4
HERE = "cpu:0"


class End(Exception):
    """Nothing is left to receive."""


@dataclass
class Channel:
    """A worker's end of the socket: what it gets, and what it has sent."""

    orders: list[Any]
    sent: list[Any]

    def recv(self) -> Any:
        if not self.orders:
            raise End
        return self.orders.pop(0)

    def send(self, message: Any) -> None:
        self.sent.append(message)


@pytest.fixture
def memory() -> Iterator[SharedMemory]:
    yield from new_memory()


@pytest.fixture
def other_memory() -> Iterator[SharedMemory]:
    yield from new_memory()


def new_memory() -> Iterator[SharedMemory]:
    found = SharedMemory(*(os.memfd_create("rlcb-test") for _ in range(4)))
    yield found
    for descriptor in astuple(found):
        os.close(descriptor)


def configured(name: str = "CartPole-v1", **more: Any) -> Config:
    values = {
        "name": name, "num_workers": ACTORS, "num_envs_per_worker": EACH, "n_steps": STEPS, "batch_size": 2 * STEPS,
        "num_slots": SLOTS, "num_learners": 1, "compile": False, "env_groups": 2,
        "rms_eps": 1.0,  # with the usual 0.01 rounding of the summed gradients becomes a part of the steps
        **more,
    }  # fmt: skip
    given = {key: (key, value) for key, value in values.items()}
    return build_config(None, given, mode="parallel", algorithm="impala")


def actor_setup(config: Config, memory: SharedMemory, index: int, device: str) -> ActorSetup:
    return ActorSetup(config, index, 0, 1, EACH, SLOTS, memory, (index,), device)


def context_of(channel: Channel) -> WorkerContext:
    anything: Any = channel
    return local_context(anything, Control(os.memfd_create("rlcb-test-control"), ACTORS))


def filled(config: Config, memory: SharedMemory, index: int, slots: tuple[int, ...], device: str) -> list[Ticket]:
    """Have an actor fill these slots, one after the other; the tickets that it returned."""
    channel = Channel([Ticket(slot, slot, actor=index) for slot in slots], [])
    with pytest.raises(End):
        actor.work(context_of(channel), actor_setup(config, memory, index, device))
    started, *answers = channel.sent
    assert started == Started(EACH)
    assert all(isinstance(answer, Filled) for answer in answers)
    return [answer.ticket for answer in answers]


def learner_setup(config: Config, memory: SharedMemory, device: str, previous: Learned | None = None) -> LearnerSetup:
    plan = Plan("actor_learner", ACTORS, EACH, 1, SLOTS, 1, device)
    return LearnerSetup(config, 0, 1, plan, memory, 1, Path(os.devnull), None, previous)


def new_learner(config: Config, memory: SharedMemory, device: str, previous: Learned | None = None) -> LearnerWorker:
    control = Control(os.memfd_create("rlcb-test-control"), 1)
    anything: Any = None
    context = WorkerContext(anything, control, anything, anything, anything)
    return LearnerWorker(learner_setup(config, memory, device, previous), context)


def published(config: Config, memory: SharedMemory, learner: LearnerWorker) -> tuple[int, torch.Tensor]:
    into = torch.zeros_like(learner.learner.weights)
    return VersionedWeights(memory.weights, into.numel()).read(into), into


@pytest.mark.parametrize(("name", "scaled"), [("CartPole-v1", True), ("coinrun", True), ("CartPole-v1", False)])
def test_an_update_from_slots_is_that_of_the_cpu_learner(
    name: str, scaled: bool, memory: SharedMemory, other_memory: SharedMemory
) -> None:
    config = configured(name, normalize_rewards=scaled)
    learners = [new_learner(config, one, device) for one, device in ((memory, "cpu"), (other_memory, HERE))]
    assert isinstance(learners[1].learner, GpuLearner)
    assert torch.equal(learners[0].learner.weights, learners[1].learner.weights)
    for one in (memory, other_memory):
        tickets = [
            ticket for index in range(ACTORS) for ticket in filled(config, one, index, (index, index + 2), "cpu")
        ]
    tickets.sort(key=lambda ticket: ticket.slot)
    # Two rollouts of different actors, then the actors' next ones in the other order.
    for chosen in ((tickets[0], tickets[1]), (tickets[3], tickets[2])):
        one, other = (learner.learn(Learn(chosen, 1e-3, save=False), 0.0) for learner in learners)
        assert one.report.episodes == other.report.episodes
        assert (one.episodes, one.incarnations) == (other.episodes, other.incarnations)
        assert (one.reward_moments, one.discounted_returns) == (other.reward_moments, other.discounted_returns)
        assert one.report.metrics is not None
        assert other.report.metrics == pytest.approx(one.report.metrics, rel=1e-3, abs=1e-5)
        assert {"learning", "rollouts"} == set(other.report.seconds)
    before, after = learners[0].learner.weights, learners[1].learner.weights
    assert float((before - after).abs().max()) < 1e-5
    version, weights = published(config, other_memory, learners[1])
    assert version == 2
    assert torch.equal(weights, after)


def test_a_new_learner_goes_on_from_what_the_one_before_had_reported(memory: SharedMemory) -> None:
    config = configured()
    first = new_learner(config, memory, HERE)
    tickets = [filled(config, memory, index, (index,), "cpu")[0] for index in range(ACTORS)]
    learned = first.learn(Learn(tuple(tickets), 1e-3, save=False), 0.0)
    second = new_learner(config, memory, HERE, previous=learned)
    for mine, other in zip(first.learner.vectors(), second.learner.vectors(), strict=True):
        assert torch.equal(mine, other)
    assert second.progress.updates == 1
    assert published(config, memory, second)[0] == 1
    # The rollouts of an update that was lost with its learner are still in their slots.
    again = second.learn(Learn(tuple(tickets), 1e-3, save=True), 0.0)
    assert again.report.progress.updates == 2
    assert isinstance(again.report.shared, SharedState)


def test_what_is_compiled_and_recorded_is_ready_before_the_learner_says_so(
    memory: SharedMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    channel = Channel([], [])
    monkeypatch.setattr(GpuLearner, "prepare", lambda self: channel.sent.append("prepared"))
    with pytest.raises(End):
        run_role("learner", context_of(channel), learner_setup(configured(), memory, HERE))
    prepared, started, state = channel.sent
    assert (prepared, started) == ("prepared", Started(0))
    assert isinstance(state, SharedState)


@pytest.mark.parametrize("name", ["CartPole-v1", "coinrun"])
def test_an_actor_fills_its_slots_with_what_one_on_a_cpu_would(
    name: str, memory: SharedMemory, other_memory: SharedMemory
) -> None:
    config = configured(name)
    for one, device in ((memory, "cpu"), (other_memory, HERE)):
        new_learner(config, one, "cpu")  # publishes the weights that are acted with
        assert [ticket.rollout for ticket in filled(config, one, 0, (2, 0), device)] == [0, 1]
    spec = spec_of(config.env)
    slots = [SlotMemory(one.slots, SLOTS, STEPS, EACH, spec) for one in (memory, other_memory)]
    for ticket in (Ticket(2, 2, actor=0), replace(Ticket(0, 0, actor=0), rollout=1)):
        here, there = (vars(one.read(ticket)) for one in slots)
        for field, tensor in here.items():
            assert np.allclose(tensor, there[field], atol=1e-5), field
