"""What a learner knows: the policy, and where every actor's episodes and returns stand as far as they were learned."""

import time
from collections import Counter
from dataclasses import asdict
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rlcb.comm.process_group import Control, SharedMemoryGroup, Waiting
from rlcb.comm.rollout_slots import SlotMemory
from rlcb.comm.versioned_weights import Bulletin
from rlcb.envs.episodes import Episode, EpisodeCounter
from rlcb.envs.families import spec_of
from rlcb.envs.normalize import RewardNormalizer
from rlcb.errors import CheckpointUnusable
from rlcb.execution.loop import refuse_divergence
from rlcb.execution.messages import Learn, Learned, LearnerSetup, Ticket
from rlcb.execution.state import Progress, make_policy, seeds
from rlcb.learner import Learner
from rlcb.rollout import Rollout


class LearnerSide:
    """One learner of a group: learns from its share of every update's environments.

    Each learner reads all rewards and keeps the running moments itself; they are few, and so all agree on them.
    """

    def __init__(self, setup: LearnerSetup, control: Control):
        self._setup, self.config = setup, setup.config
        config, parallel = setup.config, setup.config.parallel
        actors, each = parallel.num_workers, parallel.num_envs_per_worker
        assert isinstance(actors, int)
        assert each is not None
        self._each, self._lives = each, [0] * actors
        spec = spec_of(config.env)
        policy = make_policy(config, spec)
        self._slots = SlotMemory(setup.memory.slots, setup.num_slots, config.training.n_steps, each, spec)
        gamma = config.training.reward_norm_gamma
        self._normalizer = RewardNormalizer(actors * each, config.training.gamma if gamma is None else gamma)
        self._counters = [EpisodeCounter(each, first_env=actor * each) for actor in range(actors)]
        self.progress = Progress()
        self.group = SharedMemoryGroup(control, setup.rank, setup.memory.gradients, setup.generation)
        generator = torch.Generator()
        self.learner = Learner(policy, config, generator, Waiting(control, setup.rank))
        size = sum(part.numel() for part in self.learner.vectors())
        self._snapshot = Bulletin(setup.memory.snapshot, size)
        self._published = Bulletin(setup.memory.weights, self.learner.weights.numel())
        self._restore()
        key = (setup.rank, self.progress.updates, setup.generation) if self.progress.updates else (setup.rank,)
        generator.manual_seed(seeds(config.env.seed, *key)[1])
        self.learner.join(self.group)
        if setup.rank == 0:
            self._published.publish(self.progress.updates, self.learner.weights)
            if setup.carried is None:
                self._snapshot.publish(self.progress.updates, *self.learner.vectors())

    def _restore(self) -> None:
        """Go on from a checkpoint, or from where the learners before these were."""
        start, carried = self._setup.start, self._setup.carried
        if carried is not None:
            self.progress = Progress(**carried["progress"])
            self._normalizer.moments = carried["moments"]
            self._normalizer.running_return = np.array(carried["discounted"])
            self._lives = list(carried["lives"])
            for counter, state in zip(self._counters, carried["episodes"], strict=True):
                counter.load(state)
            self.learner.load_vectors(self._snapshot.go_back(self.progress.updates))
        elif start is not None:
            try:
                self.learner.load(start)
                self.progress = Progress(**start["progress"])
                self._normalizer.moments = tuple(start["normalizer"])
            except (KeyError, TypeError, ValueError, RuntimeError) as error:
                reason = str(error).splitlines()[0]
                raise CheckpointUnusable(f"the checkpoint does not fit this run: {reason}") from None

    def learn(self, order: Learn, waited: float) -> Learned:
        """One update from full slots, which can be used again when this returns."""
        started, group, config = time.perf_counter(), self.group, self.config
        group.alive()
        group.reduce_seconds = group.wait_seconds = 0.0
        # An actor may have had the policy of an update that was lost with its learner.
        lags = [max(self.progress.updates - ticket.version, 0) for ticket in order.tickets]
        rollout, rewards, episodes = self._gather(order.tickets)
        update = self.learner.update(rollout, rewards, order.learning_rate)
        self.progress.count(config.rollout_size, update.skipped_steps)
        refuse_divergence(self.progress, update, self._setup.folder, group.rank)
        crossing = {"allreduce": group.reduce_seconds, "waiting": group.wait_seconds} if group.size > 1 else {}
        if group.rank == 0:
            self._publish()
        learning = time.perf_counter() - started - sum(crossing.values())
        return Learned(
            progress=asdict(self.progress),
            metrics={**update.metrics, "lag/mean": float(np.mean(lags)), "lag/max": max(lags)},
            spent={"learning": learning, **crossing, "rollouts": waited},
            skipped_steps=update.skipped_steps,
            episodes=episodes,
            carried=self._carried(),
            common=self.common() if order.save and group.rank == 0 else None,
        )

    def _gather(self, tickets: tuple[Ticket, ...]) -> tuple[Rollout, Tensor, list[Episode]]:
        """This learner's share of the rollouts' environments, their scaled rewards, and all episodes that ended."""
        whole = [self._slots.read(ticket) for ticket in tickets]
        rewards, episodes, seen = [], [], Counter[int]()
        for ticket, rollout in zip(tickets, whole, strict=True):
            self._refuse_mixture(ticket)
            rewards.append(self._scaled(ticket.actor, rollout))
            after = seen[ticket.actor] * self.config.training.n_steps  # where an actor's second rollout begins
            episodes += self._episodes(ticket.actor, rollout, after)
            seen[ticket.actor] += 1
        columns = self._each * len(tickets) // self.group.size
        mine = range(self.group.rank * columns, (self.group.rank + 1) * columns)
        shares = [
            slice(max(mine.start - first, 0), min(mine.stop - first, self._each))
            for first in range(0, self._each * len(tickets), self._each)
        ]
        parts = [(index, share) for index, share in enumerate(shares) if share.start < share.stop]

        def joined(tensors: list[Tensor]) -> Tensor:
            pieces = [tensors[index][:, share] for index, share in parts]
            return pieces[0] if len(pieces) == 1 else torch.cat(pieces, dim=1)

        share_of = {name: joined([vars(each)[name] for each in whole]) for name in vars(whole[0])}
        return Rollout(**share_of), joined(rewards), episodes

    def _refuse_mixture(self, ticket: Ticket) -> None:
        """A new process is a new actor: its environments began anew, so nothing of the old one's goes on in them."""
        if self._lives[ticket.actor] != ticket.life:
            self._lives[ticket.actor] = ticket.life
            self._normalizer.running_return[self._envs(ticket.actor)] = 0.0
            self._counters[ticket.actor] = EpisodeCounter(self._each, first_env=ticket.actor * self._each)

    def _envs(self, actor: int) -> slice:
        return slice(actor * self._each, (actor + 1) * self._each)

    def _scaled(self, actor: int, rollout: Rollout) -> Tensor:
        if not self.config.training.normalize_rewards:
            return rollout.rewards
        rewards, dones = rollout.rewards.numpy(), rollout.dones.numpy()
        return torch.from_numpy(self._normalizer(rewards, dones, lambda sums: sums, self._envs(actor)))

    def _episodes(self, actor: int, rollout: Rollout, after: int) -> list[Episode]:
        rewards, dones = rollout.rewards.numpy(), rollout.dones.numpy()
        steps = range(len(rewards))
        return [episode for t in steps for episode in self._counters[actor].add(after + t, rewards[t], dones[t])]

    def _publish(self) -> None:
        """Keep what the next learner would need; give the actors the policy, if it is time to."""
        self._snapshot.publish(self.progress.updates, *self.learner.vectors())
        if self.progress.updates % self.config.parallel.policy_update_frequency == 0:
            self._published.publish(self.progress.updates, self.learner.weights)

    def _carried(self) -> dict[str, Any]:
        """Where the next learner would have to go on from, beside the snapshot."""
        return {
            "progress": asdict(self.progress),
            "moments": self._normalizer.moments,
            "discounted": self._normalizer.running_return.tolist(),
            "lives": list(self._lives),
            "episodes": [counter.state() for counter in self._counters],
        }

    def common(self) -> dict[str, Any]:
        """What a checkpoint holds of the learners."""
        return {
            **self.learner.state(),
            "normalizer": list(self._normalizer.moments),
            "progress": asdict(self.progress),
        }
