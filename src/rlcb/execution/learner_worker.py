"""The role `learner`: turns full rollout slots into updates, in step with the other learners, and publishes the policy.

Each learner learns from its share of every update's environments. It reads all rewards and keeps the running moments
itself; they are few, and so all learners agree on them. A learner on a GPU is the only one.
"""

import time
from collections import Counter

import numpy as np
import torch
from torch import Tensor

from rlcb.comm.control import Heartbeat
from rlcb.comm.process_group import GroupBroken, SharedMemoryGroup
from rlcb.comm.rollout_slots import SlotMemory
from rlcb.comm.tickets import Ticket
from rlcb.comm.versioned_weights import VersionedWeights
from rlcb.envs.episodes import Episode, EpisodeCounter
from rlcb.envs.families import spec_of
from rlcb.execution.entry import WorkerContext
from rlcb.execution.loop import crossing_seconds, finish_update
from rlcb.execution.messages import GetShared, Learn, Learned, LearnerSetup, Started
from rlcb.execution.worker import load_shared, make_normalizer, make_policy, seeds, shared_state, training_rewards
from rlcb.gpu.device import prepare_gpu
from rlcb.gpu.learner import GpuLearner
from rlcb.gpu.memory import RolloutMemory, make_rollout_memory, registered
from rlcb.learner import Learner
from rlcb.rollout import Rollout
from rlcb.run.ending import resume_flag
from rlcb.run.gpu import gpu_memory
from rlcb.run.gpu_failures import gpu_failures, less_memory
from rlcb.run.state import Progress, SharedState, UpdateReport


def work(context: WorkerContext, setup: LearnerSetup) -> None:
    """Do the updates that the supervisor orders; the first learner reports."""
    try:
        with gpu_failures(less_memory(setup.config.algorithm), lambda: f"resume with {resume_flag(setup.dumps)}"):
            _learn_on(context, setup)
    except GroupBroken:
        context.channel.recv()  # another learner is gone: the supervisor ends and replaces all of them


def _learn_on(context: WorkerContext, setup: LearnerSetup) -> None:
    learner, channel, first = LearnerWorker(setup, context), context.channel, setup.rank == 0
    learner.prepare()
    channel.send(Started(0))
    if first:
        channel.send(learner.shared_state())
    idle_since = time.perf_counter()
    while True:
        order: Learn | GetShared = channel.recv()
        if isinstance(order, GetShared):
            if first:
                channel.send(learner.shared_state())
            continue
        waited = time.perf_counter() - idle_since
        learned = learner.learn(order, waited)
        if first:
            channel.send(learned)
        idle_since = time.perf_counter()


