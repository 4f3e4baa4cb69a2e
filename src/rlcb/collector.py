"""Acting: environments and a policy in, a rollout out."""

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from rlcb.envs import VectorEnv
from rlcb.envs.base import refuse_infinite
from rlcb.envs.episodes import Episode, EpisodeCounter


@dataclass(frozen=True)
class Rollout:
    """T steps of B envs, time-major; observations and values have one entry more, to bootstrap from."""

    observations: Tensor  # [T+1, B, …]
    actions: Tensor  # [T, B] int64
    log_probs: Tensor  # [T, B] of the policy that acted
    values: Tensor  # [T+1, B]
    rewards: Tensor  # [T, B] raw; the value beyond a time limit is in `bonus`
    dones: Tensor  # [T, B] bool
    bonus: Tensor  # [T, B] value of what a time limit cut off, 0 elsewhere


class Collector:
    """Steps the environments with the current policy and fills one rollout, over and over in the same memory."""

    def __init__(
        self,
        env: VectorEnv,
        policy: nn.Module,
        n_steps: int,
        device: str,
        generator: torch.Generator,
        counter: EpisodeCounter,
        alive: Callable[[], None],
    ):
        """`alive` is called at every step, for whoever watches over this process."""
        self.env, self.policy, self.device, self.generator = env, policy, device, generator
        self.counter, self._alive = counter, alive
        self.episodes: list[Episode] = []
        self.env_seconds = self.acting_seconds = 0.0
        T, B = n_steps, env.num_envs
        dtype = torch.uint8 if env.spec.observation_dtype == np.uint8 else torch.float32
        self._observations = torch.empty((T + 1, B, *env.spec.observation_shape), dtype=dtype, device=device)
        self._actions = torch.empty((T, B), dtype=torch.int64, device=device)
        self._log_probs = torch.empty((T, B), device=device)
        self._values = torch.empty((T + 1, B), device=device)
        self._rewards = np.empty((T, B), np.float32)
        self._dones = np.empty((T, B), np.bool_)
        self._bonus = np.empty((T, B), np.float32)
        # Pinned memory is what a GPU copies from without a detour.
        self._staging = torch.empty_like(self._observations[0], device="cpu", pin_memory=device == "cuda")
        self.observation = env.observe()

    @torch.inference_mode()
    def collect(self) -> Rollout:
        """Act for T steps. The rollout's tensors are overwritten by the next call."""
        self.env_seconds = self.acting_seconds = 0.0
        self.episodes = []
        T, B = self._actions.shape
        # Exponential races pick an action with one division and one argmax; drawing all of them at once saves calls.
        shape = (T, B, self.env.spec.num_actions)
        races = torch.empty(shape).exponential_(generator=self.generator).to(self.device)
        self._bonus.fill(0)
        for t in range(T):
            started = time.perf_counter()
            actions = self._act(t, races[t])
            acted = time.perf_counter()
            step = self.env.step(actions)
            refuse_infinite(step)
            self._rewards[t], self._dones[t] = step.rewards, step.dones
            self.observation = step.observations
            self.episodes += self.counter.add(t, step.rewards, step.dones)
            self._alive()
            self.env_seconds += time.perf_counter() - acted
            self.acting_seconds += acted - started
            for index, final in step.cut_off.items():
                self._bonus[t, index] = self._value_of(final)
        started = time.perf_counter()
        self._values[T] = self.policy(self._store(T))[1]
        self.acting_seconds += time.perf_counter() - started
        return Rollout(
            self._observations,
            self._actions,
            self._log_probs,
            self._values,
            torch.from_numpy(self._rewards),
            torch.from_numpy(self._dones).to(self.device),
            torch.from_numpy(self._bonus).to(self.device),
        )

    def _act(self, t: int, race: Tensor) -> NDArray[np.int64]:
        """Store the current observation, draw an action for each env and keep what learning needs of it."""
        logits, self._values[t] = self.policy(self._store(t))
        log_policy = torch.log_softmax(logits, dim=1)
        actions = torch.argmax(log_policy.exp().div_(race), dim=1)
        self._actions[t] = actions
        self._log_probs[t] = log_policy.gather(1, actions.unsqueeze(1)).squeeze(1)
        return actions.cpu().numpy()

    def _store(self, t: int) -> Tensor:
        """Put the current observation into the rollout and return it on the device."""
        self._staging.copy_(torch.from_numpy(self.observation))
        return self._observations[t].copy_(self._staging, non_blocking=True)

    def _value_of(self, observation: NDArray[np.float32]) -> float:
        batch = torch.from_numpy(observation).to(self.device).unsqueeze(0)
        return float(self.policy(batch)[1])
