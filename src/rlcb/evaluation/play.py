"""Playing episodes with a fixed policy, a quota per environment decided before the first step; results and pictures."""

import contextlib
import time
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from rlcb.config.environment import EnvConfig
from rlcb.console import Console, filled, interval_text, say, warn
from rlcb.envs.base import Actions, EnvSpec, VectorEnv, refuse_infinite
from rlcb.envs.episodes import EpisodeCounter
from rlcb.envs.families import make_env
from rlcb.errors import ResourceError
from rlcb.evaluation.evaluate import Request
from rlcb.evaluation.results import Evaluation, EvaluationFile, evaluation_of
from rlcb.evaluation.video import FPS, MAX_FRAMES, Frame, watch, write_video
from rlcb.networks.distributions import fill_noise, likeliest, pick
from rlcb.signals import StopRequest
from rlcb.words import reward_text

WRITE_EVERY = 5.0  # seconds between partial results
_STREAM = 0x5EED  # separates these random numbers from training's, whatever the seeds
_STREAMS = {"train": 0, "unseen": 1, "pictures": 2}


@dataclass(frozen=True)
class Actor:
    """A policy that chooses actions: the likeliest ones, or drawn from its distribution with the generator."""

    policy: nn.Module
    spec: EnvSpec
    device: str
    generator: torch.Generator | None

    @torch.inference_mode()
    def act(self, observations: NDArray[Any], envs: NDArray[np.int64], num_envs: int) -> Actions:
        """Actions [n, …] for observations [n, …]; `envs` are their places among all `num_envs` envs."""
        outputs = self.policy(torch.from_numpy(observations).to(self.device))[0]
        continuous = self.spec.continuous
        if self.generator is None:
            actions = likeliest(outputs, continuous)
        else:
            # Drawn for all envs at every step: what one env draws does not depend on which others have finished.
            noise = fill_noise(torch.empty((num_envs, self.spec.num_actions)), continuous, self.generator)
            actions = pick(outputs, noise[envs].to(self.device), continuous)
        chosen: Actions = actions.cpu().numpy()
        return chosen


class Tally:
    """The episodes that count, each env's in their order."""

    def __init__(self, quotas: list[int]):
        self.quotas, self.planned = quotas, sum(quotas)
        self.steps = self.finished = 0
        self._episodes: list[list[tuple[float, int, bool | None]]] = [[] for _ in quotas]

    def missing(self, env: int) -> int:
        """Episodes that an env still has to play."""
        return self.quotas[env] - len(self._episodes[env])

    def add(self, env: int, reward: float, length: int, completed: bool | None) -> None:
        """Count one episode."""
        self.finished += 1
        self._episodes[env].append((reward, length, completed))

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
    tally, counter = Tally(quotas), EpisodeCounter(len(quotas))
    envs = active = np.arange(env.num_envs)  # `envs`: numbers of those in `env`; `active`: places with a quota left
    observations = env.observe()
    try:
        while len(active):
            actions = np.zeros((env.num_envs, *env.spec.action_shape), env.spec.action_dtype)
            actions[active] = actor.act(observations[active], envs[active], len(quotas))
            step = env.step(actions)
            observations = step.observations
            refuse_infinite(step)
            tally.steps += len(active)
            rewards, dones = np.zeros(len(quotas), np.float32), np.zeros(len(quotas), np.bool_)
            rewards[envs], dones[envs] = step.rewards, step.episode_ends
            ended = [episode for episode in counter.add(0, rewards, dones) if tally.missing(episode.env)]
            if ended:
                completed = env.completed()
                for episode in ended:
                    success = None if completed is None else bool(completed[envs == episode.env])
                    tally.add(episode.env, episode.value, episode.length, success)
                active = np.flatnonzero([tally.missing(number) for number in envs.tolist()])
            if 0 < 2 * len(active) <= env.num_envs:
                # Half of them or more are finished: stepping those too would cost more than making a smaller set.
                env, envs = env.only(active.tolist()), envs[active]
                observations, active = env.observe(), np.arange(env.num_envs)
            yield tally
    finally:
        env.close()