class LearnerWorker:
    """Policy and optimizer, and where every actor's episodes and returns stand as far as they were learned from."""

    def __init__(self, setup: LearnerSetup, context: WorkerContext):
        self._setup, self.config = setup, setup.config
        config, actors, each = setup.config, setup.plan.num_workers, setup.plan.envs_per_worker
        spec, memory = spec_of(config.env), setup.memory
        self._incarnations = [0] * actors
        self._slots = SlotMemory(memory.slots, setup.plan.num_slots, config.training.n_steps, each, spec)
        self._normalizer = make_normalizer(config, actors * each)
        self._counters = [EpisodeCounter(each, first_env=actor * each) for actor in range(actors)]
        self.progress = Progress()
        self._heartbeat, generator = Heartbeat(context.control, setup.rank), torch.Generator()
        policy, device = make_policy(config, spec), setup.plan.device
        self._memory: RolloutMemory | None = None  # where a GPU learns from
        self.learner: Learner
        if device == "cpu":
            self.learner = Learner(policy, config, generator, heartbeat=self._heartbeat)
        else:
            prepare_gpu(config.hardware.deterministic)
            recorded = config.hardware.compile is not False
            self._memory = make_rollout_memory(config.training.n_steps, actors * each, spec, device)
            self.learner = GpuLearner(policy.to(device), config, generator, self._memory, recorded, self._heartbeat)
            registered(self._slots.content, device)  # so that rollouts are copied from the slots directly
        size = sum(vector.numel() for vector in self.learner.vectors())
        self._snapshot = VersionedWeights(memory.snapshot, size)
        self._published = VersionedWeights(memory.weights, self.learner.weights.numel())
        self._restore()
        updates = self.progress.updates
        key = (setup.rank, updates, setup.generation) if updates else (setup.rank,)
        generator.manual_seed(seeds(config.env.seed, *key)[1])
        if self._memory is None:
            control, generation = context.control, setup.generation
            group = SharedMemoryGroup(control, setup.rank, memory.gradients, generation, self._heartbeat)
            self.learner.join(group)
        self.group = self.learner.group
        if setup.rank == 0:
            self._publish(policy=True, snapshot=setup.previous is None)

    def prepare(self) -> None:
        """Compile and record what learning on a GPU does, where that is done at all; nothing else changes.

        It can take a minute without a heartbeat, which the supervisor allows to workers that have not started yet.
        """
        if isinstance(self.learner, GpuLearner):
            self.learner.prepare()

    def _publish(self, policy: bool, snapshot: bool) -> None:
        """Put the policy where actors find it, and all that was learned where new learners would continue from."""
        weights, *rest = (vector.cpu() for vector in self.learner.vectors())  # copied from a GPU before, not meanwhile
        if snapshot:
            self._snapshot.publish(self.progress.updates, weights, *rest)
        if policy:
            self._published.publish(self.progress.updates, weights)

    def _restore(self) -> None:
        """Go on from where the learners before these were, or from a checkpoint."""
        previous, checkpoint = self._setup.previous, self._setup.checkpoint
        if previous is not None:
            self.progress = previous.report.progress.copy()
            self._normalizer.moments = previous.reward_moments
            self._normalizer.running_return = np.array(previous.discounted_returns)
            self._incarnations = list(previous.incarnations)
            for counter, (returns, lengths) in zip(self._counters, previous.episodes, strict=True):
                counter.load(returns, lengths)
            self.learner.load_vectors(self._snapshot.roll_back(self.progress.updates))
        elif checkpoint is not None:
            load_shared(checkpoint, self.learner, self._normalizer)
            self.progress = checkpoint.progress.copy()

    def learn(self, order: Learn, waited: float) -> Learned:
        """One update from full slots, which can be filled again when this returns."""
        started, group = time.perf_counter(), self.group
        self._heartbeat()
        group.seconds.reset()
        # An actor may have had the policy of an update that was lost with its learner.
        lags = [max(self.progress.updates - ticket.version, 0) for ticket in order.tickets]
        rollout, rewards, episodes = self._gather(order.tickets)
        update = self.learner.update(rollout, rewards, order.learning_rate)
        finish_update(self.learner, self.progress, update, self._setup.dumps)
        self.learner.observe(rollout)
        if group.rank == 0:
            due = self.progress.updates % self.config.parallel.policy_update_frequency == 0
            self._publish(policy=due, snapshot=True)
        crossing = crossing_seconds(group)
        learning = time.perf_counter() - started - sum(crossing.values())
        report = UpdateReport(
            rank=0,
            progress=self.progress.copy(),
            now=0.0,
            shared=self.shared_state() if order.save and group.rank == 0 else None,
            seconds={"learning": learning, **crossing, "rollouts": waited},
            metrics={**update.metrics, "lag/mean": float(np.mean(lags)), "lag/max": max(lags)},
            skipped_steps=update.skipped_steps,
            episodes=episodes,
            gpu_memory=gpu_memory(self._setup.plan.device),
        )
        returns, under_way = self._normalizer.running_return.tolist(), [counter.state() for counter in self._counters]
        return Learned(report, self._normalizer.moments, returns, list(self._incarnations), under_way)

    def _gather(self, tickets: tuple[Ticket, ...]) -> tuple[Rollout, Tensor, list[Episode]]:
        """This learner's share of the rollouts' environments, their scaled rewards, and all episodes that ended."""
        whole = [self._slots.read(ticket) for ticket in tickets]
        rewards, episodes, seen = [], [], Counter[int]()
        for ticket, rollout in zip(tickets, whole, strict=True):
            after = seen[ticket.actor] * self.config.training.n_steps  # where an actor's second rollout begins
            scaled, ended = self._take_in(ticket, rollout, after)
            rewards.append(scaled)
            episodes += ended
            seen[ticket.actor] += 1
        if self._memory is not None:
            return self._memory.load_beside(whole), torch.cat(rewards, dim=1), episodes
        parts = self._parts(len(tickets))

        def joined(tensors: list[Tensor]) -> Tensor:
            pieces = [tensors[index][:, share] for index, share in parts]
            return pieces[0] if len(pieces) == 1 else torch.cat(pieces, dim=1)

        share_of = {name: joined([vars(each)[name] for each in whole]) for name in vars(whole[0])}
        return Rollout(**share_of), joined(rewards), episodes

    def _parts(self, rollouts: int) -> list[tuple[int, slice]]:
        """Which environments of which of an update's rollouts this learner learns from."""
        each, group = self._setup.plan.envs_per_worker, self.group
        share = each * rollouts // group.size
        mine = range(group.rank * share, (group.rank + 1) * share)
        slices = [
            slice(max(mine.start - first, 0), min(mine.stop - first, each)) for first in range(0, each * rollouts, each)
        ]
        return [(index, part) for index, part in enumerate(slices) if part.start < part.stop]

    def _take_in(self, ticket: Ticket, rollout: Rollout, after: int) -> tuple[Tensor, list[Episode]]:
        """The scaled rewards of a rollout, and the episodes that ended in it, whose first step is number `after`."""
        actor, each = ticket.actor, self._setup.plan.envs_per_worker
        envs = slice(actor * each, (actor + 1) * each)
        if self._incarnations[actor] != ticket.incarnation:
            # A new process is a new actor: its environments began anew, so nothing of the old one's continues in them.
            self._incarnations[actor] = ticket.incarnation
            self._normalizer.running_return[envs] = 0.0
            self._counters[actor] = EpisodeCounter(each, first_env=actor * each)
        raw, ends, counter = rollout.rewards.numpy(), rollout.ends.numpy(), self._counters[actor]
        episodes = [episode for t in range(len(raw)) for episode in counter.add(after + t, raw[t], ends[t])]
        rewards = training_rewards(self.config, rollout.rewards)
        if not self.config.training.normalize_rewards:
            return rewards, episodes
        scaled = self._normalizer(rewards.numpy(), rollout.dones.numpy(), lambda sums: sums, envs)
        return torch.from_numpy(scaled), episodes

    def shared_state(self) -> SharedState:
        """What a checkpoint holds of the learners."""
        return shared_state(self.learner, self._normalizer, self.progress)
