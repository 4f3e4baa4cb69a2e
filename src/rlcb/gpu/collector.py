"""Acting on a GPU: while it computes one group's actions, the other groups' environments step."""

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rlcb.envs.base import Actions, Step, refuse_infinite
from rlcb.envs.episodes import Episode, EpisodeCounter
from rlcb.envs.groups import EnvGroup, EnvGroups
from rlcb.gpu.device import distinct_writes
from rlcb.gpu.graph import Graph
from rlcb.gpu.memory import RolloutMemory, pinned, registered
from rlcb.networks.computation import Computation
from rlcb.networks.distributions import draw, fill_noise
from rlcb.rollout import Rollout


class GpuCollector:
    """Steps groups of environments with the current policy and fills one rollout, over and over in the same memory.

    For each group and step, one CUDA graph copies the observations from pinned memory, computes and draws actions,
    writes all of it into the rollout at a step number that it counts itself, and copies the actions back.
    """

    def __init__(
        self,
        env: EnvGroups,
        policy: Computation,
        memory: RolloutMemory,
        generator: torch.Generator,
        counter: EpisodeCounter,
        alive: Callable[[], None],
        recorded: bool,
    ):
        """`memory`: the rollout to fill, on the device; `recorded`: with CUDA graphs, not operation by operation."""
        self.env, self.policy, self.generator, self.counter, self._alive = env, policy, generator, counter, alive
        self.episodes: list[Episode] = []
        self.env_seconds = self.acting_seconds = 0.0
        self._memory, device = memory, memory.values.device.type
        T, B = memory.rewards.shape
        self._rewards, self._truncation_value = (pinned((T, B), torch.float32, device) for _ in range(2))
        self._dones, self._ends = (pinned((T, B), torch.bool, device) for _ in range(2))
        noise = torch.ones((T + 1, B, env.spec.num_actions), device=memory.values.device)
        self._noise = noise[:T]
        self._groups = [_ActingGroup(group, policy, memory, noise, recorded) for group in env.groups]

    @property
    def observation(self) -> NDArray[Any]:
        """The current observations [B, …]."""
        return np.concatenate([group.envs.memory for group in self._groups])

    @observation.setter
    def observation(self, observation: NDArray[Any]) -> None:
        for group in self._groups:
            group.envs.memory[...] = observation[group.envs.columns]

    def prepare(self) -> None:
        """Record what acting does; it changes nothing."""
        self.policy.refresh()
        for group in self._groups:
            group.act.record()

    @torch.no_grad()
    def collect(self, into: Rollout | None = None) -> Rollout:
        """Act for T steps, into the memory that learning reads; `into`: copy the rollout there, too."""
        self.env_seconds = self.acting_seconds = 0.0
        self.policy.refresh()
        fill_noise(self._noise, self.env.spec.continuous, self.generator)
        self._truncation_value.zero_()
        truncated: list[tuple[int, int, NDArray[Any]]] = []
        T = len(self._rewards)
        for group in self._groups:
            group.step_number.zero_()
        for t in range(T + 1):  # the last time for the values to bootstrap from
            for group in self._groups:
                started = time.perf_counter()
                step = group.envs.receive() if t else None
                received = time.perf_counter()
                group.act()
                if step is not None:  # while the GPU computes
                    truncated += self._keep(t - 1, group.envs, step)
                if t < T:
                    group.envs.send(group.drawn())
                self.env_seconds += received - started
                self.acting_seconds += time.perf_counter() - received
        self._add_values(truncated)
        rewards, ends = self._rewards.numpy(), self._ends.numpy()
        self.episodes = [episode for t in range(T) for episode in self.counter.add(t, rewards[t], ends[t])]
        from_envs = {"rewards": self._rewards, "dones": self._dones, "ends": self._ends}
        from_envs["truncation_value"] = self._truncation_value
        rollout = replace(self._memory.rollout, **from_envs)
        if into is not None:
            for there, here in zip(vars(into).values(), vars(rollout).values(), strict=True):
                there.copy_(here)
        return rollout

    def act_once(self) -> None:
        """Compute actions for the current observations and wait for them: to measure how long it takes."""
        for group in self._groups:
            group.step_number.zero_()
            group.act()
            group.drawn()

    def _keep(self, t: int, envs: EnvGroup, step: Step) -> list[tuple[int, int, NDArray[Any]]]:
        """Keep what a group's step gave; returns the last observations of truncated episodes, by step and env."""
        refuse_infinite(step)
        self._rewards.numpy()[t, envs.columns] = step.rewards
        self._dones.numpy()[t, envs.columns] = step.dones
        self._ends.numpy()[t, envs.columns] = step.episode_ends
        self._alive()
        return [(t, envs.columns.start + index, final) for index, final in step.truncated.items()]

    def _add_values(self, truncated: list[tuple[int, int, NDArray[Any]]]) -> None:
        """The values of what time limits cut off."""
        if truncated:
            steps, envs, finals = zip(*truncated, strict=True)
            batch = torch.from_numpy(np.stack(finals)).to(self._memory.values.device)
            self._truncation_value[list(steps), list(envs)] = self.policy.network(batch)[1].cpu()


def draw_at(outputs: Tensor, noise: Tensor, t: Tensor, continuous: bool) -> tuple[Tensor, Tensor]:
    """Actions [B, …] and their log-probabilities, from a policy's outputs and the noise [T+1, B, …] of step t [1]."""
    return draw(outputs, noise.index_select(0, t).squeeze(0), continuous)


class _ActingGroup:
    """A group of environments and the operations that act for it."""

    def __init__(self, envs: EnvGroup, policy: Computation, memory: RolloutMemory, noise: Tensor, recorded: bool):
        """`noise` [T+1, B, …]: the random numbers that actions are drawn with."""
        self.envs, self._policy, mine, device = envs, policy, envs.columns, memory.values.device
        self._seen = registered(envs.memory, device.type)
        self._observations = torch.zeros_like(self._seen, device=device)
        self._continuous = envs.env.spec.continuous
        self._drawn = pinned((len(self._seen), *envs.env.spec.action_shape), memory.actions.dtype, device.type)
        self._numbers: Actions = self._drawn.numpy()
        self._done = torch.cuda.Event() if device.type == "cuda" else None  # type: ignore[no-untyped-call]
        self.step_number = torch.zeros(1, dtype=torch.int64, device=device)
        self._noise = noise[:, mine]
        self._places = [
            tensor[:, mine] for tensor in (memory.observations, memory.actions, memory.log_probs, memory.values)
        ]
        self._draw = torch.compile(draw_at, dynamic=False) if policy.compiled else draw_at
        self.act = Graph(self._act, recorded, changes=[self.step_number])

    def drawn(self) -> Actions:
        """Wait for the actions."""
        if self._done is not None:
            self._done.record()
            self._done.synchronize()
        return self._numbers

    @torch.no_grad()
    def _act(self) -> None:
        """Draw an action for each env, put everything that learning needs into the rollout and count the step."""
        seen, t = self._observations.copy_(self._seen, non_blocking=True), self.step_number
        outputs, values = self._policy.act(seen)
        actions, log_probs = self._draw(outputs, self._noise, t, self._continuous)
        self._drawn.copy_(actions, non_blocking=True)
        with distinct_writes():
            for place, new in zip(self._places, (seen, actions, log_probs, values), strict=True):
                place.index_copy_(0, t, new.unsqueeze(0))
        t.add_(1)
