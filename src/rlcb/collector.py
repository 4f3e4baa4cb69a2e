"""Acting: environments and a policy in, a rollout out."""

import time
from collections.abc import Callable

import torch
from torch import Tensor

from rlcb.envs.base import Actions, VectorEnv, refuse_infinite
from rlcb.envs.episodes import Episode, EpisodeCounter
from rlcb.networks.computation import Computation
from rlcb.networks.distributions import draw, fill_noise
from rlcb.rollout import Rollout, make_rollout


class Collector:
    """Steps the environments with the current policy and fills one rollout, over and over in the same memory."""

    def __init__(
        self,
        env: VectorEnv,
        policy: Computation,
        n_steps: int,
        generator: torch.Generator,
        counter: EpisodeCounter,
        alive: Callable[[], None],
    ):
        """`alive` is called at every step, for whoever watches over this process."""
        self.env, self.policy, self.generator = env, policy, generator
        self.counter, self._alive = counter, alive
        self.episodes: list[Episode] = []
        self.env_seconds = self.acting_seconds = 0.0
        self._own = make_rollout(n_steps, env.num_envs, env.spec)
        self.observation = env.observe()

    @torch.inference_mode()
    def collect(self, into: Rollout | None = None) -> Rollout:
        """Act for T steps, into this memory or the collector's own, which the next call overwrites."""
        self.env_seconds = self.acting_seconds = 0.0
        self.episodes = []
        self.policy.refresh()
        rollout = into or self._own
        T, B = rollout.rewards.shape
        rewards, dones, ends = (tensor.numpy() for tensor in (rollout.rewards, rollout.dones, rollout.ends))
        truncation_value = rollout.truncation_value.numpy()
        spec = self.env.spec
        # Drawing all random numbers at once saves calls.
        noise = fill_noise(torch.empty((T, B, spec.num_actions)), spec.continuous, self.generator)
        truncation_value.fill(0)
        for t in range(T):
            started = time.perf_counter()
            actions = self._act(rollout, t, noise[t])
            acted = time.perf_counter()
            step = self.env.step(actions)
            refuse_infinite(step)
            rewards[t], dones[t], ends[t] = step.rewards, step.dones, step.episode_ends
            self.observation = step.observations
            self.episodes += self.counter.add(t, step.rewards, step.episode_ends)
            self._alive()
            self.env_seconds += time.perf_counter() - acted
            self.acting_seconds += acted - started
            for index, final in step.truncated.items():
                truncation_value[t, index] = float(self.policy(torch.from_numpy(final).unsqueeze(0))[1])
        started = time.perf_counter()
        rollout.values[T] = self.policy(self._store(rollout, T))[1]
        self.acting_seconds += time.perf_counter() - started
        return rollout

    def _act(self, rollout: Rollout, t: int, noise: Tensor) -> Actions:
        """Store the current observation, draw an action for each env and keep what learning needs of it."""
        outputs, rollout.values[t] = self.policy.act(self._store(rollout, t))
        actions, rollout.log_probs[t] = draw(outputs, noise, self.env.spec.continuous)
        rollout.actions[t] = actions
        drawn: Actions = actions.numpy()
        return drawn

    def _store(self, rollout: Rollout, t: int) -> Tensor:
        """Put the current observation into the rollout and return it."""
        return rollout.observations[t].copy_(torch.from_numpy(self.observation))
