"""Playing episodes with a fixed policy: a quota per environment, decided before the first step."""

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from rlcb.envs.base import VectorEnv, refuse_infinite
from rlcb.envs.episodes import Episode, EpisodeCounter

_STREAM = 0x5EED  # separates these random numbers from training's, whatever the seeds


@dataclass(frozen=True)
class Actor:
    """A policy that chooses actions: the likeliest ones, or drawn from its distribution with the generator."""

    policy: nn.Module
    num_actions: int
    device: str
    generator: torch.Generator | None

    @torch.inference_mode()
    def act(self, observations: NDArray[Any], envs: NDArray[np.int64], num_envs: int) -> NDArray[np.int64]:
        """Actions [n] for observations [n, …]; `envs` are their places among all `num_envs` envs."""
        scores = self.policy(torch.from_numpy(observations).to(self.device))[0]
        if self.generator is not None:
            # Drawn for all envs at every step: what one env draws does not depend on which others have finished.
            race = torch.empty((num_envs, self.num_actions)).exponential_(generator=self.generator)
            scores = torch.softmax(scores, dim=1).div_(race[envs].to(self.device))
        return torch.argmax(scores, dim=1).cpu().numpy()


class Tally:
    """The episodes that count, each env's in their order."""

    def __init__(self, quotas: list[int]):
        self.quotas = quotas
        self.steps = 0
        self.finished = 0
        self._episodes: list[list[tuple[float, int, bool | None]]] = [[] for _ in quotas]

    def missing(self, env: int) -> int:
        """Episodes that an env still has to play."""
        return self.quotas[env] - len(self._episodes[env])

    def add(self, env: int, reward: float, length: int, completed: bool | None) -> None:
        """Count one episode."""
        self.finished += 1
        self._episodes[env].append((reward, length, completed))

    @property
    def planned(self) -> int:
        """Episodes to play."""
        return sum(self.quotas)

    @property
    def rewards(self) -> list[float]:
        """Returns of the finished episodes, env by env."""
        return [reward for episodes in self._episodes for reward, _, _ in episodes]

    @property
    def lengths(self) -> list[int]:
        """Lengths of the same episodes in steps."""
        return [length for episodes in self._episodes for _, length, _ in episodes]

    @property
    def completed(self) -> list[bool]:
        """Whether each of them completed its level; empty where there are no levels."""
        return [done for episodes in self._episodes for _, _, done in episodes if done is not None]


def default_num_envs(episodes: int, at_most: int = 128) -> int:
    """The largest number of envs that shares the episodes evenly; where that is small, `at_most`."""
    even = max(n for n in range(1, min(episodes, at_most) + 1) if episodes % n == 0)
    return even if even >= min(episodes, at_most // 4) else at_most


def quotas_of(episodes: int, num_envs: int) -> list[int]:
    """How many episodes each env plays: equal shares; the first envs play one of the rest each."""
    share, rest = divmod(episodes, num_envs)
    return [share + 1 if index < rest else share for index in range(num_envs)]


def seeds_of(seed: int, stream: int) -> tuple[int, int]:
    """Seeds for acting and for the environments of one stream of episodes; Procgen takes 31 bits."""
    acting, envs = np.random.SeedSequence(seed, spawn_key=(_STREAM, stream)).generate_state(2)
    return int(acting), int(envs >> 1)


def play(env: VectorEnv, actor: Actor, quotas: list[int]) -> Generator[Tally]:
    """Play until every env has filled its quota; yields the same tally after every step. Closes `env`.

    Counting the first episodes to finish would prefer short ones. A quota per env takes every episode that was begun.
    """
    tally, counter = Tally(quotas), EpisodeCounter(env.num_envs)
    envs = active = np.arange(env.num_envs)  # `envs`: numbers of those in `env`; `active`: places with a quota left
    observations = env.observe()
    try:
        while len(active):
            actions = np.zeros(env.num_envs, np.int64)
            actions[active] = actor.act(observations[active], envs[active], len(quotas))
            step = env.step(actions)
            observations = step.observations
            refuse_infinite(step)
            tally.steps += len(active)
            ended = counter.add(0, step.rewards, step.dones)
            if ended:
                _count(ended, envs, tally, env.completed())
                active = np.flatnonzero([tally.missing(number) for number in envs.tolist()])
            if 0 < 2 * len(active) <= env.num_envs:
                # Half of them or more are finished: stepping those too would cost more than making a smaller set.
                env, counter, envs = env.only(active.tolist()), _counter_of(counter, active), envs[active]
                observations, active = env.observe(), np.arange(env.num_envs)
            yield tally
    finally:
        env.close()


def _count(ended: list[Episode], envs: NDArray[np.int64], tally: Tally, completed: NDArray[np.bool_] | None) -> None:
    """Add the episodes to the tally that belong to a quota."""
    for episode in ended:
        number = int(envs[episode.env])
        if tally.missing(number):
            success = None if completed is None else bool(completed[episode.env])
            tally.add(number, episode.value, episode.length, success)


def _counter_of(counter: EpisodeCounter, places: NDArray[np.int64]) -> EpisodeCounter:
    """A counter that continues some of another's envs."""
    smaller = EpisodeCounter(len(places))
    returns, lengths = counter.state()
    smaller.load([returns[place] for place in places.tolist()], [lengths[place] for place in places.tolist()])
    return smaller