@dataclass
class Evaluator:
    """Plays a policy on one set of levels after the other and stores the results."""

    request: Request
    policy: nn.Module
    spec: EnvSpec
    device: str
    threads: int
    file: EvaluationFile
    stop: StopRequest
    results: list[Evaluation] = field(default_factory=list)
    _gaps: list[dict[str, Any]] = field(default_factory=list)
    _cut: bool = False  # something that was asked for was left out because of a signal

    def actor(self, seed: int) -> Actor:
        """The policy with the requested choice of actions: the likeliest, or drawn with this seed."""
        generator = None if self.request.deterministic else torch.Generator().manual_seed(seed)
        return Actor(self.policy, self.spec, self.device, generator)

    def track(self, levels: str, config: EnvConfig, title: str) -> None:
        """Play all episodes on these levels, write and print their metrics; a signal ends it early."""
        if self._cut or self.stop.signal:
            self._cut = True
            return
        num_envs = self.request.num_envs or default_num_envs(self.request.num_episodes)
        acting, seed = seeds_of(self.request.seed, _STREAMS[levels])
        env = make_env(config, num_envs, seed, self.threads if self.threads > 1 else 0)
        started = written = time.perf_counter()
        stored = 0
        with (
            contextlib.closing(Console("Evaluating")) as console,
            contextlib.closing(play(env, self.actor(acting), quotas_of(self.request.num_episodes, num_envs))) as steps,
        ):
            for tally in steps:
                now = time.perf_counter()
                console.count(tally.finished, tally.planned, "episodes")
                self._cut = self.stop.signal is not None and tally.finished < tally.planned
                if self._cut:
                    break
                if now - written >= WRITE_EVERY and stored < tally.finished < tally.planned:
                    self.file.put(evaluation_of(self.request, levels, config, tally, now - started))
                    written, stored = now, tally.finished
        if tally.finished:
            evaluation = evaluation_of(self.request, levels, config, tally, time.perf_counter() - started)
            self._gaps = self.file.put(evaluation)
            self.results.append(evaluation)
            say(filled("evaluation.txt", title=title, planned=tally.planned, **evaluation))

    def conclude(self, env: EnvConfig) -> float | None:
        """Print the difference between train and unseen levels, which is returned, and where the results are."""
        found = None
        for gap in self._gaps:
            if self.request.levels == "both" and [gap["env"], gap["policy"]] == [env.name, self.request.policy]:
                found, interval = float(gap["gap"]), gap["ci95"]
                shown = reward_text(found, interval[1] - interval[0] if interval else None)
                say(f"Generalisation Gap (train - unseen): {shown} (95% interval {interval_text(interval)})")
        if not self.results:
            say("Interrupted before any episode finished; nothing was written")
        elif self.file.problem is None:
            say(f"{'Interrupted. ' if self._cut else ''}Results saved to: {self.file.path}")
        return found

    def film(self, path: Path, config: EnvConfig) -> bool:
        """Play some more episodes into a video file, unless a signal came; whether there is a video."""
        if self.stop.signal:
            self._cut = True
            return False
        count = write_video(path, self.frames(config))
        whole = "" if count < MAX_FRAMES else ", cut there"
        say(f"Video saved to: {path} ({count / FPS:.0f} s{whole})")
        return True

    def frames(self, config: EnvConfig) -> Iterator[Frame]:
        """Pictures of some episodes, which are not counted, as long as no signal comes."""
        acting, seed = seeds_of(self.request.seed, _STREAMS["pictures"])
        with contextlib.closing(make_env(config, 1, seed, num_threads=0, pictured=True)) as env:
            for frame in watch(env, self.actor(acting)):
                yield frame
                if self.stop.signal:
                    self._cut = True
                    return

    def signal(self) -> int | None:
        """The signal that ended it early; results that were printed but could not be written raise ResourceError."""
        if self.file.problem:
            problem = f"{self.file.problem}; use --output FILE to write the results elsewhere"
            if not self._cut:
                raise ResourceError(problem)
            warn(problem)
        return self.stop.signal if self._cut else None
