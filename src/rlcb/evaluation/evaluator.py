"""Plays a policy's episodes, then writes and prints their metrics; also shows or films some."""

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

from rlcb.config.schema import EnvConfig
from rlcb.console import Console, filled, interval_text, warn
from rlcb.envs.families import make_env
from rlcb.errors import ResourceError
from rlcb.evaluation.play import Actor, default_num_envs, play, quotas_of, seeds_of
from rlcb.evaluation.request import Request
from rlcb.evaluation.results import EvaluationFile, evaluation_of
from rlcb.evaluation.video import FPS, MAX_FRAMES, Frame, watch, write_video
from rlcb.signals import StopRequest

WRITE_EVERY = 5.0  # seconds between partial results
_STREAMS = {"train": 0, "unseen": 1, "pictures": 2}


@dataclass
class Evaluator:
    """Plays a policy on one set of levels after the other and stores the results."""

    request: Request
    policy: nn.Module
    num_actions: int
    device: str
    threads: int
    file: EvaluationFile
    stop: StopRequest
    _gaps: list[dict[str, Any]] = field(default_factory=list)
    _stored: bool = False
    _cut: bool = False  # something that was asked for was left out because of a signal

    def actor(self, seed: int) -> Actor:
        """The policy with the requested choice of actions: the likeliest, or drawn with this seed."""
        generator = None if self.request.deterministic else torch.Generator().manual_seed(seed)
        return Actor(self.policy, self.num_actions, self.device, generator)

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
            self._stored = True
            print(filled("evaluation.txt", title=title, planned=tally.planned, **evaluation), flush=True)

    def conclude(self, env: EnvConfig) -> None:
        """Print the difference between train and unseen levels, and where the results are."""
        for gap in self._gaps:
            if self.request.levels == "both" and [gap["env"], gap["policy"]] == [env.name, self.request.policy]:
                interval = interval_text(gap["ci95"], ".2f")
                print(f"Generalization Gap (train - unseen): {gap['gap']:.2f} (95% interval {interval})", flush=True)
        if not self._stored:
            print("Interrupted before an episode had finished: nothing was written", flush=True)
        elif self.file.problem is None:
            print(f"{'Interrupted. ' if self._cut else ''}Results saved to: {self.file.path}", flush=True)

    def film(self, path: Path, config: EnvConfig) -> None:
        """Play some more episodes into a video file, unless a signal came."""
        if self.stop.signal:
            self._cut = True
            return
        count = write_video(path, self.frames(config))
        whole = "" if count < MAX_FRAMES else ", cut there"
        print(f"Video saved to: {path} ({count / FPS:.0f} s{whole})", flush=True)

    def frames(self, config: EnvConfig) -> Iterator[Frame]:
        """Pictures of some episodes, which are not counted, as long as no signal comes."""
        acting, seed = seeds_of(self.request.seed, _STREAMS["pictures"])
        with contextlib.closing(make_env(config, 1, seed, num_threads=0, pictured=True)) as env:
            for frame in watch(env, self.actor(acting)):
                yield frame
                if self.stop.signal:
                    self._cut = True
                    return

    def exit_code(self) -> int:
        """0, or the code of a signal; results that were printed but could not be written raise ResourceError."""
        if self.file.problem:
            problem = f"{self.file.problem}; --output FILE writes the results elsewhere"
            if not self._cut:
                raise ResourceError(problem)
            warn(problem)
        return self.stop.exit_code if self._cut else 0
